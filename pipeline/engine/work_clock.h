/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_WORK_CLOCK_H
#define MR_PIPELINE_ENGINE_WORK_CLOCK_H
/* The time that the calling thread has worked, in ticks: the time since some moment, minus the time
 * it slept in a known place (wait.h) and, if requested, minus the time it was ready to run but had
 * no processor. Work is measured between two readings, the begin and the end of a frame; frames
 * nest. Private to engine/.
 *
 * thread   every thread has its own clock */
#include <stdbool.h>
#include <stdint.h>

/* Begins a frame and returns the clock. by_cpu: subtract the time without a processor. *now,
 * *waited: mr__ticks() and mr__waited_ticks(). */
int64_t mr__work_clock_enter(bool by_cpu, int64_t *now, int64_t *waited);
/* Ends the innermost frame, opened with the same by_cpu, and returns the clock. */
int64_t mr__work_clock_leave(bool by_cpu, int64_t *now, int64_t *waited);
/* Declares that the calling thread only runs tasks: its work between two frames counts for the
 * second. */
void mr__work_clock_of_pool(void);
#endif
