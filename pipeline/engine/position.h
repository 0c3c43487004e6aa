/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_POSITION_H
#define MR_PIPELINE_ENGINE_POSITION_H
/* Uses the encoding of positions (position.c) for other data: numbers, bytes and blocks. */
#include "pipeline/engine/op_iterator.h"

/* *out = the text of the graph; its list of ops if it has no text. Owned. */
mr_code mr__graph_signature(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;
/* *out = the bytes that `put` writes, owned. */
mr_code mr__state_bytes(mr_code (*put)(void *ctx, mr_state_w *w, mr_status *st), void *ctx,
                        mr_buffer **out, mr_status *st) MR_NODISCARD;
/* Calls `get` to read n bytes, which it must consume completely. They are of a file that the user
 * trusts: datasets in it may read files. */
mr_code mr__state_read(const void *bytes, size_t n,
                       mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                       mr_status *st) MR_NODISCARD;
/* A part of a state that can be left out or kept: the number of bytes that `put` writes, then the
 * bytes. mr__state_get_part reads such bytes as a part of r; `get` must consume all of them. */
mr_code mr__state_put_part(mr_state_w *w, mr_code (*put)(void *ctx, mr_state_w *w, mr_status *st),
                           void *ctx, mr_status *st) MR_NODISCARD;
mr_code mr__state_get_part(const mr_state_r *r, const void *bytes, size_t n,
                           mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                           mr_status *st) MR_NODISCARD;
/* true: the position is restored by name (mr_iterator_opts.on_mismatch), and is of another
 * mixture. */
bool mr__iter_restores_by_name(const mr_iter *it);
/* true: the mixture at or below it is another one than in the position, and may have elements after
 * the end of that one. So it is in a stream of an elastic job, which ends before others do. */
bool mr__iter_may_go_on(const mr_iter *it);
/* false: others that are restored in the same way say what differs. */
bool mr__iter_speaks(const mr_iter *it);
/* The rows of b from row `at` on. */
mr_code mr__state_put_rows(mr_state_w *w, const mr_block *b, size_t at, mr_status *st) MR_NODISCARD;
/* The same, and the errors of e from error_at on, at least one of both; their places are counted
 * over rows and errors from there. get: into empty ones. */
mr_code mr__state_put_rows_errors(mr_state_w *w, const mr_block *b, size_t at,
                                  const mr_row_errors *e, size_t error_at,
                                  mr_status *st) MR_NODISCARD;
mr_code mr__state_get_rows_errors(mr_state_r *r, const mr_spec *spec, mr_block *b, mr_row_errors *e,
                                  mr_status *st) MR_NODISCARD;
#endif
