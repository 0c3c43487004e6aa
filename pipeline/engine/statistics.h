/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_STATISTICS_H
#define MR_PIPELINE_ENGINE_STATISTICS_H
/* Counters of every op, always on: two readings of the time stamp counter and four additions per
 * block. A piece of an op's work (a next, an open, a task) is timed as a frame. Its busy time is
 * the time of the frame minus that of the frames within it and minus the time its thread slept,
 * which is the waiting time. Nesting is tracked per thread. In a run with threads, busy is
 * processor time: the time in which a thread neither slept in a known place nor ran, because others
 * had the processor, counts for no op.
 *
 * A locked addition costs as much as the work on a few values. So what is counted where an iterator
 * is used by one thread at a time goes to totals that only this iterator writes, if it is the first
 * one in its place. All other writers share totals with locked additions.
 *
 * Counters form a tree: below an op are first the counters of the datasets that its function makes,
 * added up by op, then those of its inputs.
 *
 * thread   any */
#include <pthread.h>
#include <stdatomic.h>
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/op_iterator.h"

typedef struct mr__op_totals {
    atomic_int_fast64_t elements, blocks, bytes, busy_ticks, wait_ticks, dropped;
    atomic_int_fast64_t queued_elements, queued_blocks, queued_bytes; /* now; pushed minus popped */
} mr__op_totals;

typedef struct mr__op_counters mr__op_counters;
struct mr__op_counters {
    mr__op_counters **below; /* lists: datasets that its function made, then each of n_inputs */
    size_t n_inputs;
    mr__op_counters *next; /* another op in the same place */
    const mr_op *op;
    mr__op_totals own, shared;                      /* their sum counts */
    atomic_bool owned;                              /* one iterator writes `own` */
    atomic_int_fast64_t room_elements, room_blocks; /* the capacity of the op's queues */
    /* the tuned parameter; NULL: nothing is tuned */
    _Atomic(const char *) parameter;
    atomic_int_fast64_t chosen, service_ns, interval_ns;
    char path[];
};
#define MR__STATS_INNER SIZE_MAX /* `place` of a dataset that a function made */

typedef struct mr__trace mr__trace;

typedef struct mr__stats {
    bool by_cpu;          /* busy is processor time */
    pthread_mutex_t lock; /* guards the tree, which only grows */
    mr__op_counters *root;
    double start_seconds; /* both clocks when the run began, to compute seconds per tick */
    int64_t start_ticks;
    mr__trace *trace; /* NULL: no trace */
} mr__stats;

void mr__stats_init(mr__stats *s, bool by_cpu);
/* Keeps a trace of up to `spans` spans. Call before the first frame. */
mr_code mr__stats_trace(mr__stats *s, size_t spans, mr_status *st) MR_NODISCARD;
void mr__stats_reset(mr__stats *s);
/* The counters of `it` at `place` below those of its parent (has_parent false: it is the root),
 * created if necessary. NULL: out of memory, or the parent has no counters (nothing is counted
 * then). *owns: `it` writes the own totals, until mr__stats_disown. */
mr__op_counters *mr__stats_of(mr__stats *s, bool has_parent, mr__op_counters *above,
                              const mr_iter *it, size_t place, bool *owns);
void mr__stats_disown(mr__op_counters *c);
/* Adds to a total. alone: the owner, where it is used by one thread at a time. */
#define MR__COUNT(c, total, alone, n)                                                              \
    mr__count((alone) ? &(c)->own.total : &(c)->shared.total, (alone), (int64_t)(n))
static inline void mr__count(atomic_int_fast64_t *total, bool alone, int64_t n)
{
    /* Relaxed: statistics order nothing. */
    if (alone)
        atomic_store_explicit(total, atomic_load_explicit(total, memory_order_relaxed) + n,
                              memory_order_relaxed);
    else if (n)
        atomic_fetch_add_explicit(total, n, memory_order_relaxed);
}
size_t mr__stats_read(mr__stats *s, mr_op_stats *out, size_t capacity);
size_t mr__stats_read_tuning(mr__stats *s, mr_op_tuning *out, size_t capacity);
/* Records the value to which `parameter` (a static string) of `it` was tuned, and the times that
 * led to it. thread any */
void mr__stats_tuned(const mr_iter *it, const char *parameter, size_t chosen, double service,
                     double interval);
/* Adds to the queue counters of `it`; negative values: removed from the queues. alone: called where
 * `it` is used by one thread at a time. thread any */
void mr__stats_queued(const mr_iter *it, bool alone, int64_t blocks, int64_t elements,
                      int64_t bytes);
/* Adds to the capacity of the queues of `it`; values may be negative. thread any */
void mr__stats_room(const mr_iter *it, int64_t blocks, int64_t elements);
size_t mr__stats_read_trace(mr__stats *s, mr_op_span *out, size_t capacity, double *left_out);
/* The iterator that works in the calling thread, its next or a task; NULL: none. */
const mr_iter *mr__iter_working(void);
/* As mr_iter_work_end, for work of `it` while it is used by one thread at a time. */
void mr__iter_work_end(mr_iter *it, mr_iter_work *w);
int64_t mr__stats_to_ticks(const mr__stats *s, double seconds);
#endif
