/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of lines of text files. */
#include <string.h>

#include "pipeline/formats/format.h"

typedef struct text_line_reader {
    mr_reader base;
    bool tail;      /* the window reaches to the end of the file */
    size_t typical; /* bytes of a line in the last call; 0: unknown */
} text_line_reader;

/* Removes every \r from a line in place and returns the new length. Until the line is returned only
 * the reader refers to its bytes; views returned before show other bytes of the chunk. */
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

/* Splits complete lines of the window, up to max_rows and max_bytes. */
static size_t split(text_line_reader *t, mr_bytes *views, size_t max_rows, size_t max_bytes)
{
    mr__byte_stream *in = &t->base.in;
    size_t rows = 0, bytes = 0;
    while (rows < max_rows && (rows == 0 || bytes < max_bytes)) {
        size_t unread = (size_t)(in->end - in->at);
        uint8_t *stop = unread ? memchr(in->at, '\n', unread) : NULL;
        if (!stop && !t->tail)
            break;
        size_t n = drop_returns(in->at, stop ? (size_t)(stop - in->at) : unread);
        if (!stop && n == 0)
            break;
        views[rows++] = (mr_bytes){(const char *)in->at, n};
        bytes += n;
        in->at = stop ? stop + 1 : in->end;
    }
    return rows;
}

static bool has_line(const text_line_reader *t)
{
    const mr__byte_stream *in = &t->base.in;
    return t->tail || (in->end > in->at && memchr(in->at, '\n', (size_t)(in->end - in->at)));
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    text_line_reader *t = (text_line_reader *)r;
    mr_array a = {0};
    t->tail = false; /* a seek may have happened since */
    while (!has_line(t))
        MR_TRY(
            mr__reader_widen(r, "a line is longer than 1 GiB; is this a text file?", &t->tail, st));
    if (r->in.at == r->in.end) {
        r->ended = true;
        return MR_END;
    }
    size_t n = (size_t)(r->in.end - r->in.at) / (t->typical ? t->typical : 16);
    n += n / 4 + 4;
    n = n < want ? n : want;
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, n, st));
    /* The chunk is held first: once a \r is removed, the lines cannot be split again. */
    mr_array held = {0};
    MR_TRY(mr__reader_emit(r, &a, 0, &held, st));
    uint8_t *first = r->in.at;
    held.rows = split(t, held.data, n, max_bytes);
    if (held.rows == 0) { /* only \r were left */
        mr_array_reset(&held);
        r->ended = true;
        return MR_END;
    }
    t->typical = (size_t)(r->in.at - first) / held.rows;
    r->record += (int64_t)held.rows;
    *out = held;
    return MR_OK;
}

const mr_format mr_format_text_line = {.reader_size = sizeof(text_line_reader), .read = read};
