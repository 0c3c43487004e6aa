/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ROW_FILTER_H
#define MR_PIPELINE_STREAMS_ROW_FILTER_H
/* For ops that select elements: checks of predicates, and the selection of rows.
 *
 * thread   any */
#include "pipeline/engine/op_iterator.h"

/* For an infer slot: checks that fn, given input 0's elements, returns one scalar bool.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__predicate_check(const mr_dataset *self, mr_fn *fn, mr_status *st) MR_NODISCARD;
/* Checks the result of fn, because the graph may not determine its number of axes. */
mr_code mr__predicate_check_verdict(const char *op, const mr_block *verdict,
                                    mr_status *st) MR_NODISCARD;
/* out = the n rows of `in` that index lists in ascending order, without a copy if they are
 * adjacent; `in` may be moved from. */
mr_code mr__pick_rows(mr_block *in, const uint32_t *index, size_t n, mr_block *out,
                      mr_status *st) MR_NODISCARD;
#endif
