/* SPDX-License-Identifier: Apache-2.0 */
/* parse_example(x, name=feature, ...) and parse_example(x, {"name": feature, ...}): serialized
 * tf.train.Example records to a record of tensors.
 *
 *   feature                                     column
 *   int64, float32, bytes                       a scalar
 *   dtype[3, 4]                                 that shape
 *   dtype[]                                     any number of values: RAGGED, rank 1
 *   feature(dtype, shape=[..], default=v)       may be missing: then v
 *
 * Where x is a vector of records every feature gains its axis; one of any length then has rows that
 * are themselves ragged. */
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/example.h"
#include "pipeline/functions/builtin.h"
#include "pipeline/graph/dataset.h"

struct plan {
    mr_example_plan *example;
    size_t n;
    bool vector; /* of records */
};

static void free_plan(void *plan)
{
    struct plan *p = plan;
    mr_example_plan_free(p->example);
    mr_free(p);
}

/* ---- features from their text ---- */

/* A feature being read, with the values of its default. */
struct wanted {
    mr_example_feature f;
    void *defaults;
};

static mr_code bad_feature(const char *name, mr_status *st)
{
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "parse_example: feature %.80s is wanted as int64, float32 or bytes, dtype[3, 4], "
        "dtype[] or feature(dtype, shape=[..], default=v)",
        name);
}

static mr_code read_dimension(const mr_expr *e, struct wanted *w, mr_status *st)
{
    if (e->kind != MR_EX_INT || e->i < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example: a dimension of %.80s is no integer of at least 0",
                       w->f.name);
    if (w->f.rank == MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "parse_example: %.80s has more than %d axes",
                       w->f.name, MR_MAX_RANK);
    w->f.shape[w->f.rank++] = e->i;
    return MR_OK;
}

static mr_code read_shape(const mr_expr *e, struct wanted *w, mr_status *st)
{
    w->f.rank = 0;
    if (e->kind == MR_EX_INT)
        return read_dimension(e, w, st);
    if (e->kind != MR_EX_LIST && e->kind != MR_EX_TUPLE)
        return bad_feature(w->f.name, st);
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(read_dimension(e->children[i], w, st));
    return MR_OK;
}

/* dtype, dtype[..] or dtype[] */
static mr_code read_dtype(const mr_expr *e, struct wanted *w, mr_status *st)
{
    const mr_expr *name = e->kind == MR_EX_INDEX ? e->children[0] : e;
    MR_TRY(mr__builtin_dtype(&(mr_builtin_arg){.expr = name}, &w->f.dtype, NULL) == MR_OK
               ? MR_OK
               : bad_feature(w->f.name, st));
    if (w->f.dtype != MR_INT64 && w->f.dtype != MR_FLOAT32 && w->f.dtype != MR_STRING)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "parse_example: an Example holds int64, float32 and bytes; read %.80s as one "
            "of them and cast it",
            w->f.name);
    if (e->kind != MR_EX_INDEX)
        return MR_OK;
    if (e->n == 1) {
        w->f.ragged = true;
        return MR_OK;
    }
    return read_shape(e->children[1], w, st);
}

/* Values of a default: a literal, or nested lists of them, flat. Counts only where to is NULL. */
static bool read_values(const mr_expr *e, mr_dtype t, char *to, size_t *n)
{
    bool minus = e->kind == MR_EX_UNARY && e->op == '-';
    const mr_expr *v = minus ? e->children[0] : e;
    if (e->kind == MR_EX_LIST || e->kind == MR_EX_TUPLE) {
        for (size_t i = 0; i < e->n; i++)
            if (!read_values(e->children[i], t, to, n))
                return false;
        return true;
    }
    bool number = v->kind == MR_EX_INT || (v->kind == MR_EX_FLOAT && t == MR_FLOAT32);
    if (t == MR_STRING ? e->kind != MR_EX_STRING : !number)
        return false;
    size_t i = (*n)++;
    if (!to)
        return true;
    if (t == MR_STRING) {
        ((mr_bytes *)to)[i] = (mr_bytes){e->text, e->text_size};
    } else if (t == MR_INT64) {
        ((int64_t *)to)[i] = minus ? (int64_t)(0 - (uint64_t)v->i) : v->i;
    } else {
        double d = v->kind == MR_EX_INT ? (double)v->i : v->f;
        ((float *)to)[i] = (float)(minus ? -d : d);
    }
    return true;
}

static mr_code read_default(const mr_expr *e, struct wanted *w, mr_status *st)
{
    size_t n = 0, want = 1, size = mr_dtype_size(w->f.dtype);
    if (w->f.ragged)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "parse_example: %.80s is of any length and has no default: without values it "
            "is empty",
            w->f.name);
    if (!read_values(e, w->f.dtype, NULL, &n))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example: the default of %.80s is wanted as %s literals", w->f.name,
                       w->f.dtype == MR_STRING ? "string" : mr_dtype_name(w->f.dtype));
    for (int d = 0; d < w->f.rank; d++)
        if (__builtin_mul_overflow(want, (size_t)w->f.shape[d], &want))
            return bad_feature(w->f.name, st);
    if (n != want)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example: the default of %.80s has %zu values, its shape %zu",
                       w->f.name, n, want);
    w->defaults = mr_calloc(n + 1, size);
    if (!w->defaults)
        return mr_fail_memory(st, n * size, "a default");
    n = 0;
    read_values(e, w->f.dtype, w->defaults, &n);
    w->f.default_values = w->defaults;
    w->f.n_default_values = want;
    return MR_OK;
}

static mr_code read_feature(const char *name, const mr_expr *e, struct wanted *w, mr_status *st)
{
    w->f.name = name;
    w->f.name_size = strlen(name);
    if (e->kind != MR_EX_CALL)
        return read_dtype(e, w, st);
    if (strcmp(e->text, "feature") != 0 || e->n == 0 || (e->keys && e->keys[0]))
        return bad_feature(name, st);
    MR_TRY(read_dtype(e->children[0], w, st));
    const mr_expr *preset = NULL;
    for (size_t i = 1; i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        if (key ? strcmp(key, "shape") == 0 : i == 1)
            MR_TRY(read_shape(e->children[i], w, st));
        else if (key ? strcmp(key, "default") == 0 : i == 2)
            preset = e->children[i];
        else
            return bad_feature(name, st);
    }
    return preset ? read_default(preset, w, st) : MR_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return strcmp(x->f.name, y->f.name);
}

/* ---- typing ---- */

static mr_spec *column_spec(const mr_example_feature *f, const mr_leaf *x)
{
    mr_leaf leaf = {.dtype = f->dtype};
    if (x->rank == 1)
        leaf.shape[leaf.rank++] = x->shape[0];
    if (f->ragged) {
        leaf.ragged = x->rank == 1;
        leaf.shape[leaf.rank++] = -1;
    }
    for (int d = 0; !f->ragged && d < f->rank; d++)
        leaf.shape[leaf.rank++] = f->shape[d];
    return mr_spec_of_leaf(&leaf);
}

static mr_code make_plan(struct wanted *w, size_t n, const mr_leaf *x, mr_spec **out, void **plan,
                         mr_status *st)
{
    struct plan *p = mr_calloc(1, sizeof *p);
    mr_example_feature *features = mr_calloc(n, sizeof *features);
    const char **names = mr_calloc(n, sizeof *names);
    mr_spec **specs = mr_calloc(n, sizeof *specs);
    mr_code rc = MR_OK;
    if (!p || !features || !names || !specs)
        rc = mr_fail_memory(st, n * sizeof *features, "a function's plan");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        features[i] = w[i].f;
        names[i] = w[i].f.name;
    }
    if (rc == MR_OK) {
        p->n = n;
        p->vector = x->rank == 1;
        rc = mr_example_plan_new(&p->example, features, n, st);
    }
    if (rc == MR_OK) {
        for (size_t i = 0; i < n; i++)
            specs[i] = column_spec(&w[i].f, x);
        *out = mr_spec_record(names, specs, n);
        rc = *out ? MR_OK : mr_fail_memory(st, n * sizeof *specs, "a spec");
    }
    mr_free(features);
    mr_free(names);
    mr_free(specs);
    if (rc == MR_OK)
        *plan = p;
    else if (p)
        free_plan(p);
    return rc;
}

/* The features: keyword arguments, or the components of one record. */
static mr_code list_features(const mr_builtin_arg *args, size_t n, struct wanted *w, bool record,
                             mr_status *st)
{
    const mr_expr *r = record ? args[1].expr : NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = record ? r->keys[i] : args[i + 1].key;
        if (!name)
            return mr_fail(
                st, MR_INVALID_ARGUMENT,
                "parse_example: features have names, as in parse_example(x, label=int64)");
        MR_TRY(read_feature(name, record ? r->children[i] : args[i + 1].expr, &w[i], st));
    }
    qsort(w, n, sizeof *w, by_name);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(w[i].f.name, w[i + 1].f.name) == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "parse_example: feature %.80s stands twice",
                           w[i].f.name);
    return MR_OK;
}

static mr_code type(const mr_builtin_arg *args, size_t n, mr_spec **out, void **plan, mr_status *st)
{
    if (n < 2 || args[0].key)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example takes records and at least one feature, as in "
                       "parse_example(x, image=bytes, label=int64)");
    const mr_leaf *x =
        mr_spec_kind_of(args[0].spec) == MR_SPEC_LEAF ? mr_spec_leaf(args[0].spec, 0) : NULL;
    if (!x || x->dtype != MR_STRING || x->ragged || x->rank < 0 || x->rank > 1) {
        char found[128];
        mr_spec_format(args[0].spec, found, sizeof found);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "parse_example wants a string or a vector of strings, not %s", found);
    }
    bool record = n == 2 && !args[1].key && args[1].expr->kind == MR_EX_RECORD;
    size_t count = record ? args[1].expr->n : n - 1;
    if (count == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "parse_example: no feature is asked for");
    struct wanted *w = mr_calloc(count, sizeof *w);
    if (!w)
        return mr_fail_memory(st, count * sizeof *w, "features");
    mr_code rc = list_features(args, count, w, record, st);
    if (rc == MR_OK && x->rank == 1)
        for (size_t i = 0; i < count && rc == MR_OK; i++)
            if (w[i].f.rank == MR_MAX_RANK)
                rc = mr_fail(st, MR_INVALID_ARGUMENT, "parse_example: %.80s has more than %d axes",
                             w[i].f.name, MR_MAX_RANK - 1);
    if (rc == MR_OK)
        rc = make_plan(w, count, x, out, plan, st);
    for (size_t i = 0; i < count; i++)
        mr_free(w[i].defaults);
    mr_free(w);
    return rc;
}

/* ---- running ---- */

struct told {
    mr_row_sink *errors;
    size_t per_row;
};

/* A record is counted in its own vector, a single one is 0: where the block that holds it begins
 * is no business of the user's. */
static void tell(void *ctx, size_t row, const mr_status *st)
{
    const struct told *t = ctx;
    char index[40];
    int n = snprintf(index, sizeof index, ", Index: %zu. ", row);
    const char *at = strstr(st->message, index);
    if (!at)
        mr__row_fail(t->errors, row / t->per_row, st->code, "%s", st->message);
    else
        mr__row_fail(t->errors, row / t->per_row, st->code, "%.*s, Index: %zu. %s",
                     (int)(at - st->message), st->message, row % t->per_row, at + n);
}

/* Every k ragged rows of rank 1 become one row [k, -1] with splits. */
static mr_code group_ragged(mr_array *a, size_t k, size_t rows, mr_status *st)
{
    size_t size = mr_dtype_size(a->dtype), values = 0;
    const mr_row *from = a->data;
    for (size_t i = 0; i < rows * k; i++)
        values += (size_t)from[i].shape[0];
    mr_array g;
    mr_buffer *data = NULL, *splits = NULL;
    MR_TRY(mr_array_alloc_ragged(&g, a->dtype, 2, rows, st));
    mr_code rc = mr_buffer_alloc(&data, values * size, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&splits, rows * (k + 1) * sizeof(int64_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(g.owner, data, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(g.owner, splits, st);
    if (rc == MR_OK && a->dtype == MR_STRING)
        rc = mr_buffer_hold_all(g.owner, a->owner, st);
    char *at = data ? mr_buffer_data(data) : NULL;
    int64_t *split = splits ? mr_buffer_data(splits) : NULL;
    for (size_t r = 0; r < rows && rc == MR_OK; r++) {
        int64_t *shape = mr_array_shape_slot(&g, r);
        shape[0] = (int64_t)k;
        shape[1] = -1;
        ((mr_row *)g.data)[r] = (mr_row){.data = at, .shape = shape, .splits = split};
        int64_t n = 0;
        for (size_t i = 0; i < k; i++, from++) {
            *split++ = n;
            size_t bytes = (size_t)from->shape[0] * size;
            if (bytes)
                memcpy(at, from->data, bytes);
            at += bytes;
            n += from->shape[0];
        }
        *split++ = n;
    }
    mr_buffer_unref(data);
    mr_buffer_unref(splits);
    mr_array_reset(rc == MR_OK ? a : &g);
    if (rc == MR_OK)
        *a = g;
    return rc;
}

/* Every k rows of column i become one, with a leading axis of k. */
static mr_code group_column(mr_array *a, size_t k, size_t rows, mr_status *st)
{
    if (a->storage == MR_RAGGED)
        return group_ragged(a, k, rows, st);
    mr_array g;
    if (k > 0) {
        mr_array_group(&g, a, k);
        mr_array_reset(a);
        *a = g;
        return MR_OK;
    }
    int64_t shape[MR_MAX_RANK] = {0};
    memcpy(shape + 1, a->shape, (size_t)a->rank * sizeof *shape);
    MR_TRY(mr_array_alloc(&g, a->dtype, a->rank + 1, shape, rows, st));
    mr_array_reset(a);
    *a = g;
    return MR_OK;
}

static mr_code run(const void *plan, const mr_array *args, size_t n, size_t rows, mr_array *columns,
                   mr_row_sink *errors, mr_status *st)
{
    (void)n;
    const struct plan *p = plan;
    const mr_array *x = &args[0];
    size_t per_row = mr_array_row_values(x);
    struct told t = {errors, per_row ? per_row : 1};
    MR_TRY(mr_example_parse(p->example, x->data, rows * per_row, NULL, columns, tell, &t, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < p->n && rc == MR_OK; i++) {
        if (columns[i].dtype == MR_STRING && x->owner)
            rc = mr_buffer_hold_all(columns[i].owner, x->owner, st);
        if (rc == MR_OK && p->vector)
            rc = group_column(&columns[i], per_row, rows, st);
    }
    for (size_t i = 0; i < p->n && rc != MR_OK; i++)
        mr_array_reset(&columns[i]);
    return rc;
}

extern const mr_builtin mr_builtin_parse_example;
const mr_builtin mr_builtin_parse_example = {
    .name = "parse_example",
    .doc = "The features of serialized tf.train.Example records, as a record.",
    .n_values = 1,
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
