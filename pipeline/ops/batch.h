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
 *          component.
 *          An error of the input loses the rows collected before it for that batch
 * memory   no copy where upstream blocks line up, else one copy, into the caller's slot if the
 *          batch fills it
 * source   tf.data.Dataset.batch */
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
 *          elements.
 *          MR_DATA_LOSS (at the batch): an element larger than a given size
 * source   tf.data.Dataset.padded_batch */
MR_API mr_dataset *mr_padded_batch(mr_dataset *input, int64_t batch_size,
                                   const mr_padded_batch_opts *opts);

typedef struct mr_ragged_batch_opts {
    bool drop_remainder; /* drop a last batch of fewer elements */
} mr_ragged_batch_opts;

/* Groups consecutive elements whose axis 0 may differ. Components of known shape become dense, as
 * with mr_batch, the others ragged (mr_row.splits).
 *
 * shape    component (d0, d...) t  ->  (batch_size, -1, d...) t, ragged in axis 1
 * errors   MR_INVALID_ARGUMENT (carried): batch_size < 1; a component that is ragged, or whose
 *          number of axes is unknown
 *          MR_INVALID_ARGUMENT (at the batch): elements that differ in another axis than 0
 * memory   one copy
 * source   tf.data.Dataset.ragged_batch */
MR_API mr_dataset *mr_ragged_batch(mr_dataset *input, int64_t batch_size,
                                   const mr_ragged_batch_opts *opts);

typedef struct mr_bucket_opts {
    mr_value padded_shapes, padding_values; /* as for mr_padded_batch */
    bool pad_to_bucket_boundary; /* pad open dimensions to one less than the bucket's boundary */
    bool no_padding;             /* batch without padding */
    bool drop_remainder;         /* drop batches that are short at the end */
} mr_bucket_opts;

/* Padded batches of elements of similar length: bucket i takes lengths from boundaries[i - 1] up to
 * but not boundaries[i], and is a batch when it has batch_sizes[i] elements; n boundaries, in
 * ascending order, and n + 1 sizes (all copied). The rest follows at the end, in order of buckets.
 *
 * errors   MR_INVALID_ARGUMENT (carried): length_fn does not return one scalar int64; boundaries
 *          that do not ascend; those of mr_padded_batch
 *          MR_INVALID_ARGUMENT (at the batch): with pad_to_bucket_boundary, a length not below the
 *          last boundary
 * source   tf.data.Dataset.bucket_by_sequence_length */
MR_API mr_dataset *mr_bucket_by_sequence_length(mr_dataset *input, mr_fn *length_fn,
                                                const int64_t *boundaries, size_t n,
                                                const int64_t *batch_sizes,
                                                const mr_bucket_opts *opts);

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
