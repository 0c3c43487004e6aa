/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SOURCES_H
#define MR_PIPELINE_OPS_SOURCES_H
/* Sources of elements. A constructor copies its arguments and always returns a dataset (see
 * dataset.h).
 *
 * thread   any
 * since    0.1 */
#include "../graph/dataset.h"
#include "../memory/block.h"
#include "../params/param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- numbers ---- */

/* start, start + step, ... up to but not including stop: int64 scalars.
 *
 * errors   MR_INVALID_ARGUMENT (carried): step is 0
 * source   tf.data.Dataset.range */
MR_API mr_dataset *mr_range(int64_t start, int64_t stop, int64_t step);

/* start, start + step, ... without end.
 *
 * source   tf.data.Dataset.counter */
MR_API mr_dataset *mr_counter(int64_t start, int64_t step);

typedef struct mr_random_opts {
    int64_t seed; /* with has_seed: fixes the numbers */
    bool has_seed;
    mr_tri rerandomize_each_iteration; /* draw different numbers in each epoch; no by default */
} mr_random_opts;

/* An endless sequence of random numbers in 0..2^32 - 1: int64 scalars.
 *
 * order    that of tf.data for the same seed
 * source   tf.data.Dataset.random (TensorFlow 2.21) */
MR_API mr_dataset *mr_random(const mr_random_opts *opts);

/* ---- memory ----
 * `names` holds n component names. NULL makes a tuple, or for n = 1 the component itself. The array
 * structs are borrowed during the call. Their data is referenced, not copied, and must not change.
 */

/* One element whose components are row 0 of n arrays.
 *
 * source   tf.data.Dataset.from_tensors */
MR_API mr_dataset *mr_from_tensors(const mr_array *components, const char *const *names, size_t n);

/* The slices along axis 0 of row 0 of n arrays.
 *
 * errors   MR_INVALID_ARGUMENT (carried): a scalar; lengths of axis 0 differ
 * source   tf.data.Dataset.from_tensor_slices */
MR_API mr_dataset *mr_from_tensor_slices(const mr_array *components, const char *const *names,
                                         size_t n);
/* The same for one component, a list of n strings; for example, file names for mr_flat_map. */
MR_API mr_dataset *mr_from_strings(const char *const *strings, size_t n);

/* The rows of n dense arrays; mr_buffer_wrap makes a buffer of the caller's memory. The graph has
 * no text form. Its protobuf form contains all rows.
 *
 *     mr_array images = {.dtype = MR_UINT8, .rank = 2, .shape = {28, 28}, .rows = 60000,
 *                        .data = mr_buffer_data(b), .owner = b};
 *     mr_dataset *ds = mr_from_arrays(&images, NULL, 1);
 *
 * errors   MR_INVALID_ARGUMENT (carried): an array is not dense; numbers of rows differ
 * memory   no copy: elements are views, and a shuffle stores only their addresses */
MR_API mr_dataset *mr_from_arrays(const mr_array *columns, const char *const *names, size_t n);

/* A source implemented in C. Each iterator starts a separate pass with open. All callbacks except
 * `next` are optional (NULL). */
typedef struct mr_generator {
    void *ctx;
    /* Starts a pass; *pass is passed to the other callbacks. */
    mr_code (*open)(void *ctx, void **pass, mr_status *st);
    /* Puts the next 1..want rows into out (mr_block_prepare, then columns), or returns MR_END or an
     * error; after an error the next call continues. If some rows are ready, return them rather
     * than wait for more. */
    mr_code (*next)(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st);
    /* Makes a waiting `next` return soon. thread any */
    void (*cancel)(void *ctx, void *pass);
    void (*close)(void *ctx, void *pass);
    /* save: returns the position after the last row returned. *bytes is allocated with mr_malloc;
     * the engine frees it. restore: moves a newly opened pass to such a position. Without both,
     * positions of ops above the generator contain the rows that were read ahead, and after a
     * restore the generator continues wherever it is. */
    mr_code (*save)(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st);
    mr_code (*restore)(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st);
    void (*release)(void *ctx); /* called once, when the last dataset that uses it is freed */
    bool may_block;             /* `next` may wait for a long time: call it on a separate thread */
    const char *no_position; /* without save and restore: saving a position fails with this message;
                                borrowed until release. NULL: as above. since 0.2 */
    const char *label; /* text shows the generator as callback("label"), which cannot be parsed;
                          NULL: it has no text. since 0.2 */
} mr_generator;

/* The elements that g generates, of spec `element` (borrowed). The graph has neither a text nor a
 * protobuf form.
 *
 * errors   MR_INVALID_ARGUMENT (carried): `next` or `element` is NULL
 *          MR_INTERNAL: the type of the rows is not `element`
 * order    that of the calls; two threads never call the same pass at once
 * source   tf.data.Dataset.from_generator */
MR_API mr_dataset *mr_from_generator(const mr_generator *g, const mr_spec *element);

struct
    ArrowArrayStream; /* memory/export.h, or any other definition of Arrow's C stream interface */
/* The rows of an Arrow stream, as exported by pyarrow, DuckDB, nanoarrow and others. An element is
 * a record of the columns, with a nested record for each struct, map and list of structs (of
 * lists); if the stream's type is not a struct, an element is a value. memory/import.h lists the
 * supported types. *stream is taken over, also on failure: its release is NULL afterwards. A second
 * pass (repeat, the next epoch) fails unless a cache keeps the rows. The graph has neither a text
 * nor a protobuf form.
 *
 *     struct ArrowArrayStream s;                      // from the producer
 *     mr_dataset *ds = mr_batch(mr_from_arrow(&s), 32, NULL);
 *
 * errors   MR_INVALID_ARGUMENT (carried): an unsupported type; two columns with the same name
 *          MR_INVALID_ARGUMENT: a row with a null; the next pull continues with the next row
 *          MR_FAILED_PRECONDITION: a second pass
 *          MR_UNKNOWN: the producer failed; has the producer's message
 * memory   no copy where memory/import.h says so: elements are views of the producer's arrays */
MR_API mr_dataset *mr_from_arrow(struct ArrowArrayStream *stream);

/* ---- files ----
 * A name that contains * ? or [ is a pattern, as in mr_list_files. Consecutive patterns are
 * expanded and sorted together, once, when an iterator is first opened. Files are read in the order
 * given. "-" is standard input.
 *
 * A position contains a fingerprint of the list. Restoring needs the same files; files appended to
 * the list since then are not read. Otherwise it fails with MR_FAILED_PRECONDITION.
 *
 * compression   "" or NULL, "GZIP", "ZLIB", "ZSTD": each file as a whole is one stream. Without it
 *               text_line, csv, jsonl and tar detect the three from the first bytes of a file
 * errors   MR_INVALID_ARGUMENT (carried): an unknown compression, an empty name
 *          MR_NOT_FOUND: no file matches, or a file does not exist when it is opened;
 *          MR_PERMISSION_DENIED: it may not be read. Of no element: the pipeline ends. But where
 *          the name is an element, as in list_files(p).flat_map(f => tfrecord(f)), it is that
 *          element's error
 *          a damaged file is one error; the next pull continues with the next file */

typedef struct mr_list_files_opts {
    bool shuffle; /* a different random order in each epoch */
    int64_t seed; /* with has_seed: fixes these orders */
    bool has_seed;
} mr_list_files_opts;

/* The names of the files (and directories) that match any of n patterns, in one bytewise order.
 *
 * source   tf.data.Dataset.list_files, whose shuffle is true by default */
MR_API mr_dataset *mr_list_files(const char *const *patterns, size_t n,
                                 const mr_list_files_opts *opts);

enum { MR_PARALLEL_READS_AUTO = 16 }; /* a constant, so that the order is equal on all machines */

typedef struct mr_load_opts {
    bool allow_datasets; /* accept elements that are datasets: graphs that the file's writer chose,
                            and that run with this process's rights. Graphs that write files are
                            still refused */
} mr_load_opts;

/* The elements that mr_save wrote to path. The file is opened when the graph is built, so their
 * type and number are known. opts NULL: all zero; mr_load has none.
 *
 * errors   MR_NOT_FOUND (carried): no element file; MR_DATA_LOSS (carried): it is incomplete
 *          MR_PERMISSION_DENIED: the elements contain datasets, which opts does not allow
 *          (carried), or one of them writes files (at the pull that meets it)
 * source   tf.data.Dataset.load */
MR_API mr_dataset *mr_load(const char *path);
MR_API mr_dataset *mr_load_with(const char *path, const mr_load_opts *opts);

typedef struct mr_tfrecord_opts {
    char *compression;          /* borrowed during the call */
    int64_t num_parallel_reads; /* files read at once, one record of each in turn; 0: one file after
                                   the other; MR_AUTO: MR_PARALLEL_READS_AUTO */
    bool paths;                 /* names are literal paths, never patterns */
    mr_ints record_range;       /* {i, n}: only records i * total / n up to but not including
                             (i + 1) * total / n of all files together, located by the indexes;
                             n == 0: all. Borrowed during the call */
    char *on_corrupt;    /* "error" (or NULL), or "skip": resume at the next valid record and log
                             what was skipped. Borrowed during the call */
    int64_t max_skipped; /* with has_max_skipped: maximum number of damaged places to skip in a pass
                             (with parallel reads: in a file); one more is an error */
    bool has_max_skipped;
    char *quarantine;         /* folder that receives the skipped bytes; NULL: discard them */
    char *record_compression; /* "ZSTD": the data of each record is one zstd frame, as written with
                             mr_shard_writer_opts.zstd_records; "" or NULL: not compressed.
                             Borrowed during the call */
    char *dictionary;         /* path of the zstd dictionary; NULL: for frames that name a
                             dictionary, PREFIX.dict next to PREFIX-00000-of-0000N.tfrecord.
                             Borrowed during the call */
} mr_tfrecord_opts;

/* The records of TFRecord files. If each file has an index (formats/tfrecord/record_index.h), their
 * number is known and mr_skip does not read the records that it skips.
 *
 * errors   MR_NOT_FOUND, MR_FAILED_PRECONDITION: record_range needs an index that is missing or
 *          stale
 *          MR_DATA_LOSS: a corrupted or truncated record, with file, offset and record number,
 *          after the records before it; a damaged zstd frame, which fails this record only
 *          MR_FAILED_PRECONDITION: a record was compressed with another dictionary
 * memory   records are views into what was read
 * source   tf.data.TFRecordDataset */
MR_API mr_dataset *mr_tfrecord(const char *const *files, size_t n, const mr_tfrecord_opts *opts);

typedef struct mr_text_line_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are literal paths, never patterns */
} mr_text_line_opts;

/* The lines of text files, without line ends (\n, \r\n or \r).
 *
 * source   tf.data.TextLineDataset */
MR_API mr_dataset *mr_text_line(const char *const *files, size_t n, const mr_text_line_opts *opts);

typedef struct mr_fixed_length_record_opts {
    int64_t header_bytes, footer_bytes; /* skipped in each file; at least 0 */
    char *compression;                  /* borrowed during the call */
    bool paths;                         /* names are literal paths, never patterns */
} mr_fixed_length_record_opts;

/* The records of files whose records all have record_bytes bytes.
 *
 * errors   MR_INVALID_ARGUMENT (carried): record_bytes < 1
 *          MR_INVALID_ARGUMENT: the size of a file's body is not a multiple of record_bytes; before
 *          any of its records. In a compressed file: MR_DATA_LOSS, after its whole records
 * source   tf.data.FixedLengthRecordDataset */
MR_API mr_dataset *mr_fixed_length_record(const char *const *files, size_t n, int64_t record_bytes,
                                          const mr_fixed_length_record_opts *opts);

typedef struct mr_files_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are literal paths, never patterns */
} mr_files_opts;

/* Whole files: {"contents": string, "path": string}. An empty file has empty contents.
 *
 * errors   MR_RESOURCE_EXHAUSTED: a file is larger than 4 GiB */
MR_API mr_dataset *mr_files(const char *const *files, size_t n, const mr_files_opts *opts);

typedef struct mr_image_folder_opts {
    mr_strs extensions; /* without the dot; empty: jpg, jpeg, png. Borrowed during the call */
} mr_image_folder_opts;

/* The images in the folders of dir, one folder a class: {"image": string (contents of the file),
 * "label": int64 (index of its folder in order of folder names), "path": string}. Files are listed
 * once, when an iterator is first opened; restoring a position needs the same files and folders.
 *
 * errors   MR_INVALID_ARGUMENT (carried): an empty name; an extension with a dot
 *          MR_NOT_FOUND: no folders, or no images in them; a file or folder that is a link to
 *          nothing; MR_PERMISSION_DENIED. Of no element: the pipeline ends
 *          a file that cannot be read for other reasons is one error
 * order    by path, bytewise */
MR_API mr_dataset *mr_image_folder(const char *dir, const mr_image_folder_opts *opts);

typedef struct mr_tar_opts {
    char *compression; /* borrowed during the call */
    mr_strs members;   /* to read of each record; empty: those of the first record. Borrowed too */
    bool paths;        /* names are literal paths, never patterns */
} mr_tar_opts;

/* Records of tar archives as WebDataset writes them: {"__key__": "a/0001", "jpg": string, "cls":
 * string, ...}. Consecutive members form a record if their paths are equal up to the first dot of
 * the file name; the part after that dot is the component's name, in small letters. Without
 * `members` the first archive is inspected when the graph is built. A member "jpg;jpeg" is either
 * of the two, as component "jpg"; "txt?" is empty if the record has none. Other members are
 * ignored, as are directories, links, and files whose name has no dot or begins with one.
 *
 * errors   MR_NOT_FOUND (carried): no file to inspect; libarchive is not installed
 *          MR_INVALID_ARGUMENT: a record lacks a member, or has it more than once; names its key.
 *          The next pull continues with the next record
 *          MR_DATA_LOSS: a damaged archive. The next pull continues with the next file
 * memory   members that are contiguous in the read buffer are not copied */
MR_API mr_dataset *mr_tar(const char *const *files, size_t n, const mr_tar_opts *opts);

typedef struct mr_jsonl_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are literal paths, never patterns */
} mr_jsonl_opts;

/* The records of files with one JSON object per line. features, in the text form, describes them:
 * {"name": int64, "x": float32[3], "tags": bytes[], "n": feature(int64, default=0)}. A dtype alone
 * is a scalar, a shape means nested lists, and [] a list of any length. The default applies if the
 * key is missing or null. Bytes are strings or {"b64": "..."}; floats may also be "nan", "inf" and
 * "-inf". Other keys and blank lines are ignored.
 *
 * errors   MR_INVALID_ARGUMENT (carried): features is malformed
 *          MR_INVALID_ARGUMENT: an object does not match features; with file, line and field. The
 *          next pull continues with the next line */
MR_API mr_dataset *mr_jsonl(const char *const *files, size_t n, const char *features,
                            const mr_jsonl_opts *opts);

/* For Arrow and Parquet files. */
typedef struct mr_table_opts {
    mr_strs columns; /* to read; empty: all. Borrowed during the call, as schema */
    char *schema;    /* columns and their types in the text form, {"x": float32, "tags": bytes[]};
                        NULL: those of the first file */
    bool paths;      /* names are literal paths, never patterns */
} mr_table_opts;

/* The rows of Arrow IPC files (stream and file format), as records of their columns: numbers,
 * bools, strings, lists of numbers, structs, values of dictionaries. Dates and times are int64.
 * Buffers may be compressed (zstd, LZ4). Without a schema the first file is inspected when the
 * graph is built. The number of rows is known, and mr_skip does not read the rows that it skips.
 *
 * errors   MR_NOT_FOUND (carried): no file to inspect; liblz4 is not installed (at the batch)
 *          MR_INVALID_ARGUMENT (carried): no such column, or its type is not supported
 *          MR_INVALID_ARGUMENT: a row with a null; the next pull continues with the next row. A
 *          file with other columns or types; the next pull continues with the next file
 *          MR_DATA_LOSS: a damaged or truncated file, after the rows before the damage; the next
 *          pull continues with the next file
 * memory   a record batch; columns are views of the bytes that were read or decompressed */
MR_API mr_dataset *mr_arrow(const char *const *files, size_t n, const mr_table_opts *opts);

/* The rows of Parquet files, as records of their columns. A group of columns is a nested record.
 * Integers, floats and bools keep their type. Dates and times are the integers that they are stored
 * as. Strings may have a fixed length or not. Lists, and lists of lists, have any length. Without a
 * schema the first file is inspected when the graph is built. Only the selected columns are read,
 * page by page; restoring and mr_skip use the footer to seek to a row.
 *
 * errors   MR_NOT_FOUND (carried): no file to inspect; a codec's library is not installed (at the
 *          page)
 *          MR_INVALID_ARGUMENT (carried): no such column, or its type is not supported (decimals,
 *          maps, lists of groups)
 *          MR_INVALID_ARGUMENT: a row with a null; the next pull continues with the next row. A
 *          file with other columns or types; the next pull continues with the next file
 *          MR_DATA_LOSS: damage, with file, row group, column and offset, after the rows before it;
 *          the next pull continues with the next file
 * memory   strings are views into pages; one page of each column is held */
MR_API mr_dataset *mr_parquet(const char *const *files, size_t n, const mr_table_opts *opts);

typedef struct mr_npy_opts {
    char *schema; /* the type of the elements in the text form, float32[28, 28]; NULL: that of the
                     first file. Borrowed during the call */
    bool paths;   /* names are literal paths, never patterns */
} mr_npy_opts;

/* The entries of NPY files along axis 0; a structured type makes records of its fields. Numbers of
 * either byte order, bools, strings and times (as int64) are read, in the order of C or Fortran.
 * The number of entries is known, and mr_skip does not read those that it skips.
 *
 * errors   MR_NOT_FOUND (carried): no file to inspect
 *          MR_INVALID_ARGUMENT (carried): a type that is not read (Python objects, complex numbers)
 *          MR_INVALID_ARGUMENT: a file of another type; the next pull continues with the next file
 *          MR_DATA_LOSS: a damaged or truncated file, after the entries before the damage */
MR_API mr_dataset *mr_npy(const char *const *files, size_t n, const mr_npy_opts *opts);

typedef struct mr_npz_opts {
    mr_strs arrays; /* to read; empty: all. Borrowed during the call, as schema */
    char *schema;   /* {"x": float32[4], "y": int64}; NULL: those of the first file */
    bool paths;     /* names are literal paths, never patterns */
} mr_npz_opts;

/* The arrays of NPZ files, side by side along axis 0, as records.
 *
 * errors   as mr_npy; MR_NOT_FOUND: libarchive is not installed
 *          MR_INVALID_ARGUMENT: arrays of different lengths, or no array of a name
 * memory   the arrays of a file that are read */
MR_API mr_dataset *mr_npz(const char *const *files, size_t n, const mr_npz_opts *opts);

typedef struct mr_csv_opts {
    mr_tri header;     /* the first line of each file names its columns; yes by default */
    char *sep;         /* one character; NULL: a comma. Borrowed during the call */
    char *compression; /* borrowed during the call */
    bool paths;        /* names are literal paths, never patterns */
} mr_csv_opts;

/* The rows of CSV files (RFC 4180). features, in the text form, is {"name": bytes, "x": float32},
 * which makes a record of the columns with these names in each file's header (without a header: of
 * the columns in this order), or [bytes, float32], which makes a tuple of the columns in order. All
 * are scalars. The default of a feature replaces an empty field and a missing column. Without a
 * default an empty field is "" for bytes and an error otherwise, and a missing column is an error.
 * Other columns and blank lines are ignored.
 *
 * errors   as mr_jsonl; after a bad header the next pull continues with the next file */
MR_API mr_dataset *mr_csv(const char *const *files, size_t n, const char *features,
                          const mr_csv_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
