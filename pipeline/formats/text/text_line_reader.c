/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of lines of text files. */
#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/formats/text/line_ends.h"

typedef struct text_line_reader {
    mr_reader base;
    bool tail;      /* the window reaches to the end of the file */
    size_t typical; /* bytes of a line in the last call; 0: unknown */
    mr__origin_window origin;
} text_line_reader;

/* Counted without finding each line: errors of many lines may ask for it. */
static const void *line_of(const void *at, const void *p, int64_t *n)
{
    const char *first = at, *of = p, *begin = p;
    int64_t ends = 0;
    for (const char *s = first; s < of; s++)
        ends += (*s == '\n') | ((*s == '\r') & (s[1] != '\n'));
    while (begin > first && begin[-1] != '\n' && (begin[-1] != '\r' || *begin == '\n'))
        begin--;
    *n = ends;
    return begin;
}

/* Splits lines of the window, up to max_rows and max_bytes. */
static size_t split(text_line_reader *t, mr_bytes *views, size_t max_rows, size_t max_bytes)
{
    mr__byte_stream *in = &t->base.in;
    const char *end = (const char *)in->end, *feed = NULL;
    size_t rows = 0, bytes = 0;
    while (rows < max_rows && in->at < in->end && (rows == 0 || bytes < max_bytes)) {
        const char *at = (const char *)in->at, *stop = mr__whole_line_end(at, end, &feed);
        if (!stop && !t->tail)
            break;
        if (!stop)
            stop = mr__line_end(at, end, &feed);
        views[rows] = (mr_bytes){at, (size_t)(stop - at)};
        bytes += views[rows++].size;
        in->at += mr__line_next(stop, end) - at;
    }
    return rows;
}

static bool has_line(const text_line_reader *t)
{
    const mr__byte_stream *in = &t->base.in;
    const char *feed = NULL;
    return t->tail || (in->end > in->at &&
                       mr__whole_line_end((const char *)in->at, (const char *)in->end, &feed));
}

static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    (void)own;
    return mr__reader_keep_path(r, st);
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    text_line_reader *t = (text_line_reader *)r;
    mr_array a = {0};
    MR_TRY(mr__skip_byte_order_mark(r, st));
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
    uint8_t *first = r->in.at;
    size_t rows = split(t, a.data, n, max_bytes);
    t->typical = (size_t)(r->in.at - first) / rows;
    mr__reader_set_origin(&t->base, &t->origin, first, line_of);
    mr_code rc = mr__reader_emit(r, &a, rows, out, st);
    if (rc == MR_OK)
        r->record += (int64_t)rows;
    else
        r->in.at = first; /* nothing was read: the caller may try again */
    return rc;
}

const mr_format mr_format_text_line = {
    .reader_size = sizeof(text_line_reader), .start = start, .read = read};
