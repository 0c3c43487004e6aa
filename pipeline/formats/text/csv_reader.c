/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/text/csv_reader.h"

#include <string.h>

#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/formats/text/line_ends.h"

typedef struct csv_reader {
    mr_reader base;
    char sep;
    bool tail;      /* the window reaches to the end of the file */
    size_t typical; /* bytes of a row in the last call; 0: unknown */
} csv_reader;

/* Position after the quoted field that begins at p; NULL: it does not end before `end`. */
static const char *after_quotes(const char *p, const char *end)
{
    for (p++; (p = memchr(p, '"', (size_t)(end - p))); p += 2)
        if (p + 1 == end || p[1] != '"')
            return p + 1;
        else if (p + 2 >= end)
            return NULL;
    return NULL;
}

const char *mr__csv_field(const char **at, const char *end, char sep, mr_bytes *out, bool *doubled)
{
    const char *p = *at, *stop;
    *doubled = false;
    if (p < end && *p == '"') {
        stop = after_quotes(p, end);
        if (!stop)
            return "its closing quote is missing";
        if (stop < end && *stop != sep)
            return "text follows its closing quote; a quote within quotes is written twice";
        *out = (mr_bytes){p + 1, (size_t)(stop - p) - 2};
        *doubled = memchr(out->data, '"', out->size) != NULL;
        *at = stop == end ? NULL : stop + 1;
        return NULL;
    }
    stop = p < end ? memchr(p, sep, (size_t)(end - p)) : NULL;
    *out = (mr_bytes){p, (size_t)((stop ? stop : end) - p)};
    *at = stop ? stop + 1 : NULL;
    return NULL;
}

/* End of the row that begins at p, at the line end; NULL: more bytes are needed. *feed: as for
 * mr__line_end. */
static const char *row_end(const csv_reader *c, const char *p, const char *end, const char **feed)
{
    const char *line = mr__whole_line_end(p, end, feed);
    const char *stop = line ? line : end;
    if (p == stop || !memchr(p, '"', (size_t)(stop - p)))
        return line;
    for (;;) { /* p: start of a field */
        const char *from = p;
        if (p < end && *p == '"' && !(from = after_quotes(p, end)))
            return NULL;
        while (from < end && *from != '\n' && *from != '\r' && *from != c->sep)
            from++;
        if (from == end || *from != c->sep)
            return from == end || (*from == '\r' && from + 1 == end) ? NULL : from;
        p = from + 1;
    }
}

/* The same for the last row of a file. */
static const char *last_end(const char *p, const char *end)
{
    return end > p && end[-1] == '\r' ? end - 1 : end;
}

static size_t split(csv_reader *c, mr_bytes *views, size_t max_rows, size_t max_bytes)
{
    mr__byte_stream *in = &c->base.in;
    const char *end = (const char *)in->end, *feed = NULL;
    size_t rows = 0, bytes = 0;
    while (rows < max_rows && in->at < in->end && (rows == 0 || bytes < max_bytes)) {
        const char *at = (const char *)in->at, *stop = row_end(c, at, end, &feed);
        if (!stop && !c->tail)
            break;
        stop = stop ? stop : last_end(at, end);
        views[rows] = (mr_bytes){at, (size_t)(stop - at)};
        bytes += views[rows++].size;
        in->at += mr__line_next(stop, end) - at;
    }
    return rows;
}

static bool has_row(const csv_reader *c)
{
    const mr__byte_stream *in = &c->base.in;
    const char *feed = NULL;
    return c->tail || row_end(c, (const char *)in->at, (const char *)in->end, &feed);
}

static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    (void)st;
    ((csv_reader *)r)->sep = ((const mr__csv_opts *)own)->sep;
    return MR_OK;
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    csv_reader *c = (csv_reader *)r;
    mr_array a = {0};
    MR_TRY(mr__skip_byte_order_mark(r, st));
    c->tail = false; /* a seek may have happened since */
    while (!has_row(c))
        MR_TRY(mr__reader_widen(r, "a row is longer than 1 GiB; does a quoted field not end?",
                                &c->tail, st));
    if (r->in.at == r->in.end) {
        r->ended = true;
        return MR_END;
    }
    size_t n = (size_t)(r->in.end - r->in.at) / (c->typical ? c->typical : 16);
    n += n / 4 + 4;
    n = n < want ? n : want;
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, n, st));
    uint8_t *first = r->in.at;
    size_t rows = split(c, a.data, n, max_bytes);
    c->typical = (size_t)(r->in.at - first) / rows;
    mr_code rc = mr__reader_emit(r, &a, rows, out, st);
    if (rc == MR_OK)
        r->record += (int64_t)rows;
    else
        r->in.at = first; /* nothing was read: the caller may try again */
    return rc;
}

const mr_format mr__format_csv = {.reader_size = sizeof(csv_reader), .start = start, .read = read};
