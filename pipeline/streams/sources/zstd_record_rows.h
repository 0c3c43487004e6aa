/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SOURCES_ZSTD_RECORD_ROWS_H
#define MR_PIPELINE_STREAMS_SOURCES_ZSTD_RECORD_ROWS_H
/* Decompresses records of files that are one zstd frame each (zstd_records.h). A record that cannot
 * be decompressed is an error in its place; the next pull continues after it. Dictionaries are read
 * when the first frame needs them.
 *
 * thread   as an op's slots */
#include "pipeline/formats/tfrecord/zstd_records.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/streams/sources/file_source.h"

typedef struct mr__zstd_record_rows {
    const char *dictionary;              /* its path; NULL: not given */
    const mr_tfrecord_read_opts *damage; /* how to handle damaged frames, as damaged records; NULL:
                                            they are errors */
    const uint64_t *skipped;             /* with damage: number of places skipped so far */
    uint64_t skipped_before;             /* number of them before the records were read */
    uint64_t passed;                     /* and number of damaged frames among these */
    mr_zstd_records *frames;             /* NULL: not opened yet */
    mr_array records;                    /* those from `at` on are still to be decompressed */
    size_t at, file;                     /* file: the file that contains the records */
    mr_file_position before;             /* the position that they were read from */
    uint64_t first;                      /* number of the first of them */
    uint64_t skip;                       /* after a restore: records to skip first */
} mr__zstd_record_rows;

/* Decompresses the first of n frames of the file `path`: up to the first damaged one, and until
 * they have about `most` bytes together; at least one. *out = the records.
 * errors   that of the first frame, without a position */
mr_code mr__zstd_record_rows_unpack(mr_iter *it, mr__zstd_record_rows *f, const char *path,
                                    const mr_bytes *frames, size_t n, size_t most, mr_array *out,
                                    mr_status *st) MR_NODISCARD;

/* Slots of an op whose state begins with an mr__file_source. A position consists of the position of
 * the records read last and the number of them consumed. */
mr_code mr__zstd_record_rows_next(mr_iter *it, mr__zstd_record_rows *f, size_t want, mr_block *out,
                                  mr_status *st);
mr_code mr__zstd_record_rows_save(mr_iter *it, mr__zstd_record_rows *f, mr_state_w *w,
                                  mr_status *st);
mr_code mr__zstd_record_rows_restore(mr_iter *it, mr__zstd_record_rows *f, mr_state_r *r,
                                     mr_status *st);
void mr__zstd_record_rows_close(mr__zstd_record_rows *f);
/* true: records were read and are not consumed yet. */
bool mr__zstd_record_rows_pending(const mr__zstd_record_rows *f);
/* The part of *f->skipped that is not skipped again when reading resumes at the position. */
uint64_t mr__zstd_record_rows_skipped(const mr__zstd_record_rows *f);
#endif
