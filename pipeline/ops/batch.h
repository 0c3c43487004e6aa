/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_BATCH_H
#define MR_PIPELINE_OPS_BATCH_H
/* Ops that combine elements into batches and split batches. A constructor takes over its input,
 * also on failure, and always returns a dataset (see dataset.h). opts may be NULL: all defaults.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_batch_opts {
    bool drop_remainder;        /* drop a last batch of fewer elements */
    int64_t num_parallel_calls; /* at least 1, or MR_AUTO; has no effect: batching is cheap */
    mr_tri deterministic;       /* has no effect: the order is always kept */
} mr_batch_opts;

/* Groups consecutive elements into batches.
 *
 * shape    component (d...) t  ->  (batch_size, d...) t; the last batch may have fewer rows
 * units    batch_size in elements, at least 1
 * order    kept; the same result for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1; a component is a dataset
 *          MR_INVALID_ARGUMENT (at the batch): rows differ in shape; names both shapes and the
 *          component
 *          an error of the input drops the rows already collected for that batch
 * memory   no copy if the input's blocks align with the batches, else one copy, into the caller's
 *          slot if the batch fills it
 * source   tf.data.Dataset.batch */
MR_API mr_dataset *mr_batch(mr_dataset *input, int64_t batch_size, const mr_batch_opts *opts);

typedef struct mr_padded_batch_opts {
    mr_value padded_shapes;  /* unset, or a value with the element's structure: for each component a
                                list of sizes; -1 or none: the largest in the batch */
    mr_value padding_values; /* unset (0, false, ""), one value for all components, or a value with
                                the element's structure, of each component's type */
    bool drop_remainder;     /* drop a last batch of fewer elements */
} mr_padded_batch_opts;

/* Groups consecutive elements and pads each at the end of every axis to a common shape. The options
 * are copied.
 *
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1; shapes or values do not fit the elements
 *          MR_DATA_LOSS (at the batch): an element exceeds a size in padded_shapes
 * source   tf.data.Dataset.padded_batch */
MR_API mr_dataset *mr_padded_batch(mr_dataset *input, int64_t batch_size,
                                   const mr_padded_batch_opts *opts);

typedef struct mr_ragged_batch_opts {
    bool drop_remainder; /* drop a last batch of fewer elements */
} mr_ragged_batch_opts;

/* Groups consecutive elements whose lengths along axis 0 may differ. Components of known shape
 * become dense, as with mr_batch, the others ragged (mr_row.splits).
 *
 * shape    component (d0, d...) t  ->  (batch_size, -1, d...) t, ragged in axis 1
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1; a component is ragged, or its number of
 *          axes is unknown
 *          MR_INVALID_ARGUMENT (at the batch): elements differ in an axis other than 0
 * memory   one copy
 * source   tf.data.Dataset.ragged_batch */
MR_API mr_dataset *mr_ragged_batch(mr_dataset *input, int64_t batch_size,
                                   const mr_ragged_batch_opts *opts);

typedef struct mr_bucket_opts {
    mr_value padded_shapes, padding_values; /* as for mr_padded_batch */
    bool pad_to_bucket_boundary; /* pad open dimensions to one less than the bucket's boundary */
    bool no_padding;             /* batch without padding */
    bool drop_remainder;         /* drop incomplete batches at the end */
} mr_bucket_opts;

/* Padded batches of elements of similar length. Bucket i collects elements whose length is at least
 * boundaries[i - 1] and less than boundaries[i], and is emitted as a batch when it has
 * batch_sizes[i] elements. There are n boundaries, in ascending order, and n + 1 sizes; all are
 * copied. At the end of the input the incomplete buckets follow in order.
 *
 * errors   MR_INVALID_ARGUMENT (carried): length_fn does not return one scalar int64; boundaries do
 *          not ascend; those of mr_padded_batch
 *          MR_INVALID_ARGUMENT (at the batch): with pad_to_bucket_boundary, a length not below the
 *          last boundary
 * source   tf.data.Dataset.bucket_by_sequence_length */
MR_API mr_dataset *mr_bucket_by_sequence_length(mr_dataset *input, mr_fn *length_fn,
                                                const int64_t *boundaries, size_t n,
                                                const int64_t *batch_sizes,
                                                const mr_bucket_opts *opts);

/* Splits each element along axis 0 of its components.
 *
 * errors   MR_INVALID_ARGUMENT (carried): a scalar component; lengths of axis 0 known to differ
 *          MR_INVALID_ARGUMENT (at the element): lengths of axis 0 differ
 * memory   no copy
 * source   tf.data.Dataset.unbatch */
MR_API mr_dataset *mr_unbatch(mr_dataset *input);

typedef struct mr_rebatch_opts {
    bool drop_remainder; /* drop an incomplete last batch */
} mr_rebatch_opts;

/* Regroups the rows of the input's batches into batches of n sizes (copied), used in turn. A size
 * of 0 makes an empty batch without reading the input.
 *
 * errors   MR_INVALID_ARGUMENT (carried): no size greater than 0; a scalar component
 * source   tf.data.Dataset.rebatch */
MR_API mr_dataset *mr_rebatch(mr_dataset *input, const int64_t *batch_sizes, size_t n,
                              const mr_rebatch_opts *opts);

/* Splits each element into n slices along axis 0. A component of length B has ceil(B / n) rows in
 * each slice, so the last slices may be shorter or empty.
 *
 * errors   MR_INVALID_ARGUMENT (carried): n < 1; a scalar component
 * memory   no copy; the op below sees n equal slots of the caller as one batch
 * source   tf.distribute's rebatching for replicas */
MR_API mr_dataset *mr_replica_slices(mr_dataset *input, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
