/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_SHARD_WRITER_H
#define MR_PIPELINE_FORMATS_SHARDS_SHARD_WRITER_H
/* A set of files, PREFIX-00000-of-0000N.tfrecord (or .jsonl, .npy, .arrow, .parquet) and so on,
 * records dealt round robin.
 *
 * Files get their names when all of them are written and on the disk; before that they lie beside
 * them, as .NAME. ... .partial, which PREFIX-* does not match. They replace files of these names,
 * and with `overwrite` all sets of shards of the prefix, as one: where a rename fails, those before
 * it are undone. After a crash, or kill -9, at any place either the old set or the new one is
 * whole, and PREFIX-* never finds files of both. It finds a part of one of them only where the
 * crash came between the renames. Then the journal .PREFIX.commit is there: patterns in datasets
 * fail with MR_FAILED_PRECONDITION instead of reading a part, and mr_shard_writer_recover, or the
 * next mr_shard_writer_open of the prefix, puts the new set in place. Partial files of a killed
 * process stay until somebody removes them.
 *
 * thread   one at a time per writer
 * since    0.1 */
#include "../../memory/block.h"
#include "../../params/spec.h"
#include "../tfrecord/tfrecord.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_shard_writer mr_shard_writer;

typedef enum mr_shard_format {
    MR_SHARDS_TFRECORD,
    MR_SHARDS_JSONL, /* a record is a line, without its end */
    MR_SHARDS_NPY,   /* numpy's files of arrays, version 1.0 to 3.0: a record is an entry along
                        axis 0, as it lies in memory; mr_shard_writer_set_entry says its type */
    /* Formats of rows: a record is a row of columns, which mr_shard_writer_append_row takes;
     * mr_shard_writer_set_spec says their types. */
    MR_SHARDS_ARROW, /* Arrow IPC files, with a footer */
    MR_SHARDS_PARQUET
} mr_shard_format;

typedef struct mr_shard_writer_opts {
    mr_compression compression; /* not of NPY, whose heads are completed at the end; of ARROW that
                                   of each buffer, ZSTD; of PARQUET of each page, ZSTD or GZIP */
    bool overwrite;             /* replaces sets of other numbers of shards and formats too */
    mr_shard_format format;
    /* Of TFRECORD: each record is one zstd frame, so that any TFRecord reader finds it. Where one
     * saves more than it takes, they are made with a dictionary, the file PREFIX.dict, which is
     * trained of the first 4 MiB; they are kept in memory until then. tfrecord(...,
     * record_compression="ZSTD") reads such files */
    bool zstd_records;
    /* Of PARQUET: bytes of the values of a row group at most, which are in memory until it is
     * written; 0: 64 MiB. Many shards have smaller ones, 256 MiB together */
    int64_t group_bytes;
} mr_shard_writer_opts;

/* What names of the files end in, "tfrecord". */
MR_API const char *mr_shard_ending(mr_shard_format format);

/* opts NULL: all zero. A prefix has one writer at a time, of all processes of the host.
 * units    n_shards 1 to 99,999 files, all open at once
 * errors   MR_INVALID_ARGUMENT: n_shards, NPY with a compression, zstd_records of another format
 *          than TFRECORD, group_bytes of another than PARQUET or below 0, a prefix without a name
 *          after its last slash; what mr_tfrecord_writer_open says
 *          MR_ALREADY_EXISTS: a set of another number of shards or format is there, and not
 *          `overwrite`; zstd_records, and PREFIX.dict is not the dictionary of an old set; another
 *          writer has the prefix */
MR_API mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards,
                                    const mr_shard_writer_opts *opts, mr_status *st) MR_NODISCARD;
/* Bytes that such a writer takes at most, beside one record, or one row of elements of spec (NULL:
 * unknown) in formats of rows: for mr_iterator_opts.memory_taken. 0: so many shards are refused. */
MR_API int64_t mr_shard_writer_memory(int64_t n_shards, const mr_shard_writer_opts *opts,
                                      const mr_spec *spec);
/* Of NPY, once, before the first record: descr is what the format calls so, "'<f4'" or
 * "[('x', '<f4', (2,))]"; shape the axes of an entry.
 * errors   MR_INVALID_ARGUMENT: the files are of another format; those of appending */
MR_API mr_code mr_shard_writer_set_entry(mr_shard_writer *w, const char *descr, int rank,
                                         const int64_t *shape, mr_status *st) MR_NODISCARD;
/* Of formats of rows, once, before the first: rows are elements of spec, with a column for each
 * component, called by its place in a tuple, and "value" where it is the only one. first: NULL, or
 * the first rows, which say the number of axes where spec does not. Rows are kept in memory before
 * they are written, of all files about 256 MiB at most.
 *
 *     component                     ARROW                  PARQUET
 *     strings                       large_binary           BYTE_ARRAY
 *     an axis of one size           fixed_size_list        a list
 *     of several, or a ragged one   large_list             a list
 *     a record or a tuple           a struct               a group
 *
 * errors   MR_INVALID_ARGUMENT: the files are of another format; they have no such compression;
 *          those of mr_shard_format_check and of appending */
MR_API mr_code mr_shard_writer_set_spec(mr_shard_writer *w, const mr_spec *spec,
                                        const mr_block *first, mr_status *st) MR_NODISCARD;
/* That files of format f, one of rows, have types for elements of spec. Of others nothing is said.
 * errors   MR_INVALID_ARGUMENT: no components, or a record without any; a dataset or bfloat16 */
MR_API mr_code mr_shard_format_check(mr_shard_format f, const mr_spec *spec,
                                     mr_status *st) MR_NODISCARD;
/* Appends row `row` of b to the file whose turn it is.
 * errors   MR_FAILED_PRECONDITION: without mr_shard_writer_set_spec
 *          MR_INVALID_ARGUMENT: the files are of another format; other columns than the spec's, or
 *          another number of axes than the first row's; those of writing. After an error the files
 *          can only be given up */
MR_API mr_code mr_shard_writer_append_row(mr_shard_writer *w, const mr_block *b, size_t row,
                                          mr_status *st) MR_NODISCARD;
/* Appends a record to the file whose turn it is; not of formats of rows.
 * errors   MR_FAILED_PRECONDITION: NPY without mr_shard_writer_set_entry; those of
 *          mr_tfrecord_writer_append */
MR_API mr_code mr_shard_writer_append(mr_shard_writer *w, const void *data, size_t n,
                                      mr_status *st) MR_NODISCARD;
/* Completes all files, syncs them, gives them their names and frees w. On failure what was there
 * before stands, and the new files are removed. */
MR_API mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st) MR_NODISCARD;
/* Removes everything and frees w. NULL: nothing. */
MR_API void mr_shard_writer_abort(mr_shard_writer *w);
/* Finishes what a crash between the renames left of an earlier set. Nothing, where there was none.
 * errors   MR_NOT_FOUND: no such directory; MR_DATA_LOSS: the journal is damaged;
 *          MR_ALREADY_EXISTS: a writer has the prefix; those of renaming */
MR_API mr_code mr_shard_writer_recover(const char *prefix, mr_status *st) MR_NODISCARD;
/* Records so far. */
MR_API int64_t mr_shard_writer_records(const mr_shard_writer *w);

#ifdef __cplusplus
}
#endif
#endif
