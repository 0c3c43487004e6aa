/* SPDX-License-Identifier: Apache-2.0 */
/* Positions of elastic jobs, whole or in parts, little-endian:
 *
 *   offset  size  meaning
 *        0     4  "MRJ1"
 *        4     4  CRC32C of everything after it
 *        8     8  size of the body
 *       16     .  the body, a zstd frame:
 *
 *   eight numbers of 8 bytes: streams, global batch size, step of the schedule, passes ended, steps
 *   delivered in this pass, 1 if there is a seed, the seed, number of streams in this part
 *   text of the graph; a byte for each stream: 1 if it is live; state of the graph of the steps
 *   for each stream in this part: its number (8 bytes), its position, and the error that its next
 *   row is, which is empty if it did not fail
 *   number of hubs, which may be missing; of each its place and the number of anchors, and of each
 *   of those epoch, row, errors and a position (elastic_deal.c)
 *   outline of the graph (graph/named_inputs.h), empty without a mixture; epochs of the streams
 *   before this one (8 bytes); both may be missing
 *
 * Texts, states, positions and errors are preceded by their size (8 bytes). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/crc32c.h"
#include "pipeline/formats/packed_bytes_internal.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/elastic_impl.h"
#include "shard/distribute/position_bytes.h"
#include "shard/streams/stream_cut.h"

static const char magic[4] = {'M', 'R', 'J', '1'};
enum { CRC_AT = 4, SIZE_AT = 8, BODY_AT = 16, N_FIELDS = 8 };
#define MOST_BYTES ((uint64_t)1 << 32)

void mr__job_position_reset(mr__job_position *p)
{
    for (int64_t s = 0; p->v && s < p->streams; s++) {
        mr_free(p->v[s].bytes);
        mr_buffer_unref(p->v[s].error);
    }
    for (size_t i = 0; i < p->n_hubs; i++)
        mr__elastic_anchors_reset(&p->hubs[i].anchors);
    mr_free(p->hubs);
    mr_free(p->v);
    mr_free(p->graph);
    mr_free(p->outline);
    mr_free(p->live);
    mr_free(p->steps);
    *p = (mr__job_position){0};
}

mr_code mr__elastic_anchors_add(mr__elastic_anchors *to, const mr__elastic_anchor *a, mr_status *st)
{
    MR_TRY(MR_GROW(to->v, to->room, to->n + 1, SIZE_MAX / sizeof *to->v, "a position", st));
    to->v[to->n++] = (mr__elastic_anchor){a->at, mr_buffer_ref(a->position)};
    return MR_OK;
}

void mr__elastic_anchors_reset(mr__elastic_anchors *a)
{
    while (a->n)
        mr_buffer_unref(a->v[--a->n].position);
    mr_free(a->v);
    *a = (mr__elastic_anchors){0};
}

mr_code mr__job_position_hub(mr__job_position *p, int64_t place, mr__elastic_anchors **out,
                             mr_status *st)
{
    size_t i = 0;
    while (i < p->n_hubs && p->hubs[i].place != place)
        i++;
    if (i == p->n_hubs) {
        MR_TRY(MR_GROW(p->hubs, p->hubs_room, i + 1, SIZE_MAX / sizeof *p->hubs, "a position", st));
        p->hubs[p->n_hubs++] = (struct mr__hub_position){.place = place};
    }
    *out = &p->hubs[i].anchors;
    return MR_OK;
}

bool mr_is_job_position(const void *bytes, size_t size)
{
    return size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

/* ---- writing ---- */

static mr_code put_sized(mr__bytes *b, const void *p, size_t n, mr_status *st)
{
    MR_TRY(mr__bytes_put_u64(b, n, st));
    return mr__bytes_put(b, p, n, st);
}

static mr_code put_hub(mr__bytes *b, const struct mr__hub_position *h, mr_status *st)
{
    MR_TRY(mr__bytes_put_u64(b, (uint64_t)h->place, st));
    MR_TRY(mr__bytes_put_u64(b, h->anchors.n, st));
    for (size_t i = 0; i < h->anchors.n; i++) {
        const mr__elastic_anchor *a = &h->anchors.v[i];
        MR_TRY(mr__bytes_put_u64(b, a->at.epoch, st));
        MR_TRY(mr__bytes_put_u64(b, a->at.row, st));
        MR_TRY(mr__bytes_put_u64(b, a->at.errors, st));
        MR_TRY(put_sized(b, mr_buffer_data(a->position), mr_buffer_size(a->position), st));
    }
    return MR_OK;
}

static mr_code put_body(mr__bytes *b, const mr__job_position *p, mr_status *st)
{
    uint64_t part = 0;
    for (int64_t s = 0; s < p->streams; s++)
        part += p->v[s].bytes != NULL;
    const uint64_t fields[N_FIELDS] = {
        (uint64_t)p->streams,   (uint64_t)p->batch, (uint64_t)p->step, (uint64_t)p->pass,
        (uint64_t)p->delivered, p->has_seed,        p->seed,           part};
    for (size_t i = 0; i < N_FIELDS; i++)
        MR_TRY(mr__bytes_put_u64(b, fields[i], st));
    MR_TRY(put_sized(b, p->graph, strlen(p->graph), st));
    for (int64_t s = 0; s < p->streams; s++)
        MR_TRY(mr__bytes_put(b, &(unsigned char){p->live[s]}, 1, st));
    MR_TRY(put_sized(b, p->steps, p->steps_size, st));
    for (int64_t s = 0; s < p->streams; s++)
        if (p->v[s].bytes) {
            MR_TRY(mr__bytes_put_u64(b, (uint64_t)s, st));
            MR_TRY(put_sized(b, p->v[s].bytes, p->v[s].size, st));
            const mr_buffer *e = p->v[s].error;
            MR_TRY(put_sized(b, e ? mr_buffer_data(e) : NULL, e ? mr_buffer_size(e) : 0, st));
        }
    MR_TRY(mr__bytes_put_u64(b, p->n_hubs, st));
    for (size_t i = 0; i < p->n_hubs; i++)
        MR_TRY(put_hub(b, &p->hubs[i], st));
    MR_TRY(put_sized(b, p->outline, p->outline ? strlen(p->outline) : 0, st));
    return mr__bytes_put_u64(b, (uint64_t)p->epochs, st);
}

mr_code mr__job_position_write(const mr__job_position *p, void **out, size_t *size, mr_status *st)
{
    mr__bytes body = {0};
    unsigned char *all = NULL;
    mr_code rc = put_body(&body, p, st);
    if (rc == MR_OK)
        rc = mr__pack_bytes(body.v, body.n, BODY_AT, &all, size, st);
    if (rc == MR_OK) {
        memcpy(all, magic, sizeof magic);
        mr__store_le(all + SIZE_AT, body.n, 8);
        mr__store_le(all + CRC_AT, mr_crc32c(all + SIZE_AT, *size - SIZE_AT), 4);
        *out = all;
    }
    mr_free(body.v);
    return rc;
}

/* ---- reading ---- */

typedef struct reader {
    const unsigned char *at, *end;
    mr_status *st;
} reader;

static mr_code damaged(mr_status *st, const char *what)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %s", what);
}

static mr_code get_number(reader *r, uint64_t *v)
{
    if (r->end - r->at < 8)
        return damaged(r->st, "it ends early");
    *v = mr__load_le(r->at, 8);
    r->at += 8;
    return MR_OK;
}

/* *out (owned) = the next n bytes, and a 0. */
static mr_code get(reader *r, uint64_t n, void **out)
{
    if (n > (uint64_t)(r->end - r->at))
        return damaged(r->st, "it ends early");
    unsigned char *copy = mr_malloc((size_t)n + 1);
    if (!copy)
        return mr_fail_memory(r->st, (size_t)n, "a position");
    memcpy(copy, r->at, (size_t)n);
    copy[n] = 0;
    r->at += n;
    *out = copy;
    return MR_OK;
}

static mr_code get_sized(reader *r, void **out, size_t *size)
{
    uint64_t n = 0;
    MR_TRY(get_number(r, &n));
    MR_TRY(get(r, n, out));
    *size = (size_t)n;
    return MR_OK;
}

/* *out = the next bytes that their size precedes; NULL: none. */
static mr_code get_buffer(reader *r, mr_buffer **out)
{
    uint64_t n = 0;
    MR_TRY(get_number(r, &n));
    if (n > (uint64_t)(r->end - r->at))
        return damaged(r->st, "it ends early");
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_buffer_alloc(out, (size_t)n, r->st));
    memcpy(mr_buffer_data(*out), r->at, (size_t)n);
    r->at += n;
    return MR_OK;
}

static mr_code get_anchor(reader *r, mr__elastic_anchors *to)
{
    mr__elastic_anchor a = {0};
    MR_TRY(get_number(r, &a.at.epoch));
    MR_TRY(get_number(r, &a.at.row));
    MR_TRY(get_number(r, &a.at.errors));
    MR_TRY(get_buffer(r, &a.position));
    if (!a.position)
        return damaged(r->st, "an empty position");
    mr_code rc = mr__elastic_anchors_add(to, &a, r->st);
    mr_buffer_unref(a.position);
    return rc;
}

static mr_code get_hubs(reader *r, mr__job_position *p)
{
    uint64_t hubs = 0, place = 0, n = 0;
    mr__elastic_anchors *to;
    MR_TRY(get_number(r, &hubs));
    for (; hubs; hubs--) {
        MR_TRY(get_number(r, &place));
        MR_TRY(get_number(r, &n));
        if (place > INT64_MAX)
            return damaged(r->st, "a number is out of range");
        MR_TRY(mr__job_position_hub(p, (int64_t)place, &to, r->st));
        for (; n; n--)
            MR_TRY(get_anchor(r, to));
    }
    return MR_OK;
}

static mr_code get_stream(reader *r, mr__job_position *p)
{
    uint64_t s = 0;
    MR_TRY(get_number(r, &s));
    if (s >= (uint64_t)p->streams || p->v[s].bytes)
        return damaged(r->st, "a stream that does not exist, or twice");
    MR_TRY(get_sized(r, &p->v[s].bytes, &p->v[s].size));
    return get_buffer(r, &p->v[s].error);
}

static mr_code get_rest(reader *r, mr__job_position *p)
{
    size_t n = 0;
    uint64_t epochs = 0;
    MR_TRY(get_sized(r, (void **)&p->outline, &n));
    MR_TRY(get_number(r, &epochs));
    if (strlen(p->outline) != n || epochs > INT64_MAX)
        return damaged(r->st, "what follows the streams is out of range");
    if (n == 0) {
        mr_free(p->outline);
        p->outline = NULL;
    }
    p->epochs = (int64_t)epochs;
    return MR_OK;
}

static mr_code get_body(reader *r, mr__job_position *p)
{
    uint64_t f[N_FIELDS];
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++)
        MR_TRY(get_number(r, &f[i]));
    if (f[0] < 1 || f[0] > MR_MOST_STREAMS || f[1] < 1 || f[1] > INT64_MAX || f[2] > INT64_MAX ||
        f[3] > INT64_MAX || f[4] > INT64_MAX || f[5] > 1 || f[7] > f[0])
        return damaged(r->st, "a number is out of range");
    p->v = mr_calloc((size_t)f[0], sizeof *p->v);
    p->live = mr_calloc((size_t)f[0], sizeof *p->live);
    if (!p->v || !p->live)
        return mr_fail_memory(r->st, (size_t)f[0] * sizeof *p->v, "a position");
    p->streams = (int64_t)f[0];
    p->batch = (int64_t)f[1];
    p->step = (int64_t)f[2];
    p->pass = (int64_t)f[3];
    p->delivered = (int64_t)f[4];
    p->has_seed = f[5];
    p->seed = f[6];
    MR_TRY(get_sized(r, (void **)&p->graph, &n));
    if (strlen(p->graph) != n)
        return damaged(r->st, "the text of its graph has a NUL");
    for (int64_t s = 0; s < p->streams; s++, r->at++) {
        if (r->at == r->end || *r->at > 1)
            return damaged(r->st, "it ends early");
        p->live[s] = *r->at;
    }
    MR_TRY(get_sized(r, &p->steps, &p->steps_size));
    for (uint64_t i = 0; i < f[7]; i++)
        MR_TRY(get_stream(r, p));
    if (r->at != r->end)
        MR_TRY(get_hubs(r, p));
    p->epochs = p->pass;
    if (r->at != r->end)
        MR_TRY(get_rest(r, p));
    return r->at == r->end ? MR_OK : damaged(r->st, "bytes after its end");
}

mr_code mr__job_position_read(mr__job_position *p, const void *from, size_t size, mr_status *st)
{
    const unsigned char *in = from;
    *p = (mr__job_position){0};
    if (!mr_is_job_position(from, size))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "not a position of an elastic job: it does not start with MRJ1");
    if (size < BODY_AT ||
        mr_crc32c(in + SIZE_AT, size - SIZE_AT) != (uint32_t)mr__load_le(in + CRC_AT, 4))
        return damaged(st, "its checksum does not match");
    uint64_t n = mr__load_le(in + SIZE_AT, 8);
    if (n > MOST_BYTES)
        return damaged(st, "it is too large");
    unsigned char *body;
    mr_code rc = mr__unpack_bytes(in + BODY_AT, size - BODY_AT, (size_t)n, &body, st);
    if (rc != MR_OK)
        return rc == MR_INVALID_ARGUMENT ? damaged(st, "it cannot be decompressed") : rc;
    reader r = {body, body + n, st};
    rc = get_body(&r, p);
    mr_free(body);
    if (rc != MR_OK)
        mr__job_position_reset(p);
    return rc;
}

/* ---- joining ---- */

static mr_code differ(mr_status *st, size_t part, const char *what, int64_t theirs, int64_t ours)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "part %zu has the %s %" PRId64 ", part 1 has %" PRId64
                   "; join the parts that all workers of one job saved after the same step",
                   part, what, theirs, ours);
}

/* Moves the streams of `more`, which is part number `part` (from 1), to p. */
static mr_code add_part(mr__job_position *p, mr__job_position *more, size_t part, mr_status *st)
{
    if (strcmp(p->graph, more->graph) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "part %zu is of another graph than part 1: %.300s instead of %.300s", part,
                       more->graph, p->graph);
    if (more->streams != p->streams)
        return differ(st, part, "number of streams", more->streams, p->streams);
    if (more->batch != p->batch)
        return differ(st, part, "global batch size", more->batch, p->batch);
    if (more->has_seed != p->has_seed || more->seed != p->seed)
        return differ(st, part, "seed", (int64_t)more->seed, (int64_t)p->seed);
    if (more->pass != p->pass)
        return differ(st, part, "pass", more->pass, p->pass);
    if (more->step != p->step || more->delivered != p->delivered)
        return differ(st, part, "step", more->delivered, p->delivered);
    for (int64_t s = 0; s < p->streams; s++) {
        if (!more->v[s].bytes)
            continue;
        if (p->v[s].bytes)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "part %zu has stream %" PRId64 ", which an earlier part has too", part,
                           s);
        p->v[s] = more->v[s];
        more->v[s] = (struct mr__stream_position){0};
    }
    for (size_t i = 0; i < more->n_hubs; i++) {
        const struct mr__hub_position *h = &more->hubs[i];
        mr__elastic_anchors *to;
        MR_TRY(mr__job_position_hub(p, h->place, &to, st));
        for (size_t k = 0; k < h->anchors.n; k++)
            MR_TRY(mr__elastic_anchors_add(to, &h->anchors.v[k], st));
    }
    return MR_OK;
}

mr_code mr__job_position_is_whole(const mr__job_position *p, mr_status *st)
{
    for (int64_t s = 0; s < p->streams; s++)
        if (!p->v[s].bytes)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the position has no stream %" PRId64 " of %" PRId64
                           ": it is a part of one worker; join the parts of all workers first "
                           "(millrace position join PART... --out FILE)",
                           s, p->streams);
    return MR_OK;
}

static mr_code read_part(mr__job_position *out, const mr_position_part *parts, size_t i, size_t n,
                         mr_status *st)
{
    mr_code rc = mr__job_position_read(out, parts[i].bytes, parts[i].size, st);
    if (rc != MR_OK)
        mr_status_prefix(st, "part %zu of %zu", i + 1, n);
    return rc;
}

mr_code mr_dist_position_join(const mr_position_part *parts, size_t n, void **bytes, size_t *size,
                              mr_status *st)
{
    mr__job_position whole = {0};
    mr_code rc = n ? read_part(&whole, parts, 0, n, st)
                   : mr_fail(st, MR_INVALID_ARGUMENT, "no parts to join");
    if (rc != MR_OK)
        return rc;
    for (size_t i = 1; i < n && rc == MR_OK; i++) {
        mr__job_position more;
        rc = read_part(&more, parts, i, n, st);
        if (rc == MR_OK) {
            rc = add_part(&whole, &more, i + 1, st);
            mr__job_position_reset(&more);
        }
    }
    if (rc == MR_OK)
        rc = mr__job_position_is_whole(&whole, st);
    if (rc == MR_OK)
        rc = mr__job_position_write(&whole, bytes, size, st);
    mr__job_position_reset(&whole);
    return rc;
}
