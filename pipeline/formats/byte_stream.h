/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_BYTE_STREAM_H
#define MR_PIPELINE_FORMATS_BYTE_STREAM_H
/* The uncompressed bytes of a file as a window over chunk buffers. A reader of records looks at
 * [at, end), moves `at` after what it took, and calls fill when a record is not whole:
 *
 *     chunk buffer  | taken ....... | at ... unread ... end | room |
 *
 * Views into the window stay good as long as their holder holds `chunk`: fill overwrites what was
 * taken of a chunk only while its count is 1, if at all, else it continues in another buffer and
 * carries the unread rest over.
 *
 * thread   one at a time per object */
#include "pipeline/files/read_ahead.h"
#include "pipeline/formats/codec_impl.h"
#include "pipeline/formats/reader.h"

typedef struct mr__byte_stream {
    mr_buffer *chunk;
    uint8_t *at, *end;
    int64_t offset; /* uncompressed offset of `at` is offset + (at - base) */
    uint8_t *base;
    int64_t size; /* uncompressed bytes of the file; -1 unknown (compressed, a pipe) */
    char *path;
    mr_compression compression;
    bool source_ended, ended, strict;
    mr__read_ahead *source;
    mr__codec *codec;
    size_t least;               /* bytes of a chunk */
    const mr_read_slots *slots; /* memory for chunks; NULL: the pool's */
    mr_buffer *packed;          /* compressed bytes not yet decoded */
    uint8_t *packed_at, *packed_end;
    mr_status failure; /* met after bytes that are still to be taken; MR_OK: none */
} mr__byte_stream;

/* What the first bytes of a file say beyond doubt: GZIP, ZSTD or NONE. */
mr_compression mr__compression_seen(const uint8_t *b, size_t n);

mr_code mr__byte_stream_open(mr__byte_stream *s, const char *path, const mr_file_opts *opts,
                             mr_status *st) MR_NODISCARD;
void mr__byte_stream_close(mr__byte_stream *s); /* also of a zeroed one, and twice */

/* Makes the window longer: MR_OK if it is by at least one byte, with `need` bytes in all where the
 * file has them (memory grows with what is really there, not with `need`); MR_END: no more bytes.
 * An error is returned when all bytes before it are in the window, and again at every call. */
mr_code mr__byte_stream_fill(mr__byte_stream *s, size_t need, mr_status *st) MR_NODISCARD;

/* Makes the window longer where it lies, by what the page cache has, if its chunk is larger than
 * 512 KiB and has room. What is in the window stays where it is; false: there is no more of it. */
bool mr__byte_stream_extend(mr__byte_stream *s);
/* Bytes of the window, with those that it may be extended by. */
size_t mr__byte_stream_within(const mr__byte_stream *s);

/* Uncompressed offset of `at`. */
static inline int64_t mr__byte_stream_offset(const mr__byte_stream *s)
{
    return s->offset + (s->at - s->base);
}

/* Calls see for the next `bytes` bytes, in pieces, without keeping them; `at` and the window stay.
 * Only where `size` is known. MR_END: the file has become shorter. */
mr_code mr__byte_stream_scan(mr__byte_stream *s, uint64_t bytes,
                             void (*see)(void *ctx, const uint8_t *p, size_t n), void *ctx,
                             mr_status *st) MR_NODISCARD;

/* Moves `at` to an uncompressed offset; what cannot be sought is read up to it.
 * errors   MR_OUT_OF_RANGE: the file ends before it
 *          MR_FAILED_PRECONDITION: it lies before what was read of a pipe */
mr_code mr__byte_stream_seek(mr__byte_stream *s, int64_t offset, mr_status *st) MR_NODISCARD;
#endif
