/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord.h"

#include <inttypes.h>

#include "pipeline/formats/byte_stream.h"
#include "pipeline/formats/tfrecord_walk.h"

struct mr_tfrecord_reader {
    mr__byte_stream in;
    int64_t record; /* number of the record at in.at */
    bool ended;
    size_t typical; /* bytes of a record, framing included, as the last call saw them */
};

mr_code mr_tfrecord_reader_open(mr_tfrecord_reader **out, const char *path,
                                const mr_file_opts *opts, mr_status *st)
{
    mr_tfrecord_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a record reader");
    mr_code rc = mr__byte_stream_open(&r->in, path, opts, st);
    if (rc != MR_OK) {
        mr_free(r);
        return rc;
    }
    r->typical = 16;
    *out = r;
    return MR_OK;
}

void mr_tfrecord_reader_close(mr_tfrecord_reader *r)
{
    if (!r)
        return;
    mr__byte_stream_close(&r->in);
    mr_free(r);
}

/* The error that rc and *st carry is the file's last word. */
static mr_code give_up(mr_tfrecord_reader *r, mr_code rc, mr_status *st)
{
    r->ended = true;
    mr_status_at(st, r->in.path, mr__byte_stream_offset(&r->in), r->record);
    return rc;
}

static mr_code corrupted(mr_tfrecord_reader *r, int64_t behind, const char *what, mr_status *st)
{
    return give_up(
        r,
        mr_fail(st, MR_DATA_LOSS,
                "corrupted record at %" PRId64
                ": the checksum of its %s does not match; the rest of the file is passed "
                "by; is the compression the right one?",
                mr__byte_stream_offset(&r->in) + behind, what),
        st);
}

/* The record at in.at is not whole: gets more of it. MR_END: a clean end. */
static mr_code more(mr_tfrecord_reader *r, uint64_t need, mr_status *st)
{
    int64_t at = mr__byte_stream_offset(&r->in);
    mr_code rc = MR_END;
    bool impossible = need > 12 && ((r->in.size >= 0 && need > (uint64_t)(r->in.size - at)) ||
                                    need > (uint64_t)INT64_MAX);
    if (!impossible) {
        rc = mr__byte_stream_fill(&r->in, (size_t)need, st);
        if (rc == MR_OK)
            return MR_OK;
        if (rc != MR_END)
            return give_up(r, rc, st);
    }
    if (need <= 12) {
        r->ended = true;
        return MR_END;
    }
    uint64_t there =
        r->in.size >= 0 ? (uint64_t)(r->in.size - at) : (uint64_t)(r->in.end - r->in.at);
    return give_up(r,
                   mr_fail(st, MR_DATA_LOSS,
                           "truncated record at %" PRId64 ": it has %" PRIu64
                           " bytes with its framing, and the file %" PRIu64 " more",
                           at, need, there),
                   st);
}

/* Walks over what is there; where that gives no row, gets more or fails. */
static mr_code walk(mr_tfrecord_reader *r, mr__walk *w, mr_status *st)
{
    w->rows = 0;
    w->at = r->in.at;
    w->end = r->in.end;
    mr__walk_end why = mr__tfrecord_walk(w);
    r->in.at += w->at - r->in.at;
    r->record += (int64_t)w->rows;
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

/* Room for as many views as there seem to be records; where they are smaller than those before, the
 * next call goes on. */
static mr_code make_views(mr_tfrecord_reader *r, size_t want, mr_array *a, mr__walk *w,
                          mr_status *st)
{
    size_t n = (size_t)(r->in.end - r->in.at) / r->typical;
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

mr_code mr_tfrecord_reader_read(mr_tfrecord_reader *r, size_t want, size_t max_bytes, mr_array *out,
                                mr_status *st)
{
    mr_array a = {0};
    mr__walk w = {.max_bytes = max_bytes};
    mr_code rc = MR_OK;
    int64_t record = r->record;
    if (r->ended)
        return MR_END;
    while (rc == MR_OK && w.rows == 0) {
        if (r->in.end - r->in.at < 12) {
            rc = more(r, 12, st);
            continue;
        }
        rc = make_views(r, want, &a, &w, st);
        if (rc == MR_OK)
            rc = walk(r, &w, st);
    }
    if (rc == MR_OK) {
        uint8_t *first = r->in.base + ((const uint8_t *)w.views[0].data - 12 - r->in.base);
        a.rows = w.rows;
        r->typical = (size_t)(r->in.at - first) / w.rows;
        rc = mr_buffer_hold(a.owner, r->in.chunk, st);
        if (rc != MR_OK) { /* nothing was read: the caller may try again */
            r->in.at = first;
            r->record = record;
        }
    }
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

mr_code mr_tfrecord_reader_skip(mr_tfrecord_reader *r, int64_t n, int64_t *skipped, mr_status *st)
{
    mr_code rc = MR_OK;
    mr__walk w = {.max_bytes = SIZE_MAX};
    *skipped = 0;
    while (rc == MR_OK && *skipped < n && !r->ended) {
        if (r->in.end - r->in.at < 12)
            rc = more(r, 12, st);
        else {
            w.max_rows = (size_t)(n - *skipped);
            rc = walk(r, &w, st);
            *skipped += (int64_t)w.rows;
        }
    }
    return rc == MR_END ? MR_OK : rc;
}

void mr_tfrecord_reader_position(const mr_tfrecord_reader *r, mr_file_position *out)
{
    out->offset = mr__byte_stream_offset(&r->in);
    out->record = r->record;
    out->ended = r->ended;
}

mr_code mr_tfrecord_reader_seek(mr_tfrecord_reader *r, const mr_file_position *to, mr_status *st)
{
    if (!to->ended)
        MR_TRY(mr__byte_stream_seek(&r->in, to->offset, st));
    r->record = to->record;
    r->ended = to->ended;
    return MR_OK;
}
