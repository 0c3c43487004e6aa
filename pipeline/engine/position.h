/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_POSITION_H
#define MR_PIPELINE_ENGINE_POSITION_H
/* The encoding of positions (position.c) for other bytes: numbers, bytes and blocks. */
#include "pipeline/engine/op_iterator.h"

/* *out = what `put` writes, owned. */
mr_code mr__state_bytes(mr_code (*put)(void *ctx, mr_state_w *w, mr_status *st), void *ctx,
                        mr_buffer **out, mr_status *st) MR_NODISCARD;
/* Lets `get` read n bytes, which it must use up. */
mr_code mr__state_read(const void *bytes, size_t n,
                       mr_code (*get)(void *ctx, mr_state_r *r, mr_status *st), void *ctx,
                       mr_status *st) MR_NODISCARD;
#endif
