/* SPDX-License-Identifier: Apache-2.0 */
/* parse_example(x, name=feature, ...) and parse_example(x, {"name": feature, ...}): parses
 * serialized tf.train.Example records into a record of tensors.
 *
 *   feature                                     column
 *   int64, float32, bytes                       a scalar
 *   dtype[3, 4]                                 that shape
 *   dtype[]                                     any number of values: RAGGED, rank 1
 *   feature(dtype, shape=[..], default=v)       may be missing: then v
 *   sparse(dtype, index="i", value="v", size=n) n values: those of v at the places of i, else 0
 * If x is a vector of records, every feature has an additional first axis; the rows of a feature
 * of any length are then themselves ragged. */
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example.h"
#include "pipeline/functions/library/features.h"

struct params {
    mr_exprs features;
};

/* A component of the result. */
struct column {
    size_t a, b;  /* features of the example plan: a; of a sparse one b's values at a's places */
    int64_t size; /* of a sparse feature; 0: not sparse */
    const char *name; /* in e */
    mr_dtype dtype;
};

struct plan {
    mr_example_plan *example;
    struct column *columns;
    size_t n;
    bool vector; /* of records */
    bool plain;  /* the columns are the example plan's */
    const mr_expr *e;
};

static void free_plan(void *plan)
{
    struct plan *p = plan;
    mr_example_plan_free(p->example);
    mr_free(p->columns);
    mr_expr_unref(p->e);
    mr_free(p);
}

/* ---- features from their text ---- */

/* A feature being read, with the values of its default. */
struct wanted {
    mr_example_feature f;
    void *defaults;
    const mr_expr *e;          /* where it is written */
    const char *index, *value; /* the features that a sparse one is made of; NULL: not sparse */
    int64_t size;
};

static mr_code bad_feature(const struct wanted *w, mr_status *st)
{
    return mr_expr_fail_at(st, w->e,
                           "parse_example: feature %.80s must be int64, float32 or bytes, dtype[3, "
                           "4], dtype[], feature(dtype, shape=[..], default=v) or sparse(dtype, "
                           "index=\"..\", value=\"..\", size=n)",
                           w->f.name);
}

/* A feature as for other records, restricted to the types that an Example supports. */
static mr_code read_plain(const mr_expr *e, int most, struct wanted *w, mr__feature *f,
                          mr_status *st)
{
    MR_TRY(mr__feature_read("parse_example", w->f.name, e, most, f, st));
    if (f->dtype != MR_INT64 && f->dtype != MR_FLOAT32 && f->dtype != MR_STRING)
        return mr_expr_fail_at(
            st, e,
            "parse_example: an Example holds int64, float32 and bytes; read %.80s as one "
            "of them and cast it",
            w->f.name);
    w->f.dtype = f->dtype;
    w->f.ragged = f->ragged;
    w->f.rank = f->rank;
    memcpy(w->f.shape, f->shape, sizeof f->shape);
    return MR_OK;
}

/* The values of a default, which are literals, flat: *n so far. */
static void read_values(const mr_expr *e, mr_dtype t, char *to, size_t *n)
{
    bool minus = e->kind == MR_EX_UNARY;
    const mr_expr *v = minus ? e->children[0] : e;
    if (e->kind == MR_EX_LIST || e->kind == MR_EX_TUPLE) {
        for (size_t i = 0; i < e->n; i++)
            read_values(e->children[i], t, to, n);
        return;
    }
    size_t i = (*n)++;
    if (t == MR_STRING) {
        ((mr_bytes *)to)[i] = (mr_bytes){e->text, e->text_size};
    } else if (t == MR_INT64) {
        ((int64_t *)to)[i] = minus ? (int64_t)(0 - (uint64_t)v->i) : v->i;
    } else {
        ((float *)to)[i] = (float)mr__preset_float(e);
    }
}

static mr_code read_default(const mr__feature *f, struct wanted *w, mr_status *st)
{
    if (f->n_preset != f->n)
        return mr_expr_fail_at(
            st, f->preset, "parse_example: the default of %.80s has %zu values, but its shape %zu",
            w->f.name, f->n_preset, f->n);
    size_t n = 0, size = mr_dtype_size(f->dtype);
    w->defaults = mr_calloc(f->n + 1, size);
    if (!w->defaults)
        return mr_fail_memory(st, f->n * size, "a default");
    read_values(f->preset, f->dtype, w->defaults, &n);
    w->f.default_values = w->defaults;
    w->f.n_default_values = n;
    return MR_OK;
}

/* sparse(dtype, index="..", value="..", size=n) */
static mr_code read_sparse(const mr_expr *e, struct wanted *w, mr_status *st)
{
    mr__feature f;
    if (e->n == 0 || (e->keys && e->keys[0]) || e->children[0]->kind == MR_EX_INDEX ||
        e->children[0]->kind == MR_EX_CALL)
        return bad_feature(w, st);
    MR_TRY(read_plain(e->children[0], 0, w, &f, st));
    for (size_t i = 1; i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        const mr_expr *v = e->children[i];
        bool is_name = v->kind == MR_EX_STRING && v->text_size && strlen(v->text) == v->text_size;
        if ((key ? strcmp(key, "index") == 0 : i == 1) && is_name)
            w->index = v->text;
        else if ((key ? strcmp(key, "value") == 0 : i == 2) && is_name)
            w->value = v->text;
        else if ((key ? strcmp(key, "size") == 0 : i == 3) && v->kind == MR_EX_INT && v->i > 0 &&
                 v->i <= INT32_MAX)
            w->size = v->i;
        else
            return bad_feature(w, st);
    }
    if (!w->index || !w->value || !w->size)
        return bad_feature(w, st);
    w->f.rank = 1;
    w->f.shape[0] = w->size;
    return MR_OK;
}

static mr_code read_feature(const char *name, const mr_expr *e, int most, struct wanted *w,
                            mr_status *st)
{
    mr__feature f;
    w->e = e;
    w->f.name = name;
    w->f.name_size = strlen(name);
    if (e->kind == MR_EX_CALL && strcmp(e->text, "sparse") == 0)
        return read_sparse(e, w, st);
    MR_TRY(read_plain(e, most, w, &f, st));
    return f.preset ? read_default(&f, w, st) : MR_OK;
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

/* The index of a feature among the n so far, to which it is added if missing. Parts of sparse
 * features may be shared, and may also be requested by name. */
static mr_code place_feature(mr_example_feature *all, size_t *n, const mr_example_feature *f,
                             const mr_expr *e, size_t *at, mr_status *st)
{
    for (*at = 0; *at < *n; ++*at) {
        const mr_example_feature *other = &all[*at];
        if (other->name_size != f->name_size || memcmp(other->name, f->name, f->name_size) != 0)
            continue;
        if (other->dtype == f->dtype && other->ragged && f->ragged)
            return MR_OK;
        return mr_expr_fail_at(
            st, e,
            "parse_example: feature %.80s is also part of a sparse feature, so it must be %s[]",
            f->name, other->ragged ? mr_dtype_name(other->dtype) : mr_dtype_name(f->dtype));
    }
    all[(*n)++] = *f;
    return MR_OK;
}

static mr_code place_column(const struct wanted *w, mr_example_feature *all, size_t *n,
                            struct column *c, mr_status *st)
{
    *c = (struct column){.size = w->size, .name = w->f.name, .dtype = w->f.dtype};
    if (!w->index)
        return place_feature(all, n, &w->f, w->e, &c->a, st);
    const mr_example_feature parts[2] = {
        {.name = w->index, .name_size = strlen(w->index), .dtype = MR_INT64, .ragged = true},
        {.name = w->value, .name_size = strlen(w->value), .dtype = w->f.dtype, .ragged = true}};
    MR_TRY(place_feature(all, n, &parts[0], w->e, &c->a, st));
    return place_feature(all, n, &parts[1], w->e, &c->b, st);
}

static mr_code make_plan(struct wanted *w, size_t n, mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    mr_example_feature *all = mr_calloc(2 * n, sizeof *all);
    const char **names = mr_calloc(n, sizeof *names);
    mr_spec **specs = mr_calloc(n, sizeof *specs);
    size_t n_all = 0;
    mr_code rc = MR_OK;
    if (p)
        p->columns = mr_calloc(n, sizeof *p->columns);
    if (!p || !p->columns || !all || !names || !specs)
        rc = mr_fail_memory(st, n * sizeof *all, "a function's plan");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        names[i] = w[i].f.name;
        rc = place_column(&w[i], all, &n_all, &p->columns[i], st);
    }
    if (rc == MR_OK) {
        p->n = n;
        p->vector = x->rank == 1;
        p->plain = true;
        p->e = mr_expr_ref(c->e);
        for (size_t i = 0; i < n; i++)
            p->plain = p->plain && !w[i].index;
        rc = mr_example_plan_new(&p->example, all, n_all, st);
    }
    if (rc == MR_OK) {
        for (size_t i = 0; i < n; i++)
            specs[i] = column_spec(&w[i].f, x);
        c->spec = mr_spec_record(names, specs, n);
        rc = c->spec ? MR_OK : mr_fail_memory(st, n * sizeof *specs, "a spec");
    }
    mr_free(all);
    mr_free(names);
    mr_free(specs);
    return rc;
}

/* The features: named arguments, or the components of one record. */
static mr_code read_features(const mr_call *c, const mr_expr *const *v, char *const *names,
                             size_t n, struct wanted *w, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        if (!names[i])
            return mr_expr_fail_at(
                st, v[i],
                "parse_example: features have names, as in parse_example(x, label=int64)");
        MR_TRY(read_feature(names[i], v[i], MR_MAX_RANK - c->in[0]->rank, &w[i], st));
    }
    qsort(w, n, sizeof *w, by_name);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(w[i].f.name, w[i + 1].f.name) == 0)
            return mr_expr_fail_at(st, w[i + 1].e, "parse_example: feature %.80s appears twice",
                                   w[i].f.name);
    return MR_OK;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_exprs *given = &((const struct params *)c->params)->features;
    const mr_leaf *x = c->in[0];
    if (x->rank < 0 || x->rank > 1) {
        char shape[96];
        mr_shape_format(x->rank, x->shape, shape, sizeof shape);
        return mr_call_fail(
            c, st, 0, "parse_example expects a string or a vector of strings, not shape %s", shape);
    }
    bool record = given->n == 1 && !given->names[0] && given->v[0]->kind == MR_EX_RECORD;
    const mr_expr *const *v = record ? given->v[0]->children : given->v;
    char *const *names = record ? given->v[0]->keys : (char *const *)given->names;
    size_t n = record ? given->v[0]->n : given->n;
    if (n == 0)
        return mr_call_fail(c, st, -1, "parse_example: no feature is requested");
    struct wanted *w = mr_calloc(n, sizeof *w);
    if (!w)
        return mr_fail_memory(st, n * sizeof *w, "features");
    mr_code rc = read_features(c, v, names, n, w, st);
    if (rc == MR_OK)
        rc = make_plan(w, n, c, st);
    for (size_t i = 0; i < n; i++)
        mr_free(w[i].defaults);
    mr_free(w);
    return rc;
}

/* ---- running ---- */

/* The record's number counts within its vector (0 for a single record): the start of the block is
 * of no interest to the user. */
static void report(void *ctx, size_t record, const mr_status *st)
{
    const mr_rows *r = ctx;
    size_t per_row = mr_array_row_values(&r->in[0]), row = record / per_row, k = record % per_row;
    char index[40];
    int n = snprintf(index, sizeof index, ", Index: %zu. ", record);
    const char *at = strstr(st->message, index);
    if (!at)
        mr_row_fail_at(r, row, 0, k, st->code, "%s", st->message);
    else
        mr_row_fail_at(r, row, 0, k, st->code, "%.*s, Index: %zu. %s", (int)(at - st->message),
                       st->message, k, at + n);
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

/* Puts record i's values of a sparse feature into z. Returns NULL, or a description of the
 * error. */
static const char *spread_values(const struct column *c, const mr_row *index, const mr_row *values,
                                 uint32_t stamp, uint32_t *seen, char *z)
{
    size_t size = mr_dtype_size(c->dtype);
    const int64_t *at = index->data;
    if (index->shape[0] != values->shape[0])
        return "its indices and values differ in number";
    for (int64_t k = 0; k < index->shape[0]; k++) {
        if (at[k] < 0 || at[k] >= c->size)
            return "an index is out of range";
        if (seen[at[k]] == stamp)
            return "an index appears twice";
        seen[at[k]] = stamp;
        memcpy(z + (size_t)at[k] * size, (const char *)values->data + (size_t)k * size, size);
    }
    return NULL;
}

/* The column of a sparse feature, of n records. */
static mr_code make_sparse(const mr_rows *r, const struct column *c, const mr_array *parsed,
                           size_t n, mr_array *out, mr_status *st)
{
    const mr_array *index = &parsed[c->a], *values = &parsed[c->b];
    size_t per_row = mr_array_row_values(&r->in[0]);
    mr_buffer *memory = NULL;
    MR_TRY(mr_array_alloc(out, c->dtype, 1, &c->size, n, st));
    MR_TRY(mr_buffer_alloc(&memory, (size_t)c->size * sizeof(uint32_t), st));
    uint32_t *seen = mr_buffer_data(memory);
    memset(seen, 0, (size_t)c->size * sizeof *seen);
    if (n)
        memset(out->data, 0, n * mr_array_row_bytes(out));
    for (size_t i = 0; i < n; i++) {
        const char *why =
            spread_values(c, (const mr_row *)index->data + i, (const mr_row *)values->data + i,
                          (uint32_t)i + 1, seen, mr_array_at(out, i));
        if (why)
            mr_row_fail_at(r, i / per_row, 0, i % per_row, MR_INVALID_ARGUMENT,
                           "Name: <unknown>, Feature: %.80s, Index: %zu. %s", c->name, i % per_row,
                           why);
    }
    mr_buffer_unref(memory);
    return c->dtype == MR_STRING ? mr_buffer_hold_all(out->owner, values->owner, st) : MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *columns, mr_status *st)
{
    const struct plan *p = r->plan;
    const mr_array *x = &r->in[0];
    size_t per_row = mr_array_row_values(x), n = r->rows * per_row;
    size_t n_parsed = mr_example_plan_columns(p->example);
    mr_array *parsed = p->plain ? columns : mr_calloc(n_parsed, sizeof *parsed);
    if (!parsed)
        return mr_fail_memory(st, n_parsed * sizeof *parsed, "columns");
    mr_code rc =
        mr_example_parse(p->example, x->data, n, NULL, parsed, report, (void *)(uintptr_t)r, st);
    for (size_t i = 0; i < n_parsed && rc == MR_OK; i++)
        if (parsed[i].dtype == MR_STRING && x->owner)
            rc = mr_buffer_hold_all(parsed[i].owner, x->owner, st);
    for (size_t i = 0; i < p->n && rc == MR_OK && !p->plain; i++) {
        const struct column *c = &p->columns[i];
        if (c->size)
            rc = make_sparse(r, c, parsed, n, &columns[i], st);
        else
            mr_array_slice(&columns[i], &parsed[c->a], 0, n);
    }
    for (size_t i = 0; i < p->n && rc == MR_OK && p->vector; i++)
        rc = group_column(&columns[i], per_row, r->rows, st);
    for (size_t i = 0; i < n_parsed && !p->plain; i++)
        mr_array_reset(&parsed[i]);
    if (!p->plain)
        mr_free(parsed);
    for (size_t i = 0; i < p->n && rc != MR_OK; i++)
        mr_array_reset(&columns[i]);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "A serialized tf.train.Example, or a vector of them."),
    {.name = "features",
     .doc =
         "name=feature, ... or one record {\"name\": feature, ...}. A feature is int64, float32 or "
         "bytes, with a shape after it ([3, 4]; [] for any length), feature(dtype, shape=[..], "
         "default=v) if a record may lack it, or sparse(dtype, index=\"i\", value=\"v\", size=n).",
     .type = MR_PT_OWN,
     .kind = &mr_option_exprs,
     .flags = MR_P_POSITIONAL | MR_P_VARIADIC,
     .at = offsetof(struct params, features)},
    {0}};
const mr_function mr_function_parse_example = {
    .abi = MR_ABI_VERSION,
    .name = "parse_example",
    .doc = "The features of serialized tf.train.Example records, as a record.",
    .example =
        "tfrecord(\"train-*.tfrecord\").map(x => parse_example(x, image=bytes, label=int64))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
