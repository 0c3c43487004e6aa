/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CPU_STREAM_CPU_H
#define MR_TRAINER_DEVICE_CPU_STREAM_CPU_H
/* Streams as the CPU's operations use them. */
#include "trainer/device/math.h"

/* Runs fn on a copy of args in stream order. Used instead of mr_stream_launch because a back end
 * that wraps this one may have no launch slot. */
mr_code mr__cpu_launch(mr_stream *s, mr_kernel_fn fn, const void *args, size_t size,
                       mr_status *st) MR_NODISCARD;
/* Called within a kernel: sets the sticky error of the stream that runs it, unless it has one. */
void mr__cpu_fail(mr_code code, const char *fmt, ...) MR_PRINTF(2, 3);

/* Storage in the stream for data that operations keep between calls, initially NULL. Only the
 * submitting thread accesses it, and free_plans when the stream is idle. */
void **mr__cpu_plans(mr_stream *s);
void mr__cpu_plans_free(void *plans); /* NULL: nothing */

extern const mr_math_table mr__math_cpu;
#endif
