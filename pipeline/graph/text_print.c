/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the canonical text of expressions: one space around binary operators and after commas,
 * parentheses only where the grammar requires them, strings in double quotes. */
#include "pipeline/graph/text_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/params/token.h"

/* Twice the parser's limit, since a graph nests expressions, values and datasets in turn. */
enum { MAX_LEVEL = 2 * MR_EXPR_MAX_DEPTH };

static const struct binary {
    char op;
    const char *text;
    mr__binding bind;
} binaries[] = {{'o', " or ", MR__BIND_OR},       {'a', " and ", MR__BIND_AND},
                {'=', " == ", MR__BIND_COMPARE},  {'!', " != ", MR__BIND_COMPARE},
                {'<', " < ", MR__BIND_COMPARE},   {'l', " <= ", MR__BIND_COMPARE},
                {'>', " > ", MR__BIND_COMPARE},   {'g', " >= ", MR__BIND_COMPARE},
                {'+', " + ", MR__BIND_ADD},       {'-', " - ", MR__BIND_ADD},
                {'*', " * ", MR__BIND_MULTIPLY},  {'/', " / ", MR__BIND_MULTIPLY},
                {'f', " // ", MR__BIND_MULTIPLY}, {'%', " % ", MR__BIND_MULTIPLY},
                {'p', " ** ", MR__BIND_POWER}};

mr_code mr__print_enter(mr__printer *p)
{
    if (++p->level > MAX_LEVEL)
        return mr_fail(p->st, MR_FAILED_PRECONDITION,
                       "a graph nested more than %d levels deep has no text form", MAX_LEVEL);
    return MR_OK;
}

static mr_code put(mr__printer *p, const char *s)
{
    return mr__text_puts(&p->text, s, p->st);
}

static const struct binary *find_binary(char op)
{
    size_t i = 0;
    while (binaries[i].op != op)
        i++;
    return &binaries[i];
}

static mr__binding binding_of(const mr_expr *e)
{
    switch (e->kind) {
    case MR_EX_INT:
        return e->i < 0 ? MR__BIND_SIGN : MR__BIND_ATOM;
    case MR_EX_FLOAT:
        return __builtin_signbit(e->f) ? MR__BIND_SIGN : MR__BIND_ATOM;
    case MR_EX_METHOD:
    case MR_EX_INDEX:
        return MR__BIND_POSTFIX;
    case MR_EX_UNARY:
        return e->op == 'n' ? MR__BIND_NOT : MR__BIND_SIGN;
    case MR_EX_BINARY:
        return find_binary(e->op)->bind;
    case MR_EX_IF:
        return MR__BIND_IF;
    case MR_EX_LAMBDA:
        return MR__BIND_LAMBDA;
    default:
        return MR__BIND_ATOM;
    }
}

/* The value of name if it is a capture with a known value, else NULL. */
static const mr_value *captured(const mr__printer *p, const char *name)
{
    for (const mr__scope *s = p->scope; s; s = s->outer) {
        for (size_t i = 0; s->lambda && i < s->lambda->n_params; i++)
            if (strcmp(s->lambda->params[i], name) == 0)
                return NULL;
        for (size_t i = 0; s->fn && i < s->fn->n_captures; i++)
            if (strcmp(s->fn->capture_names[i], name) == 0 &&
                s->fn->captures[i].kind != MR_V_UNKNOWN)
                return &s->fn->captures[i];
        if (s->fn)
            return NULL;
    }
    return NULL;
}

/* Prints e, in parentheses if its precedence is below `least`. */
static mr_code print_expr(mr__printer *p, const mr_expr *e, mr__binding least);

/* Prints children[from..n) with their keys, separated by commas. */
static mr_code print_children(mr__printer *p, const mr_expr *e, size_t from)
{
    for (size_t i = from; i < e->n; i++) {
        if (i > from)
            MR_TRY(put(p, ", "));
        if (e->keys && e->keys[i] && e->kind == MR_EX_RECORD) {
            MR_TRY(mr__literal_string(&p->text, e->keys[i], strlen(e->keys[i]), p->st));
            MR_TRY(put(p, ": "));
        } else if (e->keys && e->keys[i]) {
            MR_TRY(put(p, e->keys[i]));
            MR_TRY(put(p, "="));
        }
        MR_TRY(print_expr(p, e->children[i], MR__BIND_LAMBDA));
    }
    return MR_OK;
}

static mr_code print_bracketed(mr__printer *p, const char *open, const mr_expr *e, size_t from,
                               const char *close)
{
    MR_TRY(put(p, open));
    MR_TRY(print_children(p, e, from));
    return put(p, close);
}

static mr_code print_method(mr__printer *p, const mr_expr *e)
{
    MR_TRY(print_expr(p, e->children[0], MR__BIND_POSTFIX));
    MR_TRY(put(p, "."));
    MR_TRY(put(p, e->text));
    return print_bracketed(p, "(", e, 1, ")");
}

static mr_code print_index(mr__printer *p, const mr_expr *e)
{
    MR_TRY(print_expr(p, e->children[0], MR__BIND_POSTFIX));
    if (e->n == 2 && e->children[1]->kind == MR_EX_TUPLE && e->children[1]->n > 0)
        return print_bracketed(p, "[", e->children[1], 0, "]");
    return print_bracketed(p, "[", e, 1, "]");
}

/* Prints i:j:k; omitted parts stay omitted. */
static mr_code print_slice(mr__printer *p, const mr_expr *e)
{
    for (size_t i = 0; i < 3; i++) {
        bool given = e->children[i]->kind != MR_EX_NONE;
        if (i == 1 || (i == 2 && given))
            MR_TRY(put(p, ":"));
        if (given)
            MR_TRY(print_expr(p, e->children[i], MR__BIND_LAMBDA));
    }
    return MR_OK;
}

static mr_code print_unary(mr__printer *p, const mr_expr *e)
{
    const mr_expr *operand = e->children[0];
    if (e->op == 'n') {
        MR_TRY(put(p, "not "));
        return print_expr(p, operand, MR__BIND_NOT);
    }
    MR_TRY(put(p, "-"));
    /* "-2" would parse as a literal instead of a negated one. */
    bool literal = (operand->kind == MR_EX_INT || operand->kind == MR_EX_FLOAT) &&
                   binding_of(operand) == MR__BIND_ATOM;
    if (!literal)
        return print_expr(p, operand, MR__BIND_SIGN);
    return print_bracketed(p, "(", e, 0, ")");
}

static mr_code print_binary(mr__printer *p, const mr_expr *e)
{
    const struct binary *b = find_binary(e->op);
    mr__binding left = b->bind, right = b->bind + 1;
    if (b->bind == MR__BIND_COMPARE)
        left = b->bind + 1; /* comparisons do not chain */
    if (b->bind == MR__BIND_POWER) {
        left = MR__BIND_POSTFIX;
        right = MR__BIND_SIGN;
    }
    MR_TRY(print_expr(p, e->children[0], left));
    MR_TRY(put(p, b->text));
    return print_expr(p, e->children[1], right);
}

static mr_code print_if(mr__printer *p, const mr_expr *e)
{
    MR_TRY(print_expr(p, e->children[0], MR__BIND_OR));
    MR_TRY(put(p, " if "));
    MR_TRY(print_expr(p, e->children[1], MR__BIND_OR));
    MR_TRY(put(p, " else "));
    return print_expr(p, e->children[2], MR__BIND_LAMBDA);
}

static mr_code print_lambda(mr__printer *p, const mr_expr *e)
{
    mr__scope scope = {.outer = p->scope, .lambda = e};
    if (e->n_params != 1)
        MR_TRY(put(p, "("));
    for (size_t i = 0; i < e->n_params; i++) {
        MR_TRY(put(p, i ? ", " : ""));
        MR_TRY(put(p, e->params[i]));
    }
    MR_TRY(put(p, e->n_params != 1 ? ") => " : " => "));
    p->scope = &scope;
    mr_code rc = print_expr(p, e->children[0], MR__BIND_LAMBDA);
    p->scope = scope.outer;
    return rc;
}

static mr_code print_int(mr__printer *p, int64_t i)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, i);
    return put(p, text);
}

static mr_code print_float(mr__printer *p, double f)
{
    char text[MR__DOUBLE_TEXT];
    mr__literal_double(f, text);
    return put(p, text);
}

static mr_code print_bare(mr__printer *p, const mr_expr *e)
{
    switch (e->kind) {
    case MR_EX_INT:
        return print_int(p, e->i);
    case MR_EX_FLOAT:
        return print_float(p, e->f);
    case MR_EX_STRING:
        return mr__literal_string(&p->text, e->text, e->text_size, p->st);
    case MR_EX_BOOL:
        return put(p, e->i ? "true" : "false");
    case MR_EX_NONE:
        return put(p, "none");
    case MR_EX_AUTO:
        return put(p, "auto");
    case MR_EX_NAME:
        return put(p, e->text);
    case MR_EX_LIST:
        return print_bracketed(p, "[", e, 0, "]");
    case MR_EX_TUPLE:
        return print_bracketed(p, "(", e, 0, ")");
    case MR_EX_RECORD:
        return print_bracketed(p, "{", e, 0, "}");
    case MR_EX_CALL:
        MR_TRY(put(p, e->text));
        return print_bracketed(p, "(", e, 0, ")");
    case MR_EX_METHOD:
        return print_method(p, e);
    case MR_EX_LAMBDA:
        return print_lambda(p, e);
    case MR_EX_INDEX:
        return print_index(p, e);
    case MR_EX_SLICE:
        return print_slice(p, e);
    case MR_EX_UNARY:
        return print_unary(p, e);
    case MR_EX_BINARY:
        return print_binary(p, e);
    case MR_EX_IF:
        return print_if(p, e);
    }
    return mr_fail(p->st, MR_INTERNAL, "a syntax tree has a node of kind %d", (int)e->kind);
}

static mr_code print_expr(mr__printer *p, const mr_expr *e, mr__binding least)
{
    const mr_value *value = e->kind == MR_EX_NAME ? captured(p, e->text) : NULL;
    if (value)
        return mr__print_value(p, value, least);
    bool brackets = binding_of(e) < least;
    MR_TRY(mr__print_enter(p));
    if (brackets)
        MR_TRY(put(p, "("));
    MR_TRY(print_bare(p, e));
    p->level--;
    return brackets ? put(p, ")") : MR_OK;
}

mr_code mr_expr_print(const mr_expr *e, char **out, mr_status *st)
{
    mr__printer p = {.st = st};
    mr_code rc = print_expr(&p, e, MR__BIND_LAMBDA);
    if (rc == MR_OK)
        rc = mr__text_finish(&p.text, out, st);
    mr_free(p.text.s);
    return rc;
}

/* ---- values ---- */

static mr__binding binding_of_fn(const mr_fn *fn)
{
    return fn->kind == MR_FN_EXPR ? binding_of(fn->expr) : MR__BIND_ATOM;
}

static mr__binding binding_of_value(const mr_value *v)
{
    switch (v->kind) {
    case MR_V_INT:
        return v->i < 0 ? MR__BIND_SIGN : MR__BIND_ATOM;
    case MR_V_FLOAT:
        return __builtin_signbit(v->f) && v->f == v->f ? MR__BIND_SIGN : MR__BIND_ATOM;
    case MR_V_TENSOR:
        /* A scalar may be printed as a signed number. */
        return v->tensor.rank == 0 ? MR__BIND_SIGN : MR__BIND_ATOM;
    case MR_V_DATASET:
        return MR__BIND_POSTFIX;
    case MR_V_FN:
        return binding_of_fn(v->fn);
    default:
        return MR__BIND_ATOM;
    }
}

static mr_code print_items(mr__printer *p, const char *open, const mr_value *v, const char *close)
{
    MR_TRY(put(p, open));
    for (size_t i = 0; i < v->n; i++) {
        MR_TRY(put(p, i ? ", " : ""));
        if (v->kind == MR_V_RECORD) {
            MR_TRY(mr__literal_string(&p->text, v->names[i], strlen(v->names[i]), p->st));
            MR_TRY(put(p, ": "));
        }
        MR_TRY(mr__print_value(p, &v->items[i], MR__BIND_LAMBDA));
    }
    return put(p, close);
}

static mr_code print_fn(mr__printer *p, const mr_fn *fn)
{
    if (fn->error)
        return mr_fail(p->st, fn->error->code, "%s", fn->error->message);
    if (fn->kind != MR_FN_EXPR) {
        if (fn->name && mr__is_name(fn->name, strlen(fn->name)))
            return put(p, fn->name);
        if (fn->label) {
            MR_TRY(put(p, "callback("));
            MR_TRY(mr__literal_string(&p->text, fn->label, strlen(fn->label), p->st));
            return put(p, ")");
        }
        return mr_fail(p->st, MR_FAILED_PRECONDITION,
                       "a C function that is not registered has no text form; give it a name in "
                       "mr_fn_opts");
    }
    mr__scope scope = {.outer = p->scope, .fn = fn};
    p->scope = &scope;
    mr_code rc = print_expr(p, fn->expr, MR__BIND_LAMBDA);
    p->scope = scope.outer;
    return rc;
}

static mr_code print_bare_value(mr__printer *p, const mr_value *v)
{
    switch (v->kind) {
    case MR_V_UNSET:
    case MR_V_NONE:
        return put(p, "none");
    case MR_V_AUTO:
        return put(p, "auto");
    case MR_V_BOOL:
        return put(p, v->i ? "true" : "false");
    case MR_V_INT:
        return print_int(p, v->i);
    case MR_V_FLOAT:
        return print_float(p, v->f);
    case MR_V_STRING:
        return mr__literal_string(&p->text, v->s, v->size, p->st);
    case MR_V_TENSOR:
        return mr__literal_tensor(&p->text, &v->tensor, p->st);
    case MR_V_LIST:
        return print_items(p, "[", v, "]");
    case MR_V_TUPLE:
        return print_items(p, "(", v, ")");
    case MR_V_RECORD:
        return print_items(p, "{", v, "}");
    case MR_V_FN:
        return print_fn(p, v->fn);
    case MR_V_DATASET:
        return mr__print_dataset(p, v->dataset);
    case MR_V_UNKNOWN:
        return mr_fail(p->st, MR_FAILED_PRECONDITION,
                       "a value that is known only when a function is called has no text form");
    }
    return mr_fail(p->st, MR_INTERNAL, "a value has kind %d", (int)v->kind);
}

mr_code mr__print_value(mr__printer *p, const mr_value *v, mr__binding least)
{
    bool brackets = binding_of_value(v) < least;
    MR_TRY(mr__print_enter(p));
    if (brackets)
        MR_TRY(put(p, "("));
    MR_TRY(print_bare_value(p, v));
    p->level--;
    return brackets ? put(p, ")") : MR_OK;
}
