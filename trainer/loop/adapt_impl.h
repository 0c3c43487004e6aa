/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_ADAPT_IMPL_H
#define MR_TRAINER_LOOP_ADAPT_IMPL_H
/* Shared by adapt.c (learning) and adapt_workers.c (several workers). */
#include "pipeline/memory/hash_index.h"
#include "trainer/loop/adapt.h"

struct mr__adapt_params;

typedef struct mr__token {
    char *text; /* owned, NUL-ended; integers too */
    size_t size;
    int64_t number; /* of an integer */
    int64_t count;
} mr__token;

/* The state being learned. */
typedef struct mr__adapting {
    const struct mr__adapt_params *params;
    bool integers;
    mr__token *tokens; /* in the order of their first appearance */
    size_t n_tokens, tokens_capacity;
    mr__hash_index index;   /* of tokens */
    size_t width;           /* of the last axis */
    double *mean, *squares; /* for each of its values; squares: sum of (x - mean)^2 */
    int64_t rows;
    double *values;
    size_t n_values, values_capacity;
} mr__adapting;

/* Adds `times` occurrences of a token. errors MR_INVALID_ARGUMENT: it contains a line break */
mr_code mr__adapt_count(mr__adapting *a, const char *text, size_t size, int64_t number,
                        int64_t times, mr_status *st) MR_NODISCARD;
/* Makes room for n more values. */
mr_code mr__adapt_reserve(mr__adapting *a, size_t n, mr_status *st) MR_NODISCARD;
void mr__adapt_reset(mr__adapting *a); /* everything except params */

/* *out (owned) = this worker's part of ds: of its files, or else of its elements. */
mr_code mr__adapt_shard(mr_strategy *s, mr_dataset *ds, const mr_iterator_opts *opts,
                        mr_dataset **out, mr_status *st) MR_NODISCARD;
/* Merges the state of all workers into a. Every worker calls it. */
mr_code mr__adapt_gather(mr_strategy *s, mr__adapting *a, mr_status *st) MR_NODISCARD;
#endif
