/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of files with records of fixed length. */
#include <inttypes.h>

#include "pipeline/formats/format.h"

enum { SKIP_ROWS = 1 << 12, SKIP_BYTES = 1 << 20 };

typedef struct fixed_length_reader {
    mr_reader base;
    mr_fixed_length_opts opts;
    int64_t body_end; /* offset after the last record; -1: unknown until the end */
} fixed_length_reader;

static mr_code bad_size(const fixed_length_reader *f, mr_code code, int64_t size, mr_status *st)
{
    const mr_fixed_length_opts *o = &f->opts;
    int64_t around, body;
    if (__builtin_add_overflow(o->header_bytes, o->footer_bytes, &around))
        around = INT64_MAX;
    body = size - around; /* neither is negative */
    if (body < 0)
        return mr_fail(st, code,
                       "the file has %" PRId64 " bytes, too few for the header of %" PRId64
                       " and the footer of %" PRId64 ", even without records",
                       size, o->header_bytes, o->footer_bytes);
    return mr_fail(st, code,
                   "the file has %" PRId64 " bytes: header %" PRId64 ", footer %" PRId64
                   " and a body of %" PRId64
                   ", which is not a multiple of the record length %" PRId64,
                   size, o->header_bytes, o->footer_bytes, body, o->record_bytes);
}

/* Checks the size of the file, if it is known, before any record. */
static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    fixed_length_reader *f = (fixed_length_reader *)r;
    static const mr_fixed_length_opts none;
    const mr_fixed_length_opts *o = own ? own : &none;
    if (o->record_bytes < 1 || o->header_bytes < 0 || o->footer_bytes < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a record length of at least 1 and no negative header or footer, "
                       "found record %" PRId64 ", header %" PRId64 ", footer %" PRId64,
                       o->record_bytes, o->header_bytes, o->footer_bytes);
    f->opts = *o;
    f->body_end = -1;
    if (r->in.size < 0)
        return MR_OK;
    int64_t body = r->in.size - o->header_bytes;
    body = body < 0 ? -1 : body - o->footer_bytes;
    if (body < 0 || body % o->record_bytes != 0) {
        bad_size(f, MR_INVALID_ARGUMENT, r->in.size, st);
        mr_status_at(st, r->in.path, -1, -1);
        return MR_INVALID_ARGUMENT;
    }
    f->body_end = o->header_bytes + body;
    return mr__byte_stream_seek(&r->in, o->header_bytes, st);
}

/* Whole records in the window, without bytes that may be the footer. */
static size_t whole_records(const fixed_length_reader *f)
{
    const mr__byte_stream *in = &f->base.in;
    int64_t there = in->end - in->at;
    if (f->body_end < 0)
        there -= f->opts.footer_bytes;
    else if (there > f->body_end - mr__byte_stream_offset(in))
        there = f->body_end - mr__byte_stream_offset(in);
    return there < 0 ? 0 : (size_t)(there / f->opts.record_bytes);
}

/* If the size is unknown, the header is read and dropped instead of seeking past it. */
static bool in_header(const fixed_length_reader *f)
{
    return f->body_end < 0 && mr__byte_stream_offset(&f->base.in) < f->opts.header_bytes;
}

static mr_code skip_header(fixed_length_reader *f, mr_status *st)
{
    mr_reader *r = &f->base;
    mr_code rc = mr__byte_stream_seek(&r->in, f->opts.header_bytes, st);
    if (rc == MR_OUT_OF_RANGE)
        rc = bad_size(f, MR_DATA_LOSS, mr__byte_stream_offset(&r->in), st);
    return rc == MR_OK ? rc : mr__reader_give_up(r, rc, st);
}

/* Reads more until a whole record is in the window. */
static mr_code more(fixed_length_reader *f, mr_status *st)
{
    mr_reader *r = &f->base;
    int64_t at = mr__byte_stream_offset(&r->in), need = f->opts.record_bytes;
    if (f->body_end >= 0 && at >= f->body_end) {
        r->ended = true;
        return MR_END;
    }
    if (f->body_end < 0 && __builtin_add_overflow(need, f->opts.footer_bytes, &need))
        need = INT64_MAX;
    mr_code rc = mr__byte_stream_fill(&r->in, (size_t)need, st);
    if (rc == MR_OK)
        return MR_OK;
    if (rc != MR_END)
        return mr__reader_give_up(r, rc, st);
    int64_t left = r->in.end - r->in.at;
    if (f->body_end < 0 && left == f->opts.footer_bytes) {
        r->ended = true;
        return MR_END;
    }
    return mr__reader_give_up(r, bad_size(f, MR_DATA_LOSS, at + left, st), st);
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    fixed_length_reader *f = (fixed_length_reader *)r;
    size_t n, size = (size_t)f->opts.record_bytes;
    while (in_header(f))
        MR_TRY(skip_header(f, st));
    while ((n = whole_records(f)) == 0)
        MR_TRY(more(f, st));
    size_t fit = max_bytes / size ? max_bytes / size : 1;
    n = n < fit ? n : fit;
    n = n < want ? n : want;
    mr_array a = {0};
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, n, st));
    mr_bytes *views = a.data;
    for (size_t i = 0; i < n; i++)
        views[i] = (mr_bytes){(const char *)r->in.at + i * size, size};
    MR_TRY(mr__reader_emit(r, &a, n, out, st));
    r->in.at += n * size;
    r->record += (int64_t)n;
    return MR_OK;
}

static mr_code skip(mr_reader *r, int64_t n, int64_t *skipped, mr_status *st)
{
    const fixed_length_reader *f = (fixed_length_reader *)r;
    int64_t size = f->opts.record_bytes, at = mr__byte_stream_offset(&r->in);
    while (f->body_end < 0 && *skipped < n) { /* there may be an end before */
        mr_array a = {0};
        int64_t left = n - *skipped;
        mr_code rc =
            mr_reader_read(r, left < SKIP_ROWS ? (size_t)left : SKIP_ROWS, SKIP_BYTES, &a, st);
        *skipped += (int64_t)a.rows;
        mr_array_reset(&a);
        if (rc != MR_OK)
            return rc == MR_END ? MR_OK : rc;
    }
    if (f->body_end < 0)
        return MR_OK;
    int64_t left = (f->body_end - at) / size;
    n = n < left ? n : left;
    MR_TRY(mr__byte_stream_seek(&r->in, at + n * size, st));
    r->record += n;
    *skipped = n;
    return MR_OK;
}

const mr_format mr_format_fixed_length = {
    .reader_size = sizeof(fixed_length_reader), .start = start, .read = read, .skip = skip};
