/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CPU_STREAM_CPU_H
#define MR_TRAINER_CPU_STREAM_CPU_H
/* What the CPU's operations need of its streams. */
#include "trainer/device/math.h"

/* Runs fn on a copy of args in stream order. Not mr_stream_launch: a back end that wraps this one
 * may have no launch slot. */
mr_code mr__cpu_launch(mr_stream *s, mr_kernel_fn fn, const void *args, size_t size,
                       mr_status *st) MR_NODISCARD;
/* From within a kernel: makes this the sticky error of the stream that runs it, unless that has
 * one already. */
void mr__cpu_fail(mr_code code, const char *fmt, ...) MR_PRINTF(2, 3);

/* A place in the stream for what operations keep between calls, NULL at first. The submitting
 * thread alone touches it, and free_plans when the stream has run dry. */
void **mr__cpu_plans(mr_stream *s);
void mr__cpu_plans_free(void *plans); /* NULL: nothing */

extern const mr_math_table mr__math_cpu;
#endif
