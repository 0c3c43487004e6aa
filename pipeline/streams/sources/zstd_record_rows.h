/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_ZSTD_RECORD_ROWS_H
#define MR_PIPELINE_STREAMS_SOURCES_ZSTD_RECORD_ROWS_H
/* Records of files that are each a zstd frame (zstd_records.h), unpacked. A record that cannot be
 * unpacked is an error in its place; the next pull continues after it. Dictionaries are read when
 * the first frame needs them.
 *
 * thread   as an op's slots */
#include "pipeline/formats/tfrecord/zstd_records.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/streams/sources/file_source.h"

typedef struct mr__zstd_record_rows {
    const char *dictionary;              /* its path; NULL: none is given */
    const mr_tfrecord_read_opts *damage; /* what to do about frames that are damaged, as about
                                            records; NULL: they are errors */
    const uint64_t *skipped;             /* with it: places gone past so far */
    uint64_t skipped_before;             /* of them before the records were read */
    uint64_t passed;                     /* and damaged frames among these */
    mr_zstd_records *frames;             /* NULL: not opened yet */
    mr_array records;                    /* read; those from `at` on are still to be unpacked */
    size_t at, file;                     /* of `file` */
    mr_file_position before;             /* where they were read from */
    uint64_t first;                      /* number of the first of them */
    uint64_t skip;                       /* records to read over first, after a restore */
} mr__zstd_record_rows;

/* The first of n frames, whose file is `path`, that are good and together have not much more than
 * `most` bytes; at least one: *out are the records.
 * errors   of the first frame, without a place */
mr_code mr__zstd_record_rows_unpack(mr_iter *it, mr__zstd_record_rows *f, const char *path,
                                    const mr_bytes *frames, size_t n, size_t most, mr_array *out,
                                    mr_status *st) MR_NODISCARD;

/* Slots of an op whose state begins with an mr__file_source. A position is that of the records that
 * were read last, and how many of them were used. */
mr_code mr__zstd_record_rows_next(mr_iter *it, mr__zstd_record_rows *f, size_t want, mr_block *out,
                                  mr_status *st);
mr_code mr__zstd_record_rows_save(mr_iter *it, mr__zstd_record_rows *f, mr_state_w *w,
                                  mr_status *st);
mr_code mr__zstd_record_rows_restore(mr_iter *it, mr__zstd_record_rows *f, mr_state_r *r,
                                     mr_status *st);
void mr__zstd_record_rows_close(mr__zstd_record_rows *f);
/* Records were read and are not used yet. */
bool mr__zstd_record_rows_pending(const mr__zstd_record_rows *f);
/* Of *f->skipped those that reading from the position does not go past again. */
uint64_t mr__zstd_record_rows_skipped(const mr__zstd_record_rows *f);
#endif
