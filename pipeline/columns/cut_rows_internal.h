/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_CUT_ROWS_INTERNAL_H
#define MR_PIPELINE_COLUMNS_CUT_ROWS_INTERNAL_H
/* Parts of a batch along axis 0, as views.
 *
 * thread   one at a time per array */
#include "pipeline/memory/block.h"

/* out = `run` parts of n rows each, one after the other, from row `from` of the batch in row `row`
 * of a, which is dense; as many rows must be there. */
void mr__cut_dense(mr_array *out, const mr_array *a, size_t row, size_t from, size_t n, size_t run);
/* out = rows [from, from + n) of the batch in row r of a, which is ragged.
 * errors   MR_RESOURCE_EXHAUSTED: out is to be reset */
mr_code mr__cut_ragged(mr_array *out, const mr_array *a, size_t r, size_t from, size_t n,
                       mr_status *st) MR_NODISCARD;
#endif
