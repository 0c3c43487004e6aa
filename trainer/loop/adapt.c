/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/adapt_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/fnv.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/batch.h"
#include "pipeline/params/param.h"
#include "trainer/files/json_file.h"
#include "trainer/files/saved_files.h"
#include "trainer/strategy/strategy_impl.h"

enum { BLOCK_ROWS = 1024 };
static const size_t max_values = (size_t)1 << 36;

struct mr__adapt_params {
    int64_t max_tokens, oov, num_bins;
    bool has_max_tokens, of_all;
    char *axis;
};

/* A layer that can be adapted. */
typedef struct kind {
    mr_param_table table;
    bool of_texts; /* it learns from the words of texts */
    mr_code (*see)(mr__adapting *a, const mr_array *x, mr_status *st);
    mr_code (*write)(mr__adapting *a, const char *directory, mr_status *st);
} kind;

/* ---- lookup ---- */

static bool same_token(const void *tokens, size_t place, const void *token)
{
    const mr__token *a = (const mr__token *)tokens + place;
    const mr_bytes *b = token;
    return a->size == b->size && memcmp(a->text, b->data, b->size) == 0;
}

mr_code mr__adapt_count(mr__adapting *a, const char *text, size_t size, int64_t number,
                        int64_t times, mr_status *st)
{
    uint64_t hash = mr__fnv1a(MR__FNV_BASIS, text, size);
    size_t place = mr__hash_find(&a->index, hash, same_token, a->tokens, &(mr_bytes){text, size});
    if (place != MR__NO_PLACE) {
        a->tokens[place].count += times;
        return MR_OK;
    }
    MR_TRY(mr__hash_reserve(&a->index, a->n_tokens + 1, "a vocabulary", st));
    MR_TRY(MR_GROW(a->tokens, a->tokens_capacity, a->n_tokens + 1, UINT32_MAX / 4, "tokens", st));
    char *copy = mr_strndup(text, size);
    if (!copy)
        return mr_fail_memory(st, size, "a vocabulary");
    if (memchr(text, 0, size) || memchr(text, '\n', size) || memchr(text, '\r', size)) {
        mr_free(copy);
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "a token that contains a line break or a NUL byte cannot be in a vocabulary: \"%.40s\"",
            text);
    }
    a->tokens[a->n_tokens] = (mr__token){copy, size, number, times};
    return mr__hash_add(&a->index, hash, a->n_tokens++, "a vocabulary", st);
}

static mr_code see_tokens(mr__adapting *a, const mr_array *x, mr_status *st)
{
    size_t n = x->rows * mr_array_row_values(x);
    a->integers = x->dtype != MR_STRING;
    for (size_t i = 0; i < n; i++) {
        const mr_bytes *s = x->data;
        char number[24];
        if (!a->integers) {
            MR_TRY(mr__adapt_count(a, s[i].size ? s[i].data : "", s[i].size, 0, 1, st));
            continue;
        }
        int64_t v = ((const int64_t *)x->data)[i];
        int size = snprintf(number, sizeof number, "%" PRId64, v);
        MR_TRY(mr__adapt_count(a, number, (size_t)size, v, 1, st));
    }
    return MR_OK;
}

static int compare_bytes(const mr__token *x, const mr__token *y)
{
    size_t n = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->text, y->text, n);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* The most frequent first, like Keras: ties in descending order. */
static int by_count(const void *p, const void *q)
{
    const mr__token *x = p, *y = q;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    if (x->number != y->number)
        return x->number < y->number ? 1 : -1;
    return compare_bytes(y, x);
}

static mr_code write_text(const char *directory, const char *name, const char *text, size_t n,
                          mr_status *st)
{
    char *path = mr__path_in(directory, name);
    mr_code rc = path ? mr__make_directories(directory, st)
                      : mr_fail_memory(st, strlen(directory), "a file name");
    if (rc == MR_OK)
        rc = mr_file_replace(path, text, n, st);
    mr_free(path);
    return rc;
}

static mr_code write_vocabulary(mr__adapting *a, const char *directory, mr_status *st)
{
    size_t n = a->n_tokens, bytes = 0;
    int64_t most = a->params->has_max_tokens ? a->params->max_tokens - a->params->oov : INT64_MAX;
    if (n > 1)
        qsort(a->tokens, n, sizeof *a->tokens, by_count);
    n = (int64_t)n > most ? (size_t)most : n;
    for (size_t i = 0; i < n; i++)
        bytes += a->tokens[i].size + 1;
    char *text = mr_malloc(bytes + 1), *at = text;
    if (!text)
        return mr_fail_memory(st, bytes, "a vocabulary");
    for (size_t i = 0; i < n; i++) {
        memcpy(at, a->tokens[i].text, a->tokens[i].size);
        at += a->tokens[i].size;
        *at++ = '\n';
    }
    mr_code rc = write_text(directory, "vocabulary.txt", text, bytes, st);
    mr_free(text);
    return rc;
}

/* ---- normalization ---- */

static mr_code see_moments(mr__adapting *a, const mr_array *x, mr_status *st)
{
    size_t n = x->rows * mr_array_row_values(x);
    size_t width = x->rank > 0 && !a->params->of_all ? (size_t)x->shape[x->rank - 1] : 1;
    const double *v = x->data;
    if (n == 0)
        return MR_OK;
    if (!a->mean) {
        a->width = width;
        a->mean = mr_calloc(width, sizeof *a->mean);
        a->squares = mr_calloc(width, sizeof *a->squares);
        if (!a->mean || !a->squares)
            return mr_fail_memory(st, width * sizeof *a->mean, "moments");
    }
    if (width != a->width)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the last axis of the features has length %zu after one of length %zu; "
                       "batch with drop_remainder, or use normalization(axis=none)",
                       width, a->width);
    for (size_t row = 0; row < n / width; row++, v += width) {
        double part = 1 / (double)++a->rows;
        for (size_t i = 0; i < width; i++) {
            double d = v[i] - a->mean[i];
            if (!isfinite(v[i]))
                return mr_fail(st, MR_INVALID_ARGUMENT, "cannot compute a mean: a feature is %g",
                               v[i]);
            a->mean[i] += d * part;
            a->squares[i] += d * (v[i] - a->mean[i]);
        }
    }
    return MR_OK;
}

/* Writes lists under their keys. */
static mr_code write_lists(const char *directory, const char *name, const char *const *keys,
                           double *const *lists, size_t n_lists, size_t n, mr_status *st)
{
    size_t size;
    json_t *root = json_object();
    bool good = root != NULL;
    for (size_t k = 0; k < n_lists; k++) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            good = json_array_append_new(list, json_real(lists[k][i])) == 0 && good;
        good = json_object_set_new(root, keys[k], list) == 0 && good;
    }
    if (!good) { /* a number that is not finite, which JSON cannot represent */
        json_decref(root);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: a learned value is too large for a float64, or memory ran out", name);
    }
    char *text = mr__json_text(root, JSON_REAL_PRECISION(17), &size);
    mr_code rc =
        text ? write_text(directory, name, text, size + 1, st) : mr_fail_memory(st, n, name);
    mr_free(text);
    json_decref(root);
    return rc;
}

static mr_code write_moments(mr__adapting *a, const char *directory, mr_status *st)
{
    static const char *const keys[] = {"mean", "variance"};
    for (size_t i = 0; i < a->width; i++)
        a->squares[i] /= (double)a->rows;
    return write_lists(directory, "normalization.json", keys,
                       (double *const[]){a->mean, a->squares}, 2, a->width, st);
}

/* ---- discretization ---- */

mr_code mr__adapt_reserve(mr__adapting *a, size_t n, mr_status *st)
{
    return MR_GROW(a->values, a->values_capacity, a->n_values + n, max_values, "values", st);
}

static mr_code see_values(mr__adapting *a, const mr_array *x, mr_status *st)
{
    size_t n = x->rows * mr_array_row_values(x);
    const double *v = x->data;
    MR_TRY(mr__adapt_reserve(a, n, st));
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "cannot compute bin boundaries: a feature is %g", v[i]);
        a->values[a->n_values++] = v[i];
    }
    return MR_OK;
}

static int by_value(const void *p, const void *q)
{
    const double *x = p, *y = q;
    return (*x > *y) - (*x < *y);
}

/* The quantile `part`, interpolated between neighbouring values. */
static double quantile(const double *v, size_t n, double part)
{
    double place = part * (double)n - 1; /* value i is at (i + 1) / n */
    if (place <= 0)
        return v[0];
    size_t i = (size_t)place;
    return i + 1 < n ? v[i] + (v[i + 1] - v[i]) * (place - (double)i) : v[n - 1];
}

static mr_code write_boundaries(mr__adapting *a, const char *directory, mr_status *st)
{
    static const char *const key = "boundaries";
    size_t bins = (size_t)a->params->num_bins, n = 0;
    double *b = mr_calloc(bins, sizeof *b);
    if (!b)
        return mr_fail_memory(st, bins * sizeof *b, "boundaries");
    qsort(a->values, a->n_values, sizeof *a->values, by_value);
    for (size_t k = 1; k < bins; k++) {
        double v = quantile(a->values, a->n_values, (double)k / (double)bins);
        if (n == 0 || b[n - 1] < v) /* many equal values result in fewer bins */
            b[n++] = v;
    }
    mr_code rc = write_lists(directory, "boundaries.json", &key, &b, 1, n, st);
    mr_free(b);
    return rc;
}

/* ---- the layers ---- */

static const char *const axes[] = {"last", "none", NULL};
static const mr_param lookup_params[] = {
    MR_PARAM_WITH(struct mr__adapt_params, max_tokens, MR_P_OPTIONAL | MR_P_NONE, .min.i = 1,
                  .max.i = INT64_C(1) << 40,
                  .has_at = offsetof(struct mr__adapt_params, has_max_tokens),
                  .doc = "Maximum number of indices, including the oov ones; none: no limit."),
    MR_PARAM(struct mr__adapt_params, oov, .def.i = 1, .min.i = 0, .max.i = INT64_C(1) << 40,
             .doc = "Number of indices for tokens that are not in the vocabulary."),
    {0}};
static const mr_param text_params[] = {
    MR_PARAM_WITH(
        struct mr__adapt_params, max_tokens, MR_P_OPTIONAL | MR_P_NONE, .min.i = 3,
        .max.i = INT64_C(1) << 40, .has_at = offsetof(struct mr__adapt_params, has_max_tokens),
        .doc = "Maximum number of indices, including the 2 that are not tokens; none: no limit."),
    {0}};
static const mr_param normalization_params[] = {
    MR_PARAM(struct mr__adapt_params, axis, .def.s = "last", .names = axes,
             .doc = "\"last\": a mean for each value along the last axis; \"none\": one for all."),
    {0}};
static const mr_param discretization_params[] = {MR_ARG(struct mr__adapt_params, num_bins,
                                                        .min.i = 2, .max.i = 1 << 20,
                                                        .doc = "Number of bins."),
                                                 {0}};

static const kind kinds[] = {
    {{"lookup", lookup_params, sizeof(struct mr__adapt_params)},
     false,
     see_tokens,
     write_vocabulary},
    {{"text_vectorization", text_params, sizeof(struct mr__adapt_params)},
     true,
     see_tokens,
     write_vocabulary},
    {{"normalization", normalization_params, sizeof(struct mr__adapt_params)},
     false,
     see_moments,
     write_moments},
    {{"discretization", discretization_params, sizeof(struct mr__adapt_params)},
     false,
     see_values,
     write_boundaries}};

static mr_code read_layer(const char *text, const kind **out, void **params, mr_status *st)
{
    const mr_expr *e;
    *out = NULL;
    MR_TRY(mr_expr_parse(text, text ? strlen(text) : 0, &e, st));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((e->kind == MR_EX_NAME || e->kind == MR_EX_CALL) &&
            strcmp(e->text, kinds[i].table.name) == 0)
            *out = &kinds[i];
    mr_code rc = *out ? mr_params_parse(&(*out)->table, e, params, st)
                      : mr_expr_fail_at(
                            st, e,
                            "expected a layer that learns: lookup(max_tokens=1000), "
                            "text_vectorization(), normalization() or discretization(num_bins=10)");
    mr_expr_unref(e);
    return rc;
}

mr_code mr_adapt_check(const char *layer, mr_status *st)
{
    const kind *k;
    void *params;
    MR_TRY(read_layer(layer, &k, &params, st));
    mr_params_free(&k->table, params);
    return MR_OK;
}

/* ---- the data ---- */

/* The features alone, converted to the type that the layer uses. */
static mr_code features_of(const kind *k, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    char text[128], names[96] = "x";
    MR_TRY(mr_dataset_check(ds, st));
    const mr_spec *spec = mr_dataset_spec(ds);
    const mr_leaf *x = mr_spec_n_leaves(spec) > 0 ? mr_spec_leaf(spec, 0) : NULL;
    size_t n = mr_spec_kind_of(spec) == MR_SPEC_TUPLE ? mr_spec_n_children(spec) : 1;
    if (!x || n < 1 || n > 3 || mr_spec_kind_of(spec) == MR_SPEC_RECORD)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data must yield features, or tuples that begin with them");
    bool tokens = k->see == see_tokens, texts = k->of_texts;
    if (texts    ? x->dtype != MR_STRING
        : tokens ? x->dtype != MR_STRING && !mr_dtype_is_integer(x->dtype)
                 : x->dtype >= MR_STRING)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s learns from %s, but the features are %s",
                       k->table.name,
                       texts    ? "strings"
                       : tokens ? "strings or integers"
                                : "numbers",
                       mr_dtype_name(x->dtype));
    if (n > 1)
        snprintf(names, sizeof names, "(x, y%s)", n == 3 ? ", w" : "");
    if (x->dtype == MR_STRING)
        snprintf(text, sizeof text, "%s => x", names);
    else
        snprintf(text, sizeof text, "%s => cast(x, \"%s\")", names, tokens ? "int64" : "float64");
    *out = mr_map(mr_dataset_ref(ds), mr_fn_text(text), NULL);
    if (texts) /* split like in the function text_vectorization */
        *out = mr_map(mr_unbatch(mr_map(*out, mr_fn_text("x => reshape(x, [-1])"), NULL)),
                      mr_fn_text("x => split(regex_replace(lower(x), \"[!-/:-@\\\\[-`{-~]\", "
                                 "\"\"))"),
                      NULL);
    mr_code rc = mr_dataset_check(*out, st);
    if (rc != MR_OK)
        mr_dataset_unref(*out);
    return rc;
}

static mr_code see_all(const kind *k, mr__adapting *a, mr_dataset *ds, const mr_iterator_opts *opts,
                       mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    MR_TRY(mr_iterator_open(&it, ds, opts, st));
    mr_code rc;
    while ((rc = mr_iterator_next(it, BLOCK_ROWS, &b, st)) == MR_OK) {
        const mr_array *x = &b.columns[0];
        for (size_t i = 0; x->storage == MR_RAGGED && i < x->rows && rc == MR_OK; i++) {
            mr_array row, dense;
            mr_array_slice(&row, x, i, 1);
            rc = mr_array_to_dense(&dense, &row, NULL, st);
            if (rc == MR_OK) {
                rc = k->see(a, &dense, st);
                mr_array_reset(&dense);
            }
            mr_array_reset(&row);
        }
        if (rc == MR_OK && x->storage != MR_RAGGED)
            rc = k->see(a, x, st);
        if (rc != MR_OK)
            break;
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    return rc == MR_END ? MR_OK : rc;
}

void mr__adapt_reset(mr__adapting *a)
{
    for (size_t i = 0; i < a->n_tokens; i++)
        mr_free(a->tokens[i].text);
    mr_free(a->tokens);
    mr__hash_reset(&a->index);
    mr_free(a->mean);
    mr_free(a->squares);
    mr_free(a->values);
    *a = (mr__adapting){.params = a->params};
}

/* Learns from all data, or from this worker's part and the results of the others. */
static mr_code learn(const kind *k, mr__adapting *a, mr_strategy *s, mr_dataset *ds,
                     const mr_iterator_opts *opts, mr_status *st)
{
    mr_dataset *features = NULL, *part;
    MR_TRY(features_of(k, ds, &features, st));
    if (!s || mr_strategy_num_workers(s) == 1) {
        mr_code rc = see_all(k, a, features, opts, st);
        mr_dataset_unref(features);
        return rc;
    }
    mr_code rc = mr__adapt_shard(s, features, opts, &part, st);
    mr_dataset_unref(features);
    MR_TRY(rc);
    rc = see_all(k, a, part, opts, st);
    mr_dataset_unref(part);
    return rc == MR_OK ? mr__adapt_gather(s, a, st) : rc;
}

static mr_code adapt(const kind *k, mr__adapting *a, mr_strategy *s, mr_dataset *ds,
                     const char *directory, const mr_iterator_opts *opts, mr_status *st)
{
    const struct mr__adapt_params *o = a->params;
    if (o->has_max_tokens && o->max_tokens <= o->oov)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "lookup: max_tokens counts the oov indices too and must be more than "
                       "%" PRId64,
                       o->oov);
    MR_TRY(learn(k, a, s, ds, opts, st));
    if (a->n_tokens + a->n_values + (size_t)a->rows == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the data have no values to learn from");
    return s && mr_strategy_worker(s) > 0 ? MR_OK : k->write(a, directory, st);
}

mr_code mr_adapt_on(mr_strategy *s, mr_dataset *ds, const char *layer, const char *directory,
                    const mr_iterator_opts *opts, mr_status *st)
{
    const kind *k;
    void *params = NULL;
    MR_TRY(read_layer(layer, &k, &params, st));
    struct mr__adapt_params *o = params;
    if (k->of_texts)
        o->oov = 2; /* the indices of padding and of tokens that are not in the vocabulary */
    o->of_all = o->axis && strcmp(o->axis, "none") == 0;
    mr__adapting a = {.params = o};
    mr_status why;
    mr_code rc = adapt(k, &a, s, ds, directory, opts, &why);
    if (rc != MR_OK && s)
        mr_strategy_abandon(s, &why); /* so that the others do not wait */
    if (rc != MR_OK && st)
        *st = why;
    mr__adapt_reset(&a);
    mr_params_free(&k->table, params);
    return rc;
}

mr_code mr_adapt(mr_dataset *ds, const char *layer, const char *directory,
                 const mr_iterator_opts *opts, mr_status *st)
{
    return mr_adapt_on(NULL, ds, layer, directory, opts, st);
}
