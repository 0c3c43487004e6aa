/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/text_line.h"

#include <string.h>

#include "pipeline/formats/byte_stream.h"

#define MAX_LINE ((size_t)1 << 30)

struct mr_text_line_reader {
    mr__byte_stream in;
    int64_t record;
    bool ended;
    size_t typical; /* bytes of a line in the last call */
};

mr_code mr_text_line_reader_open(mr_text_line_reader **out, const char *path,
                                 const mr_file_opts *opts, mr_status *st)
{
    mr_text_line_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a line reader");
    mr_code rc = mr__byte_stream_open(&r->in, path, opts, st);
    if (rc != MR_OK) {
        mr_free(r);
        return rc;
    }
    r->typical = 16;
    *out = r;
    return MR_OK;
}

void mr_text_line_reader_close(mr_text_line_reader *r)
{
    if (!r)
        return;
    mr__byte_stream_close(&r->in);
    mr_free(r);
}

static mr_code give_up(mr_text_line_reader *r, mr_code rc, mr_status *st)
{
    r->ended = true;
    mr_status_at(st, r->in.path, mr__byte_stream_offset(&r->in), r->record);
    return rc;
}

/* Takes the \r out of a line, in place: the chunk is the reader's until the line is handed out, and
 * views handed out before show other bytes of it. Returns the new length. */
static size_t drop_returns(uint8_t *line, size_t n)
{
    uint8_t *from = n ? memchr(line, '\r', n) : NULL;
    if (!from)
        return n;
    uint8_t *to = from;
    for (; from < line + n; from++)
        if (*from != '\r')
            *to++ = *from;
    return (size_t)(to - line);
}

/* Lines that are whole in the window, up to max_rows and max_bytes. */
static size_t split(mr_text_line_reader *r, mr_bytes *views, size_t max_rows, size_t max_bytes)
{
    size_t rows = 0, bytes = 0;
    while (rows < max_rows && (rows == 0 || bytes < max_bytes)) {
        size_t unread = (size_t)(r->in.end - r->in.at);
        uint8_t *stop = unread ? memchr(r->in.at, '\n', unread) : NULL;
        if (!stop)
            break;
        size_t n = drop_returns(r->in.at, (size_t)(stop - r->in.at));
        views[rows++] = (mr_bytes){(const char *)r->in.at, n};
        bytes += n;
        r->in.at = stop + 1;
    }
    return rows;
}

/* Gets the rest of a line; at the end of the file *rows = 1 if one without \n is left. */
static mr_code more(mr_text_line_reader *r, mr_bytes *view, size_t *rows, mr_status *st)
{
    size_t unread = (size_t)(r->in.end - r->in.at);
    if (unread > MAX_LINE)
        return give_up(
            r,
            mr_fail(st, MR_RESOURCE_EXHAUSTED, "a line is longer than 1 GiB; is this a text file?"),
            st);
    mr_code rc = mr__byte_stream_fill(&r->in, 2 * unread + 1, st);
    if (rc == MR_OK)
        return MR_OK;
    if (rc != MR_END)
        return give_up(r, rc, st);
    size_t n = drop_returns(r->in.at, unread);
    if (n == 0) {
        r->ended = true;
        return MR_END;
    }
    *view = (mr_bytes){(const char *)r->in.at, n};
    r->in.at = r->in.end;
    *rows = 1;
    return MR_OK;
}

mr_code mr_text_line_reader_read(mr_text_line_reader *r, size_t want, size_t max_bytes,
                                 mr_array *out, mr_status *st)
{
    mr_array a = {0};
    size_t rows = 0, room = 0;
    mr_code rc = MR_OK;
    if (r->ended)
        return MR_END;
    while (rc == MR_OK && rows == 0) {
        size_t n = (size_t)(r->in.end - r->in.at) / r->typical;
        n += n / 4 + 4;
        n = n < want ? n : want;
        if (n > room) {
            mr_array_reset(&a);
            rc = mr_array_alloc(&a, MR_STRING, 0, NULL, n, st);
            if (rc != MR_OK)
                break;
            room = n;
        }
        uint8_t *first = r->in.at;
        rows = split(r, a.data, room, max_bytes);
        if (rows)
            r->typical = (size_t)(r->in.at - first) / rows;
        else
            rc = more(r, a.data, &rows, st);
    }
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, r->in.chunk, st);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        if (rows) /* no memory to hand them out: they are lost, and so is the rest */
            r->ended = true;
        return rc;
    }
    r->record += (int64_t)rows;
    a.rows = rows;
    *out = a;
    return MR_OK;
}

void mr_text_line_reader_position(const mr_text_line_reader *r, mr_file_position *out)
{
    out->offset = mr__byte_stream_offset(&r->in);
    out->record = r->record;
    out->ended = r->ended;
}

mr_code mr_text_line_reader_seek(mr_text_line_reader *r, const mr_file_position *to, mr_status *st)
{
    if (!to->ended)
        MR_TRY(mr__byte_stream_seek(&r->in, to->offset, st));
    r->record = to->record;
    r->ended = to->ended;
    return MR_OK;
}
