/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_APPLY_H
#define MR_PIPELINE_OPS_APPLY_H
/* Ops that apply a function to each element, and prefetch, which lets the ops below it run ahead. A
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
    mr_tri deterministic;       /* MR_NO: deliver blocks as they finish */
} mr_map_opts;

/* Replaces each element with the result of fn.
 *
 * shape    that of fn's result; a tuple becomes the components of the element
 * order    kept, unless deterministic is MR_NO, or is MR_DEFAULT and with_options has MR_NO
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

/* Concatenates the datasets that fn returns.
 *
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a dataset
 * source   tf.data.Dataset.flat_map */
MR_API mr_dataset *mr_flat_map(mr_dataset *input, mr_fn *fn);

/* Computes (state, out) = fn(state, element) for each element and emits out. Each epoch starts with
 * init as the state: a tensor, or a tuple or record of tensors; borrowed.
 *
 * shape    that of out; the type of the state is fixed, its shape may change
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a pair, or a state of another type
 *          an error of fn is the error of that element only, and leaves the state unchanged
 * memory   the state, also in a position
 * source   tf.data.Dataset.scan */
MR_API mr_dataset *mr_scan(mr_dataset *input, const mr_value *init, mr_fn *fn);

/* Groups elements by key_fn(element), a scalar int64. As soon as a key has window_size elements,
 * emits the elements of the dataset reduce_fn(key, dataset of these elements). At the end of the
 * input the incomplete windows follow in ascending order of keys. window_size_fn(key), if not NULL,
 * replaces window_size.
 *
 * order    all elements of a window are emitted before another input element is read
 * memory   the elements of incomplete windows, also in a position
 * errors   MR_INVALID_ARGUMENT (carried): a function returns another type
 *          MR_INVALID_ARGUMENT: a size below 1, at each element of that key
 * source   tf.data.Dataset.group_by_window */
MR_API mr_dataset *mr_group_by_window(mr_dataset *input, mr_fn *key_fn, mr_fn *reduce_fn,
                                      int64_t window_size, mr_fn *window_size_fn);

typedef struct mr_rejection_resample_opts {
    int64_t seed; /* with has_seed: fixes which elements are dropped */
    bool has_seed;
} mr_rejection_resample_opts;

/* Drops elements at random so that the classes 0..n - 1 returned by class_fn (scalar int64) occur
 * in proportion to target_dist. initial_dist is their distribution in the input (NULL: estimated
 * from the elements seen so far). Emits (class, element).
 *
 * order    kept; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): invalid distributions
 *          MR_INVALID_ARGUMENT: a class out of range, at its element
 * source   tf.data.Dataset.rejection_resample, which draws differently */
MR_API mr_dataset *mr_rejection_resample(mr_dataset *input, mr_fn *class_fn,
                                         const double *target_dist, const double *initial_dist,
                                         size_t n, const mr_rejection_resample_opts *opts);

typedef struct mr_interleave_opts {
    int64_t cycle_length;       /* datasets open at once; 0 or MR_AUTO: 16, on every machine */
    int64_t block_length;       /* consecutive elements taken from each; 0: 1 */
    int64_t num_parallel_calls; /* datasets read at once, at most cycle_length; MR_AUTO: as needed;
                                   0: sequential */
    mr_tri deterministic;       /* MR_NO: take elements as they become available */
} mr_interleave_opts;

/* Cycles through the datasets that fn returns, taking block_length elements of each in turn. The
 * slot of a dataset that ended is refilled only when the cycle reaches it again.
 *
 * order    fixed by cycle_length and block_length alone, unless deterministic is MR_NO
 * memory   a block of each open dataset is read ahead
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a dataset; a length is not positive;
 *          num_parallel_calls exceeds cycle_length
 * source   tf.data.Dataset.interleave */
MR_API mr_dataset *mr_interleave(mr_dataset *input, mr_fn *fn, const mr_interleave_opts *opts);

/* Passes its input through, and reads up to buffer_size elements ahead on another thread (MR_AUTO,
 * 0 or -1: a few blocks, bounded by bytes). Errors keep their positions.
 *
 * memory   buffer_size elements; auto: about 1 MiB, or two elements
 * errors   MR_INVALID_ARGUMENT (carried): buffer_size below -1
 * source   tf.data.Dataset.prefetch */
MR_API mr_dataset *mr_prefetch(mr_dataset *input, int64_t buffer_size);

#ifdef __cplusplus
}
#endif
#endif
