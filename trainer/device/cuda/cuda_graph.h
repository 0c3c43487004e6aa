/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_GRAPH_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_GRAPH_H
/* Repeated sections of a stream as CUDA graphs.
 *
 *     first time     all of the work is submitted, as outside of sections
 *     second time    the same, and the submitted work is recorded in a list, from which a graph is
 *                    made
 *     later times    nothing is submitted while each piece of work is the next of the list; if one
 *                    of our kernels differs only in its parameters (a learning rate, a dropout
 *                    key), its node gets the new ones; at the end the graph is launched
 *
 * Work that deviates from the list is submitted, after the work held back, and the list is rebuilt.
 * So a graph never runs anything but the work submitted this time.
 *
 * Events, copies, host calls and frees are not part of graphs: they divide a section into segments,
 * each with a separate graph, and are submitted between them. */
#include "trainer/device/cuda/cuda_device.h"

/* Submits the work that args describes to s->stream. The same args must always submit the same
 * work, and nothing else may be requested (no memory, no waiting). */
typedef mr_code mr__cuda_run(mr__cuda_stream *s, const void *args, mr_status *st);

/* run(s, args), at once or with the section. args are compared as bytes: no padding, unless it is a
 * kernel. */
mr_code mr__cuda_submit(mr__cuda_stream *s, mr__cuda_run *run, const void *args, size_t bytes,
                        mr_status *st) MR_NODISCARD;

/* Whether mr__cuda_submit would only call run(). */
bool mr__cuda_is_plain(const mr__cuda_stream *s);

/* Submits the work that a section holds back; call it before anything other than
 * mr__cuda_submit. */
mr_code mr__cuda_flush(mr__cuda_stream *s, mr_status *st) MR_NODISCARD;
/* The same where an error cannot be returned: the stream's next call returns it. */
void mr__cuda_flush_later(mr__cuda_stream *s);

/* The slots of the same name. */
mr_code mr__cuda_repeat_begin(void *stream, uint64_t key, mr_status *st) MR_NODISCARD;
mr_code mr__cuda_repeat_end(void *stream, mr_status *st) MR_NODISCARD;

/* The stream must be idle. */
void mr__cuda_graphs_free(mr__cuda_stream *s);
#endif
