/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SEQUENCE_H
#define MR_PIPELINE_OPS_SEQUENCE_H
/* Which elements, in which order, how often. A constructor takes over its inputs, also on failure,
 * and always returns a dataset (see dataset.h); opts NULL: all defaults.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first count elements; negative: all. Never pulls an element after them; take(0) does not
 * open its input.
 * source   tf.data.Dataset.take */
MR_API mr_dataset *mr_take(mr_dataset *input, int64_t count);

/* All but the first count elements; negative: none. Errors of skipped elements come up.
 * source   tf.data.Dataset.skip */
MR_API mr_dataset *mr_skip(mr_dataset *input, int64_t count);

/* The elements before the first for which fn returns false; nothing after it is seen.
 *
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return one scalar bool
 *          an error of fn is the error of that element only
 * source   tf.data.Dataset.take_while */
MR_API mr_dataset *mr_take_while(mr_dataset *input, mr_fn *fn);

/* The elements without those that are equal to an earlier one. In each epoch anew.
 *
 * errors   MR_INVALID_ARGUMENT (carried): elements that are not one tensor of integers or strings
 * memory   every value that was emitted, here and in a position
 * source   tf.data.Dataset.unique */
MR_API mr_dataset *mr_unique(mr_dataset *input);

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
 * time is a new iterator of it.
 * source   tf.data.Dataset.repeat */
MR_API mr_dataset *mr_repeat(mr_dataset *input, int64_t count);

/* All of input, then all of other.
 *
 * errors   MR_INVALID_ARGUMENT (carried): elements of other types
 * source   tf.data.Dataset.concatenate */
MR_API mr_dataset *mr_concatenate(mr_dataset *input, mr_dataset *other);

/* Element i of each of n inputs (at least 1) as components; ends with the shortest. An error uses
 * up an element of every input.
 * source   tf.data.Dataset.zip */
MR_API mr_dataset *mr_zip(mr_dataset *const *inputs, size_t n);

typedef struct mr_choose_from_datasets_opts {
    mr_tri stop_on_empty_dataset; /* end with the first input that ends; yes by default */
} mr_choose_from_datasets_opts;

/* Takes each element from the input whose number `choice` gives (int64 scalars): n inputs, at least
 * 1, of elements of the same types.
 *
 * order    that of choice; ends with it, or when all inputs have ended
 * errors   MR_INVALID_ARGUMENT (carried): elements of other types
 *          MR_INVALID_ARGUMENT: a number that is none of an input
 * source   tf.data.Dataset.choose_from_datasets */
MR_API mr_dataset *mr_choose_from_datasets(mr_dataset *const *inputs, size_t n, mr_dataset *choice,
                                           const mr_choose_from_datasets_opts *opts);

typedef struct mr_sample_from_datasets_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri stop_on_empty_dataset;      /* end with the first input that ends; no by default */
    mr_tri rerandomize_each_iteration; /* another order in each epoch; no by default */
} mr_sample_from_datasets_opts;

/* Takes each element from an input drawn at random, input i in proportion to weights[i] (NULL: all
 * alike). Inputs of weight 0 are never opened.
 *
 * order    that of tf.data for the same seed; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): elements of other types, a weight below 0
 * source   tf.data.Dataset.sample_from_datasets (TensorFlow 2.21) */
MR_API mr_dataset *mr_sample_from_datasets(mr_dataset *const *inputs, size_t n,
                                           const double *weights,
                                           const mr_sample_from_datasets_opts *opts);

/* (number, element), numbers from start. An error uses up a number.
 * source   tf.data.Dataset.enumerate */
MR_API mr_dataset *mr_enumerate(mr_dataset *input, int64_t start);

typedef struct mr_shuffle_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri reshuffle_each_iteration; /* another order in each epoch; yes by default */
} mr_shuffle_opts;

/* Keeps a buffer of elements, and emits one of them at random at a time; the next element of the
 * input takes its place.
 *
 * units    buffer_size in elements, at least 1; -2: the whole dataset
 * order    that of tf.data for the same seed; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): another buffer_size
 * memory   the buffer's rows, which are copied out of the blocks they came in, and 8 bytes each;
 *          rows of arrays, tensors and caches are not copied but held by address
 * source   tf.data.Dataset.shuffle (TensorFlow 2.21) */
MR_API mr_dataset *mr_shuffle(mr_dataset *input, int64_t buffer_size, const mr_shuffle_opts *opts);

typedef struct mr_global_shuffle_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri reshuffle_each_iteration; /* another order in each epoch; yes by default */
} mr_global_shuffle_opts;

/* All records of the files that input reads, in one random order: a permutation of all of them, by
 * which each is read at its place. input is mr_tfrecord itself, over uncompressed files that all
 * have an index (formats/tfrecord/record_index.h).
 *
 * order    for the same seed and number of records the same (docs/files.md)
 * errors   MR_INVALID_ARGUMENT (carried): another input, num_parallel_reads, compression
 *          MR_NOT_FOUND, MR_FAILED_PRECONDITION: a file has no index, or a stale one
 *          a damaged record is an error in its place, and the next pull continues after it
 * memory   the indexes, and about 1 MiB of records; a position is a few numbers */
MR_API mr_dataset *mr_global_shuffle(mr_dataset *input, const mr_global_shuffle_opts *opts);

/* Keeps the elements of the first whole pass in memory; later passes do not open the input. Errors
 * are not kept. A pass that does not come to its end keeps nothing.
 *
 * memory   the elements: values of one shape one after the other, others, and those of arrays in
 *          memory, in the blocks they came in
 * source   tf.data.Dataset.cache */
MR_API mr_dataset *mr_cache(mr_dataset *input);

/* The same in the file FILENAME.cache (docs/files.md), which appears complete when a pass has come
 * to its end. Where it is there, also from an earlier run, it is read, whatever the input is.
 * Relative names are as for readers of files.
 *
 * errors   MR_ALREADY_EXISTS (at the first pull): another iterator or process is writing it
 *          MR_FAILED_PRECONDITION: a file of elements of another type
 *          MR_DATA_LOSS: a damaged file; and what writing files may say
 * source   tf.data.Dataset.cache */
MR_API mr_dataset *mr_cache_file(mr_dataset *input, const char *filename);

/* Passes the input through and writes it to path/FINGERPRINT/elements.mre, FINGERPRINT being that
 * of the input's graph; where that file is complete it is read instead. While another writes it,
 * elements just pass.
 *
 * errors   MR_FAILED_PRECONDITION: a graph that cannot travel, and so has no fingerprint
 * source   tf.data.Dataset.snapshot */
MR_API mr_dataset *mr_snapshot(mr_dataset *input, const char *path);

/* Passes the input through and writes it to path/elements.mre, in each pass anew; the file appears
 * complete at the end, and replaces an earlier one then.
 *
 * errors   as mr_cache_file
 * source   tf.data.Dataset.save */
MR_API mr_dataset *mr_save(mr_dataset *input, const char *path);

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

/* The input, with an error if it does not have `cardinality` elements (-1: if it ends). Its number
 * of elements is then known.
 * source   tf.data.experimental.assert_cardinality */
MR_API mr_dataset *mr_assert_cardinality(mr_dataset *input, int64_t cardinality);

typedef struct mr_ignore_errors_opts {
    bool log_warning; /* log each error */
} mr_ignore_errors_opts;

/* The input without the elements that failed. Errors of no element pass (mr_status.element), and
 * that there is no memory.
 * source   tf.data.Dataset.ignore_errors */
MR_API mr_dataset *mr_ignore_errors(mr_dataset *input, const mr_ignore_errors_opts *opts);

typedef struct mr_dataset_opts {
    char *auto_shard_policy; /* AUTO, FILE, DATA, OFF, HINT or RANGE; borrowed during the call */
    mr_tri deterministic;    /* for ops that do not say so themselves */
    int64_t memory_limit;    /* resident bytes of the process that runs it, at most; 0: none */
} mr_dataset_opts;

/* The input, and options for the whole graph; of two values the one nearer the sink wins.
 * source   tf.data.Dataset.with_options */
MR_API mr_dataset *mr_with_options(mr_dataset *input, const mr_dataset_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
