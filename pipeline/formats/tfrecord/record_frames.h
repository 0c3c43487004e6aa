/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_RECORD_FRAMES_H
#define MR_PIPELINE_FORMATS_RECORD_FRAMES_H
/* Records that are each one zstd frame (RFC 8878): the framing of their file stays what every
 * reader knows, and any of them can be read without those before it. Small records need a
 * dictionary for that, which is trained of the first ones; its number stands in each frame.
 *
 * thread   one at a time per object; mr__frames_train any */
#include "pipeline/memory/buffer.h"
#include "pipeline/memory/array.h"

/* ---- reading ---- */

typedef struct mr__frame_reader mr__frame_reader;
enum { MR__FRAME_MOST = 1 << 30 }; /* bytes of a record */

/* dictionary: borrowed during the call; n == 0: none.
 * errors   MR_INVALID_ARGUMENT: it is damaged */
mr_code mr__frame_reader_open(mr__frame_reader **out, const void *dictionary, size_t n,
                              mr_status *st) MR_NODISCARD;
void mr__frame_reader_close(mr__frame_reader *r); /* NULL: nothing */
/* The number of the dictionary; 0: it has none. */
uint32_t mr__frame_reader_dictionary(const mr__frame_reader *r);
/* The number of the dictionary that a frame was made with; 0: it does not say. */
uint32_t mr__frame_dictionary(const mr_bytes *frame);
/* How many bytes the record has at most. Lengths that so few bytes cannot mean are refused.
 * errors   MR_DATA_LOSS: no frame, or not one alone; MR_RESOURCE_EXHAUSTED: over MR__FRAME_MOST */
mr_code mr__frame_room(const mr_bytes *frame, size_t *room, mr_status *st) MR_NODISCARD;
/* The record's bytes to `to`, which has room for mr__frame_room's; *n of them.
 * errors   MR_DATA_LOSS */
mr_code mr__frame_read(mr__frame_reader *r, const mr_bytes *frame, void *to, size_t room, size_t *n,
                       mr_status *st) MR_NODISCARD;

/* ---- writing ---- */

typedef struct mr__frame_writer mr__frame_writer;
mr_code mr__frame_writer_open(mr__frame_writer **out, const void *dictionary, size_t n,
                              mr_status *st) MR_NODISCARD;
void mr__frame_writer_close(mr__frame_writer *w); /* NULL: nothing */
/* *frame is borrowed until the next call. errors MR_RESOURCE_EXHAUSTED: over MR__FRAME_MOST */
mr_code mr__frame_write(mr__frame_writer *w, const void *data, size_t size, mr_bytes *frame,
                        mr_status *st) MR_NODISCARD;

/* Trains a dictionary of n samples that lie back to back. *out (owned) = NULL: none saves more than
 * it takes. The same samples give the same dictionary. */
mr_code mr__frames_train(const void *samples, const size_t *sizes, size_t n, void **out,
                         size_t *size, mr_status *st) MR_NODISCARD;
/* The bytes that a dictionary begins with. */
bool mr__is_dictionary(const void *head, size_t n);
#endif
