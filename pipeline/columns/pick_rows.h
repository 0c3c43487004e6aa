/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_PICK_ROWS_H
#define MR_PIPELINE_COLUMNS_PICK_ROWS_H
/* Some rows of a block as a block, without a copy where they lie together. */
#include "pipeline/memory/block.h"

/* out = the n rows of `in` that index lists, in ascending order; `in` may be moved from. */
mr_code mr__pick_rows(mr_block *in, const uint32_t *index, size_t n, mr_block *out,
                      mr_status *st) MR_NODISCARD;
#endif
