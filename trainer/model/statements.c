/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/statements.h"
#include <ctype.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

enum { MAX_STATEMENTS = 1 << 16 };

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (isspace((unsigned char)*p) || *p == '#')) {
        if (*p == '#')
            while (p < end && *p != '\n')
                p++;
        else
            p++;
    }
    return p;
}

/* Finds the ';' that ends the statement, or the end of the text. Strings and comments may contain
 * any. */
static const char *find_end(const char *p, const char *end)
{
    for (; p < end && *p != ';'; p++) {
        if (*p == '#')
            while (p + 1 < end && p[1] != '\n')
                p++;
        else if (*p == '"' || *p == '\'') {
            char quote = *p++;
            while (p < end && *p != quote)
                p += *p == '\\' && p + 1 < end ? 2 : 1;
            if (p >= end)
                return end;
        }
    }
    return p < end ? p : end;
}

/* Parses "NAME =" before an expression: moves *p past it. */
static size_t read_name(const char **p, const char *end)
{
    const char *from = *p, *at = from;
    if (at < end && (isalpha((unsigned char)*at) || *at == '_'))
        while (at < end && (isalnum((unsigned char)*at) || *at == '_'))
            at++;
    size_t n = (size_t)(at - from);
    at = skip_space(at, end);
    if (n == 0 || at >= end || *at != '=' || (at + 1 < end && (at[1] == '=' || at[1] == '>')))
        return 0;
    *p = at + 1;
    return n;
}

/* Blanks everything before the expression, so that positions in it are positions in the text. */
static mr_code parse_at(const char *text, size_t from, size_t to, const mr_expr **out,
                        mr_status *st)
{
    char *copy = mr_malloc(to + 1);
    if (!copy)
        return mr_fail_memory(st, to, "a model's text");
    memcpy(copy, text, to);
    copy[to] = '\0';
    for (size_t i = 0; i < from; i++)
        if (copy[i] != '\n')
            copy[i] = ' ';
    mr_code rc = mr_expr_parse(copy, to, out, st);
    mr_free(copy);
    return rc;
}

static mr_code add(mr__statements *s, const char *text, const char *from, const char *to,
                   mr_status *st)
{
    MR_TRY(MR_GROW(s->v, s->capacity, s->n + 1, MAX_STATEMENTS, "a model's text", st));
    mr__statement *t = &s->v[s->n];
    *t = (mr__statement){0};
    const char *name = from, *at = from;
    size_t n = read_name(&at, to);
    MR_TRY(parse_at(text, (size_t)(at - text), (size_t)(to - text), &t->e, st));
    s->n++;
    if (n == 0)
        return MR_OK;
    if (!(t->name = mr_malloc(n + 1)))
        return mr_fail_memory(st, n, "a model's text");
    memcpy(t->name, name, n);
    t->name[n] = '\0';
    return MR_OK;
}

mr_code mr__statements_parse(const char *text, mr__statements *out, mr_status *st)
{
    text = text ? text : "";
    const char *end = text + strlen(text), *p = skip_space(text, end);
    mr_code rc = MR_OK;
    *out = (mr__statements){0};
    do {
        const char *stop = find_end(p, end);
        rc = add(out, text, p, stop, st);
        p = stop < end ? skip_space(stop + 1, end) : end;
    } while (rc == MR_OK && p < end);
    if (rc != MR_OK)
        mr__statements_drop(out);
    return rc;
}

void mr__statements_drop(mr__statements *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mr_free(s->v[i].name);
        mr_expr_unref(s->v[i].e);
    }
    mr_free(s->v);
    *s = (mr__statements){0};
}
