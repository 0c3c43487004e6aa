/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_STATISTICS_H
#define MR_PIPELINE_ENGINE_STATISTICS_H
/* Counters of every op, always on: two readings of the time stamp counter and four relaxed adds a
 * block. A piece of an op's work (a next, an open, a task) is timed as a frame; its busy time is
 * that of the frame less those of the frames within it and less what its thread slept meanwhile,
 * which is its waiting time. The nesting is tracked per thread. In a run with threads busy is
 * processor time: what a thread neither slept in a known place nor ran, because others had the
 * processor, counts for no op.
 *
 * Counters form a tree: below an op are those of its inputs and, before them, those of the datasets
 * that its function makes, all of one kind added up.
 *
 * thread   any */
#include <pthread.h>
#include <stdatomic.h>
#include "pipeline/engine/op_iterator.h"

typedef struct mr__op_counters mr__op_counters;
struct mr__op_counters {
    mr__op_counters **below; /* lists: what its function made, then each of n_inputs */
    size_t n_inputs;
    mr__op_counters *next; /* another op in the same place */
    const mr_op *op;
    atomic_int_fast64_t elements, blocks, bytes, busy_ticks, wait_ticks;
    /* in queues of the op now, and what those may hold */
    atomic_int_fast64_t queued_elements, queued_blocks, queued_bytes, room_elements, room_blocks;
    /* of a parameter that is tuned; NULL: none is */
    _Atomic(const char *) parameter;
    atomic_int_fast64_t chosen, service_ns, interval_ns;
    char path[];
};
#define MR__STATS_INNER SIZE_MAX /* in a dataset that a function made */

typedef struct mr__trace mr__trace;

typedef struct mr__stats {
    bool by_cpu;          /* busy is processor time */
    pthread_mutex_t lock; /* guards the tree, which only grows */
    mr__op_counters *root;
    double start_seconds; /* both clocks when the run began: they give seconds a tick */
    int64_t start_ticks;
    mr__trace *trace; /* NULL: none is kept */
} mr__stats;

void mr__stats_init(mr__stats *s, bool by_cpu);
/* Before the first frame: keeps a trace of so many spans. */
mr_code mr__stats_trace(mr__stats *s, size_t spans, mr_status *st) MR_NODISCARD;
void mr__stats_reset(mr__stats *s);
/* The counters of `it` at `place` below those of its parent (has_parent false: it is the root),
 * made if need be. NULL: no memory, or the parent has none (nothing is counted then). */
mr__op_counters *mr__stats_of(mr__stats *s, bool has_parent, mr__op_counters *above,
                              const mr_iter *it, size_t place);
size_t mr__stats_read(mr__stats *s, mr_op_stats *out, size_t capacity);
size_t mr__stats_read_tuning(mr__stats *s, mr_op_tuning *out, size_t capacity);
/* Notes what a parameter (static text) of `it` was tuned to, and by which times. thread any */
void mr__stats_tuned(const mr_iter *it, const char *parameter, size_t chosen, double service,
                     double interval);
/* So many blocks, of so many elements and bytes, came into queues of `it`; negative: they left.
 * thread any */
void mr__stats_queued(const mr_iter *it, int64_t blocks, int64_t elements, int64_t bytes);
/* Queues of `it` may hold so many more, or less. thread any */
void mr__stats_room(const mr_iter *it, int64_t blocks, int64_t elements);
size_t mr__stats_read_trace(mr__stats *s, mr_op_span *out, size_t capacity, double *left_out);
int64_t mr__stats_to_ticks(const mr__stats *s, double seconds);
#endif
