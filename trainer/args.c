/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/args.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mr_code mr__args_fail(const mr__source *src, const mr_expr *e, mr_status *st, const char *fmt, ...)
{
    char message[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return mr_expr_fail(st, MR_INVALID_ARGUMENT, src->text, src->size, e->begin, "%s", message);
}

typedef struct number {
    bool whole;
    int64_t i;
    double f;
} number;

static bool read_number(const mr_expr *e, number *out)
{
    if (e->kind == MR_EX_UNARY && e->op == '-' && e->children[0]->kind != MR_EX_UNARY) {
        if (!read_number(e->children[0], out))
            return false;
        out->i = -out->i; /* a literal is never INT64_MIN */
        out->f = -out->f;
        return true;
    }
    if (e->kind != MR_EX_INT && e->kind != MR_EX_FLOAT)
        return false;
    out->whole = e->kind == MR_EX_INT;
    out->i = e->i;
    out->f = out->whole ? (double)e->i : e->f;
    return true;
}

static bool is_word(const mr_expr *e, const char *word)
{
    return (e->kind == MR_EX_STRING || e->kind == MR_EX_NAME || e->kind == MR_EX_CALL) &&
           e->text_size == strlen(word) && memcmp(e->text, word, e->text_size) == 0;
}

static mr_code bind_number(const mr__source *src, const mr_expr *e, const mr__arg *a, void *at,
                           mr_status *st)
{
    number x = {0};
    if (!read_number(e, &x) || (a->type == MR__I64 && !x.whole))
        return mr__args_fail(src, e, st, "%s must be %s", a->name,
                             a->type == MR__I64 ? "an integer" : "a number");
    if (a->min < a->max && !(x.f >= a->min && x.f <= a->max))
        return mr__args_fail(src, e, st, "%s must be between %.10g and %.10g, found %.10g", a->name,
                             a->min, a->max, x.f);
    if (a->type == MR__I64)
        *(int64_t *)at = x.i;
    else
        *(double *)at = x.f;
    return MR_OK;
}

static mr_code add_dim(const mr__source *src, const mr_expr *e, const mr__arg *a, mr__dims *d,
                       mr_status *st)
{
    number x = {0};
    if (!read_number(e, &x) || !x.whole || x.f < a->min || x.f > a->max)
        return mr__args_fail(src, e, st, "%s: a dimension is an integer of at least %.0f", a->name,
                             a->min);
    if (d->rank == MR_MAX_RANK)
        return mr__args_fail(src, e, st, "%s: at most %d dimensions", a->name, MR_MAX_RANK);
    d->shape[d->rank++] = x.i;
    return MR_OK;
}

static const mr__arg constant_args[] = {
    {.name = "value", .type = MR__F64, .at = offsetof(mr_initializer, a), .doc = "The value."},
    {0}};
static const mr__arg uniform_args[] = {{.name = "minval",
                                        .type = MR__F64,
                                        .at = offsetof(mr_initializer, a),
                                        .def = -0.05,
                                        .doc = "Least."},
                                       {.name = "maxval",
                                        .type = MR__F64,
                                        .at = offsetof(mr_initializer, b),
                                        .def = 0.05,
                                        .doc = "Most."},
                                       {0}};
static const mr__arg normal_args[] = {
    {.name = "mean", .type = MR__F64, .at = offsetof(mr_initializer, a), .doc = "Mean."},
    {.name = "stddev",
     .type = MR__F64,
     .at = offsetof(mr_initializer, b),
     .def = 0.05,
     .doc = "Deviation."},
    {0}};
static const mr__arg no_args[] = {{0}};

static mr_code bind_initializer(const mr__source *src, const mr_expr *e, const mr__arg *a,
                                mr_initializer *k, mr_status *st)
{
    for (int i = 0; i < MR_N_INITS; i++) {
        if (!is_word(e, mr_initializer_name((mr_initializer_kind)i)))
            continue;
        const mr__arg *table = i == MR_INIT_CONSTANT         ? constant_args
                               : i == MR_INIT_RANDOM_UNIFORM ? uniform_args
                               : i == MR_INIT_RANDOM_NORMAL  ? normal_args
                                                             : no_args;
        MR_TRY(mr__args_bind(src, e, table, k, st));
        k->kind = (mr_initializer_kind)i;
        return MR_OK;
    }
    return mr__args_fail(
        src, e, st,
        "%s must be an initializer: \"glorot_uniform\", \"glorot_normal\", "
        "\"he_uniform\", \"he_normal\", \"lecun_uniform\", \"lecun_normal\", "
        "\"random_uniform\", \"random_normal\", \"zeros\", \"ones\" or constant(v)",
        a->name);
}

static const mr__arg l1_args[] = {
    MR__ARG(mr_regularizer, l1, MR__F64, .def = 0.01, .max = 1e30, .doc = "Factor."), {0}};
static const mr__arg l2_args[] = {
    MR__ARG(mr_regularizer, l2, MR__F64, .def = 0.01, .max = 1e30, .doc = "Factor."), {0}};
static const mr__arg l1_l2_args[] = {
    MR__ARG(mr_regularizer, l1, MR__F64, .max = 1e30, .doc = "Factor of the sum of magnitudes."),
    MR__ARG(mr_regularizer, l2, MR__F64, .max = 1e30, .doc = "Factor of the sum of squares."),
    {0}};

static mr_code bind_regularizer(const mr__source *src, const mr_expr *e, const mr__arg *a,
                                mr_regularizer *r, mr_status *st)
{
    *r = (mr_regularizer){0};
    if (e->kind == MR_EX_NONE)
        return MR_OK;
    if (is_word(e, "l1"))
        return mr__args_bind(src, e, l1_args, r, st);
    if (is_word(e, "l2"))
        return mr__args_bind(src, e, l2_args, r, st);
    if (is_word(e, "l1_l2"))
        return mr__args_bind(src, e, l1_l2_args, r, st);
    return mr__args_fail(src, e, st, "%s must be none, l1(v), l2(v) or l1_l2(v, v)", a->name);
}

static mr_code bind_activation(const mr__source *src, const mr_expr *e, const mr__arg *a,
                               const mr__activation **out, mr_status *st)
{
    if (e->kind == MR_EX_NONE) {
        *out = mr__activation_find("linear", 6);
        return MR_OK;
    }
    bool word = e->kind == MR_EX_STRING || e->kind == MR_EX_NAME;
    const mr__activation *f = word ? mr__activation_find(e->text, e->text_size) : NULL;
    if (!f) {
        char known[256];
        mr__activation_list(known, sizeof known);
        return mr__args_fail(src, e, st, "%s must be one of %s", a->name, known);
    }
    *out = f;
    return MR_OK;
}

static mr_code bind_one(const mr__source *src, const mr_expr *e, const mr__arg *a, void *params,
                        mr_status *st)
{
    void *at = (char *)params + a->at;
    switch (a->type) {
    case MR__I64:
    case MR__F64:
        return bind_number(src, e, a, at, st);
    case MR__BOOL:
    case MR__FLAG:
        if (e->kind != MR_EX_BOOL)
            return mr__args_fail(src, e, st, "%s must be true or false", a->name);
        if (a->type == MR__BOOL)
            *(bool *)at = e->i != 0;
        else
            *(int8_t *)at = e->i != 0;
        return MR_OK;
    case MR__DIMS:
        if (e->kind != MR_EX_LIST && e->kind != MR_EX_TUPLE)
            return add_dim(src, e, a, at, st);
        for (size_t i = 0; i < e->n; i++)
            MR_TRY(add_dim(src, e->children[i], a, at, st));
        return MR_OK;
    case MR__ACTIVATION:
        return bind_activation(src, e, a, at, st);
    case MR__INITIALIZER:
        return bind_initializer(src, e, a, at, st);
    case MR__REGULARIZER:
        return bind_regularizer(src, e, a, at, st);
    }
    return MR_OK;
}

static void set_default(const mr__arg *a, void *params)
{
    void *at = (char *)params + a->at;
    switch (a->type) {
    case MR__I64:
        *(int64_t *)at = (int64_t)a->def;
        break;
    case MR__F64:
        *(double *)at = a->def;
        break;
    case MR__BOOL:
        *(bool *)at = a->def != 0;
        break;
    case MR__FLAG:
        *(int8_t *)at = (int8_t)a->def;
        break;
    case MR__DIMS:
        *(mr__dims *)at = (mr__dims){0};
        break;
    case MR__ACTIVATION:
        *(const mr__activation **)at = mr__activation_find("linear", 6);
        break;
    case MR__INITIALIZER:
        for (int i = 0; i < MR_N_INITS; i++)
            if (strcmp(a->def_name, mr_initializer_name((mr_initializer_kind)i)) == 0)
                *(mr_initializer *)at = (mr_initializer){.kind = (mr_initializer_kind)i};
        break;
    case MR__REGULARIZER:
        *(mr_regularizer *)at = (mr_regularizer){0};
        break;
    }
}

static size_t find_arg(const mr__arg *table, const char *name)
{
    size_t i = 0;
    while (table[i].name && strcmp(table[i].name, name) != 0)
        i++;
    return i;
}

static void list_args(const mr__arg *table, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = 0;
    for (size_t i = 0; table[i].name && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? ", " : "", table[i].name);
}

mr_code mr__args_bind(const mr__source *src, const mr_expr *e, const mr__arg *table, void *params,
                      mr_status *st)
{
    uint32_t given = 0; /* a bit an argument; tables are far shorter */
    size_t next = 0;    /* positional */
    const char *name = e->text;
    for (size_t i = 0; table[i].name; i++)
        set_default(&table[i], params);
    bool call = e->kind == MR_EX_CALL || e->kind == MR_EX_METHOD;
    for (size_t i = e->kind == MR_EX_METHOD; call && i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        size_t k = key ? find_arg(table, key) : next;
        if (!table[k].name) {
            char known[200];
            list_args(table, known, sizeof known);
            return key ? mr__args_fail(src, e->children[i], st,
                                       "%s has no argument '%s'; it has: %s", name, key, known)
                       : mr__args_fail(src, e->children[i], st, "%s takes fewer arguments: %s",
                                       name, known);
        }
        bool more_dims = table[k].type == MR__DIMS && !key;
        if ((given >> k & 1) && !more_dims)
            return mr__args_fail(src, e->children[i], st, "%s: %s is given twice", name,
                                 table[k].name);
        MR_TRY(bind_one(src, e->children[i], &table[k], params, st));
        given |= UINT32_C(1) << k;
        if (!key && !more_dims)
            next++;
    }
    for (size_t i = 0; table[i].name; i++)
        if (table[i].required && !(given >> i & 1))
            return mr__args_fail(src, e, st, "%s needs %s", name, table[i].name);
    return MR_OK;
}
