/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_TRACE_H
#define MR_PIPELINE_ENGINE_TRACE_H
/* Records when and on which thread each op worked and waited, in a buffer of fixed size. When the
 * buffer is full, the shortest spans are dropped, so that the trace covers the whole run. Private
 * to engine/.
 *
 * thread   any */
#include "pipeline/engine/iterator.h"
#include "pipeline/engine/statistics.h"

/* errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__trace_new(size_t capacity, mr__trace **out, mr_status *st) MR_NODISCARD;
void mr__trace_free(mr__trace *t); /* NULL: nothing */
/* Records that the calling thread worked, or slept, for c between two readings of mr__ticks. */
void mr__trace_add(mr__trace *t, const mr__op_counters *c, bool waiting, int64_t began,
                   int64_t ended);
/* As mr_iterator_trace; start_ticks is second 0, and a tick lasts `per` seconds. */
size_t mr__trace_read(mr__trace *t, int64_t start_ticks, double per, mr_op_span *out,
                      size_t capacity, double *left_out);
#endif
