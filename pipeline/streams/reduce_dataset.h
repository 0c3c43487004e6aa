/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_REDUCE_DATASET_H
#define MR_PIPELINE_STREAMS_REDUCE_DATASET_H
/* Reduces a dataset to a single value.
 *
 *     mr_value zero = {.kind = MR_V_INT};
 *     mr_fn *add = mr_fn_text("(s, x) => s + x");
 *     mr_block sum = MR_BLOCK_EMPTY;
 *     rc = mr_reduce(ds, &zero, add, NULL, &sum, &st);     // *(int64_t *)sum.columns[0].data
 *     mr_block_reset(&sum);
 *     mr_fn_unref(add);
 *
 * since    0.1 */
#include "../engine/iterator.h"
#include "../functions/compiler/function.h"
#include "../params/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *spec = the spec of mr_reduce's result, owned. All arguments are borrowed.
 * errors   MR_INVALID_ARGUMENT: fn does not take (state, element), or returns a state whose type
 *          differs from that of init */
MR_API mr_code mr_reduce_spec(mr_dataset *ds, const mr_value *init, mr_fn *fn, mr_spec **spec,
                              mr_status *st) MR_NODISCARD;

/* Runs ds once, with opts as for mr_iterator_open: starts with state = init, computes state =
 * fn(state, element) for each element in order, and puts the last state into out as one row. ds,
 * init and fn are borrowed.
 *
 * shape    the type of the state is fixed, its shape may change
 * errors   those of mr_reduce_spec
 *          the first error of an element or of fn stops it; out is then empty
 * thread   any
 * source   tf.data.Dataset.reduce */
MR_API mr_code mr_reduce(mr_dataset *ds, const mr_value *init, mr_fn *fn,
                         const mr_iterator_opts *opts, mr_block *out, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
