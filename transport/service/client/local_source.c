/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/local_source.h"

#include <inttypes.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/job.h"
#include "transport/service/stream_position.h"

typedef struct stream {
    mr_iterator *it;   /* NULL: read by another consumer */
    uint64_t elements; /* delivered, including errors */
    mr_block last;     /* the last block delivered; has its contents only with positions */
    size_t back;       /* the number of its rows not delivered yet */
    bool ended;
    void *position; /* the last result of place */
} stream;

typedef struct local {
    mr__stream_source base;
    Mr__Wire__Job *job;
    stream *v; /* job->streams of them */
    bool positions;
} local;

static mr_code next(mr__stream_source *src, uint32_t s, size_t want, mr_block *b, mr_status *st)
{
    stream *x = &((local *)src)->v[s];
    mr_code rc = mr_iterator_next(x->it, want, b, st);
    if (rc == MR_CANCELLED)
        return rc;
    if (rc < MR_OK && st && st->element >= 0) /* its number counts within the stream */
        mr_status_prefix(st, "stream %" PRIu32, s);
    mr_block_clear(&x->last);
    if (rc == MR_OK && ((local *)src)->positions)
        MR_TRY(mr_block_slice(&x->last, b, 0, b->rows, st));
    x->back = 0;
    x->elements += rc == MR_END ? 0 : rc == MR_OK ? b->rows : 1;
    x->ended = rc == MR_END;
    return rc;
}

static bool waits(mr__stream_source *src, uint32_t s)
{
    return mr__iterator_may_block(((local *)src)->v[s].it);
}

static void stands(mr__stream_source *src, uint32_t s, size_t back)
{
    ((local *)src)->v[s].back = back;
}

static mr_code place(mr__stream_source *src, uint32_t s, Mr__Wire__Place *out, mr_status *st)
{
    stream *x = &((local *)src)->v[s];
    size_t n = 0;
    mr_free(x->position);
    x->position = NULL;
    mr__wire__place__init(out);
    MR_TRY(mr_iterator_save_at(x->it, &x->last, x->last.rows - x->back, &x->position, &n, st));
    out->stream = s;
    out->elements = x->elements - x->back;
    out->position = (ProtobufCBinaryData){n, x->position};
    out->end = x->ended;
    return MR_OK;
}

static void close_source(mr__stream_source *src)
{
    local *l = (local *)src;
    for (uint32_t i = 0; l->v && i < l->job->streams; i++) {
        mr_iterator_close(l->v[i].it);
        mr_block_reset(&l->v[i].last);
        mr_free(l->v[i].position);
    }
    mr_free(l->v);
    mr__wire_free(l->job);
    mr_free(l);
}

static const mr__stream_source_class local_class = {
    .next = next, .waits = waits, .place = place, .stands = stands, .close = close_source};

static mr_code open_stream(local *l, uint32_t s, const mr_iterator_opts *opts, mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_iterator_opts o = *opts;
    mr__iterator_internal internal = *mr__iterator_internal_of(opts);
    mr__job_seed(l->job, &o, &internal);
    o.directory = mr__job_directory(l->job);
    MR_TRY(mr__job_cut(l->job, s, &ds, &o.seed, NULL, st));
    mr_code rc = mr_iterator_open(&l->v[s].it, ds, &o, st);
    if (rc == MR_OK) /* so that next needs no memory for it */
        rc = mr_block_prepare(&l->v[s].last, mr_spec_n_leaves(mr_dataset_spec(ds)), st);
    mr_dataset_unref(ds);
    return rc;
}

static mr_code go_to(local *l, const Mr__Wire__Place *p, mr_status *st)
{
    stream *x = p->stream < l->job->streams ? &l->v[p->stream] : NULL;
    if (!x || !x->it)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: a stream that does not exist");
    if (p->position.len)
        MR_TRY(mr_iterator_restore(x->it, p->position.data, p->position.len, st));
    x->elements = p->elements;
    x->ended = p->end;
    return mr__stream_skip(x->it, p->skip, st);
}

mr_code mr__local_source_open(mr__stream_source **out, Mr__Wire__Job *job, const uint32_t *mine,
                              size_t n, Mr__Wire__Place *const *places, size_t n_places,
                              const mr_iterator_opts *opts, mr_status *st)
{
    local *l = mr_calloc(1, sizeof *l);
    if (!l) {
        mr__wire_free(job);
        return mr_fail_memory(st, sizeof *l, "the streams of a job");
    }
    l->base = (mr__stream_source){&local_class, job};
    l->positions = opts->positions;
    l->job = job;
    l->v = mr_calloc(job->streams, sizeof *l->v);
    mr_code rc = l->v ? MR_OK : mr_fail_memory(st, job->streams, "the streams of a job");
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = open_stream(l, mine[i], opts, st);
    for (size_t i = 0; i < n_places && rc == MR_OK; i++)
        rc = go_to(l, places[i], st);
    if (rc == MR_OK)
        *out = &l->base;
    else
        close_source(&l->base);
    return rc;
}

mr_code mr__local_source_rewind(mr__stream_source *src, mr_status *st)
{
    local *l = (local *)src;
    for (uint32_t i = 0; i < l->job->streams; i++) {
        if (!l->v[i].it)
            continue;
        MR_TRY(mr_iterator_rewind(l->v[i].it, st));
        mr_block_clear(&l->v[i].last);
        l->v[i].elements = l->v[i].back = 0;
        l->v[i].ended = false;
    }
    return MR_OK;
}
