/* SPDX-License-Identifier: Apache-2.0 */
/* parse_example(x, name=feature, ...): serialized tf.train.Examples to a record of features.
 *
 *     feature                  x one string        x a vector of n strings
 *     int64                    int64 []            int64 [n]
 *     int64[3, 4]              int64 [3, 4]        int64 [n, 3, 4]
 *     int64[]                  int64 [-1]          int64 [n, -1], ragged
 *     feature(int64, shape=[3], default=0)         a record may lack it
 *
 * Names that are no identifiers come in the record form: parse_example(x, {"image/encoded":
 * bytes}). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/example.h"
#include "pipeline/functions/builtin.h"

enum { MOST_FEATURES = 1 << 16, MOST_DEFAULTS = 1 << 24 };

struct plan {
    mr_example_plan *example;
    bool vector; /* x is a vector */
    size_t n;
    bool *ragged; /* n: feature i is of variable length */
};

/* ---- reading the features ---- */

/* Default values of one feature while they are read. */
struct defaults {
    void *v;
    size_t n, capacity;
};

static mr_code bad_feature(const char *name, const char *expected, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "feature %s: expected %s; a feature is written int64, float32[3, 4], bytes[] or "
                   "feature(dtype, shape=[..], default=v)",
                   name, expected);
}

static mr_code read_dtype(const mr_expr *e, const char *name, mr_example_feature *f, mr_status *st)
{
    if (mr__builtin_dtype(&(mr_builtin_arg){.expr = e}, &f->dtype, NULL) != MR_OK ||
        (f->dtype != MR_INT64 && f->dtype != MR_FLOAT32 && f->dtype != MR_STRING))
        return bad_feature(name, "int64, float32 or bytes", st);
    return MR_OK;
}

static mr_code add_dimension(const mr_expr *e, const char *name, mr_example_feature *f,
                             mr_status *st)
{
    if (e->kind != MR_EX_INT || e->i < 0)
        return bad_feature(name, "dimensions that are known numbers", st);
    if (f->rank == MR_MAX_RANK)
        return bad_feature(name, "fewer dimensions", st);
    f->shape[f->rank++] = e->i;
    return MR_OK;
}

static mr_code read_shape(const mr_expr *e, const char *name, mr_example_feature *f, mr_status *st)
{
    f->rank = 0;
    if (e->kind != MR_EX_LIST && e->kind != MR_EX_TUPLE)
        return add_dimension(e, name, f, st);
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(add_dimension(e->children[i], name, f, st));
    return MR_OK;
}

/* dtype, dtype[..] or dtype[] */
static mr_code read_plain(const mr_expr *e, const char *name, mr_example_feature *f, mr_status *st)
{
    if (e->kind != MR_EX_INDEX)
        return read_dtype(e, name, f, st);
    MR_TRY(read_dtype(e->children[0], name, f, st));
    if (e->n == 1) {
        f->ragged = true;
        return MR_OK;
    }
    return read_shape(e->children[1], name, f, st);
}

/* Appends the numbers or strings of a literal, lists of them one level after the other. */
static mr_code read_default(const mr_expr *e, const char *name, mr_dtype dtype, struct defaults *d,
                            mr_status *st)
{
    if (e->kind == MR_EX_LIST || e->kind == MR_EX_TUPLE) {
        for (size_t i = 0; i < e->n; i++) /* as deep as the parser allows */
            MR_TRY(read_default(e->children[i], name, dtype, d, st));
        return MR_OK;
    }
    bool minus = e->kind == MR_EX_UNARY && e->op == '-';
    const mr_expr *v = minus ? e->children[0] : e;
    bool number = v->kind == MR_EX_INT || v->kind == MR_EX_FLOAT;
    if (dtype == MR_STRING ? v->kind != MR_EX_STRING || minus
                           : !number || (dtype == MR_INT64 && v->kind != MR_EX_INT))
        return bad_feature(name, "a default of its dtype", st);
    size_t size = mr_dtype_size(dtype);
    MR_TRY(mr_grow(&d->v, &d->capacity, d->n + 1, size, MOST_DEFAULTS, "default values", st));
    double number_of = v->kind == MR_EX_INT ? (double)v->i : v->f;
    if (dtype == MR_STRING)
        ((mr_bytes *)d->v)[d->n] = (mr_bytes){v->text, v->text_size};
    else if (dtype == MR_INT64) /* unsigned, so that the lowest is its own opposite */
        ((int64_t *)d->v)[d->n] = minus ? (int64_t)(0 - (uint64_t)v->i) : v->i;
    else
        ((float *)d->v)[d->n] = (float)(minus ? -number_of : number_of);
    d->n++;
    return MR_OK;
}

/* feature(dtype, shape=[..], default=v) */
static mr_code read_call(const mr_expr *e, const char *name, mr_example_feature *f,
                         struct defaults *d, mr_status *st)
{
    if (e->n == 0)
        return bad_feature(name, "a dtype", st);
    MR_TRY(read_plain(e->children[0], name, f, st));
    const mr_expr *given = NULL;
    for (size_t i = 1; i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        if (key ? strcmp(key, "shape") == 0 : i == 1)
            MR_TRY(read_shape(e->children[i], name, f, st));
        else if (key ? strcmp(key, "default") == 0 : i == 2)
            given = e->children[i];
        else
            return bad_feature(name, "shape and default only", st);
    }
    if (!given || given->kind == MR_EX_NONE)
        return MR_OK;
    if (f->ragged)
        return bad_feature(name, "no default, as one of variable length may be missing anyway", st);
    MR_TRY(read_default(given, name, f->dtype, d, st));
    size_t wanted = 1;
    for (int i = 0; i < f->rank; i++)
        if (__builtin_mul_overflow(wanted, (size_t)f->shape[i], &wanted))
            return bad_feature(name, "a smaller shape", st);
    if (d->n != wanted)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "feature %s: the default has %zu values, its shape %zu; give as many", name,
                       d->n, wanted);
    if (!d->v) /* a shape without values */
        d->v = mr_malloc(1);
    if (!d->v)
        return mr_fail_memory(st, 1, "default values");
    f->default_values = d->v;
    f->n_default_values = d->n;
    return MR_OK;
}

static mr_code read_feature(const mr_expr *e, const char *name, mr_example_feature *f,
                            struct defaults *d, mr_status *st)
{
    f->name = name;
    f->name_size = strlen(name);
    if (e->kind == MR_EX_CALL && strcmp(e->text, "feature") == 0)
        return read_call(e, name, f, d, st);
    return read_plain(e, name, f, st);
}

/* ---- typing ---- */

/* The features as they were written: keys and texts. */
struct wanted {
    size_t n;
    const char **names;
    const mr_expr **exprs;
};

static mr_code collect(const mr_builtin_arg *args, size_t n, struct wanted *w, mr_status *st)
{
    bool record = n == 2 && !args[1].key && args[1].expr->kind == MR_EX_RECORD;
    w->n = record ? args[1].expr->n : n ? n - 1 : 0;
    if (n < 2 || args[0].key || w->n == 0 || w->n > MOST_FEATURES)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example takes a string and features, as in parse_example(x, "
                       "image=bytes, label=int64)");
    w->names = mr_calloc(w->n, sizeof *w->names);
    w->exprs = mr_calloc(w->n, sizeof *w->exprs);
    if (!w->names || !w->exprs)
        return mr_fail_memory(st, w->n * sizeof *w->names, "features");
    for (size_t i = 0; i < w->n; i++) {
        w->names[i] = record ? args[1].expr->keys[i] : args[i + 1].key;
        w->exprs[i] = record ? args[1].expr->children[i] : args[i + 1].expr;
        if (!w->names[i])
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "parse_example: feature %zu has no name; write name=feature, or a "
                           "record {\"name\": feature}",
                           i);
    }
    return MR_OK;
}

static int by_name(const void *a, const void *b)
{
    const mr_example_feature *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static mr_spec *feature_spec(const mr_example_feature *f, bool vector, int64_t n)
{
    mr_leaf leaf = {.dtype = f->dtype};
    if (vector)
        leaf.shape[leaf.rank++] = n;
    if (f->ragged)
        leaf.shape[leaf.rank++] = -1;
    leaf.ragged = vector && f->ragged;
    for (int i = 0; i < f->rank; i++)
        leaf.shape[leaf.rank++] = f->shape[i];
    return mr_spec_of_leaf(&leaf);
}

static mr_spec *record_spec(const mr_example_feature *f, size_t n, bool vector, int64_t rows)
{
    const char **names = mr_calloc(n, sizeof *names);
    mr_spec **children = mr_calloc(n, sizeof *children), *spec = NULL;
    if (names && children) {
        for (size_t i = 0; i < n; i++) {
            names[i] = f[i].name;
            children[i] = feature_spec(&f[i], vector, rows);
        }
        spec = mr_spec_record(names, children, n);
    }
    mr_free((void *)names);
    mr_free(children);
    return spec;
}

static void free_plan(void *plan)
{
    struct plan *p = plan;
    if (!p)
        return;
    mr_example_plan_free(p->example);
    mr_free(p->ragged);
    mr_free(p);
}

/* Plan and spec of sorted features. */
static mr_code make_plan(const mr_example_feature *f, size_t n, const mr_leaf *x, mr_spec **out,
                         void **plan, mr_status *st)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(f[i - 1].name, f[i].name) == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "feature %s is asked for twice", f[i].name);
    for (size_t i = 0; i < n; i++)
        if (f[i].rank + (x->rank == 1) > MR_MAX_RANK)
            return bad_feature(f[i].name, "fewer dimensions", st);
    struct plan *p = mr_calloc(1, sizeof *p);
    mr_code rc = p && (p->ragged = mr_calloc(n, sizeof *p->ragged))
                     ? MR_OK
                     : mr_fail_memory(st, n, "features");
    if (rc == MR_OK) {
        p->vector = x->rank == 1;
        p->n = n;
        for (size_t i = 0; i < n; i++)
            p->ragged[i] = f[i].ragged;
        rc = mr_example_plan_new(&p->example, f, n, st);
    }
    if (rc == MR_OK) {
        *out = record_spec(f, n, p->vector, x->shape[0]);
        if (!*out)
            rc = mr_fail_memory(st, n, "features");
    }
    if (rc != MR_OK) {
        free_plan(p);
        return rc;
    }
    *plan = p;
    return MR_OK;
}

static mr_code type(const mr_builtin_arg *args, size_t n, mr_spec **out, void **plan, mr_status *st)
{
    struct wanted w = {0};
    mr_example_feature *f = NULL;
    struct defaults *d = NULL;
    mr_code rc = collect(args, n, &w, st);
    if (rc != MR_OK)
        goto out;
    const mr_leaf *x =
        mr_spec_kind_of(args[0].spec) == MR_SPEC_LEAF ? mr_spec_leaf(args[0].spec, 0) : NULL;
    if (!x || x->dtype != MR_STRING || x->rank < 0 || x->rank > 1) {
        char found[256];
        mr_spec_format(args[0].spec, found, sizeof found);
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "parse_example expects one string or a vector of strings, not %s", found);
        goto out;
    }
    f = mr_calloc(w.n, sizeof *f);
    d = mr_calloc(w.n, sizeof *d);
    rc = f && d ? MR_OK : mr_fail_memory(st, w.n * sizeof *f, "features");
    for (size_t i = 0; i < w.n && rc == MR_OK; i++)
        rc = read_feature(w.exprs[i], w.names[i], &f[i], &d[i], st);
    if (rc == MR_OK) {
        qsort(f, w.n, sizeof *f, by_name); /* as the record orders them */
        rc = make_plan(f, w.n, x, out, plan, st);
    }
out:
    for (size_t i = 0; d && i < w.n; i++)
        mr_free(d[i].v);
    mr_free(d);
    mr_free(f);
    mr_free((void *)w.names);
    mr_free((void *)w.exprs);
    return rc;
}

/* ---- running ---- */

struct sink {
    mr_row_sink *errors;
    size_t per_row; /* records of one row */
};

static void report(void *ctx, size_t record, const mr_status *st)
{
    struct sink *s = ctx;
    mr__row_fail(s->errors, record / s->per_row, st->code, "%s", st->message);
}

/* A feature of fixed shape: every n records make a row. */
static mr_code group_fixed(mr_array *a, size_t n, size_t rows, mr_status *st)
{
    mr_array grouped;
    if (n) {
        mr_array_group(&grouped, a, n);
    } else {
        int64_t shape[MR_MAX_RANK] = {0};
        memcpy(shape + 1, a->shape, (size_t)a->rank * sizeof *shape);
        MR_TRY(mr_array_alloc(&grouped, a->dtype, a->rank + 1, shape, rows, st));
    }
    mr_array_reset(a);
    *a = grouped;
    return MR_OK;
}

/* A feature of variable length: every n records make a row with splits. */
static mr_code group_ragged(mr_array *a, size_t n, size_t rows, mr_status *st)
{
    const mr_row *from = a->data;
    size_t size = mr_dtype_size(a->dtype), total = 0;
    for (size_t i = 0; i < n * rows; i++)
        total += (size_t)from[i].shape[0];
    mr_array g;
    mr_buffer *values = NULL, *splits = NULL;
    MR_TRY(mr_array_alloc_ragged(&g, a->dtype, 2, rows, st));
    mr_code rc = mr_buffer_alloc(&values, total * size, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&splits, rows * (n + 1) * sizeof(int64_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(g.owner, values, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(g.owner, splits, st);
    if (rc == MR_OK && a->dtype == MR_STRING)
        rc = mr_buffer_hold_all(g.owner, a->owner, st);
    if (rc == MR_OK) {
        char *to = mr_buffer_data(values);
        int64_t *split = mr_buffer_data(splits);
        for (size_t r = 0; r < rows; r++, split += n + 1) {
            int64_t *shape = mr_array_shape_slot(&g, r);
            shape[0] = (int64_t)n;
            shape[1] = -1;
            ((mr_row *)g.data)[r] = (mr_row){.data = to, .shape = shape, .splits = split};
            split[0] = 0;
            for (size_t i = 0; i < n; i++, from++) {
                size_t bytes = (size_t)from->shape[0] * size;
                if (bytes)
                    memcpy(to, from->data, bytes);
                to += bytes;
                split[i + 1] = split[i] + from->shape[0];
            }
        }
    }
    mr_buffer_unref(values);
    mr_buffer_unref(splits);
    if (rc != MR_OK) {
        mr_array_reset(&g);
        return rc;
    }
    mr_array_reset(a);
    *a = g;
    return MR_OK;
}

static mr_code run(const void *plan, const mr_array *args, size_t n_args, size_t rows,
                   mr_array *columns, mr_row_sink *errors, mr_status *st)
{
    (void)n_args;
    const struct plan *p = plan;
    const mr_array *x = &args[0];
    size_t per_row = mr_array_row_values(x);
    struct sink sink = {errors, per_row ? per_row : 1};
    mr_code rc =
        mr_example_parse(p->example, x->data, rows * per_row, NULL, columns, report, &sink, st);
    if (rc != MR_OK)
        return rc;
    for (size_t i = 0; i < p->n && rc == MR_OK; i++) {
        if (columns[i].dtype == MR_STRING && x->owner)
            rc = mr_buffer_hold_all(columns[i].owner, x->owner, st);
        if (rc == MR_OK && p->vector)
            rc = p->ragged[i] ? group_ragged(&columns[i], per_row, rows, st)
                              : group_fixed(&columns[i], per_row, rows, st);
    }
    for (size_t i = 0; rc != MR_OK && i < p->n; i++)
        mr_array_reset(&columns[i]);
    return rc;
}

const mr_builtin mr_builtin_parse_example = {
    .name = "parse_example",
    .doc = "A record of features from serialized tf.train.Examples.",
    .n_values = 1,
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
