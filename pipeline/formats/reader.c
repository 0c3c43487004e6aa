/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/reader.h"

#include <string.h>

#include "pipeline/formats/format.h"

enum { SKIP_ROWS = 4096, SKIP_BYTES = 1 << 20, PIECEWISE = 1 << 20, MOST_UNREAD = 1 << 30 };

mr_code mr_reader_open(mr_reader **out, const mr_format *format, const char *path,
                       const mr_file_opts *opts, mr_status *st)
{
    static const mr_file_opts none;
    opts = opts ? opts : &none;
    mr_reader *r = mr_calloc(1, format->reader_size);
    if (!r)
        return mr_fail_memory(st, format->reader_size, "a file reader");
    r->format = format;
    r->strict = opts->strict;
    mr_code rc = mr__byte_stream_open(&r->in, path, opts, st);
    if (rc == MR_OK && format->start)
        rc = format->start(r, opts->own, st);
    if (rc != MR_OK) {
        mr_reader_close(r);
        return rc;
    }
    *out = r;
    return MR_OK;
}

void mr_reader_close(mr_reader *r)
{
    if (!r)
        return;
    if (r->format->stop)
        r->format->stop(r);
    mr__byte_stream_close(&r->in);
    mr_buffer_unref(r->path);
    mr_free(r);
}

mr_code mr__reader_keep_path(mr_reader *r, mr_status *st)
{
    size_t size = strlen(r->in.path) + 1;
    MR_TRY(mr_buffer_alloc(&r->path, size, st));
    memcpy(mr_buffer_data(r->path), r->in.path, size);
    return MR_OK;
}

void mr__reader_set_origin(const mr_reader *r, mr__origin_window *w, const uint8_t *first,
                           const void *(*record_of)(const void *at, const void *p, int64_t *n))
{
    const mr__byte_stream *in = &r->in;
    if (w->chunk == in->chunk && w->start == in->base && w->offset == in->offset)
        return;
    *w = (mr__origin_window){in->chunk, in->base, in->offset};
    const mr_origin o = {.path = r->path,
                         .at = first,
                         .offset = mr__byte_stream_offset(in) - (in->at - first),
                         .record = r->record,
                         .record_of = record_of};
    mr_buffer_set_origin(in->chunk, &o);
}

mr_code mr__reader_give_up(mr_reader *r, mr_code rc, mr_status *st)
{
    r->ended = rc != MR_CANCELLED; /* after which the next read may continue */
    mr_status_at(st, r->in.path, mr__byte_stream_offset(&r->in), r->record);
    return rc;
}

mr_code mr__reader_widen(mr_reader *r, const char *too_long, bool *tail, mr_status *st)
{
    size_t unread = (size_t)(r->in.end - r->in.at);
    /* What is there may complete the line, and a pipe bring no more for long. Long lines are not
     * searched again for each piece. */
    size_t need = unread < PIECEWISE ? unread + 1 : 2 * unread;
    mr_code rc = unread > MOST_UNREAD ? mr_fail(st, MR_RESOURCE_EXHAUSTED, "%s", too_long)
                                      : mr__byte_stream_fill(&r->in, need, st);
    *tail = rc == MR_END;
    return rc < MR_OK ? mr__reader_give_up(r, rc, st) : MR_OK;
}

mr_code mr__reader_emit(const mr_reader *r, mr_array *a, size_t rows, mr_array *out, mr_status *st)
{
    mr_code rc = mr_buffer_hold(a->owner, r->in.chunk, st);
    if (rc != MR_OK) {
        mr_array_reset(a);
        return rc;
    }
    a->rows = rows;
    *out = *a;
    return MR_OK;
}

mr_code mr_reader_read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    return r->ended ? MR_END : r->format->read(r, want, max_bytes, out, st);
}

mr_code mr_reader_skip(mr_reader *r, int64_t n, int64_t *skipped, mr_status *st)
{
    *skipped = 0;
    if (r->format->skip)
        return r->ended ? MR_OK : r->format->skip(r, n, skipped, st);
    while (*skipped < n) {
        mr_array a = {0};
        int64_t left = n - *skipped;
        mr_code rc =
            mr_reader_read(r, left < SKIP_ROWS ? (size_t)left : SKIP_ROWS, SKIP_BYTES, &a, st);
        if (rc != MR_OK)
            return rc == MR_END ? MR_OK : rc;
        *skipped += (int64_t)a.rows;
        mr_array_reset(&a);
    }
    return MR_OK;
}

void mr_reader_position(const mr_reader *r, mr_file_position *out)
{
    out->offset = r->has_place ? r->place : mr__byte_stream_offset(&r->in);
    out->record = r->record;
    out->ended = r->ended;
}

mr_code mr_reader_seek(mr_reader *r, const mr_file_position *to, mr_status *st)
{
    if (!to->ended)
        MR_TRY(r->format->seek ? r->format->seek(r, to, st)
                               : mr__byte_stream_seek(&r->in, to->offset, st));
    if (r->format->moved)
        r->format->moved(r);
    r->record = to->record;
    r->ended = to->ended;
    return MR_OK;
}

mr_compression mr_reader_compression(const mr_reader *r)
{
    return r->in.compression;
}
