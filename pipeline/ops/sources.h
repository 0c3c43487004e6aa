/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_SOURCES_H
#define MR_PIPELINE_OPS_SOURCES_H
/* Where elements come from. A constructor always returns a dataset (see dataset.h); what it is
 * given is copied.
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

/* start, start + step, ... as long as stop is not reached: int64 scalars.
 *
 * errors   MR_INVALID_ARGUMENT (carried): step is 0
 * source   tf.data.Dataset.range */
MR_API mr_dataset *mr_range(int64_t start, int64_t stop, int64_t step);

/* start, start + step, ... for ever.
 *
 * source   tf.data.Dataset.counter */
MR_API mr_dataset *mr_counter(int64_t start, int64_t step);

typedef struct mr_random_opts {
    int64_t seed; /* with has_seed: fixes the numbers */
    bool has_seed;
    mr_tri rerandomize_each_iteration; /* other numbers in each epoch; no by default */
} mr_random_opts;

/* Random numbers 0..2^32 - 1 for ever: int64 scalars.
 *
 * order    that of tf.data for the same seed
 * source   tf.data.Dataset.random (TensorFlow 2.21) */
MR_API mr_dataset *mr_random(const mr_random_opts *opts);

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
/* The same of one component, a list of n strings: file names, say, to be read by mr_flat_map. */
MR_API mr_dataset *mr_from_strings(const char *const *strings, size_t n);

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
    /* Starts a pass; *pass is given to the others. */
    mr_code (*open)(void *ctx, void **pass, mr_status *st);
    /* 1 to want next rows into out (mr_block_prepare, then columns), MR_END, or an error, after
     * which the next call continues. Returns what there is, rather than wait for more. */
    mr_code (*next)(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st);
    /* Makes a `next` that waits return soon. thread any */
    void (*cancel)(void *ctx, void *pass);
    void (*close)(void *ctx, void *pass);
    /* save: the position after the last row returned; *bytes from mr_malloc, taken over.
     * restore: moves a pass that was just opened to such a position. Without both, positions above
     * the generator save rows that were read ahead, and it continues wherever it is. */
    mr_code (*save)(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st);
    mr_code (*restore)(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st);
    void (*release)(void *ctx); /* called once, when the last dataset with it goes */
    bool may_block;             /* `next` may wait for long: it is called in a thread of its own */
} mr_generator;

/* The elements that g makes, of spec `element` (borrowed). The graph has no text and no protobuf
 * form.
 *
 * errors   MR_INVALID_ARGUMENT (carried): no next, no spec
 *          MR_INTERNAL: rows of another type than announced
 * order    that of the calls; a pass is never called by two threads at once
 * source   tf.data.Dataset.from_generator */
MR_API mr_dataset *mr_from_generator(const mr_generator *g, const mr_spec *element);

struct
    ArrowArrayStream; /* memory/export.h, or any other definition of Arrow's C stream interface */
/* The rows of an Arrow stream, as pyarrow, DuckDB, nanoarrow and others give: a record of the
 * columns, in it one for each struct, map and list of structs (of lists), or the values where the
 * stream is of no struct. What types columns may have is in memory/import.h. *stream is taken over,
 * also on failure: its release is NULL afterwards. A second pass (repeat, the next epoch) fails
 * unless a cache keeps the rows. The graph has no text and no protobuf form.
 *
 *     struct ArrowArrayStream s;                      // from the producer
 *     mr_dataset *ds = mr_batch(mr_from_arrow(&s), 32, NULL);
 *
 * errors   MR_INVALID_ARGUMENT (carried): a type that columns do not have, two columns of one name
 *          MR_INVALID_ARGUMENT: a null among the values, for all rows that arrived with it
 *          MR_FAILED_PRECONDITION: a second pass
 *          MR_UNKNOWN: the producer failed; its own words
 * memory   no copy where memory/import.h says so: elements are views of the arrays that came */
MR_API mr_dataset *mr_from_arrow(struct ArrowArrayStream *stream);

/* ---- files ----
 * A name with * ? or [ in it is a pattern, as in mr_list_files: neighbouring patterns are matched
 * together and sorted, once, when an iterator is first opened. A position names the list by its
 * fingerprint: restoring needs the same files, or the same and more that come after them in the
 * list, which are then left out (MR_FAILED_PRECONDITION). Files are read in the order given. "-" is
 * standard input.
 *
 * compression   "" or NULL, "GZIP", "ZLIB", "ZSTD": each file as a whole is one stream
 * errors   MR_INVALID_ARGUMENT (carried): an unknown compression, an empty name
 *          MR_NOT_FOUND: no file matches, or a file is not there, when its turn comes
 *          a file that cannot be read, or is damaged, is one error, and the next pull
 *          continues with the next file */

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

enum { MR_PARALLEL_READS_AUTO = 16 }; /* the same on every machine, or the order would not be */

/* The elements that mr_save wrote to path, of a type and number that are known at once.
 *
 * errors   MR_NOT_FOUND, MR_DATA_LOSS (carried): no file of elements, or none that is whole
 * source   tf.data.Dataset.load */
MR_API mr_dataset *mr_load(const char *path);

typedef struct mr_tfrecord_opts {
    char *compression;          /* borrowed during the call */
    int64_t num_parallel_reads; /* files read at once, a record of each in turn; 0: file after file;
                                   MR_AUTO: MR_PARALLEL_READS_AUTO */
    bool paths;                 /* names are paths as they stand, none is a pattern */
    mr_ints record_range;       /* {i, n}: only records i * total / n to (i + 1) * total / n, not
                             included, of all files together, by their indexes; n == 0: all.
                             Borrowed during the call */
    char *on_corrupt;    /* "error" (or NULL), or "skip": reading goes on at the next valid record,
                             and the log says what was skipped. Borrowed during the call */
    int64_t max_skipped; /* with has_max_skipped: places to skip in a pass (with parallel reads: of
                             a file); one more is an error */
    bool has_max_skipped;
    char *quarantine;         /* folder for the bytes that are skipped; NULL: they are not kept */
    char *record_compression; /* "ZSTD": the data of each record are one zstd frame, as of
                             mr_shard_writer_opts.zstd_records; "" or NULL: as they are. Borrowed
                             during the call */
    char *dictionary;         /* path of the zstd dictionary; NULL: none, or, for frames that name
                             one, PREFIX.dict beside PREFIX-00000-of-0000N.tfrecord. Borrowed
                             during the call */
} mr_tfrecord_opts;

/* The records of TFRecord files. If each file has an index (formats/tfrecord/record_index.h), their
 * number is known, and mr_skip goes past records without reading them.
 *
 * errors   MR_NOT_FOUND, MR_FAILED_PRECONDITION: record_range, and a file without a good index
 *          MR_DATA_LOSS: a corrupted or truncated record, with file, offset and record number; the
 *          records before it come first. Of record_compression: a frame that is damaged, which is
 *          the error of this record alone
 *          MR_FAILED_PRECONDITION: a record that was compressed with another dictionary
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
    int64_t header_bytes, footer_bytes; /* skipped in each file; at least 0 */
    char *compression;                  /* borrowed during the call */
    bool paths;                         /* names are paths as they stand, none is a pattern */
} mr_fixed_length_record_opts;

/* The records of files in which all have record_bytes bytes.
 *
 * errors   MR_INVALID_ARGUMENT (carried): record_bytes < 1
 *          MR_INVALID_ARGUMENT: a file whose body is not a multiple of record_bytes, before any of
 *          its records; MR_DATA_LOSS after them if it is compressed
 * source   tf.data.FixedLengthRecordDataset */
MR_API mr_dataset *mr_fixed_length_record(const char *const *files, size_t n, int64_t record_bytes,
                                          const mr_fixed_length_record_opts *opts);

typedef struct mr_files_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are paths as they stand, none is a pattern */
} mr_files_opts;

/* Whole files: {"contents": string, "path": string}. An empty file has empty contents.
 *
 * errors   MR_RESOURCE_EXHAUSTED: a file of more than 4 GiB */
MR_API mr_dataset *mr_files(const char *const *files, size_t n, const mr_files_opts *opts);

typedef struct mr_image_folder_opts {
    mr_strs extensions; /* without the point; none: jpg, jpeg, png. Borrowed during the call */
} mr_image_folder_opts;

/* The images in the folders of dir, each folder being a class: {"image": string (the file),
 * "label": int64 (the number of its folder, in the order of their names), "path": string}. Files
 * are listed once, when an iterator is first opened; a position needs the same files and folders.
 *
 * errors   MR_INVALID_ARGUMENT (carried): an empty name; an extension with a point
 *          MR_NOT_FOUND: no folders, or no images in them
 *          a file that cannot be read is one error, and the next pull continues with the next
 * order    of the paths, bytewise */
MR_API mr_dataset *mr_image_folder(const char *dir, const mr_image_folder_opts *opts);

typedef struct mr_tar_opts {
    char *compression; /* borrowed during the call */
    mr_strs members;   /* those wanted of each record; none: those of the first. Borrowed too */
    bool paths;        /* names are paths as they stand, none is a pattern */
} mr_tar_opts;

/* Records of tar archives as WebDataset writes them: {"__key__": "a/0001", "jpg": string, "cls":
 * string, ...}. Members that follow each other make a record if their paths are the same up to the
 * first point of the last part; what follows that point is the component's name. Without opts the
 * first archive is looked into when the graph is built. Members that are not wanted are passed
 * over, and so are directories, links, and files without a point or with one that begins the name.
 *
 * errors   MR_NOT_FOUND (carried): no file to look into; libarchive is not installed
 *          MR_INVALID_ARGUMENT: a record that lacks a member, with its key: one error, the next
 *          record follows
 *          MR_DATA_LOSS: a damaged archive, or a member twice in a record; the next file follows
 * memory   what lies in one piece of the file is not copied */
MR_API mr_dataset *mr_tar(const char *const *files, size_t n, const mr_tar_opts *opts);

typedef struct mr_jsonl_opts {
    char *compression; /* borrowed during the call */
    bool paths;        /* names are paths as they stand, none is a pattern */
} mr_jsonl_opts;

/* The objects of files with one JSON object on each line, as records. features, in the text form:
 * {"name": int64, "x": float32[3], "tags": bytes[], "n": feature(int64, default=0)}. A dtype for a
 * scalar, with a shape for nested lists, [] for a list of any length; a default for where the key
 * is missing or null. Bytes are strings, or {"b64": "..."}; among floats stand "nan", "inf" and
 * "-inf". Other keys are left out, and blank lines.
 *
 * errors   MR_INVALID_ARGUMENT (carried): features
 *          MR_INVALID_ARGUMENT: an object that is not as announced, with file, line and field; the
 *          next line follows */
MR_API mr_dataset *mr_jsonl(const char *const *files, size_t n, const char *features,
                            const mr_jsonl_opts *opts);

/* Of Arrow and Parquet files. */
typedef struct mr_table_opts {
    mr_strs columns; /* those that are read; none: all. Borrowed during the call, as schema */
    char *schema;    /* in the text form, {"x": float32, "tags": bytes[]}: the columns and their
                        types; NULL: those of the first file */
    bool paths;      /* names are paths as they stand, none is a pattern */
} mr_table_opts;

/* The rows of Arrow IPC files (streams and files), as records of their columns: numbers, bools,
 * strings, lists of numbers, structs, dictionaries' values; dates and times are int64. Buffers may
 * be compressed (zstd, LZ4). Without a schema the first file is looked into when the graph is
 * built. How many rows there are is known, and mr_skip goes past them without reading them.
 *
 * errors   MR_NOT_FOUND (carried): no file to look into; liblz4 is not installed (at the batch)
 *          MR_INVALID_ARGUMENT (carried): no such column; one that elements cannot have
 *          MR_INVALID_ARGUMENT: a row with a null, which is one error: the next row follows; a file
 *          with other columns or types: the next file follows
 *          MR_DATA_LOSS: a damaged or truncated file, after the rows before it; the next file
 *          follows
 * memory   a record batch; columns are views of what was read or unpacked */
MR_API mr_dataset *mr_arrow(const char *const *files, size_t n, const mr_table_opts *opts);

/* The rows of Parquet files, as records of their columns. A group of columns is a record. Integers,
 * floats and bools keep their type; dates and times are the integers that they are stored as;
 * strings, fixed or not, are strings; lists, and lists of lists, have any length. Without a schema
 * the first file is looked into when the graph is built. Only the columns asked for are read, page
 * by page; restoring and skip go to a row by the footer.
 *
 * errors   MR_NOT_FOUND (carried): no file to look into; a codec's library is not installed (at the
 *          page)
 *          MR_INVALID_ARGUMENT (carried): no such column; one that cannot be read, as decimals,
 *          maps and lists of groups
 *          MR_INVALID_ARGUMENT: a row with a null, which is one error: the next row follows; a file
 *          with other columns or types: the next file follows
 *          MR_DATA_LOSS: damage, with file, row group, column and offset, after the rows before it;
 *          the next file follows
 * memory   strings are views into pages; a page of each column is held */
MR_API mr_dataset *mr_parquet(const char *const *files, size_t n, const mr_table_opts *opts);

typedef struct mr_csv_opts {
    mr_tri header;     /* the first line of each file names its columns; yes by default */
    char *sep;         /* one character; NULL: a comma. Borrowed during the call */
    char *compression; /* borrowed during the call */
    bool paths;        /* names are paths as they stand, none is a pattern */
} mr_csv_opts;

/* The rows of CSV files (RFC 4180). features, in the text form: {"name": bytes, "x": float32}, a
 * record by the names in each file's header, or without one by the order written; or [bytes,
 * float32], a tuple by places. All are scalars. An empty field is the default, if there is one, as
 * is a column that a file does not have; else "" or an error. Columns that are not asked for are
 * left out, and blank lines.
 *
 * errors   as mr_jsonl; a bad header is the error of its file, and the next file follows */
MR_API mr_dataset *mr_csv(const char *const *files, size_t n, const char *features,
                          const mr_csv_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
