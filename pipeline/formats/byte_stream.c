/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/byte_stream.h"

#include <stdatomic.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/log.h"

/* A chunk and the data made from it stay in the L2 cache. For large records the chunk grows, so
 * that only a small part of it is an incomplete record to carry over (bench/tfrecord.c). */
#define CHUNK     ((size_t)512 << 10)
#define CHUNK_MAX ((size_t)1 << 20)
#define PER_CHUNK 8 /* records */
#define PACKED    ((size_t)128 << 10)
#define ENOUGH    ((size_t)4 << 10) /* bytes that no text has by chance */

/* Target of empty windows, because arithmetic on NULL is undefined. */
static uint8_t nothing;

void mr__byte_stream_close(mr__byte_stream *s)
{
    mr__read_ahead_close(s->source);
    mr__codec_close(s->codec);
    mr_buffer_unref(s->chunk);
    mr_buffer_unref(s->packed);
    mr_free(s->path);
    memset(s, 0, sizeof *s);
}

static uint8_t *buffer_end(const mr_buffer *b)
{
    return (uint8_t *)mr_buffer_data(b) + mr_buffer_size(b);
}

/* Limit for the end of the bytes added next: a larger chunk is filled in pieces, and each is
 * processed while it is in the L2 cache. */
static uint8_t *piece_end(const mr__byte_stream *s)
{
    size_t room = (size_t)(buffer_end(s->chunk) - s->end);
    return s->end + (s->least > CHUNK && room > CHUNK ? CHUNK : room);
}

/* Sets the window to [at, end); the byte offset of `at` does not change. */
static void set_window(mr__byte_stream *s, uint8_t *at, uint8_t *end)
{
    s->offset = mr__byte_stream_offset(s);
    s->base = s->at = at;
    s->end = end;
}

static bool like_zlib(const uint8_t *b, size_t n)
{
    return n >= 2 && (b[0] & 0x0f) == 8 && (b[0] >> 4) <= 7 && (b[0] * 256 + b[1]) % 31 == 0;
}

/* Detects the compression from the first bytes. A TFRecord length with a valid checksum means an
 * uncompressed file. */
static mr_compression compression_of(const uint8_t *b, size_t n)
{
    mr_compression seen;
    bool more;
    if (n >= 12 && mr_crc32c_mask(mr_crc32c(b, 8)) == mr__load_le(b + 8, 4))
        return MR_COMPRESSION_NONE;
    if (mr__compressor_seen(b, n, &seen, &more))
        return seen;
    return like_zlib(b, n) ? MR_COMPRESSION_ZLIB : MR_COMPRESSION_NONE;
}

/* Whether a byte cannot occur in text. */
static bool has_controls(const uint8_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && b[i] >= '\t')
        i++;
    return i < n;
}

/* Whether bytes that look like the start of a ZLIB stream, as "x^" does too, are one: it is
 * whole and its checksum right, or at least ENOUGH bytes of it have no error, and not all of them
 * can be text. */
static bool is_zlib(const uint8_t *b, size_t n)
{
    mr__codec *codec = NULL;
    mr_code rc = mr__codec_decode_open(&codec, MR_COMPRESSION_ZLIB, NULL);
    mr__codec_io io = {.in = b, .n_in = n};
    while (rc == MR_OK && io.n_in) {
        uint8_t out[4096];
        io.out = out;
        io.n_out = sizeof out;
        rc = codec->class_->step(codec, &io, false, NULL);
    }
    mr__codec_close(codec);
    return rc == MR_END || (rc == MR_OK && n >= ENOUGH && has_controls(b, n));
}

/* Of many files alike one line is enough. */
static void say_detected(const mr__byte_stream *s)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        mr_log(MR_LOG_WARNING, "%s: no compression is named; read as \"%s\" by its first bytes",
               s->path, mr_compression_name(s->compression));
}

/* The compression of a file that may be text or anything else. */
static mr_code prove(mr__byte_stream *s, const uint8_t *b, size_t n, mr_status *st)
{
    bool more;
    const char *name = mr__compressor_seen(b, n, &s->compression, &more);
    if (name && s->compression == MR_COMPRESSION_NONE)
        return mr_fail(
            st, MR_UNIMPLEMENTED,
            "the file is compressed with %s; of compression GZIP, ZLIB and ZSTD are read", name);
    if (!name && like_zlib(b, n) && is_zlib(b, n))
        s->compression = MR_COMPRESSION_ZLIB;
    if (s->compression != MR_COMPRESSION_NONE)
        say_detected(s);
    return MR_OK;
}

/* Whether these bytes are too few to tell the compression. A line of text in a pipe should not wait
 * for more. */
static bool too_few(const uint8_t *b, size_t n, bool proven)
{
    mr_compression c;
    bool more;
    if (!proven)
        return n < 12;
    if (n >= ENOUGH || mr__compressor_seen(b, n, &c, &more))
        return false;
    return n == 0 || more || like_zlib(b, n) || (n == 1 && (b[0] & 0x0f) == 8);
}

/* Detects the compression from the first bytes. If no other memory has them they are kept:
 * compressed ones to be decoded, others as the window. */
static mr_code detect(mr__byte_stream *s, mr_status *st)
{
    mr_code rc = MR_OK;
    size_t have = 0;
    bool kept = true, proven = s->compression == MR_COMPRESSION_PROVEN;
    MR_TRY(mr_buffer_alloc(&s->packed, PACKED, st));
    uint8_t *bytes = mr_buffer_data(s->packed);
    while (rc == MR_OK && too_few(bytes, have, proven)) {
        mr_buffer *slot = NULL;
        uint8_t *data = NULL;
        size_t got = 0;
        rc = mr__read_ahead_next(s->source, bytes + have, PACKED - have, &slot, &data, &got, st);
        if (slot) { /* the file is read again from its start */
            kept = false;
            got = got < PACKED - have ? got : PACKED - have;
            memcpy(bytes + have, data, got);
            mr_buffer_unref(slot);
        }
        have += got;
    }
    if (rc < MR_OK)
        return rc;
    if (proven)
        MR_TRY(prove(s, bytes, have, st));
    else
        s->compression = compression_of(bytes, have);
    if (!kept)
        return mr__read_ahead_seek(s->source, 0, st);
    if (s->compression == MR_COMPRESSION_NONE) {
        s->chunk = s->packed;
        s->packed = NULL;
        set_window(s, bytes, bytes + have);
    } else {
        s->packed_at = bytes;
        s->packed_end = bytes + have;
    }
    return MR_OK;
}

mr_code mr__byte_stream_open(mr__byte_stream *s, const char *path, const mr_file_opts *opts,
                             mr_status *st)
{
    memset(s, 0, sizeof *s);
    mr_status_init(&s->failure);
    s->at = s->end = s->base = s->packed_at = s->packed_end = &nothing;
    s->compression = opts ? opts->compression : MR_COMPRESSION_NONE;
    s->strict = opts && opts->strict;
    s->path = mr_strdup(path);
    if (!s->path)
        return mr_fail_memory(st, strlen(path) + 1, "a file name");
    mr__read_opts read = {0};
    s->slots = opts ? opts->read_slots : NULL;
    s->least = opts && opts->chunk ? opts->chunk : CHUNK;
    if (opts)
        read = (mr__read_opts){opts->direct,      opts->no_uring, opts->cancel, opts->on_read,
                               opts->on_read_ctx, opts->no_ahead, opts->mark};
    mr_code rc = mr__read_ahead_open(&s->source, path, 0, &read, st);
    if (rc == MR_OK && s->compression >= MR_COMPRESSION_DETECT)
        rc = detect(s, st);
    if (rc == MR_OK && s->compression != MR_COMPRESSION_NONE)
        rc = mr__codec_decode_open(&s->codec, s->compression, st);
    if (rc != MR_OK) {
        mr_status_at(st, path, -1, -1);
        mr__byte_stream_close(s);
        return rc;
    }
    s->size = s->codec ? -1 : mr__read_ahead_size(s->source);
    return MR_OK;
}

/* Minimum room in a chunk that is worth a read. */
static size_t least_room(const mr__byte_stream *s)
{
    return (s->least < CHUNK ? s->least : CHUNK) / 2;
}

/* Makes room after the window, for a window of `bytes` in all if that is more than a chunk. */
static mr_code make_room(mr__byte_stream *s, size_t bytes, mr_status *st)
{
    size_t unread = (size_t)(s->end - s->at), capacity = bytes > s->least ? bytes : s->least;
    if (bytes > s->least / PER_CHUNK && bytes < CHUNK_MAX)
        capacity = bytes * PER_CHUNK < CHUNK_MAX ? bytes * PER_CHUNK : CHUNK_MAX;
    if (s->chunk) {
        /* No view can refer to bytes after the window. */
        size_t room = (size_t)(buffer_end(s->chunk) - s->end);
        if (room >= least_room(s) && unread + room >= bytes)
            return MR_OK;
        /* Reading into two small chunks alternately is faster than into one again
         * (bench/tfrecord.c); large chunks are not pooled. */
        bool again = s->slots || capacity > CHUNK_MAX;
        if (again && mr_buffer_writable(s->chunk) && mr_buffer_size(s->chunk) >= capacity) {
            uint8_t *start = mr_buffer_data(s->chunk);
            if (unread)
                memmove(start, s->at, unread);
            set_window(s, start, start + unread);
            return MR_OK;
        }
    }
    mr_buffer *fresh = s->slots ? s->slots->take(s->slots->ctx, capacity) : NULL;
    if (!fresh)
        MR_TRY(mr_buffer_alloc(&fresh, capacity, st));
    uint8_t *start = mr_buffer_data(fresh);
    if (unread)
        memcpy(start, s->at, unread);
    set_window(s, start, start + unread);
    mr_buffer_unref(s->chunk);
    s->chunk = fresh;
    return MR_OK;
}

/* Makes a slot with n bytes at data the chunk, or appends its bytes to the window. Takes slot. */
static mr_code take_slot(mr__byte_stream *s, mr_buffer *slot, uint8_t *data, size_t n,
                         mr_status *st)
{
    size_t unread = (size_t)(s->end - s->at);
    if (unread <= MR__READ_HEADROOM) {
        if (unread)
            memcpy(data - unread, s->at, unread);
        set_window(s, data - unread, data + n);
        mr_buffer_unref(s->chunk);
        s->chunk = slot;
        return MR_OK;
    }
    mr_code rc = MR_OK;
    if ((size_t)(buffer_end(s->chunk) - s->end) < n)
        rc = make_room(s, unread + n, st);
    if (rc == MR_OK) {
        memcpy(s->end, data, n);
        s->end += n;
    }
    mr_buffer_unref(slot);
    return rc;
}

static mr_code add_plain(mr__byte_stream *s, mr_status *st)
{
    mr_buffer *slot = NULL;
    uint8_t *data = NULL;
    size_t got = 0;
    mr_code rc = mr__read_ahead_next(s->source, s->end, (size_t)(piece_end(s) - s->end), &slot,
                                     &data, &got, st);
    if (rc != MR_OK)
        return rc;
    if (slot)
        return take_slot(s, slot, data, got, st);
    s->end += got;
    return MR_OK;
}

/* Reads more compressed bytes; the previous ones are used up. */
static mr_code add_packed(mr__byte_stream *s, mr_status *st)
{
    mr_buffer *slot = NULL;
    uint8_t *data = NULL;
    size_t got = 0;
    mr_code rc = MR_OK;
    if (!s->packed || mr_buffer_size(s->packed) < PACKED)
        rc = mr_buffer_alloc(&s->packed, PACKED, st);
    if (rc == MR_OK)
        rc = mr__read_ahead_next(s->source, mr_buffer_data(s->packed), PACKED, &slot, &data, &got,
                                 st);
    if (rc != MR_OK)
        return rc;
    if (slot) {
        mr_buffer_unref(s->packed);
        s->packed = slot;
    } else
        data = mr_buffer_data(s->packed);
    s->packed_at = data;
    s->packed_end = data + got;
    return MR_OK;
}

/* After the end of the compressed stream: reports bytes that follow it. Does not wait for a
 * pipe. */
static mr_code check_end(mr__byte_stream *s, mr_status *st)
{
    if (s->packed_at == s->packed_end && !s->source_ended && mr__read_ahead_seekable(s->source)) {
        mr_code rc = add_packed(s, st);
        if (rc < MR_OK)
            return rc;
        s->source_ended = rc == MR_END;
    }
    if (s->packed_at == s->packed_end)
        return MR_END;
    const char *name = mr_compression_name(s->compression);
    if (s->strict)
        return mr_fail(
            st, MR_DATA_LOSS,
            "bytes follow the end of the %s stream; only the first of several streams is read",
            name);
    mr_log(MR_LOG_WARNING, "%s: data after the end of its %s stream is ignored", s->path, name);
    return MR_END;
}

static mr_code add_decoded(mr__byte_stream *s, mr_status *st)
{
    uint8_t *room_end = piece_end(s), *before = s->end;
    mr_code rc = MR_OK;
    while (rc == MR_OK && s->end < room_end) {
        if (s->packed_at == s->packed_end && !s->source_ended) {
            rc = add_packed(s, st);
            if (rc == MR_END) {
                s->source_ended = true;
                rc = MR_OK;
            }
            if (rc != MR_OK)
                break;
        }
        mr__codec_io io = {s->packed_at, (size_t)(s->packed_end - s->packed_at), s->end,
                           (size_t)(room_end - s->end)};
        rc = s->codec->class_->step(s->codec, &io, s->source_ended, st);
        s->packed_at = s->packed_end - io.n_in;
        s->end = io.out;
    }
    if (rc == MR_END)
        rc = check_end(s, st);
    if (s->end > before && rc == MR_END) {
        s->ended = true;
        return MR_OK;
    }
    return rc;
}

mr_code mr__byte_stream_fill(mr__byte_stream *s, size_t need, mr_status *st)
{
    size_t had = (size_t)(s->end - s->at);
    if (s->size >= 0) {
        int64_t left = s->size - mr__byte_stream_offset(s);
        if (left < 0 || need > (size_t)left)
            need = left < 0 ? 0 : (size_t)left;
    }
    while (!s->ended && s->failure.code == MR_OK) {
        size_t unread = (size_t)(s->end - s->at), bytes = need;
        if (unread > had && unread >= need)
            return MR_OK;
        /* If the size of the file is unknown, a large need is granted in steps. */
        if (s->size < 0 && bytes > CHUNK && bytes / 2 > unread)
            bytes = unread > CHUNK / 2 ? 2 * unread : CHUNK;
        if (bytes <= unread)
            bytes = unread + 1;
        mr_code rc = make_room(s, bytes, &s->failure);
        if (rc == MR_OK)
            rc = s->codec ? add_decoded(s, &s->failure) : add_plain(s, &s->failure);
        if (rc == MR_END)
            s->ended = true;
        mr_status_at(&s->failure, s->path, -1, -1);
    }
    mr_code rc = s->failure.code == MR_OK ? MR_END : s->failure.code;
    bool more = (size_t)(s->end - s->at) > had;
    if (!more && rc != MR_END && st)
        *st = s->failure;
    if (rc == MR_CANCELLED) /* the next fill continues */
        s->failure.code = MR_OK;
    return more ? MR_OK : rc;
}

static bool may_extend(const mr__byte_stream *s)
{
    return s->least > CHUNK && !s->codec && !s->ended && s->failure.code == MR_OK &&
           (size_t)(buffer_end(s->chunk) - s->end) >= least_room(s);
}

size_t mr__byte_stream_within(const mr__byte_stream *s)
{
    return (size_t)((may_extend(s) ? buffer_end(s->chunk) : s->end) - s->at);
}

bool mr__byte_stream_extend(mr__byte_stream *s)
{
    if (!may_extend(s))
        return false;
    size_t got = mr__read_ahead_cached(s->source, s->end, (size_t)(piece_end(s) - s->end));
    s->end += got;
    return got > 0;
}

mr_code mr__byte_stream_scan(mr__byte_stream *s, uint64_t bytes,
                             void (*see)(void *ctx, const uint8_t *p, size_t n), void *ctx,
                             mr_status *st)
{
    size_t unread = (size_t)(s->end - s->at);
    int64_t stands = mr__byte_stream_offset(s) + (int64_t)unread;
    mr_buffer *room = NULL;
    mr_code rc = mr_buffer_alloc(&room, CHUNK, st);
    see(ctx, s->at, unread < bytes ? unread : (size_t)bytes);
    for (uint64_t left = bytes - (unread < bytes ? unread : bytes); left && rc == MR_OK;) {
        mr_buffer *slot = NULL;
        uint8_t *data = NULL;
        size_t got = 0;
        rc = mr__read_ahead_next(s->source, mr_buffer_data(room), CHUNK, &slot, &data, &got, st);
        if (rc != MR_OK)
            break;
        got = got < left ? got : (size_t)left;
        see(ctx, slot ? data : mr_buffer_data(room), got);
        mr_buffer_unref(slot);
        left -= got;
    }
    mr_buffer_unref(room);
    mr_code back = mr__read_ahead_seek(s->source, stands, rc < MR_OK ? NULL : st);
    return rc != MR_OK ? rc : back;
}

/* Restarts a compressed file at its first byte. */
static mr_code restart(mr__byte_stream *s, mr_status *st)
{
    mr__codec *fresh = NULL;
    mr_code rc = mr__read_ahead_seek(s->source, 0, st);
    if (rc == MR_OK)
        rc = mr__codec_decode_open(&fresh, s->compression, st);
    if (rc != MR_OK)
        return rc;
    mr__codec_close(s->codec);
    s->codec = fresh;
    s->packed_at = s->packed_end = &nothing;
    s->source_ended = false;
    return MR_OK;
}

mr_code mr__byte_stream_seek(mr__byte_stream *s, int64_t offset, mr_status *st)
{
    if (offset < 0 || (s->size >= 0 && offset > s->size)) {
        mr_code rc =
            mr_fail(st, MR_OUT_OF_RANGE, "cannot resume at byte %lld of a file of %lld bytes",
                    (long long)offset, (long long)s->size);
        mr_status_at(st, s->path, -1, -1);
        return rc;
    }
    bool jump = !s->codec && mr__read_ahead_seekable(s->source);
    if (jump || offset < mr__byte_stream_offset(s)) {
        mr_code rc = s->codec ? restart(s, st) : mr__read_ahead_seek(s->source, offset, st);
        if (rc != MR_OK)
            return rc;
        if (s->chunk && !mr_buffer_writable(s->chunk)) {
            /* Views refer to the bytes that would be overwritten. */
            mr_buffer_unref(s->chunk);
            s->chunk = NULL;
            s->base = &nothing;
        }
        s->at = s->end = s->base;
        s->offset = s->codec ? 0 : offset;
        s->ended = false;
        mr_status_init(&s->failure);
    }
    while (mr__byte_stream_offset(s) < offset) {
        int64_t missing = offset - mr__byte_stream_offset(s);
        if (s->end - s->at > missing) {
            s->at += missing;
            break;
        }
        s->at = s->end;
        if (mr__byte_stream_offset(s) == offset)
            break;
        mr_code rc = mr__byte_stream_fill(s, 1, st);
        if (rc == MR_END) {
            rc = mr_fail(st, MR_OUT_OF_RANGE, "cannot resume at byte %lld: the file ends before it",
                         (long long)offset);
            mr_status_at(st, s->path, -1, -1);
        }
        if (rc != MR_OK)
            return rc;
    }
    return MR_OK;
}
