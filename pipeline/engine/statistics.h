/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_STATISTICS_H
#define MR_PIPELINE_ENGINE_STATISTICS_H
/* Counters of every op, always on: two readings of the time stamp counter and four relaxed adds a
 * block. An op's busy time is the time in its next less that in its inputs and in waits; the
 * nesting is tracked per thread. Private to engine/.
 *
 * thread   any */
#include <pthread.h>
#include <stdatomic.h>
#include "pipeline/engine/iterator.h"

typedef struct mr_op_counters mr_op_counters;
struct mr_op_counters {
    mr_op_counters *next;
    const char *op;
    atomic_int_fast64_t elements, bytes, busy_ticks, wait_ticks;
    char path[];
};

typedef struct mr_stats {
    pthread_mutex_t lock; /* guards the list, which only grows */
    mr_op_counters *first, *last;
    double start_seconds; /* both clocks when the run began: they give seconds a tick */
    int64_t start_ticks;
} mr_stats;

void mr__stats_init(mr_stats *s);
void mr__stats_reset(mr_stats *s);
/* The counters of the op at path, made if need be; NULL: no memory (nothing is counted then). */
mr_op_counters *mr__stats_of(mr_stats *s, const char *op, const char *path);
size_t mr__stats_read(mr_stats *s, mr_op_stats *out, size_t capacity);

int64_t mr__ticks(void);
int64_t mr__stats_to_ticks(const mr_stats *s, double seconds);

/* Begins a timed call; *outer is handed to mr__stats_leave, which returns the ticks that were the
 * callee's own. */
int64_t mr__stats_enter(int64_t *outer);
int64_t mr__stats_leave(int64_t began, int64_t outer);
/* These ticks of the present call are not its own (it waited). */
void mr__stats_exclude(int64_t ticks);
#endif
