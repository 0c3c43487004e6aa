/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_BYTE_STREAM_H
#define MR_PIPELINE_FORMATS_BYTE_STREAM_H
/* The uncompressed bytes of a file as a window over chunk buffers. A record reader looks at [at,
 * end), advances `at` past the bytes it consumed, and calls fill when a record is incomplete:
 *
 *     chunk buffer  | taken ....... | at ... unread ... end | room |
 *
 * Views into the window remain valid while their holder holds `chunk`: fill overwrites consumed
 * bytes of a chunk only if its count is 1; otherwise it continues in another buffer and copies the
 * unread bytes there.
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
    int64_t size; /* uncompressed bytes of the file; -1: unknown (compressed, a pipe) */
    char *path;
    mr_compression compression;
    bool source_ended, ended, strict;
    mr__read_ahead *source;
    mr__codec *codec;
    size_t least;               /* minimum bytes of a chunk */
    const mr_read_slots *slots; /* memory for chunks; NULL: the pool */
    mr_buffer *packed;          /* compressed bytes not yet decoded */
    uint8_t *packed_at, *packed_end;
    mr_status failure; /* error to report once the bytes before it are consumed; MR_OK: none */
} mr__byte_stream;

mr_code mr__byte_stream_open(mr__byte_stream *s, const char *path, const mr_file_opts *opts,
                             mr_status *st) MR_NODISCARD;
void mr__byte_stream_close(mr__byte_stream *s); /* also for a zeroed or closed stream */

/* Extends the window by at least one byte. MR_OK: it has `need` bytes in all, or all that the file
 * has; memory grows with the bytes that exist, not with `need`. MR_END: no more bytes. An error is
 * returned once all bytes before it are in the window, and again by every later call. */
mr_code mr__byte_stream_fill(mr__byte_stream *s, size_t need, mr_status *st) MR_NODISCARD;

/* Extends the window in place with data from the page cache, if its chunk is larger than 512 KiB
 * and has room. The bytes of the window do not move. false: no more data there. */
bool mr__byte_stream_extend(mr__byte_stream *s);
/* Bytes of the window plus those that mr__byte_stream_extend may add. */
size_t mr__byte_stream_within(const mr__byte_stream *s);

/* Uncompressed offset of `at`. */
static inline int64_t mr__byte_stream_offset(const mr__byte_stream *s)
{
    return s->offset + (s->at - s->base);
}

/* Calls see for the next `bytes` bytes in pieces, without keeping them; `at` and the window do not
 * change. Requires a known `size`. MR_END: the file has become shorter. */
mr_code mr__byte_stream_scan(mr__byte_stream *s, uint64_t bytes,
                             void (*see)(void *ctx, const uint8_t *p, size_t n), void *ctx,
                             mr_status *st) MR_NODISCARD;

/* Moves `at` to an uncompressed offset. A stream that cannot seek is read up to it.
 * errors   MR_OUT_OF_RANGE: the file ends before it
 *          MR_FAILED_PRECONDITION: it is before the bytes already read of a pipe */
mr_code mr__byte_stream_seek(mr__byte_stream *s, int64_t offset, mr_status *st) MR_NODISCARD;
#endif
