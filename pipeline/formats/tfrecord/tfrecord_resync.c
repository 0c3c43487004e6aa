/* SPDX-License-Identifier: Apache-2.0 */
/* The next record after a damaged one begins at its end, if its length is valid and a record (or
 * the end of the file) is there; otherwise at the first place where both checksums match. */
#include "pipeline/formats/tfrecord/tfrecord_resync.h"

#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory_bound.h"

enum { HEAD = 12, FRAMING = 16 };

static bool good_head(const uint8_t *p)
{
    return mr__load_le(p + 8, 4) == mr_crc32c_mask(mr_crc32c(p, 8));
}

static bool good_data(const uint8_t *p, uint64_t size)
{
    return mr__load_le(p + HEAD + size, 4) == mr_crc32c_mask(mr_crc32c(p + HEAD, (size_t)size));
}

/* Extends the window to n bytes, or to all that are left. errors: of reading */
static mr_code ensure(mr_reader *r, size_t n, mr_status *st)
{
    mr_code rc = MR_OK;
    while (rc == MR_OK && (size_t)(r->in.end - r->in.at) < n)
        rc = mr__byte_stream_fill(&r->in, n, st);
    return rc == MR_END ? MR_OK : rc;
}

uint64_t mr__tfrecord_at_once(void)
{
    enum { PART = 64 }; /* a sixteenth of the memory limit */
    uint64_t limited = mr__memory_bound() / PART;
    return limited < MR__TFRECORD_AT_ONCE ? limited : MR__TFRECORD_AT_ONCE;
}

/* Checks the checksum of a record from pieces of it. */
typedef struct check {
    uint64_t skip, data; /* bytes before the data, then bytes of the data, still to come */
    uint32_t crc;
    uint8_t tail[HEAD]; /* bytes after the data */
    size_t n_tail;
} check;

static void see(void *ctx, const uint8_t *p, size_t n)
{
    check *c = ctx;
    size_t part = n < c->skip ? n : (size_t)c->skip;
    c->skip -= part;
    p += part;
    n -= part;
    part = n < c->data ? n : (size_t)c->data;
    c->crc = mr_crc32c_extend(c->crc, p, part);
    c->data -= part;
    memcpy(c->tail + c->n_tail, p + part, n - part);
    c->n_tail += n - part;
}

mr_code mr__tfrecord_scan(mr_reader *r, uint64_t skip, uint64_t data, bool *good, mr_status *st)
{
    check c = {.skip = skip, .data = data};
    MR_TRY(mr__byte_stream_scan(&r->in, skip + data + 4, see, &c, st));
    *good = mr__load_le(c.tail, 4) == mr_crc32c_mask(c.crc);
    return MR_OK;
}

/* So far ahead that it is not in the window and must not be loaded there. */
static bool is_far(const mr_reader *r, uint64_t bytes)
{
    return r->in.size >= 0 && bytes > (uint64_t)(r->in.end - r->in.at) &&
           bytes > mr__tfrecord_at_once();
}

/* Reads the header `from` bytes ahead. MR_END: the file is too short for it. */
static mr_code head_at(mr_reader *r, size_t from, uint8_t head[HEAD], mr_status *st)
{
    check c = {.skip = from};
    if (is_far(r, from + HEAD)) {
        MR_TRY(mr__byte_stream_scan(&r->in, from + HEAD, see, &c, st));
        memcpy(head, c.tail, HEAD);
        return MR_OK;
    }
    MR_TRY(ensure(r, from + HEAD, st));
    if ((size_t)(r->in.end - r->in.at) < from + HEAD)
        return MR_END;
    memcpy(head, r->in.at + from, HEAD);
    return MR_OK;
}

/* Bytes of the record whose header is `from` bytes ahead, with its framing; 0: that is not a
 * header, or the file is too short for it. */
static mr_code framed_size(mr_reader *r, size_t from, uint64_t *out, mr_status *st)
{
    uint8_t head[HEAD];
    *out = 0;
    mr_code rc = head_at(r, from, head, st);
    if (rc == MR_END || (rc == MR_OK && !good_head(head)))
        return MR_OK;
    MR_TRY(rc);
    uint64_t size = mr__load_le(head, 8), left = INT64_MAX / 2;
    if (r->in.size >= 0)
        left = (uint64_t)(r->in.size - mr__byte_stream_offset(&r->in)) - from;
    if (size <= left && size + FRAMING <= left)
        *out = size + FRAMING;
    return MR_OK;
}

/* *out = a record with valid checksums is `from` bytes ahead. */
static mr_code is_record(mr_reader *r, size_t from, bool *out, mr_status *st)
{
    uint64_t size;
    *out = false;
    MR_TRY(framed_size(r, from, &size, st));
    if (size == 0)
        return MR_OK;
    if (is_far(r, from + size)) {
        mr_code rc = mr__tfrecord_scan(r, from + HEAD, size - FRAMING, out, st);
        return rc == MR_END ? MR_OK : rc;
    }
    MR_TRY(ensure(r, from + (size_t)size, st));
    *out =
        (size_t)(r->in.end - r->in.at) >= from + size && good_data(r->in.at + from, size - FRAMING);
    return MR_OK;
}

typedef struct passing {
    const mr_tfrecord_read_opts *o;
    mr_tfrecord_damage d;
} passing;

/* Skips up to n bytes, as far as the file has them. */
static mr_code pass(mr_reader *r, const passing *p, uint64_t n, mr_status *st)
{
    while (n) {
        MR_TRY(ensure(r, 1, st));
        size_t there = (size_t)(r->in.end - r->in.at), part = n < there ? (size_t)n : there;
        if (part == 0)
            return MR_OK;
        if (p->o->bytes)
            MR_TRY(p->o->bytes(p->o->ctx, &p->d, r->in.at, part, st));
        r->in.at += part;
        n -= part;
    }
    return MR_OK;
}

/* *size = distance to the next record by the length of the damaged one; 0: that length is no
 * help. */
static mr_code by_length(mr_reader *r, uint64_t *size, mr_status *st)
{
    bool good;
    MR_TRY(framed_size(r, 0, size, st));
    if (*size == 0 || *size > MR__TFRECORD_AT_ONCE) /* too long to check what follows it */
        return MR_OK;
    size_t from = (size_t)*size;
    uint8_t head[HEAD];
    mr_code rc =
        r->in.size < 0 || (uint64_t)(r->in.size - mr__byte_stream_offset(&r->in)) >= from + HEAD
            ? head_at(r, from, head, st)
            : MR_END;
    size_t there = (size_t)(r->in.end - r->in.at);
    if (rc == MR_END && (r->in.size >= 0 || there >= from))
        return MR_OK; /* the end of the file */
    if (rc != MR_END)
        MR_TRY(rc);
    MR_TRY(is_record(r, from, &good, st));
    if (!good)
        *size = 0;
    return MR_OK;
}

/* Advances to the first place after in.at that has a record. */
static mr_code search(mr_reader *r, const passing *p, mr_status *st)
{
    bool good = false;
    size_t from = 1;
    while (!good) {
        MR_TRY(ensure(r, from + HEAD, st));
        size_t there = (size_t)(r->in.end - r->in.at);
        if (there < from + HEAD)
            return pass(r, p, there, st);
        while (from + HEAD <= there && !good_head(r->in.at + from))
            from++;
        MR_TRY(pass(r, p, from, st));
        from = 0;
        if (r->in.end - r->in.at < HEAD)
            continue; /* the window ended */
        MR_TRY(is_record(r, 0, &good, st));
        from = 1;
    }
    return MR_OK;
}

mr_code mr__tfrecord_resync(mr_reader *r, const mr_tfrecord_read_opts *o, const char *what,
                            mr_status *st)
{
    passing p = {o,
                 {.path = r->in.path,
                  .record = r->record,
                  .offset = mr__byte_stream_offset(&r->in),
                  .end = -1,
                  .what = what}};
    uint64_t size;
    MR_TRY(by_length(r, &size, st));
    MR_TRY(size ? pass(r, &p, size, st) : search(r, &p, st));
    p.d.end = mr__byte_stream_offset(&r->in);
    if (o->skipped)
        MR_TRY(o->skipped(o->ctx, &p.d, st));
    r->record++;
    return MR_OK;
}

/* All of the window was read: damage in it was skipped as above, and p is in a valid record. */
const void *mr__tfrecord_of(const void *at, const void *p, int64_t *n)
{
    const uint8_t *start = at, *end = p;
    for (*n = 0;; ++*n) {
        uint64_t size = mr__load_le(start, 8), ahead = (uint64_t)(end - start);
        bool whole = good_head(start);
        if (whole && size + FRAMING > ahead)
            return start;
        const uint8_t *next = start + FRAMING + size;
        if (whole && (good_data(start, size) || good_head(next))) {
            start = next;
            continue;
        }
        do
            start++;
        while (start < end && !good_head(start));
    }
}
