/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_WORK_CLOCK_H
#define MR_PIPELINE_ENGINE_WORK_CLOCK_H
/* How long the calling thread has worked, in ticks: the time since some moment, less what it slept
 * in a known place (wait.h) and, if asked for, less the time it wanted a processor and got none.
 * Work is measured between two readings, the begin and the end of a frame; frames nest. Private to
 * engine/.
 *
 * thread   every thread has its own clock */
#include <stdbool.h>
#include <stdint.h>

/* Begins a frame and returns the clock. by_cpu: subtract the time without a processor. *now,
 * *waited: mr__ticks() and mr__waited_ticks(). */
int64_t mr__work_clock_enter(bool by_cpu, int64_t *now, int64_t *waited);
/* Ends the innermost frame, opened with the same by_cpu, and returns the clock. */
int64_t mr__work_clock_leave(bool by_cpu, int64_t *now, int64_t *waited);
/* The calling thread only runs tasks: what it does between two frames counts for the second. */
void mr__work_clock_of_pool(void);
#endif
