/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_GRAPH_H
#define MR_TRAINER_CUDA_CUDA_GRAPH_H
/* Sections of a stream whose work repeats, as CUDA graphs.
 *
 *     first time     all of it is submitted, as outside of sections
 *     second time    the same, and what was submitted is kept as a list; a graph is made of that
 *     later times    nothing is submitted while each piece of work is the next of the list; where
 *                    a kernel of ours is the same but for its parameters (a learning rate, a key of
 *                    dropout), its node gets the new ones; at the end the graph is launched
 *
 * What comes another way than the list says is submitted, after what was held back, and the list
 * is made anew. So a graph never runs with anything but what was asked for this time.
 *
 * Events, copies, calls of the host and frees are not of graphs: they divide a section into
 * segments, each with a graph of its own, and come between. */
#include "trainer/device/cuda/cuda_device.h"

/* Submits work that args describes to s->stream. It must submit no more than once again what the
 * same args gave, and ask for nothing else (no memory, no waiting). */
typedef mr_code mr__cuda_run(mr__cuda_stream *s, const void *args, mr_status *st);

/* run(s, args), at once or with the section. args are compared as bytes: no gaps, unless it is a
 * kernel. */
mr_code mr__cuda_submit(mr__cuda_stream *s, mr__cuda_run *run, const void *args, size_t bytes,
                        mr_status *st) MR_NODISCARD;

/* Whether mr__cuda_submit would be run() alone. */
bool mr__cuda_is_plain(const mr__cuda_stream *s);

/* What a section holds back reaches the stream; before anything that mr__cuda_submit does not do.
 */
mr_code mr__cuda_flush(mr__cuda_stream *s, mr_status *st) MR_NODISCARD;
/* The same where nothing can be returned: the stream's next call does. */
void mr__cuda_flush_later(mr__cuda_stream *s);

/* The slots of the same name. */
mr_code mr__cuda_repeat_begin(void *stream, uint64_t key, mr_status *st) MR_NODISCARD;
mr_code mr__cuda_repeat_end(void *stream, mr_status *st) MR_NODISCARD;

/* The stream has run dry. */
void mr__cuda_graphs_free(mr__cuda_stream *s);
#endif
