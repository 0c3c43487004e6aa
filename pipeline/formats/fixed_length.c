/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/fixed_length.h"

#include <inttypes.h>

#include "pipeline/formats/byte_stream.h"

struct mr_fixed_length_reader {
    mr__byte_stream in;
    mr_fixed_length_opts opts;
    int64_t body_end; /* offset behind the last record; -1: known only at the end */
    int64_t record;
    bool ended;
};

static mr_code bad_size(const mr_fixed_length_reader *r, mr_code code, int64_t size, mr_status *st)
{
    const mr_fixed_length_opts *o = &r->opts;
    int64_t around, body;
    if (__builtin_add_overflow(o->header_bytes, o->footer_bytes, &around))
        around = INT64_MAX;
    body = size - around; /* neither is negative */
    return mr_fail(st, code,
                   "the file has %" PRId64 " bytes: header %" PRId64 ", footer %" PRId64
                   " and a body of %" PRId64
                   ", which is not a multiple of the record length %" PRId64,
                   size, o->header_bytes, o->footer_bytes, body, o->record_bytes);
}

static mr_code check(mr_fixed_length_reader *r, mr_status *st)
{
    const mr_fixed_length_opts *o = &r->opts;
    r->body_end = -1;
    if (r->in.size < 0)
        return MR_OK;
    int64_t body = r->in.size - o->header_bytes;
    body = body < 0 ? -1 : body - o->footer_bytes;
    if (body < 0 || body % o->record_bytes != 0) {
        bad_size(r, MR_INVALID_ARGUMENT, r->in.size, st);
        mr_status_at(st, r->in.path, -1, -1);
        return MR_INVALID_ARGUMENT;
    }
    r->body_end = o->header_bytes + body;
    return mr__byte_stream_seek(&r->in, o->header_bytes, st);
}

mr_code mr_fixed_length_reader_open(mr_fixed_length_reader **out, const char *path,
                                    const mr_fixed_length_opts *opts, mr_status *st)
{
    if (opts->record_bytes < 1 || opts->header_bytes < 0 || opts->footer_bytes < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a record length of at least 1 and no negative header or footer, "
                       "found record %" PRId64 ", header %" PRId64 ", footer %" PRId64,
                       opts->record_bytes, opts->header_bytes, opts->footer_bytes);
    mr_fixed_length_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a record reader");
    r->opts = *opts;
    mr_code rc = mr__byte_stream_open(&r->in, path, &opts->file, st);
    if (rc == MR_OK)
        rc = check(r, st);
    if (rc != MR_OK) {
        mr_fixed_length_reader_close(r);
        return rc;
    }
    *out = r;
    return MR_OK;
}

void mr_fixed_length_reader_close(mr_fixed_length_reader *r)
{
    if (!r)
        return;
    mr__byte_stream_close(&r->in);
    mr_free(r);
}

static mr_code give_up(mr_fixed_length_reader *r, mr_code rc, mr_status *st)
{
    r->ended = true;
    mr_status_at(st, r->in.path, mr__byte_stream_offset(&r->in), r->record);
    return rc;
}

/* Whole records in the window, leaving alone what may be the footer. */
static size_t whole_records(const mr_fixed_length_reader *r)
{
    int64_t there = r->in.end - r->in.at;
    if (r->body_end < 0)
        there -= r->opts.footer_bytes;
    else if (there > r->body_end - mr__byte_stream_offset(&r->in))
        there = r->body_end - mr__byte_stream_offset(&r->in);
    return there < 0 ? 0 : (size_t)(there / r->opts.record_bytes);
}

/* Gets more where no whole record is there. */
static mr_code more(mr_fixed_length_reader *r, mr_status *st)
{
    int64_t at = mr__byte_stream_offset(&r->in), need = r->opts.record_bytes;
    if (r->body_end >= 0 && at >= r->body_end) {
        r->ended = true;
        return MR_END;
    }
    if (r->body_end < 0 && at < r->opts.header_bytes) { /* a compressed file's header */
        mr_code rc = mr__byte_stream_seek(&r->in, r->opts.header_bytes, st);
        if (rc == MR_OUT_OF_RANGE)
            rc = bad_size(r, MR_DATA_LOSS, mr__byte_stream_offset(&r->in), st);
        return rc == MR_OK ? rc : give_up(r, rc, st);
    }
    if (r->body_end < 0 && __builtin_add_overflow(need, r->opts.footer_bytes, &need))
        need = INT64_MAX;
    mr_code rc = mr__byte_stream_fill(&r->in, (size_t)need, st);
    if (rc == MR_OK)
        return MR_OK;
    if (rc != MR_END)
        return give_up(r, rc, st);
    int64_t left = r->in.end - r->in.at;
    if (r->body_end < 0 && left == r->opts.footer_bytes) {
        r->ended = true;
        return MR_END;
    }
    return give_up(r, bad_size(r, MR_DATA_LOSS, at + left, st), st);
}

mr_code mr_fixed_length_reader_read(mr_fixed_length_reader *r, size_t want, size_t max_bytes,
                                    mr_array *out, mr_status *st)
{
    size_t n = 0, size = (size_t)r->opts.record_bytes;
    if (r->ended)
        return MR_END;
    for (;;) {
        bool in_header = r->body_end < 0 && mr__byte_stream_offset(&r->in) < r->opts.header_bytes;
        n = in_header ? 0 : whole_records(r);
        if (n)
            break;
        MR_TRY(more(r, st));
    }
    size_t fit = max_bytes / size ? max_bytes / size : 1;
    n = n < fit ? n : fit;
    n = n < want ? n : want;
    mr_array a = {0};
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, n, st));
    mr_code rc = mr_buffer_hold(a.owner, r->in.chunk, st);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    mr_bytes *views = a.data;
    for (size_t i = 0; i < n; i++)
        views[i] = (mr_bytes){(const char *)r->in.at + i * size, size};
    r->in.at += n * size;
    r->record += (int64_t)n;
    *out = a;
    return MR_OK;
}

void mr_fixed_length_reader_position(const mr_fixed_length_reader *r, mr_file_position *out)
{
    out->offset = mr__byte_stream_offset(&r->in);
    out->record = r->record;
    out->ended = r->ended;
}

mr_code mr_fixed_length_reader_seek(mr_fixed_length_reader *r, const mr_file_position *to,
                                    mr_status *st)
{
    if (!to->ended)
        MR_TRY(mr__byte_stream_seek(&r->in, to->offset, st));
    r->record = to->record;
    r->ended = to->ended;
    return MR_OK;
}
