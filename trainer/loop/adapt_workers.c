/* SPDX-License-Identifier: Apache-2.0 */
/* Learning over several workers: each processes its part of the data, then all exchange their
 * results and merge them in the order of ranks. */
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "shard/passes/auto_shard.h"
#include "trainer/loop/adapt_impl.h"
#include "trainer/strategy/strategy_impl.h"

/* Shards by files, if the graph has files to divide and no other policy; else *out is NULL. */
static mr_code shard_files(mr_strategy *s, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    mr_auto_shard_opts how = {.num_workers = (int64_t)mr_strategy_num_workers(s),
                              .index = (int64_t)mr_strategy_worker(s)};
    *out = NULL;
    MR_TRY(mr_shard_policy_of(ds, &how.policy, st));
    if (how.policy != MR_SHARD_AUTO && how.policy != MR_SHARD_FILE)
        return MR_OK;
    how.policy = MR_SHARD_FILE;
    mr_code rc = mr_auto_shard(ds, &how, out, NULL, NULL, st);
    return rc == MR_NOT_FOUND ? MR_OK : rc;
}

mr_code mr__adapt_shard(mr_strategy *s, mr_dataset *ds, const mr_iterator_opts *opts,
                        mr_dataset **out, mr_status *st)
{
    mr_dataset *seeded;
    /* Sharding by elements requires the same order on all workers. */
    MR_TRY(mr_seed_random_ops(ds, opts && opts->has_seed ? opts->seed : 0, &seeded, NULL, st));
    mr_code rc = shard_files(s, seeded, out, st);
    if (rc == MR_OK && !*out) {
        *out = mr_shard(mr_dataset_ref(seeded), (int64_t)mr_strategy_num_workers(s),
                        (int64_t)mr_strategy_worker(s), NULL);
        rc = mr_dataset_check(*out, st);
        if (rc != MR_OK)
            mr_dataset_unref(*out);
    }
    mr_dataset_unref(seeded);
    return rc;
}

/* ---- as bytes ---- */

/* Header of one worker's result, followed by its tokens, moments and values. */
typedef struct head {
    uint64_t n_tokens, width, n_values;
    int64_t rows, integers;
} head;

typedef struct token_head {
    uint64_t size;
    int64_t number, count;
} token_head;

static size_t bytes_of(const mr__adapting *a)
{
    size_t n = sizeof(head) + (2 * a->width + a->n_values) * sizeof(double);
    for (size_t i = 0; i < a->n_tokens; i++)
        n += sizeof(token_head) + a->tokens[i].size;
    return n;
}

static char *append(char *at, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(at, bytes, n);
    return at + n;
}

static void write_bytes(const mr__adapting *a, char *at)
{
    const head h = {a->n_tokens, a->width, a->n_values, a->rows, a->integers};
    at = append(at, &h, sizeof h);
    for (size_t i = 0; i < a->n_tokens; i++) {
        const mr__token *t = &a->tokens[i];
        const token_head th = {t->size, t->number, t->count};
        at = append(at, &th, sizeof th);
        at = append(at, t->text, t->size);
    }
    at = append(at, a->mean, a->width * sizeof(double));
    at = append(at, a->squares, a->width * sizeof(double));
    append(at, a->values, a->n_values * sizeof(double));
}

/* The unread part of a worker's bytes. */
typedef struct rest {
    const char *at, *end;
} rest;

static mr_code take(rest *r, void *to, size_t n, mr_status *st)
{
    if ((size_t)(r->end - r->at) < n)
        return mr_fail(st, MR_DATA_LOSS, "the learned state of a worker is truncated");
    if (n > 0)
        memcpy(to, r->at, n);
    r->at += n;
    return MR_OK;
}

static mr_code add_tokens(mr__adapting *a, size_t n, rest *r, mr_status *st)
{
    token_head t;
    for (size_t i = 0; i < n; i++) {
        MR_TRY(take(r, &t, sizeof t, st));
        if ((uint64_t)(r->end - r->at) < t.size)
            return mr_fail(st, MR_DATA_LOSS, "the learned state of a worker is truncated");
        MR_TRY(mr__adapt_count(a, r->at, t.size, t.number, t.count, st));
        r->at += t.size;
    }
    return MR_OK;
}

/* Merges the moments of another worker into a's. */
static mr_code add_moments(mr__adapting *a, const head *h, rest *r, mr_status *st)
{
    const char *means = r->at, *squares = r->at + h->width * sizeof(double);
    if (h->width > (uint64_t)(r->end - r->at) / (2 * sizeof(double)))
        return mr_fail(st, MR_DATA_LOSS, "the learned state of a worker is truncated");
    r->at += 2 * h->width * sizeof(double);
    if (h->width == 0)
        return MR_OK;
    if (!a->mean) {
        a->width = h->width;
        a->mean = mr_calloc(a->width, sizeof *a->mean);
        a->squares = mr_calloc(a->width, sizeof *a->squares);
        if (!a->mean || !a->squares)
            return mr_fail_memory(st, a->width * sizeof *a->mean, "moments");
    }
    if (a->width != h->width)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the last axis of the features has length %zu on one worker and %zu on "
                       "another; batch with drop_remainder, or use normalization(axis=none)",
                       a->width, (size_t)h->width);
    double before = (double)a->rows, there = (double)h->rows, all = before + there;
    for (size_t i = 0; i < a->width; i++) {
        double mean, square;
        memcpy(&mean, means + i * sizeof mean, sizeof mean);
        memcpy(&square, squares + i * sizeof square, sizeof square);
        double d = mean - a->mean[i];
        a->mean[i] += d * (there / all);
        a->squares[i] += square + d * d * (before * there / all);
    }
    a->rows += h->rows;
    return MR_OK;
}

static mr_code add_worker(mr__adapting *a, const char *bytes, size_t size, mr_status *st)
{
    rest r = {bytes, bytes + size};
    head h;
    MR_TRY(take(&r, &h, sizeof h, st));
    a->integers = a->integers || h.integers;
    MR_TRY(add_tokens(a, h.n_tokens, &r, st));
    MR_TRY(add_moments(a, &h, &r, st));
    if (h.n_values > (uint64_t)(r.end - r.at) / sizeof(double))
        return mr_fail(st, MR_DATA_LOSS, "the learned state of a worker is truncated");
    MR_TRY(mr__adapt_reserve(a, h.n_values, st));
    MR_TRY(take(&r, a->values + a->n_values, h.n_values * sizeof(double), st));
    a->n_values += h.n_values;
    return MR_OK;
}

/* ---- all workers ---- */

static mr_code exchange(mr_strategy *s, const mr__adapting *own, const size_t *sizes, char *all,
                        mr_status *st)
{
    size_t before = 0;
    for (size_t i = 0; i < mr_strategy_worker(s); i++)
        before += sizes[i];
    write_bytes(own, all + before);
    return mr__ring_all_gather(mr__strategy_ring(s), all, sizes, st);
}

mr_code mr__adapt_gather(mr_strategy *s, mr__adapting *a, mr_status *st)
{
    size_t workers = mr_strategy_num_workers(s), total = 0;
    double mine = (double)bytes_of(a), *theirs = mr_calloc(workers, sizeof *theirs);
    size_t *sizes = mr_calloc(workers, sizeof *sizes);
    mr__adapting sum = {.params = a->params};
    char *all = NULL;
    mr_code rc = theirs && sizes ? MR_OK : mr_fail_memory(st, workers * sizeof mine, "sizes");
    if (rc == MR_OK)
        rc = mr__world_exchange(mr__strategy_world(s), MR__CHANNEL_RESULTS, &mine, 1, theirs, st);
    for (size_t i = 0; i < workers && rc == MR_OK; i++)
        total += sizes[i] = (size_t)theirs[i];
    if (rc == MR_OK && !(all = mr_malloc(total)))
        rc = mr_fail_memory(st, total, "the learned state of all workers");
    if (rc == MR_OK)
        rc = exchange(s, a, sizes, all, st);
    for (size_t i = 0, at = 0; i < workers && rc == MR_OK; at += sizes[i++])
        rc = add_worker(&sum, all + at, sizes[i], st);
    mr_free(all);
    mr_free(sizes);
    mr_free(theirs);
    if (rc != MR_OK) {
        mr__adapt_reset(&sum);
        return rc;
    }
    mr__adapt_reset(a);
    *a = sum;
    return MR_OK;
}
