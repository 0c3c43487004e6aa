/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_FUNCTION_OPS_H
#define MR_PIPELINE_OPS_FUNCTION_OPS_H
/* Ops that apply a function to each element, and prefetch, which lets what is below it run ahead. A
 * constructor takes over its input and its function, also on failure, and always returns a dataset
 * (see dataset.h).
 *
 * thread   any
 * since    0.1 */
#include "../functions/function.h"
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_map_opts {
    int64_t num_parallel_calls; /* blocks evaluated at once; MR_AUTO: by the pool; 0: one by one */
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

/* Puts the elements of the datasets that fn returns one behind the other.
 *
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return a dataset
 * source   tf.data.Dataset.flat_map */
MR_API mr_dataset *mr_flat_map(mr_dataset *input, mr_fn *fn);

typedef struct mr_interleave_opts {
    int64_t cycle_length;       /* datasets open at once; 0 or MR_AUTO: 16, on every machine */
    int64_t block_length;       /* elements taken from one before the next; 0: 1 */
    int64_t num_parallel_calls; /* of them read at once, at most cycle_length; MR_AUTO: all;
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
