/* SPDX-License-Identifier: Apache-2.0 */
/* A client's streams: those that it begins with, and those that come and go while it reads. */
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/client/job_reader_state.h"

/* A copy that is there also where n is 0; NULL: no memory. */
uint8_t *mr__r_copy(const void *p, size_t n)
{
    uint8_t *copy = mr_malloc(n + 1);
    if (copy && n)
        memcpy(copy, p, n);
    return copy;
}

mr__r_stream *mr__r_stream_of(mr__job_reader *r, uint32_t index)
{
    uintptr_t at = (uintptr_t)mr__id_map_get(&r->by_index, (uint64_t)index + 1);
    return at ? &r->streams[at - 1] : NULL;
}

/* s begins, or begins again, at p. */
static mr_code set_stream(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__Place *p,
                          mr_status *st)
{
    uint64_t all = r->opts.most_bytes ? r->opts.most_bytes : MR__LEAST_BYTES, n = r->n_streams;
    uint8_t *position = mr__r_copy(p->position.data, p->position.len);
    char *home = mr_strdup(p->home);
    if (!position || !home) {
        mr_free(position);
        mr_free(home);
        return mr_fail_memory(st, p->position.len, "a position");
    }
    mr_free(s->position);
    mr_free(s->home);
    mr_free(s->end_position);
    mr_free(s->splits);
    if (r->shared && n < MR__SHARED_STREAMS)
        n = MR__SHARED_STREAMS; /* more may come */
    *s = (mr__r_stream){.index = p->stream,
                        .generation = p->generation,
                        .received = p->elements,
                        .consumed = p->elements,
                        .acknowledged = p->elements,
                        .position = position,
                        .position_bytes = p->position.len,
                        .skip = p->skip,
                        .ended = p->end,
                        .end_said = p->end,
                        .home = home,
                        .window = all / n + 1};
    return mr__r_add_splits(s, 0, p->splits, p->n_splits, NULL, st);
}

mr_code mr__r_add_splits(mr__r_stream *s, uint64_t first, const uint64_t *v, size_t n, bool *more,
                         mr_status *st)
{
    if (first > s->n_splits)
        return mr_fail(st, MR_DATA_LOSS, "splits of stream %u are missing", s->index);
    for (size_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        if (at < s->n_splits && s->splits[at] != v[i])
            return mr_fail(st, MR_DATA_LOSS, "stream %u has another split", s->index);
        if (at < s->n_splits)
            continue;
        MR_TRY(mr_grow((void **)&s->splits, &s->splits_capacity, s->n_splits + 1, sizeof *s->splits,
                       SIZE_MAX / 16, "a stream's splits", st));
        s->splits[s->n_splits++] = v[i];
        if (more)
            *more = true;
    }
    return MR_OK;
}

void mr__r_deliver_splits(mr__job_reader *r, const mr__r_stream *s)
{
    const mr__arrival a = {.kind = MR__ARRIVED_SPLITS,
                           .stream = s->index,
                           .splits = s->splits,
                           .n_splits = s->n_splits};
    r->out.deliver(r->ctx, &a);
}

mr_code mr__r_add_stream(mr__job_reader *r, const Mr__Wire__Place *p, mr_status *st)
{
    MR_TRY(mr_grow((void **)&r->streams, &r->streams_capacity, r->n_streams + 1, sizeof *r->streams,
                   SIZE_MAX / 16, "a job's streams", st));
    MR_TRY(mr__id_map_set(&r->by_index, (uint64_t)p->stream + 1,
                          (void *)(uintptr_t)(r->n_streams + 1), st));
    memset(&r->streams[r->n_streams++], 0, sizeof *r->streams);
    return set_stream(r, &r->streams[r->n_streams - 1], p, st);
}

void mr__r_deliver_end(mr__job_reader *r, const mr__r_stream *s, const void *position, size_t n)
{
    mr__arrival end = {.kind = MR__ARRIVED_END,
                       .stream = s->index,
                       .first = s->received,
                       .position = position,
                       .position_bytes = n};
    r->out.deliver(r->ctx, &end);
}

void mr__r_give_up(mr__job_reader *r, mr__r_stream *s)
{
    mr__arrival gone = {.kind = MR__ARRIVED_GONE, .stream = s->index};
    s->gone = s->ended = s->end_said = true;
    s->opened = s->lost = false;
    s->acknowledged = s->consumed = s->received;
    r->out.deliver(r->ctx, &gone);
}

mr__r_stream *mr__r_take_stream(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__Place *p)
{
    mr_status st;
    if ((s ? set_stream(r, s, p, &st) : mr__r_add_stream(r, p, &st)) != MR_OK) {
        mr__r_fail(r, &st);
        return NULL;
    }
    s = mr__r_stream_of(r, p->stream);
    mr__arrival a = {.kind = MR__ARRIVED_STREAM,
                     .stream = s->index,
                     .first = s->received,
                     .skip = (size_t)s->skip,
                     .position = s->position,
                     .position_bytes = s->position_bytes,
                     .home = s->home,
                     .splits = s->splits,
                     .n_splits = s->n_splits};
    r->out.deliver(r->ctx, &a);
    if (s->ended)
        mr__r_deliver_end(r, s, s->position, s->position_bytes);
    return s;
}
