/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_REDUCE_DATASET_H
#define MR_PIPELINE_STREAMS_REDUCE_DATASET_H
/* What a whole dataset comes to.
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

/* *spec = what mr_reduce gives, owned. All else is borrowed.
 * errors   MR_INVALID_ARGUMENT: fn does not take (state, element), or returns a state of another
 *          type than init */
MR_API mr_code mr_reduce_spec(mr_dataset *ds, const mr_value *init, mr_fn *fn, mr_spec **spec,
                              mr_status *st) MR_NODISCARD;

/* Runs ds once, with opts as for mr_iterator_open, from state = init through state = fn(state,
 * element) for each element: out gets one row, the last state. ds, init and fn are borrowed.
 *
 * shape    the state keeps its type, but not its shape
 * order    that of the elements
 * errors   those of mr_reduce_spec
 *          the first error of an element or of fn ends it; out is then empty
 * thread   any
 * source   tf.data.Dataset.reduce */
MR_API mr_code mr_reduce(mr_dataset *ds, const mr_value *init, mr_fn *fn,
                         const mr_iterator_opts *opts, mr_block *out, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
