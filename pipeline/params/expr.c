/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/expr.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/hide_secrets.h"
#include "pipeline/params/expr_tree.h"
#include "pipeline/params/token.h"

enum {
    CHUNK_BYTES = 16 << 10, /* first chunk; each next one is twice as large, up to CHUNK_MAX */
    CHUNK_MAX = 1 << 20,
    CARET_BEFORE = 60, /* characters of a long line shown before the caret */
    CARET_AFTER = 30,
    MESSAGE_MAX = 520 /* leaves room for the line and the caret in mr_status.message */
};

struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t data[];
};

struct mr__expr_tree {
    atomic_size_t refs;
    struct chunk *chunks; /* the newest first */
    char *text;
    size_t text_size;
};

mr__expr_tree *mr__expr_tree_new(const char *text, size_t size)
{
    mr__expr_tree *t = mr_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    atomic_init(&t->refs, 1);
    t->text = mr_malloc(size + 1);
    if (!t->text) {
        mr_free(t);
        return NULL;
    }
    if (size)
        memcpy(t->text, text, size);
    t->text[size] = '\0';
    t->text_size = size;
    return t;
}

void mr__expr_tree_unref(mr__expr_tree *t)
{
    /* Release pairs with the acquire of the thread that frees. */
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (t->chunks) {
        struct chunk *next = t->chunks->next;
        mr_free(t->chunks);
        t->chunks = next;
    }
    mr_free(t->text);
    mr_free(t);
}

const char *mr__expr_tree_text(const mr__expr_tree *t)
{
    return t->text;
}

void *mr__expr_alloc(mr__expr_tree *t, size_t bytes)
{
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct chunk *c = t->chunks;
    if (!c || c->size - c->used < bytes) {
        size_t size = c ? 2 * c->size : CHUNK_BYTES;
        if (size > CHUNK_MAX)
            size = CHUNK_MAX;
        if (size < bytes)
            size = bytes;
        c = mr_malloc(sizeof *c + size);
        if (!c)
            return NULL;
        *c = (struct chunk){.next = t->chunks, .size = size};
        t->chunks = c;
    }
    void *p = (char *)c->data + c->used;
    c->used += bytes;
    return memset(p, 0, bytes);
}

const mr_expr *mr_expr_ref(const mr_expr *e)
{
    /* Relaxed: the caller already holds a reference. */
    if (e)
        atomic_fetch_add_explicit(&e->tree->refs, 1, memory_order_relaxed);
    return e;
}

void mr_expr_unref(const mr_expr *e)
{
    if (e)
        mr__expr_tree_unref(e->tree);
}

const char *mr_expr_source(const mr_expr *e, size_t *size)
{
    *size = e->tree->text_size;
    return e->tree->text;
}

size_t mr_expr_place(const mr_expr *e)
{
    if (e->kind != MR_EX_METHOD)
        return e->begin;
    /* Only closing brackets and the dot are between the receiver and the name. */
    const mr__expr_tree *t = e->tree;
    mr__token word = {.end = e->children[0]->end};
    do
        word = mr__token_at(t->text, t->text_size, word.end);
    while (word.kind == TOK_OP);
    return word.begin;
}

const char *mr_expr_operator(const mr_expr *e)
{
    static const char *const names[128] = {
        ['+'] = "+",  ['-'] = "-",   ['*'] = "*",  ['/'] = "/",  ['%'] = "%",  ['f'] = "//",
        ['p'] = "**", ['='] = "==",  ['!'] = "!=", ['<'] = "<",  ['l'] = "<=", ['>'] = ">",
        ['g'] = ">=", ['a'] = "and", ['o'] = "or", ['n'] = "not"};
    return names[e->op & 127];
}

/* ---- messages ---- */

static bool continues_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The part of the line around `at` to show, cut at character boundaries. */
static void visible_part(const char *text, size_t begin, size_t end, size_t at, size_t *from,
                         size_t *to)
{
    *from = begin;
    *to = end;
    if (end - begin <= CARET_BEFORE + CARET_AFTER)
        return;
    if (at - begin > CARET_BEFORE)
        *from = at - CARET_BEFORE;
    if (end - at > CARET_AFTER)
        *to = at + CARET_AFTER;
    while (*from < at && continues_character(text[*from]))
        ++*from;
    while (*to > at && *to < end && continues_character(text[*to]))
        --*to;
}

static void show_place(char *out, size_t room, const char *text, size_t begin, size_t end,
                       size_t at)
{
    size_t from, to, n = 0;
    visible_part(text, begin, end, at, &from, &to);
    n += (size_t)snprintf(out, room, "\n  %s", from > begin ? "..." : "");
    size_t column = n - 1;
    for (size_t i = from; i < to && n + 1 < room; i++) {
        unsigned char c = (unsigned char)text[i];
        out[n++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
        if (i < at && !continues_character(text[i]))
            column++;
    }
    out[n] = '\0';
    if (room - n > column + 8)
        snprintf(out + n, room - n, "%s\n%*s^", to < end ? "..." : "", (int)column, "");
}

mr_code mr_expr_fail(mr_status *st, mr_code code, const char *text, size_t size, size_t at,
                     const char *fmt, ...)
{
    char message[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (!text)
        return mr_fail(st, code, "%s", message);
    if (at > size)
        at = size;
    size_t line = 1, begin = 0, column = 1;
    for (size_t i = 0; i < at; i++)
        if (text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    for (size_t i = begin; i < at; i++)
        column += !continues_character(text[i]);
    const char *newline = memchr(text + at, '\n', size - at);
    size_t end = newline ? (size_t)(newline - text) : size;
    char place[3 * (CARET_BEFORE + CARET_AFTER)] = "";
    /* Of the whole line, since a part of it may begin within a URL. */
    char *shown = mr_malloc(end - begin + 1);
    if (shown) {
        for (size_t i = begin; i < end; i++)
            shown[i - begin] = text[i] ? text[i] : ' ';
        shown[end - begin] = '\0';
        mr__hide_secrets(shown, 0);
        show_place(place, sizeof place, shown, 0, end - begin, at - begin);
    }
    mr_free(shown);
    mr_fail(st, code, "line %zu, column %zu: %s%s", line, column, message, place);
    if (st)
        st->offset = (int64_t)at;
    return code;
}

mr_code mr_expr_fail_at(mr_status *st, const mr_expr *e, const char *fmt, ...)
{
    char message[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    const mr__expr_tree *t = e->tree;
    return mr_expr_fail(st, MR_INVALID_ARGUMENT, t->text, t->text_size, mr_expr_place(e), "%s",
                        message);
}
