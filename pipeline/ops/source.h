/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SOURCE_H
#define MR_PIPELINE_OPS_SOURCE_H
/* Where elements come from. A constructor always returns a dataset (see dataset.h); what it is
 * given is copied.
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

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
