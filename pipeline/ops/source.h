/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SOURCE_H
#define MR_PIPELINE_OPS_SOURCE_H
/* Where elements come from. A constructor always returns a dataset (see dataset.h); what it is
 * given is copied.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"
#include "../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- numbers ---- */

/* start, start + step, ... as long as stop is not reached: int64 scalars.
 *
 * errors   MR_INVALID_ARGUMENT (carried): step is 0
 * source   tf.data.Dataset.range */
MR_API mr_dataset *mr_range(int64_t start, int64_t stop, int64_t step);

/* start, start + step, ... for ever.
 *
 * source   tf.data.Dataset.counter */
MR_API mr_dataset *mr_counter(int64_t start, int64_t step);

/* ---- memory ----
 * Components are named by `names` (n of them; NULL: a tuple, which for n = 1 is the component
 * itself). Arrays are borrowed during the call; what they refer to is kept by reference, without a
 * copy, and must not change. */

/* One element, whose components are row 0 of n arrays.
 *
 * source   tf.data.Dataset.from_tensors */
MR_API mr_dataset *mr_from_tensors(const mr_array *components, const char *const *names, size_t n);

/* The slices along axis 0 of row 0 of n arrays.
 *
 * errors   MR_INVALID_ARGUMENT (carried): a scalar, axes 0 of unequal length
 * source   tf.data.Dataset.from_tensor_slices */
MR_API mr_dataset *mr_from_tensor_slices(const mr_array *components, const char *const *names,
                                         size_t n);

/* The rows of n dense arrays (mr_buffer_wrap makes one of the caller's memory). The graph has no
 * text form, but one in protobuf, which holds all rows.
 *
 *     mr_array images = {.dtype = MR_UINT8, .rank = 2, .shape = {28, 28}, .rows = 60000,
 *                        .data = mr_buffer_data(b), .owner = b};
 *     mr_dataset *ds = mr_from_arrays(&images, NULL, 1);
 *
 * errors   MR_INVALID_ARGUMENT (carried): an array that is not dense, unequal numbers of rows
 * memory   no copy: elements are views, which a shuffle holds by their address */
MR_API mr_dataset *mr_from_arrays(const mr_array *columns, const char *const *names, size_t n);

/* A source in C. Every iterator makes a pass of its own with open; NULL callbacks but `next` may be
 * left out. */
typedef struct mr_generator {
    void *ctx;
    /* Starts a pass; *pass is handed to the others. */
    mr_code (*open)(void *ctx, void **pass, mr_status *st);
    /* 1 to want next rows into out (mr_block_prepare, then columns), MR_END, or an error, behind
     * which the next call goes on. Returns what there is, rather than wait for more. */
    mr_code (*next)(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st);
    /* Makes a `next` that waits return soon. thread any */
    void (*cancel)(void *ctx, void *pass);
    void (*close)(void *ctx, void *pass);
    /* The position behind the last row given: *bytes from mr_malloc, taken over. And a pass that
     * was just opened to such a position. Without both, positions above the generator save rows
     * that were read ahead, and it goes on wherever it stands. */
    mr_code (*save)(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st);
    mr_code (*restore)(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st);
    void (*release)(void *ctx); /* called once, when the last dataset with it goes */
    bool may_block;             /* `next` may wait for long: it is called in a thread of its own */
} mr_generator;

/* What g gives, elements of spec `element` (borrowed). The graph has no text and no protobuf form.
 *
 * errors   MR_INVALID_ARGUMENT (carried): no next, no spec
 *          MR_INTERNAL: rows of another type than announced
 * order    that of the calls; a pass is never called by two threads at once
 * source   tf.data.Dataset.from_generator */
MR_API mr_dataset *mr_from_generator(const mr_generator *g, const mr_spec *element);

/* ---- files ----
 * A name with * ? or [ in it is a pattern, as in mr_list_files: neighbouring patterns are matched
 * together and sorted, once, when an iterator is first opened; the list goes with the position.
 * Files are read in the order given.
 *
 * compression   "" or NULL, "GZIP", "ZLIB", "ZSTD": each file as a whole is one stream
 * errors   MR_INVALID_ARGUMENT (carried): an unknown compression, an empty name
 *          MR_NOT_FOUND: no file matches, or a file is not there, when its turn comes
 *          a file that cannot be read, or is damaged, is one error, and the next pull goes on with
 * the next file */

typedef struct mr_list_files_opts {
    bool shuffle; /* another order in each epoch */
    int64_t seed; /* with has_seed: fixes these orders */
    bool has_seed;
} mr_list_files_opts;

/* The names of the files (and directories) that match any of n patterns, sorted bytewise together.
 *
 * source   tf.data.Dataset.list_files, whose shuffle is true by default */
MR_API mr_dataset *mr_list_files(const char *const *patterns, size_t n,
                                 const mr_list_files_opts *opts);

typedef struct mr_tfrecord_opts {
    char *compression;          /* borrowed during the call */
    int64_t num_parallel_reads; /* files read at once, a record of each in turn; MR_AUTO: 16;
                                   0: file after file */
    bool paths;                 /* names are paths as they stand, none is a pattern */
} mr_tfrecord_opts;

/* The records of TFRecord files.
 *
 * errors   MR_DATA_LOSS: a corrupted or truncated record, with file, offset and record number; the
 *          records before it come first
 * memory   records are views into what was read
 * source   tf.data.TFRecordDataset */
MR_API mr_dataset *mr_tfrecord(const char *const *files, size_t n, const mr_tfrecord_opts *opts);

typedef struct mr_text_line_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are paths as they stand, none is a pattern */
} mr_text_line_opts;

/* The lines of text files, without their ends; every \r is removed.
 *
 * source   tf.data.TextLineDataset */
MR_API mr_dataset *mr_text_line(const char *const *files, size_t n, const mr_text_line_opts *opts);

typedef struct mr_fixed_length_record_opts {
    int64_t header_bytes, footer_bytes; /* passed by, in each file; at least 0 */
    char *compression;                  /* borrowed during the call */
    bool paths;                         /* names are paths as they stand, none is a pattern */
} mr_fixed_length_record_opts;

/* The records of files in which all have record_bytes bytes.
 *
 * errors   MR_INVALID_ARGUMENT (carried): record_bytes < 1
 *          MR_INVALID_ARGUMENT: a file whose body is not a multiple of record_bytes, before any of
 *          its records; MR_DATA_LOSS behind them if it is compressed
 * source   tf.data.FixedLengthRecordDataset */
MR_API mr_dataset *mr_fixed_length_record(const char *const *files, size_t n, int64_t record_bytes,
                                          const mr_fixed_length_record_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
