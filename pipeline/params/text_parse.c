/* SPDX-License-Identifier: Apache-2.0 */
/* A recursive descent parser for the grammar of docs/grammar.md. Chains of methods, indices and
 * operators of one level are loops. Recursive constructs (brackets, lambdas, signs, `if`) count
 * their level, which bounds the use of the stack. Parsed children wait on a stack of items until
 * the parent knows their number. */
#include "pipeline/params/expr.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/hide_secrets.h"
#include "pipeline/params/expr_tree.h"
#include "pipeline/params/hints.h"
#include "pipeline/params/literal.h"
#include "pipeline/params/token.h"

/* Precedence of operators, lowest first. */
enum { BIND_OR = 1, BIND_AND, BIND_NOT, BIND_COMPARE, BIND_ADD, BIND_MULTIPLY };

enum { SHOWN = 40 /* bytes of a token that a message quotes */ };

struct item {
    mr_expr *e;
    char *key; /* may be NULL */
    size_t at; /* byte of the key, or of the item without one */
};

struct parser {
    mr__expr_tree *tree;
    const char *text; /* the tree's copy */
    size_t size;
    mr__token t; /* the next token */
    size_t last; /* end of the previous token */
    int level;
    struct item *items;
    size_t n_items, capacity;
    mr_status *st;
};

static mr_code parse_expr(struct parser *p, mr_expr **out);
static mr_code parse_unary(struct parser *p, mr_expr **out);

/* ---- tokens ---- */

static mr_code no_memory(struct parser *p)
{
    return mr_fail_memory(p->st, p->size, "a syntax tree");
}

/* Fails at the next token, naming what was expected and what was found. */
static mr_code expected(struct parser *p, const char *what)
{
    const mr__token *t = &p->t;
    size_t n = t->end - t->begin;
    char found[SHOWN + 24], token[1024];
    snprintf(token, sizeof token, "%.*s", (int)(n < sizeof token ? n : sizeof token),
             p->text + t->begin);
    mr__hide_secrets(token, 0); /* before it is cut */
    snprintf(found, sizeof found, ", found %.*s%s", SHOWN, token, n > SHOWN ? "..." : "");
    bool bad = t->kind == TOK_BAD;
    return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, t->begin, "%s%s%s%s",
                        bad ? "" : "expected ", bad ? t->why : what,
                        bad                  ? ""
                        : t->kind == TOK_END ? ", found the end of the text"
                                             : found,
                        mr__hint(p->text, p->size, t->begin));
}

static void advance(struct parser *p)
{
    p->last = p->t.end;
    p->t = mr__token_at(p->text, p->size, p->t.end);
}

static bool at_op(const struct parser *p, char op)
{
    return p->t.kind == TOK_OP && p->t.op == op;
}

static bool at_word(const struct parser *p, const char *w)
{
    return p->t.kind == TOK_WORD && mr__token_is(&p->t, p->text, w);
}

static mr__token after(const struct parser *p, const mr__token *t)
{
    return mr__token_at(p->text, p->size, t->end);
}

/* Consumes op, which closes the bracket at byte `open`. */
static mr_code close_bracket(struct parser *p, char op, size_t open)
{
    if (!at_op(p, op)) {
        size_t line = 1;
        for (size_t i = 0; i < open; i++)
            line += p->text[i] == '\n';
        char what[80];
        snprintf(what, sizeof what, "',' or '%c' to close the '%c' of line %zu", op, p->text[open],
                 line);
        return expected(p, what);
    }
    advance(p);
    return MR_OK;
}

static mr_code enter(struct parser *p)
{
    if (++p->level > MR_EXPR_MAX_DEPTH)
        return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, p->t.begin,
                            "too deeply nested; expected at most %d levels", MR_EXPR_MAX_DEPTH);
    return MR_OK;
}

/* ---- nodes ---- */

static mr_code new_node(struct parser *p, mr_expr_kind kind, size_t begin, mr_expr **out)
{
    mr_expr *e = mr__expr_alloc(p->tree, sizeof *e);
    if (!e)
        return no_memory(p);
    e->tree = p->tree;
    e->kind = kind;
    e->depth = 1;
    e->begin = (uint32_t)begin;
    e->end = (uint32_t)p->last;
    *out = e;
    return MR_OK;
}

static mr_code copy_word(struct parser *p, const mr__token *t, char **out, size_t *size)
{
    size_t n = t->end - t->begin;
    *out = mr__expr_alloc(p->tree, n + 1);
    if (!*out)
        return no_memory(p);
    memcpy(*out, p->text + t->begin, n);
    if (size)
        *size = n;
    return MR_OK;
}

static mr_code decode_string(struct parser *p, char **out, size_t *size)
{
    size_t bad_at = 0;
    const char *why;
    *out = mr__expr_alloc(p->tree, p->t.end - p->t.begin);
    if (!*out)
        return no_memory(p);
    *size = mr__token_string(p->text, p->t.begin, p->t.end, *out, &bad_at, &why);
    if (why)
        return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, bad_at, "%s", why);
    return MR_OK;
}

static mr_code push(struct parser *p, mr_expr *e, char *key, size_t at)
{
    MR_TRY(
        MR_GROW(p->items, p->capacity, p->n_items + 1, MR_EXPR_MAX_TEXT, "a syntax tree", p->st));
    p->items[p->n_items++] = (struct item){.e = e, .key = key, .at = at};
    return MR_OK;
}

/* Rejects repeated keys, by means of a hash table, since there may be many items. */
static mr_code check_keys(struct parser *p, size_t base)
{
    size_t n = p->n_items - base, slots = 4;
    while (slots < 2 * n)
        slots *= 2;
    struct item **table = mr__expr_alloc(p->tree, slots * sizeof(struct item *));
    if (!table)
        return no_memory(p);
    for (size_t i = base; i < p->n_items; i++) {
        struct item *item = &p->items[i];
        if (!item->key)
            continue;
        uint64_t hash = mr__fnv1a(MR__FNV_BASIS, item->key, strlen(item->key));
        size_t slot = (size_t)hash & (slots - 1);
        for (; table[slot]; slot = (slot + 1) & (slots - 1))
            if (strcmp(table[slot]->key, item->key) == 0)
                return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, item->at,
                                    "expected each name once, found %.40s twice", item->key);
        table[slot] = item;
    }
    return MR_OK;
}

/* Makes the items from `base` on the children of e. */
static mr_code adopt(struct parser *p, mr_expr *e, size_t base)
{
    size_t n = p->n_items - base;
    bool keys = false;
    e->end = (uint32_t)p->last;
    e->n = n;
    e->children = mr__expr_alloc(p->tree, n * sizeof *e->children);
    if (!e->children)
        return no_memory(p);
    for (size_t i = 0; i < n; i++) {
        const struct item *item = &p->items[base + i];
        e->children[i] = item->e;
        keys |= item->key != NULL;
        if (item->e->depth >= e->depth)
            e->depth = item->e->depth + 1;
    }
    if (e->depth > MR_EXPR_MAX_DEPTH)
        return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, p->last,
                            "too deeply nested; expected at most %d levels (each method of a "
                            "chain is one)",
                            MR_EXPR_MAX_DEPTH);
    if (keys) {
        MR_TRY(check_keys(p, base));
        e->keys = mr__expr_alloc(p->tree, n * sizeof *e->keys);
        if (!e->keys)
            return no_memory(p);
        e->key_begins = mr__expr_alloc(p->tree, n * sizeof *e->key_begins);
        if (!e->key_begins)
            return no_memory(p);
        for (size_t i = 0; i < n; i++) {
            const struct item *item = &p->items[base + i];
            e->keys[i] = item->key;
            e->key_begins[i] = item->key ? (uint32_t)item->at : 0;
        }
    }
    p->n_items = base;
    return MR_OK;
}

/* Makes a node with one or two children; b may be NULL. */
static mr_code new_pair(struct parser *p, mr_expr_kind kind, char op, size_t begin, mr_expr *a,
                        mr_expr *b, mr_expr **out)
{
    size_t base = p->n_items;
    MR_TRY(new_node(p, kind, begin, out));
    (*out)->op = op;
    MR_TRY(push(p, a, NULL, a->begin));
    if (b)
        MR_TRY(push(p, b, NULL, b->begin));
    return adopt(p, *out, base);
}

/* ---- atoms ---- */

static mr_code parse_int(struct parser *p, mr_expr *e, bool negative)
{
    uint64_t v = 0, limit = (uint64_t)INT64_MAX + negative;
    for (size_t i = p->t.begin; i < p->t.end; i++) {
        uint64_t digit = (uint64_t)(p->text[i] - '0');
        if (v > (limit - digit) / 10)
            return mr_expr_fail(p->st, MR_INVALID_ARGUMENT, p->text, p->size, p->t.begin,
                                "expected an integer within int64 (-2**63 to 2**63 - 1); write a "
                                "float with a point or an exponent");
        v = v * 10 + digit;
    }
    e->i = negative ? (int64_t)(0 - v) : (int64_t)v;
    return MR_OK;
}

/* Parses a number; if negative, its sign is at `begin`. */
static mr_code parse_number(struct parser *p, size_t begin, bool negative, mr_expr **out)
{
    mr_expr_kind kind = p->t.kind == TOK_INT ? MR_EX_INT : MR_EX_FLOAT;
    MR_TRY(new_node(p, kind, begin, out));
    if (kind == MR_EX_INT)
        MR_TRY(parse_int(p, *out, negative));
    else
        (*out)->f = (negative ? -1 : 1) * mr__literal_parse(p->text + p->t.begin, NULL);
    advance(p);
    (*out)->end = (uint32_t)p->last;
    return MR_OK;
}

static mr_code parse_string(struct parser *p, mr_expr **out)
{
    MR_TRY(new_node(p, MR_EX_STRING, p->t.begin, out));
    MR_TRY(decode_string(p, &(*out)->text, &(*out)->text_size));
    advance(p);
    (*out)->end = (uint32_t)p->last;
    return MR_OK;
}

/* Parses an optional key= before an argument. */
static mr_code parse_key(struct parser *p, char **key)
{
    *key = NULL;
    mr__token next = after(p, &p->t);
    if (p->t.kind != TOK_NAME || next.kind != TOK_OP || next.op != TOK_ASSIGN)
        return MR_OK;
    MR_TRY(copy_word(p, &p->t, key, NULL));
    advance(p);
    advance(p);
    return MR_OK;
}

/* Parses "(" arguments ")" and pushes the arguments. */
static mr_code parse_arguments(struct parser *p)
{
    size_t open = p->t.begin;
    bool keyed = false;
    if (!at_op(p, '('))
        return expected(p, "'(' and arguments");
    advance(p);
    while (!at_op(p, ')')) {
        size_t at = p->t.begin;
        char *key;
        mr_expr *e;
        MR_TRY(parse_key(p, &key));
        if (keyed && !key)
            return expected(p, "name=value: positional arguments come first");
        keyed = key != NULL;
        MR_TRY(parse_expr(p, &e));
        MR_TRY(push(p, e, key, at));
        if (!at_op(p, ','))
            break;
        advance(p);
    }
    return close_bracket(p, ')', open);
}

static mr_code parse_name(struct parser *p, mr_expr **out)
{
    mr__token name = p->t;
    size_t base = p->n_items;
    advance(p);
    MR_TRY(new_node(p, at_op(p, '(') ? MR_EX_CALL : MR_EX_NAME, name.begin, out));
    MR_TRY(copy_word(p, &name, &(*out)->text, &(*out)->text_size));
    if ((*out)->kind == MR_EX_NAME)
        return MR_OK;
    MR_TRY(parse_arguments(p));
    return adopt(p, *out, base);
}

/* Parses values up to the closing bracket, and pushes them. */
static mr_code parse_values(struct parser *p, char closing)
{
    size_t open = p->t.begin;
    advance(p);
    while (!at_op(p, closing)) {
        mr_expr *e;
        MR_TRY(parse_expr(p, &e));
        MR_TRY(push(p, e, NULL, e->begin));
        if (!at_op(p, ','))
            break;
        advance(p);
    }
    return close_bracket(p, closing, open);
}

static mr_code parse_list(struct parser *p, mr_expr **out)
{
    size_t base = p->n_items, begin = p->t.begin;
    MR_TRY(parse_values(p, ']'));
    MR_TRY(new_node(p, MR_EX_LIST, begin, out));
    return adopt(p, *out, base);
}

/* Parentheses around a single value only group. */
static mr_code parse_parentheses(struct parser *p, mr_expr **out)
{
    size_t base = p->n_items, begin = p->t.begin;
    MR_TRY(parse_values(p, ')'));
    if (p->n_items == base + 1) {
        *out = p->items[base].e;
        p->n_items = base;
        return MR_OK;
    }
    MR_TRY(new_node(p, MR_EX_TUPLE, begin, out));
    return adopt(p, *out, base);
}

static mr_code parse_record(struct parser *p, mr_expr **out)
{
    size_t base = p->n_items, begin = p->t.begin;
    advance(p);
    do {
        size_t at = p->t.begin, length;
        char *key;
        mr_expr *e;
        if (p->n_items > base && at_op(p, '}'))
            break;
        if (p->t.kind != TOK_STRING)
            return expected(p, "a component's name in quotes, as in {\"name\": value}");
        MR_TRY(decode_string(p, &key, &length));
        if (strlen(key) != length)
            return expected(p, "a name that has no NUL byte");
        advance(p);
        if (!at_op(p, ':'))
            return expected(p, "':' and the component's value");
        advance(p);
        MR_TRY(parse_expr(p, &e));
        MR_TRY(push(p, e, key, at));
        if (!at_op(p, ','))
            break;
        advance(p);
    } while (true);
    MR_TRY(close_bracket(p, '}', begin));
    MR_TRY(new_node(p, MR_EX_RECORD, begin, out));
    return adopt(p, *out, base);
}

static mr_code parse_word(struct parser *p, mr_expr **out)
{
    static const struct {
        const char *word;
        mr_expr_kind kind;
        int value;
    } words[] = {{"true", MR_EX_BOOL, 1},
                 {"false", MR_EX_BOOL, 0},
                 {"none", MR_EX_NONE, 0},
                 {"auto", MR_EX_AUTO, 0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (at_word(p, words[i].word)) {
            size_t begin = p->t.begin;
            advance(p);
            MR_TRY(new_node(p, words[i].kind, begin, out));
            (*out)->i = words[i].value;
            return MR_OK;
        }
    return expected(p, "a value");
}

static mr_code parse_atom(struct parser *p, mr_expr **out)
{
    switch (p->t.kind) {
    case TOK_INT:
    case TOK_FLOAT:
        return parse_number(p, p->t.begin, false, out);
    case TOK_STRING:
        return parse_string(p, out);
    case TOK_NAME:
        return parse_name(p, out);
    case TOK_WORD:
        return parse_word(p, out);
    default:
        if (at_op(p, '('))
            return parse_parentheses(p, out);
        if (at_op(p, '['))
            return parse_list(p, out);
        if (at_op(p, '{'))
            return parse_record(p, out);
        return expected(p, "a value");
    }
}

/* ---- operators ---- */

static mr_code parse_method(struct parser *p, mr_expr *receiver, mr_expr **out)
{
    size_t base = p->n_items;
    advance(p);
    if (p->t.kind != TOK_NAME)
        return expected(p, "a method's name after '.'");
    MR_TRY(new_node(p, MR_EX_METHOD, receiver->begin, out));
    MR_TRY(copy_word(p, &p->t, &(*out)->text, &(*out)->text_size));
    advance(p);
    MR_TRY(push(p, receiver, NULL, receiver->begin));
    MR_TRY(parse_arguments(p));
    return adopt(p, *out, base);
}

/* Parses an end of a range, or its step; NONE if omitted. */
static mr_code parse_bound(struct parser *p, mr_expr **out)
{
    if (at_op(p, ':') || at_op(p, ',') || at_op(p, ']'))
        return new_node(p, MR_EX_NONE, p->last, out);
    return parse_expr(p, out);
}

/* Parses an index or a range i:j:k. */
static mr_code parse_range(struct parser *p, mr_expr **out)
{
    size_t base = p->n_items, begin = p->t.begin;
    MR_TRY(parse_bound(p, out));
    if (!at_op(p, ':'))
        return MR_OK;
    MR_TRY(push(p, *out, NULL, begin));
    for (int i = 0; i < 2; i++) {
        mr_expr *e;
        if (i == 0 || at_op(p, ':')) {
            advance(p);
            MR_TRY(parse_bound(p, &e));
        } else
            MR_TRY(new_node(p, MR_EX_NONE, p->last, &e));
        MR_TRY(push(p, e, NULL, e->begin));
    }
    MR_TRY(new_node(p, MR_EX_SLICE, begin, out));
    return adopt(p, *out, base);
}

/* x[i], x[i, j], x[i:j, k] and x[]. */
static mr_code parse_index(struct parser *p, mr_expr *receiver, mr_expr **out)
{
    size_t base = p->n_items, begin = p->t.begin;
    MR_TRY(push(p, receiver, NULL, receiver->begin));
    advance(p);
    while (!at_op(p, ']')) {
        mr_expr *e;
        MR_TRY(parse_range(p, &e));
        MR_TRY(push(p, e, NULL, e->begin));
        if (!at_op(p, ','))
            break;
        advance(p);
    }
    MR_TRY(close_bracket(p, ']', begin));
    if (p->n_items > base + 2) {
        mr_expr *tuple = NULL;
        MR_TRY(new_node(p, MR_EX_TUPLE, begin, &tuple));
        MR_TRY(adopt(p, tuple, base + 1));
        MR_TRY(push(p, tuple, NULL, begin));
    }
    MR_TRY(new_node(p, MR_EX_INDEX, receiver->begin, out));
    return adopt(p, *out, base);
}

static mr_code parse_postfix(struct parser *p, mr_expr **out)
{
    MR_TRY(parse_atom(p, out));
    while (true) {
        if (at_op(p, '.'))
            MR_TRY(parse_method(p, *out, out));
        else if (at_op(p, '['))
            MR_TRY(parse_index(p, *out, out));
        else if (at_op(p, '('))
            return expected(p, "an operator or the end; only a name can be called");
        else
            return MR_OK;
    }
}

/* Parses base ** exponent; the exponent may have a sign, and may itself be a power. */
static mr_code parse_power(struct parser *p, mr_expr **out)
{
    MR_TRY(parse_postfix(p, out));
    if (!at_op(p, 'p'))
        return MR_OK;
    mr_expr *exponent;
    advance(p);
    MR_TRY(enter(p));
    MR_TRY(parse_unary(p, &exponent));
    p->level--;
    return new_pair(p, MR_EX_BINARY, 'p', (*out)->begin, *out, exponent, out);
}

/* A sign before a number is part of the literal (otherwise -2**63 would not fit int64), unless a
 * power or a method binds the number more tightly. */
static bool sign_of_literal(const struct parser *p)
{
    mr__token number = after(p, &p->t);
    if (number.kind != TOK_INT && number.kind != TOK_FLOAT)
        return false;
    mr__token next = after(p, &number);
    return next.kind != TOK_OP || !strchr("p.[(", next.op);
}

static mr_code parse_unary(struct parser *p, mr_expr **out)
{
    if (!at_op(p, '-'))
        return parse_power(p, out);
    size_t begin = p->t.begin;
    if (sign_of_literal(p)) {
        advance(p);
        return parse_number(p, begin, true, out);
    }
    mr_expr *operand;
    advance(p);
    MR_TRY(enter(p));
    MR_TRY(parse_unary(p, &operand));
    p->level--;
    return new_pair(p, MR_EX_UNARY, '-', begin, operand, NULL, out);
}

/* The binary operator at the next token, and its precedence; false if it is not one. */
static bool binary_at(const struct parser *p, char *op, int *bind)
{
    *op = p->t.op;
    if (at_word(p, "or")) {
        *op = 'o';
        *bind = BIND_OR;
    } else if (at_word(p, "and")) {
        *op = 'a';
        *bind = BIND_AND;
    } else if (p->t.kind != TOK_OP || *op == '\0')
        return false;
    else if (strchr("=!<>lg", *op))
        *bind = BIND_COMPARE;
    else if (strchr("+-", *op))
        *bind = BIND_ADD;
    else if (strchr("*/f%", *op))
        *bind = BIND_MULTIPLY;
    else
        return false;
    return true;
}

/* Parses operators of precedence `least` or higher, from left to right. */
static mr_code parse_binary(struct parser *p, int least, mr_expr **out)
{
    size_t begin = p->t.begin;
    if (at_word(p, "not") && least <= BIND_NOT) {
        mr_expr *operand;
        advance(p);
        MR_TRY(enter(p));
        MR_TRY(parse_binary(p, BIND_NOT, &operand));
        p->level--;
        MR_TRY(new_pair(p, MR_EX_UNARY, 'n', begin, operand, NULL, out));
    } else
        MR_TRY(parse_unary(p, out));
    char op;
    int bind;
    while (binary_at(p, &op, &bind) && bind >= least) {
        mr_expr *right;
        advance(p);
        MR_TRY(parse_binary(p, bind + 1, &right));
        MR_TRY(new_pair(p, MR_EX_BINARY, op, (*out)->begin, *out, right, out));
        int next;
        if (bind == BIND_COMPARE && binary_at(p, &op, &next) && next == BIND_COMPARE)
            return expected(p, "'and' or the end: comparisons do not chain");
    }
    return MR_OK;
}

/* ---- lambdas and conditions ---- */

/* True if the parameters and the arrow of a lambda come next. */
static bool at_lambda(const struct parser *p)
{
    mr__token t = p->t;
    if (t.kind == TOK_NAME)
        return after(p, &t).kind == TOK_ARROW;
    if (!at_op(p, '('))
        return false;
    t = after(p, &t);
    while (t.kind == TOK_NAME) {
        t = after(p, &t);
        if (t.kind != TOK_OP || t.op != ',')
            break;
        t = after(p, &t);
    }
    return t.kind == TOK_OP && t.op == ')' && after(p, &t).kind == TOK_ARROW;
}

static mr_code parse_parameters(struct parser *p, mr_expr *e)
{
    size_t base = p->n_items;
    bool list = at_op(p, '(');
    if (list)
        advance(p);
    while (p->t.kind == TOK_NAME) {
        char *name;
        MR_TRY(copy_word(p, &p->t, &name, NULL));
        MR_TRY(push(p, e, name, p->t.begin));
        advance(p);
        if (list && at_op(p, ','))
            advance(p);
    }
    if (list && p->n_items == base)
        return expected(p, "a parameter");
    if (list)
        advance(p);
    advance(p);
    MR_TRY(check_keys(p, base));
    e->n_params = p->n_items - base;
    e->params = mr__expr_alloc(p->tree, e->n_params * sizeof *e->params);
    if (!e->params)
        return no_memory(p);
    for (size_t i = 0; i < e->n_params; i++)
        e->params[i] = p->items[base + i].key;
    p->n_items = base;
    return MR_OK;
}

static mr_code parse_lambda(struct parser *p, mr_expr **out)
{
    size_t base = p->n_items;
    mr_expr *body;
    MR_TRY(new_node(p, MR_EX_LAMBDA, p->t.begin, out));
    MR_TRY(parse_parameters(p, *out));
    MR_TRY(parse_expr(p, &body));
    MR_TRY(push(p, body, NULL, body->begin));
    return adopt(p, *out, base);
}

static mr_code parse_condition(struct parser *p, mr_expr *value, mr_expr **out)
{
    size_t base = p->n_items;
    mr_expr *condition, *other;
    advance(p);
    MR_TRY(parse_binary(p, BIND_OR, &condition));
    if (!at_word(p, "else"))
        return expected(p, "'else', as in: a if condition else b");
    advance(p);
    MR_TRY(parse_expr(p, &other));
    MR_TRY(new_node(p, MR_EX_IF, value->begin, out));
    MR_TRY(push(p, value, NULL, value->begin));
    MR_TRY(push(p, condition, NULL, condition->begin));
    MR_TRY(push(p, other, NULL, other->begin));
    return adopt(p, *out, base);
}

static mr_code parse_expr(struct parser *p, mr_expr **out)
{
    MR_TRY(enter(p));
    if (at_lambda(p))
        MR_TRY(parse_lambda(p, out));
    else {
        MR_TRY(parse_binary(p, BIND_OR, out));
        if (at_word(p, "if"))
            MR_TRY(parse_condition(p, *out, out));
    }
    p->level--;
    return MR_OK;
}

static mr_code parse_whole(struct parser *p, const mr_expr **out)
{
    mr_expr *e;
    MR_TRY(parse_expr(p, &e));
    if (p->t.kind != TOK_END)
        return expected(p, e->kind == MR_EX_METHOD || e->kind == MR_EX_CALL
                               ? "'.' and a method, an operator or the end"
                               : "an operator or the end");
    *out = e;
    return MR_OK;
}

mr_code mr_expr_parse(const char *text, size_t size, const mr_expr **out, mr_status *st)
{
    if (size > MR_EXPR_MAX_TEXT)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected an expression of at most %zu bytes, found %zu", MR_EXPR_MAX_TEXT,
                       size);
    struct parser p = {.tree = mr__expr_tree_new(text, size), .size = size, .st = st};
    if (!p.tree)
        return no_memory(&p);
    p.text = mr__expr_tree_text(p.tree);
    p.t = mr__token_at(p.text, size, 0);
    mr_code rc = parse_whole(&p, out);
    if (rc != MR_OK)
        mr__expr_tree_unref(p.tree);
    mr_free(p.items);
    return rc;
}
