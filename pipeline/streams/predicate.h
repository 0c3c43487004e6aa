/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_PREDICATE_H
#define MR_PIPELINE_STREAMS_PREDICATE_H
/* Functions that say yes or no of an element: of filter and take_while. */
#include "pipeline/engine/op_iterator.h"

/* Of an infer slot: fn, given input 0's elements, must return one scalar bool.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__predicate_check(const mr_dataset *self, mr_fn *fn, mr_status *st) MR_NODISCARD;
/* The same of what came out, where the graph left the number of axes open. */
mr_code mr__predicate_check_verdict(const char *op, const mr_block *verdict,
                                    mr_status *st) MR_NODISCARD;
#endif
