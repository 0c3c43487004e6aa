/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_MEMORY_LIMIT_H
#define MR_PIPELINE_ENGINE_MEMORY_LIMIT_H
/* The memory limit of a run, against the resident memory of the process.
 *
 *     0 ........ needed ................... limit
 *     | base, blocks, | read ahead: prefetch,    |
 *     | what ops hold | calls beside the first   |
 *
 * What a graph needs is reckoned before it runs, and a limit below it is refused. The rest is for
 * what is read ahead: that stops at the limit, and goes on when there is room again; the consumer
 * pulls for itself meanwhile. Where the types do not say how large the elements are that an op
 * holds, `needed` lacks them: such an op fails when the limit is reached and nothing is read ahead
 * that could give way.
 *
 * thread   any */
#include <stdatomic.h>
#include "pipeline/engine/iterator.h"

struct mr_iter;

/* Bytes of a block that counts by itself: the process is looked at before it, and it is noted. */
enum { MR__LARGE_BLOCK = 1 << 20 };

typedef struct mr__memory {
    int64_t limit;                 /* 0: none */
    atomic_int_fast64_t for_ahead; /* limit less what is needed, and less what was taken of that */
    int64_t of_batch;              /* bytes; 0: not known */
    int64_t beside;                /* with shares_memory: what it needs; else 0 */
    int64_t threads;
    atomic_int_fast64_t ahead;      /* bytes that are read ahead */
    atomic_int_fast64_t sample;     /* resident bytes when they were looked at last */
    atomic_int_fast64_t sampled_at; /* what all runs had made ahead then */
    atomic_uint asked;
    atomic_bool has_warned; /* of an element that is too large */
} mr__memory;

/* Reads the limit that opts (0: the graph) say.
 * errors   MR_INVALID_ARGUMENT: less than ds needs · MR_RESOURCE_EXHAUSTED: shares_memory, and the
 *          others leave less */
mr_code mr__memory_start(mr__memory *m, const mr_dataset *ds, const mr_iterator_opts *opts,
                         int64_t limit_of_graph, mr_status *st) MR_NODISCARD;
void mr__memory_stop(mr__memory *m);

/* Resident bytes of this process. -1: the system does not say. */
int64_t mr__memory_resident(void);
/* No allocation of an op may be larger: some times the limit, since an element is not divided and
 * may break it, but what a damaged file claims takes no memory. */
size_t mr__memory_most_of_one(const mr__memory *m);
bool mr__memory_limited(const struct mr_iter *it);
/* As mr_iter_take_memory. */
int64_t mr__memory_take(mr__memory *m, int64_t bytes);
bool mr__memory_has_room(mr__memory *m, size_t bytes);
/* May about `bytes` more be read ahead? */
bool mr__memory_room(const struct mr_iter *it, size_t bytes);
/* Notes that as many bytes more (less) are read ahead; nothing where there is no limit. */
void mr__memory_ahead(const struct mr_iter *it, int64_t bytes);
/* Whether an op of a limited run holds elements of a size that the graph does not say. */
bool mr__memory_guards(const mr_dataset *node);
/* For such an op, before it pulls. errors MR_RESOURCE_EXHAUSTED, of no place */
mr_code mr__memory_check(const struct mr_iter *it, mr_status *st) MR_NODISCARD;
/* An element has been made, as a block of its own, that takes or took so many bytes, of which
 * `gone` were given back. It is not divided, and what the types do not say, nothing was reckoned
 * for: the log warns once of one that breaks the limit. */
void mr__memory_made(const struct mr_iter *it, size_t bytes, size_t gone);
#endif
