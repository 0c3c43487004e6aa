/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_MEMORY_LIMIT_H
#define MR_PIPELINE_ENGINE_MEMORY_LIMIT_H
/* The memory limit of a run, against the resident memory of the process.
 *
 *     0 ........ needed ................... limit
 *     | base, blocks, | read ahead: prefetch,    |
 *     | what ops hold | calls after the first    |
 *
 * The needs of a graph are computed before it runs, and a lower limit is refused. The rest is for
 * read-ahead, which pauses at the limit and resumes when there is room again; meanwhile the
 * consumer pulls itself. If the types do not determine the size of the elements that an op holds,
 * `needed` does not include them: such an op fails when the limit is reached and no read-ahead can
 * be released.
 *
 * thread   any */
#include <stdatomic.h>
#include "pipeline/engine/iterator.h"

struct mr_iter;

/* A block of this many bytes counts individually: the process's memory is sampled before it, and
 * the block is recorded. */
enum { MR__LARGE_BLOCK = 1 << 20 };

/* A run with shares_memory. */
typedef struct mr__memory_sharer {
    struct mr__memory_sharer *next, *prev;
    void (*give_back)(void *ctx); /* as in mr__iterator_internal */
    void *ctx;
    bool asked; /* and has not given back yet */
} mr__memory_sharer;

typedef struct mr__memory {
    int64_t limit;                 /* 0: no limit */
    bool of_group;                 /* the control group's: needs are not refused, nor subtracted */
    atomic_int_fast64_t for_ahead; /* limit minus needs, minus the bytes reserved of that */
    bool of_service;               /* the graph is that of a service's client */
    int64_t of_batch;              /* bytes of a batch; 0: not known */
    int64_t beside;                /* with shares_memory: this run's needs; else 0 */
    mr__memory_sharer sharer;
    atomic_bool reads_pipe;
    int64_t threads;
    atomic_int_fast64_t ahead;      /* bytes that are read ahead */
    atomic_int_fast64_t sample;     /* resident bytes at the last sample */
    atomic_int_fast64_t sampled_at; /* bytes that all runs had read ahead then */
    atomic_uint asked;
    atomic_bool has_warned; /* about an element that is too large */
} mr__memory;

/* Reads the limit from opts (0: from the graph); without one, or if the control group allows less,
 * the limit is of the group.
 * errors   MR_INVALID_ARGUMENT: ds needs more
 *          MR_RESOURCE_EXHAUSTED: with shares_memory, the other iterators leave too little
 *          MR_CANCELLED */
mr_code mr__memory_start(mr__memory *m, const mr_dataset *ds, const mr_iterator_opts *opts,
                         int64_t limit_of_graph, mr_status *st) MR_NODISCARD;
void mr__memory_stop(mr__memory *m);
/* As mr__iterator_can_give_back; ds: the run's graph. */
bool mr__memory_can_give_back(const mr__memory *m, const mr_dataset *ds);
/* As mr__iterator_gave_back. */
void mr__memory_gave_back(mr__memory *m);

/* Maximum size of one allocation of an op. It is a multiple of the limit, because an element is not
 * divided and may exceed the limit; but a size claimed by a damaged file must not be allocated. In
 * a worker of a service it is half of the limit: the process must survive the graph of any
 * client. */
size_t mr__memory_most_of_one(const mr__memory *m);
bool mr__memory_limited(const struct mr_iter *it);
/* As mr_iter_take_memory. */
int64_t mr__memory_take(mr__memory *m, int64_t bytes);
bool mr__memory_has_room(mr__memory *m, size_t bytes);
/* true: about `bytes` more may be read ahead. */
bool mr__memory_room(const struct mr_iter *it, size_t bytes);
/* Adds bytes (may be negative) to the count of those read ahead; does nothing without a limit. */
void mr__memory_ahead(const struct mr_iter *it, int64_t bytes);
/* true: an op holds elements of a size that the graph does not determine. */
bool mr__memory_guards(const mr_dataset *node);
/* The same in a dataset that a function makes, whose needs are not counted: also if it holds
 * much. */
bool mr__memory_guards_inner(const mr_dataset *node);
/* Call in open if the parameters do not say how many elements `it` holds (groups of keys, a set):
 * its first input is guarded too. */
void mr__memory_guard(const struct mr_iter *it);
/* Call for such an op before it pulls. errors MR_RESOURCE_EXHAUSTED, which belongs to no element */
mr_code mr__memory_check(const struct mr_iter *it, mr_status *st) MR_NODISCARD;
/* Reports an element, made as a separate block, that occupies or occupied `bytes` bytes, `gone` of
 * which are already freed. An element is not divided, and if the types do not determine its size
 * the needs do not include it: logs one warning if such an element exceeds the limit. */
void mr__memory_made(const struct mr_iter *it, size_t bytes, size_t gone);
#endif
