/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_IMPL_H
#define MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_IMPL_H
/* Records compressed separately, each into one zstd frame (RFC 8878): any TFRecord reader can split
 * the file, and each record can be read without those before it. Small records compress well only
 * with a dictionary, which is trained on the first records; each frame carries its ID. Private to
 * pipeline/.
 *
 * thread   one at a time per object; mr__zstd_dictionary_train any */
#include "pipeline/memory/buffer.h"
#include "pipeline/memory/array.h"

/* ---- reading ---- */

typedef struct mr__zstd_record_reader mr__zstd_record_reader;
enum { MR__ZSTD_RECORD_MOST = 1 << 30 }; /* maximum bytes of a record */

/* dictionary: borrowed during the call; n == 0: none.
 * errors   MR_INVALID_ARGUMENT: the dictionary is damaged */
mr_code mr__zstd_record_reader_open(mr__zstd_record_reader **out, const void *dictionary, size_t n,
                                    mr_status *st) MR_NODISCARD;
void mr__zstd_record_reader_close(mr__zstd_record_reader *r); /* NULL: no effect */
/* ID of the reader's dictionary; 0: no dictionary. */
uint32_t mr__zstd_record_reader_dictionary(const mr__zstd_record_reader *r);
/* ID of the dictionary that a frame was compressed with; 0: not stated. */
uint32_t mr__zstd_record_dictionary(const mr_bytes *frame);
/* Maximum bytes of the record. Lengths that the bytes of the frame cannot expand to are refused.
 * errors   MR_DATA_LOSS: not a frame, or not exactly one
 *          MR_RESOURCE_EXHAUSTED: over MR__ZSTD_RECORD_MOST */
mr_code mr__zstd_record_room(const mr_bytes *frame, size_t *room, mr_status *st) MR_NODISCARD;
/* Decompresses the record to `to`, which has the room that mr__zstd_record_room returned; *n bytes.
 * errors   MR_DATA_LOSS */
mr_code mr__zstd_record_read(mr__zstd_record_reader *r, const mr_bytes *frame, void *to,
                             size_t room, size_t *n, mr_status *st) MR_NODISCARD;

/* ---- writing ---- */

typedef struct mr__zstd_record_writer mr__zstd_record_writer;
mr_code mr__zstd_record_writer_open(mr__zstd_record_writer **out, const void *dictionary, size_t n,
                                    mr_status *st) MR_NODISCARD;
void mr__zstd_record_writer_close(mr__zstd_record_writer *w); /* NULL: no effect */
/* *frame is borrowed until the next call.
 * errors   MR_RESOURCE_EXHAUSTED: over MR__ZSTD_RECORD_MOST */
mr_code mr__zstd_record_write(mr__zstd_record_writer *w, const void *data, size_t size,
                              mr_bytes *frame, mr_status *st) MR_NODISCARD;

/* Trains a dictionary on n contiguous samples. *out (owned) = NULL: no dictionary saves more than
 * its size. The same samples always produce the same dictionary. */
mr_code mr__zstd_dictionary_train(const void *samples, const size_t *sizes, size_t n, void **out,
                                  size_t *size, mr_status *st) MR_NODISCARD;
/* Whether the bytes are the beginning of a dictionary. */
bool mr__is_zstd_dictionary(const void *head, size_t n);
#endif
