/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of TFRecord files: views into the chunks of a byte stream. */
#include "pipeline/formats/tfrecord/tfrecord.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline/crc32c.h"
#include "pipeline/formats/format.h"
#include "pipeline/formats/tfrecord/tfrecord_resync.h"
#include "pipeline/formats/tfrecord/tfrecord_walk.h"
#include "pipeline/log.h"

enum { FRAMING = 16 };

typedef struct tfrecord_reader {
    mr_reader base;
    mr__origin_window origin;
    size_t typical; /* bytes of a record with framing, in the last call; 0: unknown */
    mr_tfrecord_read_opts opts;
} tfrecord_reader;

/* Handles the invalid record at in.at. MR_OK: reading continues at the next one. */
static mr_code damaged(mr_reader *r, const char *what, mr_status *st)
{
    const tfrecord_reader *t = (const tfrecord_reader *)r;
    if (t->opts.skip_corrupt) {
        mr_code rc = mr__tfrecord_resync(r, &t->opts, what, st);
        return rc == MR_OK ? rc : mr__reader_give_up(r, rc, st);
    }
    return mr__reader_give_up(
        r, mr_fail(st, MR_DATA_LOSS, "%s; the rest of the file is skipped", what), st);
}

static mr_code corrupted(mr_reader *r, int64_t after, const char *what, mr_status *st)
{
    char text[160];
    snprintf(text, sizeof text,
             "corrupted record at %" PRId64 ": the checksum of its %s does not match%s",
             mr__byte_stream_offset(&r->in) + after, what,
             r->record ? "" : " (is the compression the right one?)");
    return damaged(r, text, st);
}

/* No record header follows: the end of the file, or up to 11 stray bytes. */
static mr_code finish(mr_reader *r, mr_status *st)
{
    ptrdiff_t stray = r->in.end - r->in.at;
    if (stray && r->strict)
        return mr__reader_give_up(
            r,
            mr_fail(st, MR_DATA_LOSS,
                    "truncated record at %" PRId64
                    ": %td bytes follow the last record, but a record has at least %d",
                    mr__byte_stream_offset(&r->in), stray, FRAMING),
            st);
    if (stray)
        mr_log(MR_LOG_WARNING, "%s: the %td bytes after its %" PRId64 " records are not a record",
               r->in.path, stray, r->record);
    r->ended = true;
    return MR_END;
}

static mr_code truncated(mr_reader *r, uint64_t need, mr_status *st)
{
    char text[160];
    int64_t at = mr__byte_stream_offset(&r->in);
    uint64_t there =
        r->in.size >= 0 ? (uint64_t)(r->in.size - at) : (uint64_t)(r->in.end - r->in.at);
    snprintf(text, sizeof text,
             "truncated record at %" PRId64 ": it has %" PRIu64
             " bytes including framing, but the file only %" PRIu64 " more",
             at, need, there);
    return damaged(r, text, st);
}

/* Checks a long record without keeping it; the window does not move. */
static mr_code check_long(mr_reader *r, uint64_t need, mr_status *st)
{
    bool good;
    mr_code rc = mr__tfrecord_scan(r, 12, need - FRAMING, &good, st);
    if (rc == MR_END)
        return truncated(r, need, st);
    if (rc != MR_OK)
        return mr__reader_give_up(r, rc, st);
    return good ? MR_OK : corrupted(r, 12, "data", st);
}

/* The record at in.at is incomplete: reads more of it. MR_END: a clean end. */
static mr_code more(mr_reader *r, uint64_t need, mr_status *st)
{
    int64_t at = mr__byte_stream_offset(&r->in);
    if (need > 12 &&
        ((r->in.size >= 0 && need > (uint64_t)(r->in.size - at)) || need > (uint64_t)INT64_MAX))
        return truncated(r, need, st);
    if (need > mr__tfrecord_at_once() && r->in.size >= 0) {
        MR_TRY(check_long(r, need, st));
        if (mr__byte_stream_offset(&r->in) != at)
            return MR_OK; /* it was damaged and has been skipped */
    }
    mr_code rc = mr__byte_stream_fill(&r->in, (size_t)need, st);
    if (rc == MR_OK)
        return MR_OK;
    if (rc != MR_END)
        return mr__reader_give_up(r, rc, st);
    return need <= 12 ? finish(r, st) : truncated(r, need, st);
}

/* Walks over the records in the window; if that yields no row, reads more or fails. */
static mr_code walk(mr_reader *r, mr__walk *w, mr_status *st)
{
    w->rows = 0;
    w->need = 0;
    w->at = r->in.at;
    w->end = r->in.end;
    mr__walk_end why = mr__tfrecord_walk(w);
    r->in.at += w->at - r->in.at;
    if (w->rows)
        return MR_OK;
    switch (why) {
    case MR__WALK_BAD_LENGTH:
        return corrupted(r, 0, "length", st);
    case MR__WALK_BAD_DATA:
        return corrupted(r, 12, "data", st);
    case MR__WALK_MORE:
    case MR__WALK_FULL:
        break;
    }
    return more(r, w->need, st);
}

/* Continues in the same chunk with data from the page cache: fewer and larger blocks are cheaper to
 * send to another process. Errors there are left to the next call. */
static void walk_on(mr_reader *r, mr__walk *w, const uint8_t *first, size_t max_bytes)
{
    for (;;) {
        size_t had = (size_t)(r->in.at - first) - FRAMING * w->rows;
        if (!w->need || w->rows == w->max_rows || had >= max_bytes ||
            !mr__byte_stream_extend(&r->in))
            return;
        w->need = 0;
        w->max_bytes = max_bytes - had;
        w->at = r->in.at;
        w->end = r->in.end;
        mr__tfrecord_walk(w);
        r->in.at += w->at - r->in.at;
    }
}

/* Makes room for the estimated number of records in the window. If they are smaller than those
 * before, the next call continues. */
static mr_code make_views(const tfrecord_reader *t, size_t want, mr_array *a, mr__walk *w,
                          mr_status *st)
{
    size_t typical = t->typical ? t->typical : FRAMING;
    size_t n = mr__byte_stream_within(&t->base.in) / typical;
    n += n / 4 + 4;
    if (n > want)
        n = want;
    if (a->data && n <= w->max_rows)
        return MR_OK;
    mr_array_reset(a);
    MR_TRY(mr_array_alloc(a, MR_STRING, 0, NULL, n, st));
    w->views = a->data;
    w->max_rows = n;
    return MR_OK;
}

static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    if (own)
        ((tfrecord_reader *)r)->opts = *(const mr_tfrecord_read_opts *)own;
    return mr__reader_keep_path(r, st);
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    tfrecord_reader *t = (tfrecord_reader *)r;
    mr_array a = {0};
    mr__walk w = {.max_bytes = max_bytes};
    mr_code rc = MR_OK;
    while (rc == MR_OK && w.rows == 0) {
        if (r->in.end - r->in.at < 12) {
            rc = more(r, 12, st);
            continue;
        }
        rc = make_views(t, want, &a, &w, st);
        if (rc == MR_OK)
            rc = walk(r, &w, st);
    }
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    uint8_t *first = r->in.base + ((const uint8_t *)w.views[0].data - 12 - r->in.base);
    walk_on(r, &w, first, max_bytes);
    mr__reader_set_origin(&t->base, &t->origin, first, mr__tfrecord_of);
    t->typical = (size_t)(r->in.at - first) / w.rows;
    rc = mr__reader_emit(r, &a, w.rows, out, st);
    if (rc == MR_OK)
        r->record += (int64_t)w.rows;
    else
        r->in.at = first; /* nothing was read: the caller may try again */
    return rc;
}

const mr_format mr_format_tfrecord = {
    .reader_size = sizeof(tfrecord_reader), .start = start, .read = read};
