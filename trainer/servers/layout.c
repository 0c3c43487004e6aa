/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/layout.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/registry.h"

enum { MOST_PIECES = 1 << 24 };

struct fixed_shards {
    int64_t num_shards;
};

struct min_size {
    int64_t min_shard_bytes, max_shards;
};

struct max_size {
    int64_t max_shard_bytes;
};

static const mr_param fixed_table[] = {MR_ARG(struct fixed_shards, num_shards, .min.i = 1,
                                              .max.i = 1 << 20, .doc = "Number of pieces."),
                                       {0}};
static const mr_param min_table[] = {MR_ARG(struct min_size, min_shard_bytes, .min.i = 1,
                                            .max.i = INT64_MAX, .doc = "Bytes of a piece."),
                                     MR_ARG(struct min_size, max_shards, .min.i = 1,
                                            .max.i = 1 << 20, .doc = "Maximum number of pieces."),
                                     {0}};
static const mr_param max_table[] = {MR_ARG(struct max_size, max_shard_bytes, .min.i = 1,
                                            .max.i = INT64_MAX, .doc = "Bytes of a piece."),
                                     {0}};

static const mr_component fixed_shards = {.abi = MR_ABI_VERSION,
                                          .name = "fixed_shards",
                                          .doc = "A fixed number of pieces.",
                                          .example = "fixed_shards(2)",
                                          .params = fixed_table,
                                          .params_size = sizeof(struct fixed_shards)};
static const mr_component min_size = {
    .abi = MR_ABI_VERSION,
    .name = "min_size",
    .doc = "Up to max_shards pieces of at least min_shard_bytes each.",
    .example = "min_size(262144, 2)",
    .params = min_table,
    .params_size = sizeof(struct min_size)};
static const mr_component max_size = {.abi = MR_ABI_VERSION,
                                      .name = "max_size",
                                      .doc = "The fewest pieces of at most max_shard_bytes each.",
                                      .example = "max_size(1048576)",
                                      .params = max_table,
                                      .params_size = sizeof(struct max_size)};

static const mr_component *const all[] = {&fixed_shards, &min_size, &max_size, NULL};
static mr__registry partitioners = {"partitioner", all, .lock = PTHREAD_MUTEX_INITIALIZER};

mr_code mr__partitioner_check(const char *text, mr_status *st)
{
    const mr_component *c;
    void *params;
    MR_TRY(mr__registry_parse(&partitioners, text, &c, &params, st));
    mr__component_free_params(c, params);
    return MR_OK;
}

/* Maximum number of pieces for a variable of this many rows; c NULL: one. */
static size_t count_pieces(const mr_component *c, const void *params, size_t rows, size_t row_bytes)
{
    size_t n = 1;
    if (c == &fixed_shards)
        n = (size_t)((const struct fixed_shards *)params)->num_shards;
    if (c == &min_size) {
        const struct min_size *p = params;
        size_t bytes = (size_t)p->min_shard_bytes;
        n = rows / (bytes / row_bytes + (bytes % row_bytes > 0));
        n = n > (size_t)p->max_shards ? (size_t)p->max_shards : n;
    }
    if (c == &max_size && rows > 0) {
        size_t each = (size_t)((const struct max_size *)params)->max_shard_bytes / row_bytes;
        each = each ? each : 1;
        n = (rows + each - 1) / each;
    }
    n = n > rows ? rows : n;
    return n ? n : 1;
}

static mr_code cut(mr__layout *l, const mr_model *m, const mr_component *c, const void *params,
                   size_t n_servers, mr_status *st)
{
    for (size_t i = 0; i < mr_model_n_variables(m); i++) {
        const mr_variable *v = mr_model_variable(m, i);
        size_t size = mr_variable_size(v);
        size_t rows = mr_variable_rank(v) > 0 ? (size_t)mr_variable_shape(v)[0] : 1;
        size_t row = rows ? size / rows : 0;
        size_t parts = row ? count_pieces(c, params, rows, row * sizeof(float)) : 1;
        MR_TRY(MR_GROW(l->v, l->capacity, l->n + parts, MOST_PIECES, "pieces of variables", st));
        for (size_t k = 0, first = 0; k < parts; k++, l->n++) {
            size_t n = rows / parts + (k < rows % parts); /* the first ones have an extra row */
            l->v[l->n] = (mr__piece){.variable = i,
                                     .at = l->n_values,
                                     .n = n * row,
                                     .rows = n,
                                     .first_row = first,
                                     .server = l->n % n_servers,
                                     .is_part = parts > 1};
            l->n_values += n * row;
            first += n;
        }
    }
    return MR_OK;
}

mr_code mr__layout_make(mr__layout *l, const mr_model *m, const char *partitioner, size_t n_servers,
                        mr_status *st)
{
    const mr_component *c = NULL;
    void *params = NULL;
    *l = (mr__layout){0};
    if (partitioner)
        MR_TRY(mr__registry_parse(&partitioners, partitioner, &c, &params, st));
    mr_code rc = cut(l, m, c, params, n_servers, st);
    if (c)
        mr__component_free_params(c, params);
    if (rc != MR_OK)
        mr__layout_reset(l);
    return rc;
}

void mr__layout_reset(mr__layout *l)
{
    mr_free(l->v);
    *l = (mr__layout){0};
}

bool mr__is_meant(const mr_variable *v, mr__which which)
{
    mr_variable_role role = mr_variable_role_of(v);
    return which == MR__ALL_VALUES || role == MR_LEARNED ||
           (which == MR__PUSHED_VALUES && role == MR_AVERAGE);
}

size_t mr__layout_pack(const mr__layout *l, const mr_model *m, size_t server, mr__which which,
                       const float *model, float *packed)
{
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        const mr__piece *p = &l->v[i];
        if (p->server != server || !mr__is_meant(mr_model_variable(m, p->variable), which))
            continue;
        if (packed)
            memcpy(packed + at, model + p->at, p->n * sizeof *model);
        at += p->n;
    }
    return at;
}

size_t mr__layout_unpack(const mr__layout *l, const mr_model *m, size_t server, mr__which which,
                         float *model, const float *packed)
{
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        const mr__piece *p = &l->v[i];
        if (p->server != server || !mr__is_meant(mr_model_variable(m, p->variable), which))
            continue;
        memcpy(model + p->at, packed + at, p->n * sizeof *model);
        at += p->n;
    }
    return at;
}
