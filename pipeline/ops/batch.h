/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_BATCH_H
#define MR_PIPELINE_OPS_BATCH_H
/* Elements into batches, and batches into elements. A constructor takes over its input, also on
 * failure, and always returns a dataset (see dataset.h); opts NULL: all defaults.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_batch_opts {
    bool drop_remainder;        /* drop a last batch of fewer elements */
    int64_t num_parallel_calls; /* at least 1, or MR_AUTO; accepted, as batches cost no work */
    mr_tri deterministic;       /* accepted: the order is always kept */
} mr_batch_opts;

/* Groups consecutive elements into batches.
 *
 * shape    component (d...) t  ->  (batch_size, d...) t; the last batch may have fewer rows
 * units    batch_size in elements, at least 1
 * order    kept; same result for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1, a component that is a dataset
 *          MR_INVALID_ARGUMENT (at the batch): rows differ in shape; names both shapes and the
 *          component
 *          an error of the input loses the rows collected before it for that batch
 * memory   no copy where upstream blocks line up, else one copy, into the caller's slot if the
 * batch fills it source   tf.data.Dataset.batch */
MR_API mr_dataset *mr_batch(mr_dataset *input, int64_t batch_size, const mr_batch_opts *opts);

typedef struct mr_padded_batch_opts {
    mr_value padded_shapes;  /* unset, or in the element's structure: for each component a list of
                                sizes, -1 or none for the largest in the batch */
    mr_value padding_values; /* unset (0, false, ""), a value for all components, or one for each in
                                the element's structure; of the component's type */
    bool drop_remainder;     /* drop a last batch of fewer elements */
} mr_padded_batch_opts;

/* Groups consecutive elements, each padded at the end of every axis to a common shape. The options
 * are copied.
 *
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1; shapes or values that do not fit the
 *          elements
 *          MR_DATA_LOSS (at the batch): an element larger than a given size
 * source   tf.data.Dataset.padded_batch */
MR_API mr_dataset *mr_padded_batch(mr_dataset *input, int64_t batch_size,
                                   const mr_padded_batch_opts *opts);

/* Splits each element along axis 0 of its components.
 *
 * errors   MR_INVALID_ARGUMENT (carried): a scalar component, axes 0 known to differ
 *          MR_INVALID_ARGUMENT (at the element): axes 0 that differ
 * memory   no copy
 * source   tf.data.Dataset.unbatch */
MR_API mr_dataset *mr_unbatch(mr_dataset *input);

typedef struct mr_rebatch_opts {
    bool drop_remainder; /* drop a last batch that is short */
} mr_rebatch_opts;

/* Batches of other sizes, across the borders of the input's: n sizes (copied), taken in turn. A
 * size of 0 makes an empty batch without reading the input.
 *
 * errors   MR_INVALID_ARGUMENT (carried): no size greater than 0, a scalar component
 * source   tf.data.Dataset.rebatch */
MR_API mr_dataset *mr_rebatch(mr_dataset *input, const int64_t *batch_sizes, size_t n,
                              const mr_rebatch_opts *opts);

/* Each element as n slices along axis 0, every component by its own length B: w = ceil(B / n) rows
 * each, so that late slices are short or empty.
 *
 * errors   MR_INVALID_ARGUMENT (carried): n < 1, a scalar component
 * memory   no copy; n equal slots of the caller are one batch to the op below
 * source   tf.distribute's rebatching for replicas */
MR_API mr_dataset *mr_replica_slices(mr_dataset *input, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
