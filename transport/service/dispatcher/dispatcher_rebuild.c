/* SPDX-License-Identifier: Apache-2.0 */
/* Rebuilds a job whose record is lost from the streams that its clients report. */
#include <inttypes.h>

#include "transport/service/dispatcher/dispatcher_state.h"

enum { MOST_REBUILT = 1 << 27 }; /* splits, each of which is examined */

/* Assigns the splits in p to s, unless they belong to another stream. */
static mr_code take_split_list(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p,
                               mr_status *st)
{
    mr__d_job *j = s->job;
    size_t had = 0; /* on record, if this dispatcher died before it recorded the stream */
    while (had < s->n_splits && had < p->n_splits && s->splits[had] == p->splits[had])
        had++;
    if (had < s->n_splits && had < p->n_splits)
        return mr_fail(st, MR_DATA_LOSS,
                       "the dispatcher lost its account, and stream %" PRIu32
                       " has other splits than its client says; start the job again",
                       s->index);
    for (size_t i = had; i < p->n_splits; i++) {
        if (p->splits[i] >= MOST_REBUILT)
            return mr_fail(st, MR_DATA_LOSS,
                           "the dispatcher has no record of this job, which has had more than %d "
                           "splits, too many to rebuild it; start it again",
                           MOST_REBUILT);
        if (mr__id_map_get(&j->rebuilt, p->splits[i] + 1))
            return mr_fail(st, MR_DATA_LOSS,
                           "the dispatcher has no record of this job, and its clients claim the "
                           "same splits; start the job again");
    }
    for (size_t i = had; i < p->n_splits; i++) {
        MR_TRY(mr__id_map_set(&j->rebuilt, p->splits[i] + 1, s, st));
        MR_TRY(mr__d_record_split(d, s, p->splits[i], st));
    }
    return MR_OK;
}

/* Takes over p for s; the hosted stream of a running job may have more splits. */
static mr_code rebuild_stream(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p,
                              uint64_t owner, mr_status *st)
{
    mr__d_worker *w = NULL;
    if (s->job->spec->mode == MR__WIRE__MODE__DYNAMIC)
        MR_TRY(take_split_list(d, s, p, st));
    if (p->home[0] && !s->home) {
        MR_TRY(mr__d_worker_known(d, p->home, &w, st));
        mr__d_set_home(s, w);
    }
    MR_TRY(mr__d_stream_set(s, p, st));
    uint64_t generation = p->generation + (s->job->rebuilding ? 1 : 0);
    if (generation > s->generation)
        s->generation = generation;
    s->owner = owner;
    mr__d_record_stream(d, s);
    return MR_OK;
}

mr_code mr__d_take_news(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p, mr_status *st)
{
    if (p->elements <= s->elements && (!p->end || s->end))
        return MR_OK;
    MR_TRY(mr__d_stream_set(s, p, st));
    if (p->generation > s->generation) /* the account was lost */
        s->generation = p->generation;
    if (s->end)
        mr__d_take_off(d, s);
    mr__d_record_stream(d, s);
    return MR_OK;
}

void mr__d_unmake(mr__dispatcher *d, mr__d_job *j)
{
    const mr__record forget = {.kind = MR__RECORD_FORGET, .job_id = j->id};
    for (uint32_t i = 0; i < j->n_streams; i++) {
        mr__d_stream *s = j->streams[i];
        mr__d_take_off(d, s);
        if (s->generation >= j->generation) /* the hosted stream has an older one */
            j->generation = s->generation + 1;
        mr__d_stream_free(s);
    }
    j->n_streams = j->n_ended = 0;
    j->elements = j->next_split = 0;
    j->rebuilding = j->holding = false;
    mr__id_map_reset(&j->rebuilt);
    d->out.record(d->ctx, &forget);
    j->recorded = mr__d_record_job(d, j);
}

mr_code mr__d_rebuild(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join, mr_status *st)
{
    mr__d_stream *s;
    for (size_t i = 0; i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        if (j->spec->mode == MR__WIRE__MODE__DYNAMIC && p->elements && !p->n_splits)
            return mr_fail(st, MR_DATA_LOSS,
                           "the dispatcher has no record of this job, and the position does not "
                           "say which splits its streams have; start the job again");
        while (p->stream >= j->n_streams) {
            MR_TRY(mr__d_stream_new(j, &s, st));
            mr__d_record_stream(d, s);
        }
        s = j->streams[p->stream];
        if (!s->owner)
            MR_TRY(rebuild_stream(d, s, p, join->client_id, st));
        else if (s->owner == join->client_id) { /* it was here before, and lost its connection */
            /* It may have got another split since then, on the worker that it was read from. */
            if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
                MR_TRY(take_split_list(d, s, p, st));
            MR_TRY(mr__d_take_news(d, s, p, st));
        }
        /* else another client has it, or had it later */
    }
    return MR_OK;
}

/* Splits that no client named go to a new stream; so do unassigned ones, if the other streams have
 * ended. */
static mr_code make_rest(mr__dispatcher *d, mr__d_job *j, uint64_t *n, mr_status *st)
{
    mr__d_stream *s = NULL;
    uint64_t known = j->next_split;
    if (j->n_ended) {
        MR_TRY(mr__d_stream_new(j, &s, st));
        mr__d_record_stream(d, s);
    }
    for (uint64_t x = 0; x < known; x++) {
        if (mr__id_map_get(&j->rebuilt, x + 1))
            continue;
        if (!s) {
            MR_TRY(mr__d_stream_new(j, &s, st));
            mr__d_record_stream(d, s);
        }
        MR_TRY(mr__d_record_split(d, s, x, st));
        ++*n;
    }
    return MR_OK;
}

/* Whether, by the account, all assigned splits of j belong to a stream. */
static bool is_whole(const mr__d_job *j)
{
    bool dynamic = j->spec->mode == MR__WIRE__MODE__DYNAMIC;
    uint64_t n = 0;
    for (uint32_t i = 0; i < j->n_streams; i++) {
        const mr__d_stream *s = j->streams[i];
        if (!dynamic && !s->home && !s->end)
            return false;
        n += s->n_splits;
    }
    return !dynamic || n == j->next_split;
}

void mr__d_go_on_rebuilding(mr__dispatcher *d, mr__d_job *j)
{
    mr_status st;
    mr_code rc = MR_OK;
    if (!j->rebuilding && is_whole(j)) /* an older version has no record of rebuilding */
        return;
    for (uint32_t i = 0; i < j->n_streams; i++)
        for (size_t k = 0; k < j->streams[i]->n_splits && rc == MR_OK; k++)
            rc = mr__id_map_set(&j->rebuilt, j->streams[i]->splits[k] + 1, j->streams[i], &st);
    if (rc != MR_OK)
        mr__d_note(d, MR_LOG_ERROR, "%s cannot be rebuilt: %s", mr__d_title(j), st.message);
    j->rebuilding = rc == MR_OK;
}

uint64_t mr__d_rebuilt(mr__dispatcher *d, mr__d_job *j)
{
    Mr__Wire__Place end = MR__WIRE__PLACE__INIT;
    mr_status st;
    uint64_t n = 0;
    mr_code rc = MR_OK;
    bool was = j->rebuilding;
    end.end = true;
    j->rebuilding = false;
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
        rc = make_rest(d, j, &n, &st);
    bool own = j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
    for (uint32_t i = 0; i < j->n_streams && own; i++)
        if (!j->streams[i]->home && rc == MR_OK) { /* its worker is unknown: it begins again */
            n += !j->streams[i]->end;
            rc = mr__d_stream_set(j->streams[i], &end, &st);
            mr__d_record_stream(d, j->streams[i]);
        }
    /* Even if all named streams have ended; but a position has named all streams. */
    if (own && was)
        mr__d_make_own(d, j, NULL);
    if (rc != MR_OK)
        mr__d_note(d, MR_LOG_ERROR, "%s cannot be rebuilt: %s", mr__d_title(j), st.message);
    mr__id_map_reset(&j->rebuilt);
    if (was)
        j->recorded = mr__d_record_job(d, j);
    return n;
}
