/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_POSITION_H
#define MR_PIPELINE_ENGINE_POSITION_H
/* Uses the encoding of positions (position.c) for other data: numbers, bytes and blocks. */
#include "pipeline/engine/op_iterator.h"

/* *out = the bytes that `put` writes, owned. */
mr_code mr__state_bytes(mr_code (*put)(void *ctx, mr_state_w *w, mr_status *st), void *ctx,
                        mr_buffer **out, mr_status *st) MR_NODISCARD;
/* Calls `get` to read n bytes, which it must consume completely. */
mr_code mr__state_read(const void *bytes, size_t n,
                       mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                       mr_status *st) MR_NODISCARD;
#endif
