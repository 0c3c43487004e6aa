/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/features.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/params/infer.h"

/* ---- descriptions of features ---- */

/* Features as they are read. */
struct reading {
    const char *who;
    bool schema; /* it is the schema of a table */
    bool op;     /* they are the text of an op's parameter; the op's message states its place */
    bool json;   /* also records, lists of them, and the type json */
    bool vector; /* of a vector of records */
    const char *name;
};

static mr_code refuse(const struct reading *r, mr_status *st, const mr_expr *e, const char *fmt,
                      ...) MR_PRINTF(4, 5);
static mr_code refuse(const struct reading *r, mr_status *st, const mr_expr *e, const char *fmt,
                      ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!r->op)
        return mr_expr_fail_at(st, e, "%s: %.80s%s%s", r->who, r->name ? r->name : "",
                               r->name ? ": " : "", text);
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s: %.80s%s%s", r->who,
                   r->schema ? "schema" : "features", r->name ? r->name : "", r->name ? ": " : "",
                   text);
}

static mr_code bad_feature(const struct reading *r, const mr_expr *e, mr_status *st)
{
    return refuse(r, st, e,
                  "a feature must be int64, float32, bytes or another dtype, dtype[3, 4], "
                  "dtype[] or feature(dtype, shape=[..], default=v)%s",
                  r->json                   ? ", a record of them, or [{...}], a list of records"
                  : e->kind == MR_EX_RECORD ? "; records cannot be nested here"
                                            : "");
}

static mr_code read_shape(const struct reading *r, const mr_expr *e, int most, mr__feature *f,
                          mr_status *st)
{
    bool list = e->kind == MR_EX_LIST || e->kind == MR_EX_TUPLE;
    size_t n = list ? e->n : 1;
    if (n > (size_t)most)
        return refuse(r, st, e, "a feature has at most %d axes", most);
    f->rank = (int)n;
    f->n = 1;
    for (size_t d = 0; d < n; d++) {
        const mr_expr *at = list ? e->children[d] : e;
        if (at->kind != MR_EX_INT || at->i < 0)
            return refuse(r, st, at, "a dimension is an integer of at least 0");
        if (__builtin_mul_overflow(f->n, (size_t)at->i, &f->n) || f->n > INT32_MAX)
            return refuse(r, st, at, "a feature has at most %d values", INT32_MAX);
        f->shape[d] = at->i;
    }
    return MR_OK;
}

static mr_code read_dtype(const struct reading *r, const mr_expr *e, int most, mr__feature *f,
                          mr_status *st)
{
    const mr_expr *name = e->kind == MR_EX_INDEX ? e->children[0] : e;
    f->n = 1;
    f->raw = r->json && name->kind == MR_EX_NAME && strcmp(name->text, "json") == 0;
    if (f->raw)
        f->dtype = MR_STRING;
    else if (mr_option_dtype.parse(NULL, name, &f->dtype, NULL) != MR_OK || f->dtype == MR_DATASET)
        return bad_feature(r, e, st);
    if (f->dtype == MR_FLOAT16 || f->dtype == MR_BFLOAT16)
        return refuse(r, st, e, "read it as float32 and cast it");
    if (e->kind != MR_EX_INDEX)
        return MR_OK;
    f->ragged = e->n == 1;
    return f->ragged ? MR_OK : read_shape(r, e->children[1], most, f, st);
}

/* Literal i of a default; *n counts them. */
static const mr_expr *literal_at(const mr_expr *e, size_t i, size_t *n)
{
    const mr_expr *found = NULL;
    if (e->kind != MR_EX_LIST && e->kind != MR_EX_TUPLE)
        return (*n)++ == i ? e : NULL;
    for (size_t k = 0; k < e->n; k++) {
        const mr_expr *v = literal_at(e->children[k], i, n);
        found = found ? found : v;
    }
    return found;
}

/* nan and inf are names, like dtypes: the grammar has no literals for them. */
static bool is_float(const mr_expr *v)
{
    return v->kind == MR_EX_FLOAT ||
           (v->kind == MR_EX_NAME && (strcmp(v->text, "nan") == 0 || strcmp(v->text, "inf") == 0));
}

static bool is_literal(const mr_expr *e, mr_dtype t)
{
    const mr_expr *v = e->kind == MR_EX_UNARY && e->op == '-' ? e->children[0] : e;
    if (t == MR_STRING || t == MR_BOOL)
        return e->kind == (t == MR_STRING ? MR_EX_STRING : MR_EX_BOOL);
    return v->kind == MR_EX_INT || (mr_dtype_is_floating(t) && is_float(v));
}

double mr__preset_float(const mr_expr *e)
{
    bool minus = e->kind == MR_EX_UNARY;
    const mr_expr *v = minus ? e->children[0] : e;
    double d = v->kind == MR_EX_INT     ? (double)v->i
               : v->kind == MR_EX_FLOAT ? v->f
               : *v->text == 'n'        ? (double)NAN
                                        : (double)INFINITY;
    return minus ? -d : d;
}

static mr_code read_preset(const struct reading *r, const mr_expr *e, mr__feature *f, mr_status *st)
{
    size_t n = 0, all = 0;
    literal_at(e, SIZE_MAX, &all);
    if (f->ragged)
        return refuse(r, st, e, "a feature of any length takes no default: it is empty if missing");
    for (size_t i = 0; i < all; i++, n = 0)
        if (!is_literal(literal_at(e, i, &n), f->dtype))
            return refuse(r, st, e, "the default must be %s literals",
                          f->dtype == MR_STRING ? "string" : mr_dtype_name(f->dtype));
    if (all != 1 && all != f->n)
        return refuse(r, st, e, "the default has %zu values, but its shape %zu", all, f->n);
    f->preset = e;
    f->n_preset = all;
    return MR_OK;
}

static mr_code read_feature(const struct reading *r, const mr_expr *e, int most, mr__feature *f,
                            mr_status *st)
{
    if (e->kind != MR_EX_CALL)
        return read_dtype(r, e, most, f, st);
    if (strcmp(e->text, "feature") != 0 || e->n == 0 || (e->keys && e->keys[0]))
        return bad_feature(r, e, st);
    MR_TRY(read_dtype(r, e->children[0], most, f, st));
    const mr_expr *preset = NULL;
    for (size_t i = 1; i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        if (key ? strcmp(key, "shape") == 0 : i == 1)
            MR_TRY(read_shape(r, e->children[i], most, f, st));
        else if (key ? strcmp(key, "default") == 0 : i == 2)
            preset = e->children[i];
        else
            return bad_feature(r, e, st);
    }
    return preset ? read_preset(r, preset, f, st) : MR_OK;
}

mr_code mr__feature_read(const char *who, const char *name, const mr_expr *e, int most,
                         mr__feature *out, mr_status *st)
{
    *out = (mr__feature){.name = name};
    return read_feature(&(struct reading){.who = who, .name = name}, e, most, out, st);
}

/* ---- the tree of features ---- */

static void free_nodes(mr__feature_node *node)
{
    for (size_t i = 0; i < node->n; i++)
        free_nodes(&node->children[i]);
    mr_free(node->children);
    mr_free(node->path);
}

/* Axes of any length. */
static int free_axes(const mr__feature *f)
{
    return f->lists + f->ragged;
}

/* Whether columns can have the axes that the lists of records add. */
static mr_code check_axes(const struct reading *r, const mr_expr *e, const mr__feature *f,
                          mr_status *st)
{
    if (f->lists == 0)
        return MR_OK;
    if (free_axes(f) > 2 - r->vector)
        return refuse(r, st, e,
                      "lists more than %d deep%s have no type; feature(json) gives their text",
                      2 - r->vector, r->vector ? " in a vector of texts" : "");
    if (f->n == 0)
        return refuse(r, st, e, "a dimension within a list of records is at least 1");
    if (r->vector && f->rank)
        return refuse(r, st, e, "shapes within lists of records are not for a vector of texts");
    if (f->rank + free_axes(f) > MR_MAX_RANK)
        return refuse(r, st, e, "a feature has at most %d axes", MR_MAX_RANK);
    return MR_OK;
}

static mr_code add_feature(struct reading *r, const mr_expr *e, int lists, size_t place,
                           const char *name, mr__features *f, mr_status *st)
{
    MR_TRY(MR_GROW(f->v, f->room, f->n + 1, SIZE_MAX / sizeof *f->v, "features", st));
    mr__feature *one = &f->v[f->n++];
    *one = (mr__feature){.name = name, .place = place, .lists = lists};
    MR_TRY(read_feature(r, e, MR_MAX_RANK - r->vector, one, st));
    return check_axes(r, e, one, st);
}

static mr_code read_nodes(struct reading *r, const mr_expr *e, const mr_expr *const *v,
                          char *const *names, size_t n, int lists, mr__features *f,
                          mr__feature_node *node, mr_status *st);

/* The record within the brackets of e, *lists of them; NULL: it is a feature. */
static const mr_expr *record_in(const mr_expr *e, int *lists)
{
    *lists = 0;
    while (e->kind == MR_EX_LIST && e->n == 1) {
        e = e->children[0];
        ++*lists;
    }
    return e->kind == MR_EX_RECORD && e->n > 0 ? e : NULL;
}

/* Reads one child of a record, whose name and path are set. */
static mr_code read_node(struct reading *r, const mr_expr *e, int lists, mr__features *f,
                         mr__feature_node *node, size_t place, mr_status *st)
{
    const mr_expr *record = r->json ? record_in(e, &node->lists) : NULL;
    const char *above = r->name;
    node->id = f->n_nodes++;
    node->in_list = lists > 0;
    r->name = node->path;
    node->first = f->n;
    mr_code rc = record ? read_nodes(r, e, record->children, record->keys, record->n,
                                     lists + node->lists, f, node, st)
                        : add_feature(r, e, lists, place, node->path, f, st);
    if (!record)
        node->lists = 0;
    node->n_features = f->n - node->first;
    r->name = above;
    return rc;
}

struct given {
    const char *name;
    const mr_expr *e;
    size_t place;
};

static int given_by_name(const void *a, const void *b)
{
    return strcmp(((const struct given *)a)->name, ((const struct given *)b)->name);
}

/* The children of a record in order of their names, or as listed. */
static mr_code sort_given(struct reading *r, const mr_expr *e, const mr_expr *const *v,
                          char *const *names, size_t n, struct given *to, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct given){names ? names[i] : NULL, v[i], i};
        if (names && !names[i])
            return refuse(r, st, v[i], "features have names, as in %s(x, {\"a\": int64})", r->who);
    }
    if (!names)
        return MR_OK;
    qsort(to, n, sizeof *to, given_by_name);
    for (size_t i = 0; i + 1 < n; i++)
        if (strcmp(to[i].name, to[i + 1].name) == 0)
            return refuse(r, st, e, "feature %.80s occurs twice", to[i].name);
    return MR_OK;
}

/* Features v of e, with names unless they are listed, as the children of node. */
static mr_code read_nodes(struct reading *r, const mr_expr *e, const mr_expr *const *v,
                          char *const *names, size_t n, int lists, mr__features *f,
                          mr__feature_node *node, mr_status *st)
{
    struct given *sorted = mr_calloc(n, sizeof *sorted);
    node->children = mr_calloc(n, sizeof *node->children);
    mr_code rc = sorted && node->children
                     ? sort_given(r, e, v, names, n, sorted, st)
                     : mr_fail_memory(st, n * sizeof *node->children, "features");
    for (; node->children && node->n < n && rc == MR_OK;) {
        const struct given *g = &sorted[node->n];
        mr__feature_node *child = &node->children[node->n++];
        child->name = g->name;
        if (g->name && !(child->path = node->path ? mr_strf("%s.%s", node->path, g->name)
                                                  : mr_strdup(g->name)))
            rc = mr_fail_memory(st, strlen(g->name), "a feature");
        if (rc == MR_OK)
            rc = read_node(r, g->e, lists, f, child, g->place, st);
    }
    mr_free(sorted);
    return rc;
}

static mr_code read_all(struct reading *r, const mr_expr *e, const mr_expr *const *v,
                        char *const *names, size_t n, mr__features **out, mr_status *st)
{
    mr__features *f = *out = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "features");
    f->e = mr_expr_ref(e);
    f->vector = r->vector;
    f->named = names != NULL;
    f->n_nodes = 1;
    mr_code rc = read_nodes(r, e, v, names, n, 0, f, &f->root, st);
    f->root.n_features = f->n;
    return rc;
}

static mr_spec *spec_of(const mr__feature *f, const mr_leaf *x)
{
    mr_leaf leaf = {.dtype = f->dtype};
    if (x->rank == 1)
        leaf.shape[leaf.rank++] = x->shape[0];
    for (int k = 0; k < free_axes(f); k++)
        leaf.shape[leaf.rank++] = -1;
    leaf.ragged = free_axes(f) + (x->rank == 1) > 1;
    for (int d = 0; !f->ragged && d < f->rank; d++)
        leaf.shape[leaf.rank++] = f->shape[d];
    return mr_spec_of_leaf(&leaf);
}

static mr_code node_spec(const mr__features *f, const mr__feature_node *node, const mr_leaf *x,
                         mr_spec **out, mr_status *st)
{
    if (!node->children)
        return mr__inferred(spec_of(&f->v[node->first], x), out, st);
    const char **names = mr_calloc(node->n, sizeof *names);
    mr_spec **specs = mr_calloc(node->n, sizeof *specs);
    size_t made = 0;
    mr_code rc = names && specs ? MR_OK : mr_fail_memory(st, node->n * sizeof *specs, "features");
    while (rc == MR_OK && made < node->n) {
        names[made] = node->children[made].name;
        rc = node_spec(f, &node->children[made], x, &specs[made], st);
        made += rc == MR_OK;
    }
    if (rc == MR_OK)
        rc = mr__inferred(
            f->named ? mr_spec_record(names, specs, made) : mr_spec_tuple(specs, made), out, st);
    else
        while (made > 0)
            mr_spec_unref(specs[--made]);
    mr_free(names);
    mr_free(specs);
    return rc;
}

mr_code mr__features_spec(const mr__features *f, const mr_leaf *x, mr_spec **out, mr_status *st)
{
    return node_spec(f, &f->root, x, out, st);
}

mr_code mr__features_type(mr_call *c, const mr_exprs *given, bool listed, mr_status *st)
{
    const char *who = c->function->name;
    struct reading r = {.who = who, .json = !listed, .vector = c->in[0]->rank == 1};
    bool one = given->n == 1 && !given->names[0] &&
               given->v[0]->kind == (listed ? MR_EX_LIST : MR_EX_RECORD);
    const mr_expr *const *v = one ? given->v[0]->children : given->v;
    char *const *names = one ? given->v[0]->keys : (char *const *)given->names;
    size_t n = one ? given->v[0]->n : given->n;
    if (c->in[0]->rank < 0 || c->in[0]->rank > 1)
        return mr_call_fail(c, st, 0, "%s expects a string or a vector of strings", who);
    if (listed && !one)
        return mr_call_fail(c, st, -1, "%s expects a list of features, as in [int64, bytes]", who);
    if (n == 0)
        return mr_call_fail(c, st, -1, "%s: no feature is requested", who);
    mr__features *f = NULL;
    mr_code rc = read_all(&r, c->e, v, listed ? NULL : names, n, &f, st);
    c->plan = f;
    return rc == MR_OK ? mr__features_spec(f, c->in[0], &c->spec, st) : rc;
}

mr_code mr__features_parse(const char *op, const char *text, bool json, mr__features **out,
                           mr_status *st)
{
    mr_status why;
    const mr_expr *e = NULL;
    struct reading r = {.who = op, .op = true, .json = json};
    *out = NULL;
    mr_code rc = mr_expr_parse(text, strlen(text), &e, &why);
    if (rc == MR_INVALID_ARGUMENT)
        return mr_fail(st, rc, "%s: features have a syntax error: %.*s", op,
                       (int)strcspn(why.message, "\n"), why.message);
    if (rc == MR_OK && ((e->kind != MR_EX_RECORD && e->kind != MR_EX_LIST) || e->n == 0))
        rc = mr_fail(&why, MR_INVALID_ARGUMENT,
                     "%s: features must be {\"name\": dtype, ...}, as in {\"x\": float32[3], "
                     "\"label\": int64}",
                     op);
    if (rc == MR_OK)
        rc =
            read_all(&r, e, e->children, e->kind == MR_EX_RECORD ? e->keys : NULL, e->n, out, &why);
    mr_expr_unref(e);
    if (rc != MR_OK) {
        mr__features_free(*out);
        *out = NULL;
        if (st)
            *st = why;
    }
    return rc;
}

void mr__features_free(void *features)
{
    mr__features *f = features;
    if (!f)
        return;
    mr_expr_unref(f->e);
    free_nodes(&f->root);
    mr_free(f->v);
    mr_free(f);
}

/* ---- columns ---- */

mr_code mr__sheet_start(mr__sheet *s, const mr__features *f, size_t records, mr_status *st)
{
    *s = (mr__sheet){.f = f, .columns = mr_calloc(f->n, sizeof *s->columns)};
    bool good = s->columns && (s->seen = mr_calloc(f->n_nodes, sizeof *s->seen));
    for (size_t i = 0; i < f->n && good; i++)
        good = (s->columns[i].lengths = mr_calloc(records + 1, sizeof(int64_t))) != NULL;
    if (good)
        return MR_OK;
    mr__sheet_reset(s);
    return mr_fail_memory(st, records * sizeof(int64_t), "columns");
}

void mr__sheet_reset(mr__sheet *s)
{
    for (size_t i = 0; s->columns && i < s->f->n; i++) {
        mr_free(s->columns[i].v);
        mr_free(s->columns[i].lengths);
        mr_free(s->columns[i].inner);
    }
    mr_free(s->columns);
    mr_free(s->seen);
    mr_free(s->text);
    *s = (mr__sheet){0};
}

mr_code mr__sheet_put(mr__sheet *s, size_t i, const void *value, mr_status *st)
{
    mr__sheet_column *c = &s->columns[i];
    size_t size = mr_dtype_size(s->f->v[i].dtype);
    MR_TRY(mr_grow((void **)&c->v, &c->capacity, c->n + 1, size, SIZE_MAX / 64, "a column", st));
    memcpy(c->v + c->n++ * size, value, size);
    return MR_OK;
}

mr_code mr__sheet_put_int(mr__sheet *s, size_t i, int64_t v, mr_status *st)
{
    mr_dtype t = s->f->v[i].dtype;
    unsigned bits = (unsigned)mr_dtype_size(t) * 8;
    bool is_unsigned = t >= MR_UINT8 && t <= MR_UINT64;
    if (mr_dtype_is_floating(t))
        return mr__sheet_put_float(s, i, (double)v, st);
    int64_t most = t == MR_BOOL ? 1
                   : bits == 64 ? INT64_MAX
                                : (INT64_C(1) << (bits - !is_unsigned)) - 1;
    if (v > most || v < (is_unsigned || t == MR_BOOL ? 0 : -most - 1))
        return mr_fail(st, MR_OUT_OF_RANGE, "%lld does not fit %s", (long long)v, mr_dtype_name(t));
    return mr__sheet_put(s, i, &v, st); /* little-endian: the low bytes come first */
}

mr_code mr__sheet_put_float(mr__sheet *s, size_t i, double v, mr_status *st)
{
    mr_dtype t = s->f->v[i].dtype;
    float f = (float)v;
    uint16_t h = t == MR_FLOAT16 ? mr_double_to_half(v) : mr_double_to_bfloat(v);
    return mr__sheet_put(s, i,
                         t == MR_FLOAT64   ? (const void *)&v
                         : t == MR_FLOAT32 ? (const void *)&f
                                           : &h,
                         st);
}

mr_code mr__sheet_put_bytes(mr__sheet *s, size_t i, const char *v, size_t n, mr_status *st)
{
    if (n > SIZE_MAX / 4 - s->n_text)
        return mr_fail_memory(st, n, "strings");
    /* One more, so that s->text is not NULL if all strings are empty. */
    MR_TRY(MR_GROW(s->text, s->text_capacity, s->n_text + n + 1, SIZE_MAX / 4, "strings", st));
    const mr_bytes b = {(const char *)(uintptr_t)s->n_text, n};
    MR_TRY(mr__sheet_put(s, i, &b, st));
    if (n)
        memcpy(s->text + s->n_text, v, n);
    s->n_text += n;
    return MR_OK;
}

mr_code mr__sheet_put_missing(mr__sheet *s, size_t i, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
    if (f->ragged)
        return MR_OK; /* no values */
    if (!f->preset)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "it is missing; give it a default if it may be, as in feature(%s, default=..)",
            f->raw                  ? "json"
            : f->dtype == MR_STRING ? "bytes"
                                    : mr_dtype_name(f->dtype));
    for (size_t k = 0; k < f->n; k++) {
        size_t n = 0;
        const mr_expr *e = literal_at(f->preset, f->n_preset == 1 ? 0 : k, &n);
        bool minus = e->kind == MR_EX_UNARY;
        const mr_expr *v = minus ? e->children[0] : e;
        if (f->dtype == MR_STRING)
            MR_TRY(mr__sheet_put_bytes(s, i, v->text, v->text_size, st));
        else if (mr_dtype_is_floating(f->dtype))
            MR_TRY(mr__sheet_put_float(s, i, mr__preset_float(e), st));
        else /* minus wraps around, as in the operator */
            MR_TRY(mr__sheet_put_int(s, i, minus ? (int64_t)(0 - (uint64_t)v->i) : v->i, st));
    }
    return MR_OK;
}

/* The number of entries of a list with this number of values. */
static size_t entries(const mr__feature *f, size_t values)
{
    return f->ragged || f->n == 0 ? values : values / f->n;
}

void mr__sheet_begin_inner(mr__sheet *s, size_t i)
{
    s->columns[i].open = s->columns[i].n;
}

mr_code mr__sheet_end_inner(mr__sheet *s, size_t i, mr_status *st)
{
    mr__sheet_column *c = &s->columns[i];
    if (free_axes(&s->f->v[i]) < 2)
        return MR_OK;
    MR_TRY(MR_GROW(c->inner, c->inner_room, c->n_inner + 1, SIZE_MAX / 64, "a column", st));
    c->inner[c->n_inner++] = (int64_t)entries(&s->f->v[i], c->n - c->open);
    return MR_OK;
}

void mr__sheet_shorten(mr__sheet *s, size_t i, size_t n)
{
    mr__sheet_column *c = &s->columns[i];
    mr_bytes *last = (mr_bytes *)(void *)c->v + c->n - 1;
    s->n_text -= last->size - n;
    last->size = n;
}

void mr__sheet_drop(mr__sheet *s)
{
    for (size_t i = 0; i < s->f->n; i++) {
        s->columns[i].n = s->columns[i].begin;
        s->columns[i].n_inner = s->columns[i].inner_begin;
    }
    s->n_text = s->begin_text;
}

mr_code mr__sheet_next(mr__sheet *s, bool good, mr_status *st)
{
    static const char zeros[sizeof(mr_bytes)];
    if (!good)
        mr__sheet_drop(s);
    for (size_t i = 0; i < s->f->n; i++) {
        mr__sheet_column *c = &s->columns[i];
        const mr__feature *f = &s->f->v[i];
        for (size_t k = 0; !good && free_axes(f) == 0 && k < f->n; k++)
            MR_TRY(mr__sheet_put(s, i, zeros, st));
        c->lengths[s->record] = (int64_t)(free_axes(f) == 2 ? c->n_inner - c->inner_begin
                                                            : entries(f, c->n - c->begin));
        c->begin = c->n;
        c->inner_begin = c->n_inner;
    }
    s->begin_text = s->n_text;
    s->record++;
    return MR_OK;
}

/* A column of lists, in rows of the shape [any, shape...], or of lists of them. */
static mr_code finish_lists(const mr__feature *f, const mr__sheet_column *c, size_t rows,
                            mr_array *out, void **values, mr_status *st)
{
    mr_array a;
    mr_buffer *data = NULL, *splits = NULL;
    bool twice = free_axes(f) == 2;
    int inner_rank = f->ragged ? 0 : f->rank, rank = free_axes(f) + inner_rank;
    size_t size = mr_dtype_size(f->dtype), per_entry = f->ragged ? 1 : f->n;
    const int64_t *length = c->inner;
    MR_TRY(mr_array_alloc_ragged(&a, f->dtype, rank, rows, st));
    mr_code rc = mr_buffer_alloc(&data, c->n * size + 1, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, data, st);
    if (rc == MR_OK && twice)
        rc = mr_buffer_alloc(&splits, (c->n_inner + rows) * sizeof(int64_t), st);
    if (rc == MR_OK && twice)
        rc = mr_buffer_hold(a.owner, splits, st);
    if (rc == MR_OK) {
        char *at = *values = mr_buffer_data(data);
        int64_t *split = splits ? mr_buffer_data(splits) : NULL;
        for (size_t r = 0; r < rows; r++) {
            int64_t *shape = mr_array_shape_slot(&a, r), in_row = c->lengths[r];
            mr_row *row = &((mr_row *)a.data)[r];
            *row = (mr_row){.data = at, .shape = shape, .splits = split};
            shape[0] = c->lengths[r];
            if (twice) {
                shape[1] = -1;
                *split++ = in_row = 0;
                for (int64_t k = 0; k < shape[0]; k++)
                    *split++ = in_row += *length++;
            }
            memcpy(shape + free_axes(f), f->shape, (size_t)inner_rank * sizeof *shape);
            at += (size_t)in_row * per_entry * size;
        }
        *out = a;
    } else
        mr_array_reset(&a);
    mr_buffer_unref(data);
    mr_buffer_unref(splits);
    return rc;
}

static mr_code finish_column(mr__sheet *s, size_t i, size_t rows, size_t k, mr_buffer *text,
                             mr_array *out, mr_status *st)
{
    const mr__feature *f = &s->f->v[i];
    mr__sheet_column *c = &s->columns[i];
    void *values;
    if (free_axes(f) && s->f->vector)
        MR_TRY(mr__lists(f->dtype, c->lengths, rows, k, out, &values, st));
    else if (free_axes(f) == 1 && (f->ragged || f->rank == 0))
        MR_TRY(mr__vectors(f->dtype, c->lengths, rows, out, &values, st));
    else if (free_axes(f))
        MR_TRY(finish_lists(f, c, rows, out, &values, st));
    else {
        int64_t shape[MR_MAX_RANK] = {(int64_t)k};
        memcpy(shape + s->f->vector, f->shape, (size_t)f->rank * sizeof *shape);
        MR_TRY(mr_array_alloc(out, f->dtype, f->rank + s->f->vector, shape, rows, st));
        values = out->data;
    }
    if (c->n)
        memcpy(values, c->v, c->n * mr_dtype_size(f->dtype));
    mr_bytes *v = values;
    for (size_t n = 0; n < c->n && f->dtype == MR_STRING; n++)
        v[n].data = text ? (const char *)mr_buffer_data(text) + (uintptr_t)v[n].data : NULL;
    return f->dtype == MR_STRING && text ? mr_buffer_hold(out->owner, text, st) : MR_OK;
}

static void release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

mr_code mr__sheet_finish(mr__sheet *s, size_t rows, size_t k, mr_array *out, mr_status *st)
{
    mr_buffer *text = NULL;
    mr_code rc = MR_OK;
    if (s->n_text)
        rc = mr_buffer_wrap(&text, s->text, s->n_text, false, release, NULL, st);
    if (text)
        s->text = NULL;
    size_t n = s->f->n;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = finish_column(s, i, rows, k, text, &out[i], st);
    for (size_t i = 0; i < n && rc != MR_OK; i++)
        mr_array_reset(&out[i]);
    mr_buffer_unref(text);
    mr__sheet_reset(s);
    return rc;
}

/* ---- defaults of tables ---- */

/* A row that is an empty list. */
static mr_code empty_list(const mr_leaf *leaf, mr_array *out, mr_status *st)
{
    mr_array a;
    mr_buffer *splits = NULL;
    MR_TRY(mr_array_alloc_ragged(&a, leaf->dtype, leaf->rank, 1, st));
    mr_code rc = mr_buffer_alloc(&splits, sizeof(int64_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, splits, st);
    if (rc == MR_OK) {
        int64_t *shape = mr_array_shape_slot(&a, 0);
        *(int64_t *)mr_buffer_data(splits) = 0;
        for (int d = 0; d < leaf->rank; d++)
            shape[d] = leaf->shape[d] < 0 ? 0 : leaf->shape[d];
        if (leaf->ragged)
            shape[1] = -1;
        *(mr_row *)a.data = (mr_row){.data = splits ? mr_buffer_data(splits) : NULL,
                                     .shape = shape,
                                     .splits = leaf->ragged ? mr_buffer_data(splits) : NULL};
        *out = a;
    } else
        mr_array_reset(&a);
    mr_buffer_unref(splits);
    return rc;
}

mr_code mr__feature_default(const char *who, const char *name, const mr_leaf *leaf,
                            const mr_expr *e, mr_array *out, mr_status *st)
{
    const struct reading r = {.who = who, .op = true, .schema = true, .name = name};
    mr__feature one = {.name = name, .dtype = leaf->dtype, .rank = leaf->rank, .n = 1};
    bool list = false;
    for (int d = 0; d < leaf->rank; d++) {
        one.shape[d] = leaf->shape[d];
        list = list || leaf->shape[d] < 0;
        if (!list &&
            (__builtin_mul_overflow(one.n, (size_t)leaf->shape[d], &one.n) || one.n > INT32_MAX))
            return refuse(&r, st, e, "a feature has at most %d values", INT32_MAX);
    }
    if (list && (e->kind != MR_EX_LIST || e->n > 0))
        return refuse(&r, st, e, "the default of a list is []");
    if (list)
        return empty_list(leaf, out, st);
    MR_TRY(read_preset(&r, e, &one, st));
    mr__features f = {.v = &one, .n = 1, .n_nodes = 1};
    mr__sheet s;
    mr_status why;
    MR_TRY(mr__sheet_start(&s, &f, 1, st));
    mr_code rc = mr__sheet_put_missing(&s, 0, &why);
    if (rc == MR_OK)
        rc = mr__sheet_next(&s, true, &why);
    if (rc == MR_OK)
        return mr__sheet_finish(&s, 1, 1, out, st);
    mr__sheet_reset(&s);
    return rc == MR_RESOURCE_EXHAUSTED ? mr_fail(st, rc, "%s", why.message)
                                       : refuse(&r, st, e, "the default: %s", why.message);
}
