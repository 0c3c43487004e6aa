/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns the arguments of a call to the parameters of a table, and makes params structs from calls
 * with literal arguments. */
#include <stdio.h>
#include <string.h>

#include "pipeline/params/params.h"

mr_code mr__arguments_init(mr__arguments *a, const mr_param_table *t, mr_status *st)
{
    *a = (mr__arguments){.t = t, .n = mr__params_count(t->params)};
    a->values = mr_calloc(a->n + 1, sizeof *a->values);
    return a->values ? MR_OK : mr_fail_memory(st, a->n * sizeof *a->values, "arguments");
}

void mr__arguments_reset(mr__arguments *a)
{
    for (size_t i = 0; a->values && i < a->n; i++)
        mr_value_reset(&a->values[i]);
    mr_free(a->values);
    *a = (mr__arguments){0};
}

int64_t mr__arguments_next(const mr__arguments *a)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < a->n; i++) {
            const mr_param *p = &a->t->params[i];
            uint16_t flag = pass == 0 ? MR_P_POSITIONAL : MR_P_OPTIONAL;
            if ((p->flags & flag) &&
                ((p->flags & MR_P_VARIADIC) || a->values[i].kind == MR_V_UNSET))
                return (int64_t)i;
        }
    return -1;
}

static bool takes_names(const mr_param *p)
{
    return (p->flags & MR_P_VARIADIC) && p->type == MR_PT_VALUE;
}

static mr_code unknown_name(const mr__arguments *a, const char *key, mr_status *st)
{
    char all[300] = "";
    for (size_t i = 0; i < a->n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "",
                 a->t->params[i].name);
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s has no parameter '%s'; it has %s", a->t->name, key,
                   all[0] ? all : "none");
}

mr_code mr__arguments_place(const mr__arguments *a, const char *key, size_t *at, mr_status *st)
{
    size_t i = 0;
    int64_t next = key ? 0 : mr__arguments_next(a);
    if (next < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s takes no further argument here%s", a->t->name,
                       a->n && a->t->params[0].type == MR_PT_STRS ? "; several names go in a list"
                                                                  : "");
    if (!key) {
        *at = (size_t)next;
        return MR_OK;
    }
    while (i < a->n && strcmp(a->t->params[i].name, key) != 0)
        i++;
    if (i == a->n)
        for (i = 0; i < a->n && !takes_names(&a->t->params[i]);)
            i++;
    if (i == a->n)
        return unknown_name(a, key, st);
    if (a->values[i].kind != MR_V_UNSET && !takes_names(&a->t->params[i]))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s is given twice", a->t->name, key);
    *at = i;
    return MR_OK;
}

static mr_code append(mr__arguments *a, mr_value *group, const char *name, mr_value *item,
                      mr_status *st)
{
    size_t n = group->n;
    MR_TRY(mr_grow((void **)&group->items, &a->items_capacity, n + 1, sizeof *item,
                   MR_EXPR_MAX_TEXT, "arguments", st));
    if (name) {
        MR_TRY(MR_GROW(group->names, a->names_capacity, n + 1, MR_EXPR_MAX_TEXT, "arguments", st));
        if (!(group->names[n] = mr_strdup(name)))
            return mr_fail_memory(st, strlen(name) + 1, "arguments");
    }
    group->kind = name ? MR_V_RECORD : MR_V_TUPLE;
    group->items[group->n++] = *item;
    *item = (mr_value){0};
    return MR_OK;
}

mr_code mr__arguments_put(mr__arguments *a, size_t at, const char *key, mr_value *v, mr_status *st)
{
    const mr_param *p = &a->t->params[at];
    mr_value *to = &a->values[at];
    if (!(p->flags & MR_P_VARIADIC) || (key && !takes_names(p))) {
        *to = *v;
        *v = (mr_value){0};
        return MR_OK;
    }
    if (to->kind != MR_V_UNSET && to->kind != (key ? MR_V_RECORD : MR_V_TUPLE))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: positional and named components do not mix",
                       a->t->name);
    /* The parser has rejected repeated names. */
    return append(a, to, key, v, st);
}

/* ---- literals ---- */

mr_code mr__literal_value(const mr_expr *e, mr_value *out, bool *is_literal, mr_status *st)
{
    *is_literal = true;
    bool minus = e->kind == MR_EX_UNARY && e->op == '-';
    if (minus)
        e = e->children[0];
    if (e->kind == MR_EX_INT) /* unsigned: -INT64_MIN would overflow */
        *out = (mr_value){.kind = MR_V_INT, .i = minus ? (int64_t)(0 - (uint64_t)e->i) : e->i};
    else if (e->kind == MR_EX_FLOAT)
        *out = (mr_value){.kind = MR_V_FLOAT, .f = minus ? -e->f : e->f};
    else if (minus)
        *is_literal = false;
    else if (e->kind == MR_EX_BOOL)
        *out = (mr_value){.kind = MR_V_BOOL, .i = e->i};
    else if (e->kind == MR_EX_NONE)
        out->kind = MR_V_NONE;
    else if (e->kind == MR_EX_AUTO)
        out->kind = MR_V_AUTO;
    else if (e->kind == MR_EX_STRING) {
        char *s = mr_strndup(e->text, e->text_size);
        if (!s)
            return mr_fail_memory(st, e->text_size + 1, "a string");
        *out = (mr_value){.kind = MR_V_STRING, .s = s, .size = e->text_size};
    } else
        *is_literal = false;
    return MR_OK;
}

/* Reads a literal, or a list or tuple of literals. */
static mr_code read_value(const mr_expr *e, mr_value *out, mr_status *st)
{
    bool literal;
    *out = (mr_value){0};
    if (e->kind != MR_EX_LIST && e->kind != MR_EX_TUPLE) {
        MR_TRY(mr__literal_value(e, out, &literal, st));
        return literal
                   ? MR_OK
                   : mr_expr_fail_at(st, e, "expected a number, a string, true, false or a list");
    }
    out->items = mr_calloc(e->n + 1, sizeof *out->items);
    if (!out->items)
        return mr_fail_memory(st, e->n * sizeof *out->items, "a list");
    out->kind = e->kind == MR_EX_LIST ? MR_V_LIST : MR_V_TUPLE;
    for (out->n = 0; out->n < e->n; out->n++) {
        mr_code rc = read_value(e->children[out->n], &out->items[out->n], st);
        if (rc != MR_OK) {
            mr_value_reset(out);
            return rc;
        }
    }
    return MR_OK;
}

/* ---- calls of literals ---- */

/* Adds line and caret to the message, unless it has them. */
static mr_code place_error(mr_code rc, const mr_expr *e, mr_status *st)
{
    if (rc != MR_INVALID_ARGUMENT || !st || strchr(st->message, '\n'))
        return rc;
    mr_status why = *st;
    return mr_expr_fail_at(st, e, "%s", why.message);
}

typedef struct call {
    mr__arguments a;
    const mr_expr **given; /* the argument of each parameter; NULL: not given */
} call;

static bool is_variadic(const call *c, size_t i)
{
    return c->a.t->params[i].flags & MR_P_VARIADIC;
}

static mr_code set_parameter(const call *c, size_t i, const mr_expr *e, void *own, mr_status *st)
{
    const mr_param_table *t = c->a.t;
    const mr_param *p = &t->params[i];
    bool unknown;
    if (p->type != MR_PT_OWN)
        return place_error(mr__param_set(t->name, p, own, &c->a.values[i], &unknown, st), e, st);
    if (c->given[i])
        return place_error(p->kind->parse(p, e, mr__param_field(p, own), st), e, st);
    if (mr__param_required(p))
        return place_error(mr__param_fail_missing(t->name, p, st), e, st);
    return mr__param_default(p, own, st);
}

static mr_code read_argument(call *c, const char *key, const mr_expr *e, void *own, mr_status *st)
{
    size_t at = 0;
    mr_value v = {0};
    MR_TRY(place_error(mr__arguments_place(&c->a, key, &at, st), e, st));
    if (c->a.t->params[at].type == MR_PT_OWN)
        v.kind = MR_V_NONE; /* marks it as given; its kind parses it */
    else
        MR_TRY(read_value(e, &v, st));
    if (!c->given[at])
        c->given[at] = e;
    mr_code rc = mr__arguments_put(&c->a, at, key, &v, st);
    mr_value_reset(&v);
    MR_TRY(place_error(rc, e, st));
    return is_variadic(c, at) ? MR_OK : set_parameter(c, at, e, own, st);
}

static mr_code read_call(call *c, const mr_expr *e, void *own, mr_status *st)
{
    bool has_arguments = e->kind == MR_EX_CALL || e->kind == MR_EX_METHOD;
    for (size_t i = e->kind == MR_EX_METHOD; has_arguments && i < e->n; i++)
        MR_TRY(read_argument(c, e->keys ? e->keys[i] : NULL, e->children[i], own, st));
    for (size_t i = 0; i < c->a.n; i++)
        if (!c->given[i] || is_variadic(c, i))
            MR_TRY(set_parameter(c, i, c->given[i] ? c->given[i] : e, own, st));
    return MR_OK;
}

mr_code mr_params_parse(const mr_param_table *t, const mr_expr *e, void **out, mr_status *st)
{
    call c = {0};
    mr_status why;
    mr_status_init(&why);
    void *own = mr_calloc(1, t->size ? t->size : 1);
    mr_code rc = mr__arguments_init(&c.a, t, &why);
    c.given = mr_calloc(c.a.n + 1, sizeof *c.given);
    if (rc == MR_OK && (!own || !c.given))
        rc = mr_fail_memory(&why, t->size, "parameters");
    if (rc == MR_OK)
        rc = read_call(&c, e, own, &why);
    if (rc == MR_OK)
        *out = own;
    else {
        mr_params_free(t, own);
        if (st)
            *st = why;
    }
    mr_free(c.given);
    mr__arguments_reset(&c.a);
    return rc;
}
