/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_IMPL_H
#define MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_IMPL_H
/* Records that are compressed separately, each to one zstd frame (RFC 8878): any TFRecord reader
 * finds them, and each can be read without those before it. Small records compress well only with a
 * dictionary, which is trained on the first records; each frame has its number. Private to
 * pipeline/.
 *
 * thread   one at a time per object; mr__zstd_dictionary_train any */
#include "pipeline/memory/buffer.h"
#include "pipeline/memory/array.h"

/* ---- reading ---- */

typedef struct mr__zstd_record_reader mr__zstd_record_reader;
enum { MR__ZSTD_RECORD_MOST = 1 << 30 }; /* bytes of a record */

/* dictionary: borrowed during the call; n == 0: none.
 * errors   MR_INVALID_ARGUMENT: it is damaged */
mr_code mr__zstd_record_reader_open(mr__zstd_record_reader **out, const void *dictionary, size_t n,
                                    mr_status *st) MR_NODISCARD;
void mr__zstd_record_reader_close(mr__zstd_record_reader *r); /* NULL: nothing */
/* The number of the dictionary; 0: it has none. */
uint32_t mr__zstd_record_reader_dictionary(const mr__zstd_record_reader *r);
/* The number of the dictionary that a frame was made with; 0: it does not say. */
uint32_t mr__zstd_record_dictionary(const mr_bytes *frame);
/* How many bytes the record has at most. Lengths that so few bytes cannot mean are refused.
 * errors   MR_DATA_LOSS: no frame, or not one alone
 *          MR_RESOURCE_EXHAUSTED: over MR__ZSTD_RECORD_MOST */
mr_code mr__zstd_record_room(const mr_bytes *frame, size_t *room, mr_status *st) MR_NODISCARD;
/* The record's bytes to `to`, which has room for mr__zstd_record_room's; *n of them.
 * errors   MR_DATA_LOSS */
mr_code mr__zstd_record_read(mr__zstd_record_reader *r, const mr_bytes *frame, void *to,
                             size_t room, size_t *n, mr_status *st) MR_NODISCARD;

/* ---- writing ---- */

typedef struct mr__zstd_record_writer mr__zstd_record_writer;
mr_code mr__zstd_record_writer_open(mr__zstd_record_writer **out, const void *dictionary, size_t n,
                                    mr_status *st) MR_NODISCARD;
void mr__zstd_record_writer_close(mr__zstd_record_writer *w); /* NULL: nothing */
/* *frame is borrowed until the next call.
 * errors   MR_RESOURCE_EXHAUSTED: over MR__ZSTD_RECORD_MOST */
mr_code mr__zstd_record_write(mr__zstd_record_writer *w, const void *data, size_t size,
                              mr_bytes *frame, mr_status *st) MR_NODISCARD;

/* Trains a dictionary of n samples that lie back to back. *out (owned) = NULL: none saves more than
 * it takes. The same samples give the same dictionary. */
mr_code mr__zstd_dictionary_train(const void *samples, const size_t *sizes, size_t n, void **out,
                                  size_t *size, mr_status *st) MR_NODISCARD;
/* The bytes that a dictionary begins with. */
bool mr__is_zstd_dictionary(const void *head, size_t n);
#endif
