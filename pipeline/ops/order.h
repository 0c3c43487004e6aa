/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_ORDER_H
#define MR_PIPELINE_OPS_ORDER_H
/* Which elements, in which order, how often. A constructor takes over its inputs, also on failure,
 * and always returns a dataset (see dataset.h); opts NULL: all defaults.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first count elements; negative: all. Never pulls an element behind them; take(0) does not
 * open its input. source tf.data.Dataset.take */
MR_API mr_dataset *mr_take(mr_dataset *input, int64_t count);

/* All but the first count elements; negative: none. Errors of skipped elements come up.
 * source tf.data.Dataset.skip */
MR_API mr_dataset *mr_skip(mr_dataset *input, int64_t count);

typedef struct mr_shard_opts {
    bool require_non_empty; /* fail if the input has elements, but fewer than num_shards */
} mr_shard_opts;

/* Elements index, index + num_shards, ...
 *
 * errors   MR_INVALID_ARGUMENT (carried): num_shards < 1, index not within 0..num_shards - 1
 *          MR_FAILED_PRECONDITION: num_shards is -1 (a hint for the HINT policy) when opened
 *          MR_INVALID_ARGUMENT: require_non_empty and too few elements
 * source   tf.data.Dataset.shard */
MR_API mr_dataset *mr_shard(mr_dataset *input, int64_t num_shards, int64_t index,
                            const mr_shard_opts *opts);

/* The input count times; 0: not at all, negative: for ever, but for an input without elements. Each
 * time is a new iterator of it. source tf.data.Dataset.repeat */
MR_API mr_dataset *mr_repeat(mr_dataset *input, int64_t count);

/* All of input, then all of other.
 *
 * errors   MR_INVALID_ARGUMENT (carried): elements of other types
 * source   tf.data.Dataset.concatenate */
MR_API mr_dataset *mr_concatenate(mr_dataset *input, mr_dataset *other);

/* Element i of each of n inputs (at least 1) as components; ends with the shortest. An error uses
 * up an element of every input. source tf.data.Dataset.zip */
MR_API mr_dataset *mr_zip(mr_dataset *const *inputs, size_t n);

/* (number, element), numbers from start. An error uses up a number.
 * source tf.data.Dataset.enumerate */
MR_API mr_dataset *mr_enumerate(mr_dataset *input, int64_t start);

typedef struct mr_shuffle_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri reshuffle_each_iteration; /* another order in each epoch; yes by default */
} mr_shuffle_opts;

/* Fills a buffer and gives an element of it at random, each time one that comes in takes its place.
 *
 * units    buffer_size in elements, at least 1; -2: the whole dataset
 * order    that of tf.data for the same seed; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): another buffer_size
 * memory   the buffer's rows, which are copied out of the blocks they came in, and 8 bytes each;
 *          rows of arrays, tensors and caches are not copied but held by address
 * source   tf.data.Dataset.shuffle (TensorFlow 2.21) */
MR_API mr_dataset *mr_shuffle(mr_dataset *input, int64_t buffer_size, const mr_shuffle_opts *opts);

/* Keeps what the first whole pass gives in memory; later passes do not open the input. Errors are
 * not kept. A pass that is given up keeps nothing.
 *
 * memory   the elements, in the blocks they came in
 * source   tf.data.Dataset.cache */
MR_API mr_dataset *mr_cache(mr_dataset *input);

typedef struct mr_window_opts {
    int64_t shift;  /* from one window's start to the next's; size by default */
    int64_t stride; /* from one element of a window to its next; 1 by default */
    bool drop_remainder;
} mr_window_opts;

/* Datasets of size elements each, one for every component.
 *
 * errors   MR_INVALID_ARGUMENT (carried): size, shift or stride < 1
 * source   tf.data.Dataset.window */
MR_API mr_dataset *mr_window(mr_dataset *input, int64_t size, const mr_window_opts *opts);

/* The input, and an error if it has not `cardinality` elements (-1: ends). Its number of elements
 * is then known. source tf.data.experimental.assert_cardinality */
MR_API mr_dataset *mr_assert_cardinality(mr_dataset *input, int64_t cardinality);

typedef struct mr_ignore_errors_opts {
    bool log_warning; /* log each error */
} mr_ignore_errors_opts;

/* The input without the elements that failed. source tf.data.Dataset.ignore_errors */
MR_API mr_dataset *mr_ignore_errors(mr_dataset *input, const mr_ignore_errors_opts *opts);

typedef struct mr_dataset_opts {
    char *auto_shard_policy; /* "AUTO", "FILE", "DATA", "OFF" or "HINT"; borrowed during the call */
    mr_tri deterministic;    /* for ops that do not say so themselves */
} mr_dataset_opts;

/* The input, and options for the whole graph; of two values the one nearer the sink wins.
 * source tf.data.Dataset.with_options */
MR_API mr_dataset *mr_with_options(mr_dataset *input, const mr_dataset_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
