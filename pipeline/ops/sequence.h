/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SEQUENCE_H
#define MR_PIPELINE_OPS_SEQUENCE_H
/* Ops that select, order, combine, repeat and keep elements. A constructor takes over its inputs,
 * also on failure, and always returns a dataset (see dataset.h). opts may be NULL: all defaults.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first count elements; negative: all. Never pulls an element after them. With count 0 the
 * input is not opened.
 * source   tf.data.Dataset.take */
MR_API mr_dataset *mr_take(mr_dataset *input, int64_t count);

/* All but the first count elements; negative: an empty dataset. Errors of skipped elements are
 * reported.
 * source   tf.data.Dataset.skip */
MR_API mr_dataset *mr_skip(mr_dataset *input, int64_t count);

/* The elements before the first for which fn returns false. Emits nothing after that one.
 *
 * errors   MR_INVALID_ARGUMENT (carried): fn does not return one scalar bool
 *          an error of fn is the error of that element only
 * source   tf.data.Dataset.take_while */
MR_API mr_dataset *mr_take_while(mr_dataset *input, mr_fn *fn);

/* The elements without those that are equal to an earlier one of the same epoch.
 *
 * errors   MR_INVALID_ARGUMENT (carried): elements that are not one tensor of integers or strings
 * memory   every emitted value, also in a position
 * source   tf.data.Dataset.unique */
MR_API mr_dataset *mr_unique(mr_dataset *input);

typedef struct mr_shard_opts {
    bool require_non_empty; /* fail if the input has elements, but fewer than num_shards */
    bool own_errors; /* return an error of the input only in the shard of the element after it, for
                        shards that are all read by one job. Not in texts: elements do not change */
} mr_shard_opts;

/* Elements index, index + num_shards, ...
 *
 * errors   MR_INVALID_ARGUMENT (carried): num_shards < 1; index not in 0..num_shards - 1
 *          MR_FAILED_PRECONDITION: num_shards is -1 (a hint for the HINT policy) when opened
 *          MR_INVALID_ARGUMENT: require_non_empty is set and there are too few elements
 * source   tf.data.Dataset.shard */
MR_API mr_dataset *mr_shard(mr_dataset *input, int64_t num_shards, int64_t index,
                            const mr_shard_opts *opts);

/* Repeats the input count times; 0: an empty dataset, negative: endlessly, unless the input is
 * empty. Each repetition opens a new iterator of the input.
 * source   tf.data.Dataset.repeat */
MR_API mr_dataset *mr_repeat(mr_dataset *input, int64_t count);

/* All of input, then all of other.
 *
 * errors   MR_INVALID_ARGUMENT (carried): element types differ
 * source   tf.data.Dataset.concatenate */
MR_API mr_dataset *mr_concatenate(mr_dataset *input, mr_dataset *other);

/* Element i combines the elements i of n inputs (at least 1) as its components. Ends with the
 * shortest input. An error consumes one element of every input.
 * source   tf.data.Dataset.zip */
MR_API mr_dataset *mr_zip(mr_dataset *const *inputs, size_t n);

typedef struct mr_choose_from_datasets_opts {
    mr_tri stop_on_empty_dataset; /* end with the first input that ends; yes by default */
} mr_choose_from_datasets_opts;

/* Takes each element from the input whose index is the next element of `choice` (int64 scalars).
 * There are n inputs, at least 1, with equal element types.
 *
 * order    that of choice; ends with it, or when all inputs have ended
 * errors   MR_INVALID_ARGUMENT (carried): element types differ
 *          MR_INVALID_ARGUMENT: an index out of range
 * source   tf.data.Dataset.choose_from_datasets */
MR_API mr_dataset *mr_choose_from_datasets(mr_dataset *const *inputs, size_t n, mr_dataset *choice,
                                           const mr_choose_from_datasets_opts *opts);

typedef struct mr_sample_from_datasets_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri stop_on_empty_dataset;      /* end with the first input that ends; no by default */
    mr_tri rerandomize_each_iteration; /* a different order in each epoch; no by default */
} mr_sample_from_datasets_opts;

/* Takes each element from an input drawn at random, input i in proportion to weights[i] (NULL:
 * equal weights). Inputs of weight 0 are never opened.
 *
 * order    that of tf.data for the same seed; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): element types differ; a weight below 0
 * source   tf.data.Dataset.sample_from_datasets (TensorFlow 2.21) */
MR_API mr_dataset *mr_sample_from_datasets(mr_dataset *const *inputs, size_t n,
                                           const double *weights,
                                           const mr_sample_from_datasets_opts *opts);

typedef struct mr_mix_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    char *stop; /* "first" (NULL): ends with the first source that ends. "all": when all have ended;
                   the draws of one that has ended are skipped, so that the others are drawn in
                   proportion to their weights. "repeat": when all have ended once; one that ends
                   begins its next epoch at once, unless its epoch had no element. Borrowed during
                   the call */
} mr_mix_opts;

/* Takes each element from a source drawn at random, source i in proportion to weights[i] (NULL:
 * equal weights), as mr_sample_from_datasets does. A position has the place of each source by its
 * name: with mr_iterator_opts.on_mismatch another mixture continues from it. Names are borrowed
 * during the call.
 *
 * order    that of mr_sample_from_datasets with the same seed; the same for every block size and
 *          thread count
 * errors   MR_INVALID_ARGUMENT (carried): element types differ; a weight that is not positive and
 *          finite; two sources with the same name
 * state    ops above it save the rows that they hold
 * since    0.2 */
MR_API mr_dataset *mr_mix(const char *const *names, mr_dataset *const *sources, size_t n,
                          const double *weights, const mr_mix_opts *opts);

/* Pairs (number, element), with numbers from start. An error consumes a number.
 * source   tf.data.Dataset.enumerate */
MR_API mr_dataset *mr_enumerate(mr_dataset *input, int64_t start);

typedef struct mr_shuffle_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri reshuffle_each_iteration; /* a different order in each epoch; yes by default */
} mr_shuffle_opts;

/* Fills a buffer with elements, then repeatedly emits a random one of them and replaces it with the
 * next element of the input.
 *
 * units    buffer_size in elements, at least 1; -2: the whole dataset
 * order    that of tf.data for the same seed; the same for every block size and thread count
 * errors   MR_INVALID_ARGUMENT (carried): any other buffer_size
 * memory   the buffer's rows, which are copied out of the input's blocks, and 8 bytes each; of rows
 *          of arrays, tensors and caches only the address is stored
 * source   tf.data.Dataset.shuffle (TensorFlow 2.21) */
MR_API mr_dataset *mr_shuffle(mr_dataset *input, int64_t buffer_size, const mr_shuffle_opts *opts);

typedef struct mr_global_shuffle_opts {
    int64_t seed; /* with has_seed: fixes the order */
    bool has_seed;
    mr_tri reshuffle_each_iteration; /* a different order in each epoch; yes by default */
    int64_t window; /* permutes blocks of `window` neighbours, and the elements within each; for
                       slow disks and object stores. 0: all elements. since 0.2 */
} mr_global_shuffle_opts;

/* All elements of the input in one random permutation, looked up by number. The input must be
 * indexed (mr_dataset_indexed; in 0.1 it had to be mr_tfrecord itself); TFRecord files need their
 * indexes (formats/tfrecord/record_index.h).
 *
 * order    fixed by the seed, the number of elements and the window (docs/random_access.md)
 * errors   MR_INVALID_ARGUMENT (carried): the input is not indexed; names the op
 *          MR_NOT_FOUND, MR_FAILED_PRECONDITION: a file has no index, or a stale one
 *          an element that fails is an error at its position; the next pull continues after it
 * memory   the indexes, and about 1 MiB of elements; a position is a few numbers */
MR_API mr_dataset *mr_global_shuffle(mr_dataset *input, const mr_global_shuffle_opts *opts);

typedef struct mr_split_opts {
    int64_t seed; /* determines the cut */
} mr_split_opts;

/* Part `index` of a random cut of an indexed dataset (mr_dataset_indexed) into n parts, part i with
 * fractions[i] of the elements, rounded so that it differs by less than one element. With the same
 * fractions and seed, each element is in one part, or in none if the fractions add up to less than
 * 1. n 0: 0.9 and 0.1.
 *
 * order    that of the input; the cut is the same in each epoch, fixed by the seed and the number
 *          of elements
 * errors   MR_INVALID_ARGUMENT (carried): the input is not indexed, and names the op; fractions
 *          that are negative or add up to more than 1; index is not that of a part
 * memory   about 1 MiB of elements. A pass computes a permutation once per element of the input.
 *          For access by number the first lookup does so, and keeps a table of at most 8 MiB
 * since    0.2 */
MR_API mr_dataset *mr_split(mr_dataset *input, const double *fractions, size_t n, int64_t index,
                            const mr_split_opts *opts);

/* Keeps the elements of the first complete pass in memory; later passes do not open the input.
 * Errors are not cached. An incomplete pass caches nothing.
 *
 * memory   the elements: values of fixed shape contiguously; other values, and those of arrays in
 *          memory, in the input's blocks
 * source   tf.data.Dataset.cache */
MR_API mr_dataset *mr_cache(mr_dataset *input);

typedef struct mr_cache_opts {
    bool strict; /* refuse the file if an input was written since, even if its size is the same */
    char *graph; /* set by rewrites: the fingerprint of the graph that the elements are of, 16
                    hexadecimal digits; NULL: that of the input */
} mr_cache_opts;

/* The same in the file FILENAME.cache (docs/files.md), which is created atomically at the end of a
 * complete pass. If the file exists, also from an earlier run, it is read instead of the input.
 * It records the input's graph and the names and sizes of the files that were read. Relative names
 * are resolved as for file readers. opts NULL: all zero; mr_cache_file has none.
 *
 * errors   MR_ALREADY_EXISTS (at the first pull): another iterator or process is writing it
 *          MR_FAILED_PRECONDITION (at the first pull): the file's elements have another type, or it
 *          was written by another graph, or from files that have changed since
 *          MR_INVALID_ARGUMENT: the elements are datasets
 *          MR_DATA_LOSS: a damaged file; and the errors of writing a file
 * source   tf.data.Dataset.cache */
MR_API mr_dataset *mr_cache_file(mr_dataset *input, const char *filename);
MR_API mr_dataset *mr_cache_in(mr_dataset *input, const char *filename, const mr_cache_opts *opts);

/* Passes the input through and writes it to path/FINGERPRINT/elements.mre, where FINGERPRINT is
 * that of the input's graph. If that file is complete, it is read instead. While another iterator
 * or process writes it, elements are passed through without being written.
 *
 * errors   MR_FAILED_PRECONDITION: the graph has no protobuf form, and so no fingerprint
 * source   tf.data.Dataset.snapshot */
MR_API mr_dataset *mr_snapshot(mr_dataset *input, const char *path);

/* Passes the input through and writes it to path/elements.mre, again in each pass. At the end of a
 * pass the complete file atomically replaces an earlier one.
 *
 * errors   as mr_cache_file
 * source   tf.data.Dataset.save */
MR_API mr_dataset *mr_save(mr_dataset *input, const char *path);

typedef struct mr_window_opts {
    int64_t shift;  /* elements between the starts of consecutive windows; default: size */
    int64_t stride; /* distance of consecutive elements of a window; default: 1 */
    bool drop_remainder;
} mr_window_opts;

/* Emits windows of `size` elements, each as one dataset per component.
 *
 * errors   MR_INVALID_ARGUMENT (carried): size, shift or stride < 1
 * source   tf.data.Dataset.window */
MR_API mr_dataset *mr_window(mr_dataset *input, int64_t size, const mr_window_opts *opts);

/* Passes the input through, and fails if it does not have `cardinality` elements (-1: if it ends).
 * The number of elements is then known to the ops above.
 * source   tf.data.experimental.assert_cardinality */
MR_API mr_dataset *mr_assert_cardinality(mr_dataset *input, int64_t cardinality);

typedef struct mr_ignore_errors_opts {
    bool log_warning; /* log each error */
    int64_t max; /* with has_max: the maximum number of errors dropped by one iterator, which is
                         one repetition; further ones are returned */
    bool has_max;
} mr_ignore_errors_opts;

/* Drops the elements that failed. Errors that belong to no element (mr_status_is_of_no_element)
 * pass: they end the pipeline. At the end the number of dropped elements is logged as a warning; it
 * is also in mr_op_stats.
 * state    the number of dropped elements, which counts against max after a restore too
 * source   tf.data.Dataset.ignore_errors */
MR_API mr_dataset *mr_ignore_errors(mr_dataset *input, const mr_ignore_errors_opts *opts);

typedef struct mr_dataset_opts {
    char *auto_shard_policy; /* AUTO, FILE, DATA, OFF, HINT or RANGE; borrowed during the call */
    mr_tri deterministic;    /* default for ops that do not set it themselves */
    int64_t memory_limit;    /* maximum resident bytes of the process that runs it; 0: no limit */
    int64_t elastic_streams; /* streams of an elastic job (shard/distribute/distribute.h); 0: it is
                                not elastic. since 0.2 */
    char *cache_dir;         /* directory of cached remote objects; borrowed during the call; NULL:
                                that of MILLRACE_CACHE_DIR. since 0.2 */
    int64_t remote_connections, remote_read_ahead; /* for URLs, as in mr_iterator_opts. since 0.2 */
} mr_dataset_opts;

/* Passes the input through and sets options of the whole graph. If an option is set twice, the
 * value nearer the sink wins.
 * source   tf.data.Dataset.with_options */
MR_API mr_dataset *mr_with_options(mr_dataset *input, const mr_dataset_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
