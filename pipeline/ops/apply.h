/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_APPLY_H
#define MR_PIPELINE_OPS_APPLY_H
/* Ops that apply a function to each element, and prefetch, which lets what is below it run ahead. A
 * constructor takes over its input and its function, also on failure, and always returns a dataset
 * (see dataset.h).
 *
 * thread   any
 * since    0.1 */
#include "../functions/compiler/function.h"
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_map_opts {
    int64_t num_parallel_calls; /* blocks evaluated at once; MR_AUTO: as needed; 0: sequential */
    mr_tri deterministic;       /* MR_NO: deliver what is finished first */
} mr_map_opts;

/* Replaces each element by what fn makes of it.
 *
 * shape    as fn returns; a tuple makes components
 * order    kept, unless deterministic is MR_NO (or with_options says so and it is MR_DEFAULT)
 * errors   an error of fn is the error of that element only
 * source   tf.data.Dataset.map */
MR_API mr_dataset *mr_map(mr_dataset *input, mr_fn *fn, const mr_map_opts *opts);

/* Keeps the elements for which fn returns true.
 *
 * order    as mr_map
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return one scalar bool
 * source   tf.data.Dataset.filter */
typedef mr_map_opts mr_filter_opts;
MR_API mr_dataset *mr_filter(mr_dataset *input, mr_fn *fn, const mr_filter_opts *opts);

/* Puts the elements of the datasets that fn returns one after the other.
 *
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a dataset
 * source   tf.data.Dataset.flat_map */
MR_API mr_dataset *mr_flat_map(mr_dataset *input, mr_fn *fn);

/* Emits out of (state, out) = fn(state, element), where the state is init at first (borrowed; a
 * tensor, or a tuple or record of them) and then what fn returned last. Each epoch begins with init
 * again.
 *
 * shape    as fn returns; the state's type may not change, its shape may
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a pair, or a state of another type
 *          an error of fn is the error of that element only, and leaves the state as it was
 * memory   the state, here and in a position
 * source   tf.data.Dataset.scan */
MR_API mr_dataset *mr_scan(mr_dataset *input, const mr_value *init, mr_fn *fn);

/* Sorts elements by key_fn(element), a scalar int64. When window_size elements of a key are there,
 * the elements of reduce_fn(key, dataset of them) come out; at the end of the input the other keys
 * follow in ascending order. window_size_fn (NULL: window_size) gives the size for a key.
 *
 * order    what is made of a window comes before another element is read
 * memory   the elements that wait for their window to fill, here and in a position
 * errors   MR_INVALID_ARGUMENT (carried): functions that return something else
 *          MR_INVALID_ARGUMENT: a size below 1, at each element of that key
 * source   tf.data.Dataset.group_by_window */
MR_API mr_dataset *mr_group_by_window(mr_dataset *input, mr_fn *key_fn, mr_fn *reduce_fn,
                                      int64_t window_size, mr_fn *window_size_fn);

typedef struct mr_rejection_resample_opts {
    int64_t seed; /* with has_seed: fixes what is dropped */
    bool has_seed;
} mr_rejection_resample_opts;

/* Drops elements at random so that classes 0..n - 1, as class_fn gives them (scalar int64), come in
 * proportion to target_dist; initial_dist says how they come now (NULL: it is counted on the way).
 * Emits (class, element).
 *
 * order    kept; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): distributions that are none
 *          MR_INVALID_ARGUMENT: a class out of range, at its element
 * source   tf.data.Dataset.rejection_resample, which draws otherwise */
MR_API mr_dataset *mr_rejection_resample(mr_dataset *input, mr_fn *class_fn,
                                         const double *target_dist, const double *initial_dist,
                                         size_t n, const mr_rejection_resample_opts *opts);

typedef struct mr_interleave_opts {
    int64_t cycle_length;       /* datasets open at once; 0 or MR_AUTO: 16, on every machine */
    int64_t block_length;       /* elements taken from one before the next; 0: 1 */
    int64_t num_parallel_calls; /* of them read at once, at most cycle_length; MR_AUTO: as needed;
                                   0: none */
    mr_tri deterministic;       /* MR_NO: take what is there first */
} mr_interleave_opts;

/* Goes round the datasets that fn returns, taking block_length elements of each in turn. A dataset
 * that ends leaves its place free until the cycle comes round to it.
 *
 * order    fixed by cycle_length and block_length alone, unless deterministic is MR_NO
 * memory   a block of each open dataset is read ahead
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a dataset; a length that is not
 *          positive; num_parallel_calls above cycle_length
 * source   tf.data.Dataset.interleave */
MR_API mr_dataset *mr_interleave(mr_dataset *input, mr_fn *fn, const mr_interleave_opts *opts);

/* Reads up to buffer_size elements ahead on another thread (MR_AUTO, 0 or -1: a few blocks, bounded
 * by bytes) and passes its input through, errors in their places.
 *
 * memory   buffer_size elements; auto: about 1 MiB, or two elements
 * errors   MR_INVALID_ARGUMENT (carried): buffer_size below -1
 * source   tf.data.Dataset.prefetch */
MR_API mr_dataset *mr_prefetch(mr_dataset *input, int64_t buffer_size);

#ifdef __cplusplus
}
#endif
#endif
