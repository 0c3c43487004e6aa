/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_SHARD_WRITER_H
#define MR_PIPELINE_FORMATS_SHARDS_SHARD_WRITER_H
/* Writes a set of files, PREFIX-00000-of-0000N.tfrecord (or .jsonl, .npy, .arrow, .parquet) and so
 * on, and deals records to them round robin.
 *
 * Files get their names when all of them are written and synced to disk. Until then they are next
 * to their final place as .NAME. ... .partial, which PREFIX-* does not match. They replace files of
 * the same names, and with `overwrite` all sets of shards of the prefix, as one: if a rename fails,
 * those before it are undone. After a crash or kill -9 at any point, either the old set or the new
 * one is complete, and PREFIX-* never finds files of both. It finds part of one of them only if the
 * crash happened between the renames. In that case the journal .PREFIX.commit exists: patterns in
 * datasets fail with MR_FAILED_PRECONDITION instead of reading a part, and mr_shard_writer_recover,
 * or the next mr_shard_writer_open of the prefix, puts the new set in place. Partial files of a
 * killed process remain until they are removed by hand.
 *
 * A prefix that is a URL of an S3 store is written with uploads (docs/remote.md): the parts of all
 * files are sent before the first file becomes visible; then they become visible from the last to
 * the first, so that readers of a part of the set are warned of it. Any existing set under the
 * prefix is refused without `overwrite`, which removes shard 0 of the old sets first.
 *
 * thread   one at a time per writer
 * since    0.1 */
#include "../../memory/block.h"
#include "../../params/spec.h"
#include "../tfrecord/tfrecord.h"
#include "../../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_shard_writer mr_shard_writer;

typedef enum mr_shard_format {
    MR_SHARDS_TFRECORD,
    MR_SHARDS_JSONL, /* a record is a line without its end */
    /* NumPy array files, version 1.0 to 3.0. A record is an entry along axis 0 as stored in memory;
     * mr_shard_writer_set_entry sets its type. */
    MR_SHARDS_NPY,
    /* Formats of rows: a record is a row of columns. mr_shard_writer_append_row appends it,
     * mr_shard_writer_set_spec sets the types of the columns. */
    MR_SHARDS_ARROW, /* Arrow IPC files, with a footer */
    MR_SHARDS_PARQUET
} mr_shard_format;

typedef struct mr_shard_writer_opts {
    /* Not for NPY, whose headers are completed at the end. ARROW compresses each buffer, with ZSTD;
     * PARQUET each page, with ZSTD or GZIP. */
    mr_compression compression;
    bool overwrite; /* also replace sets of another number of shards or another format */
    mr_shard_format format;
    /* TFRECORD: each record is one zstd frame, so any TFRecord reader can split the file into
     * records. If a dictionary saves more than its size, the frames use one: the file PREFIX.dict,
     * trained on the first 4 MiB, which are kept in memory until then. tfrecord(...,
     * record_compression="ZSTD") reads such files. */
    bool zstd_records;
    /* PARQUET: maximum bytes of values in a row group, which are in memory until it is written; 0:
     * 64 MiB. With many shards the groups are smaller, 256 MiB in all. */
    int64_t group_bytes;
    /* For a prefix that is a URL. since 0.2 */
    const char *prefix;   /* of mr_shard_writer_memory: the prefix; NULL: of local files */
    int64_t memory_limit; /* parts are smaller where those of all files would take much of it */
    mr_cancel *cancel;    /* ends waits for the store; borrowed; may be NULL */
} mr_shard_writer_opts;

/* File name ending of a format, such as "tfrecord". */
MR_API const char *mr_shard_ending(mr_shard_format format);

/* Opens a set of shards for writing. opts NULL: all zero. Only one writer on this host, in any
 * process, can have a prefix at a time.
 * units    n_shards 1 to 99,999 files, all open at once
 * errors   MR_INVALID_ARGUMENT: n_shards; NPY with a compression; zstd_records with a format other
 *          than TFRECORD; group_bytes with a format other than PARQUET, or negative; a prefix
 *          without a name after its last slash; those of mr_tfrecord_writer_open
 *          MR_UNIMPLEMENTED: a URL of a scheme that is not written
 *          MR_ALREADY_EXISTS: a set of another number of shards or another format exists, without
 *          `overwrite`; zstd_records, and PREFIX.dict is not the dictionary of an old set; another
 *          writer has the prefix */
MR_API mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards,
                                    const mr_shard_writer_opts *opts, mr_status *st) MR_NODISCARD;
/* Maximum bytes of memory that such a writer takes in addition to one record, or in formats of rows
 * to one row of elements of spec (NULL: unknown). For mr_iterator_opts.memory_taken. 0: n_shards is
 * out of range. */
MR_API int64_t mr_shard_writer_memory(int64_t n_shards, const mr_shard_writer_opts *opts,
                                      const mr_spec *spec);
/* NPY only, once, before the first record. descr is the `descr` of the NPY header, "'<f4'" or
 * "[('x', '<f4', (2,))]"; shape has the axes of an entry.
 * errors   MR_INVALID_ARGUMENT: the files have another format; those of mr_shard_writer_append */
MR_API mr_code mr_shard_writer_set_entry(mr_shard_writer *w, const char *descr, int rank,
                                         const int64_t *shape, mr_status *st) MR_NODISCARD;
/* Formats of rows only, once, before the first row. Rows are elements of spec, with a column for
 * each component; the components of a tuple are named by their index, a single component is named
 * "value". first: NULL, or the first rows, which supply the number of axes where spec does not know
 * it. Rows are kept in memory until they are written, up to about 256 MiB for all files.
 *
 *     component                     ARROW                  PARQUET
 *     strings                       large_binary           BYTE_ARRAY
 *     an axis of one size           fixed_size_list        a list
 *     of several, or a ragged one   large_list             a list
 *     a record or a tuple           a struct               a group
 *
 * errors   MR_INVALID_ARGUMENT: the files have another format, or a compression that the format
 *          does not support; those of mr_shard_format_check and mr_shard_writer_append_row */
MR_API mr_code mr_shard_writer_set_spec(mr_shard_writer *w, const mr_spec *spec,
                                        const mr_block *first, mr_status *st) MR_NODISCARD;
/* Checks that format f, if it is a format of rows, has types for elements of spec. Other formats
 * always pass.
 * errors   MR_INVALID_ARGUMENT: no components, a record without components, a dataset, or
 *          bfloat16 */
MR_API mr_code mr_shard_format_check(mr_shard_format f, const mr_spec *spec,
                                     mr_status *st) MR_NODISCARD;
/* Appends row `row` of b to the next file in turn.
 * errors   MR_FAILED_PRECONDITION: no call of mr_shard_writer_set_spec before
 *          MR_INVALID_ARGUMENT: the files have another format; the columns are not those of the
 *          spec; the number of axes is not that of the first row; those of writing
 *          After an error only mr_shard_writer_abort is possible */
MR_API mr_code mr_shard_writer_append_row(mr_shard_writer *w, const mr_block *b, size_t row,
                                          mr_status *st) MR_NODISCARD;
/* Appends a record to the next file in turn; not for formats of rows.
 * errors   MR_FAILED_PRECONDITION: NPY without mr_shard_writer_set_entry; those of
 *          mr_tfrecord_writer_append */
MR_API mr_code mr_shard_writer_append(mr_shard_writer *w, const void *data, size_t n,
                                      mr_status *st) MR_NODISCARD;
/* Completes all files, syncs them, renames them to their final names and frees w. On failure the
 * old files remain and the new files are removed. */
MR_API mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st) MR_NODISCARD;
/* Removes all files of the new set and frees w. NULL: no effect. */
MR_API void mr_shard_writer_abort(mr_shard_writer *w);
/* Completes the renames of an earlier set that a crash interrupted. No effect if nothing is
 * pending.
 * errors   MR_NOT_FOUND: the directory does not exist; MR_DATA_LOSS: the journal is damaged;
 *          MR_ALREADY_EXISTS: a writer has the prefix; those of renaming */
MR_API mr_code mr_shard_writer_recover(const char *prefix, mr_status *st) MR_NODISCARD;
/* The format of the files. since 0.2 */
MR_API mr_shard_format mr_shard_writer_format(const mr_shard_writer *w);
/* Number of records appended so far. */
MR_API int64_t mr_shard_writer_records(const mr_shard_writer *w);

#ifdef __cplusplus
}
#endif
#endif
