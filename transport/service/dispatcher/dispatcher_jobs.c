/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, their streams and clients: makes and frees them, records them in the account, and notifies
 * peers of changes. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* ---- jobs ---- */

const char *mr__d_title(const mr__d_job *j)
{
    char *to = j->d->title;
    if (j->name[0])
        snprintf(to, sizeof j->d->title, "job \"%.100s\"", j->name);
    else
        snprintf(to, sizeof j->d->title, "anonymous job %016" PRIx64, j->id);
    return to;
}

mr__d_job *mr__d_job_named(mr__dispatcher *d, const char *owner, const char *name,
                           uint64_t repetition)
{
    for (mr__d_job *j = d->jobs; j; j = j->next)
        if (j->spec->repetition == repetition && strcmp(j->name, name) == 0 &&
            mr__d_is_of(j, owner))
            return j;
    return NULL;
}

mr__d_job *mr__d_job_like(mr__dispatcher *d, const char *owner, const char *name,
                          const mr__d_job * not )
{
    for (mr__d_job *j = d->jobs; j && name[0]; j = j->next)
        if (j != not &&strcmp(j->name, name) == 0 && mr__d_is_of(j, owner))
            return j;
    return NULL;
}

mr__d_job *mr__d_job_called(const mr__dispatcher *d, const mr__d_connection *x, const char *name)
{
    mr__d_job *last = NULL;
    for (mr__d_job *j = d->jobs; j && name[0]; j = j->next)
        if (strcmp(j->name, name) == 0 && mr__d_sees(x, j) &&
            (!last || j->spec->repetition > last->spec->repetition))
            last = j;
    bool is_number = strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
    uint64_t id = !last && is_number ? strtoull(name, NULL, 16) : 0;
    mr__d_job *of_number = id ? mr__id_map_get(&d->jobs_by_id, id) : NULL;
    return of_number && mr__d_sees(x, of_number) ? of_number : last;
}

mr_code mr__d_job_new(mr__dispatcher *d, uint64_t id, const char *name, const Mr__Wire__Job *spec,
                      mr__d_job **out, mr_status *st)
{
    mr__d_job *j = mr_calloc(1, sizeof *j);
    if (!j)
        return mr_fail_memory(st, sizeof *j, "a job");
    j->d = d;
    j->id = id;
    j->name = mr_strdup(name);
    mr_code rc = j->name ? mr__wire_copy(&spec->base, &j->spec, st)
                         : mr_fail_memory(st, strlen(name), "a job");
    if (rc == MR_OK)
        rc = mr__id_map_set(&d->jobs_by_id, id, j, st);
    if (rc != MR_OK) {
        mr__wire_free(j->spec);
        mr_free(j->name);
        mr_free(j);
        return rc;
    }
    j->next = d->jobs;
    if (d->jobs)
        d->jobs->prev = j;
    d->jobs = j;
    d->n_jobs++;
    *out = j;
    return MR_OK;
}

void mr__d_job_free(mr__dispatcher *d, mr__d_job *j)
{
    mr__id_map_remove(&d->jobs_by_id, j->id);
    if (j->prev)
        j->prev->next = j->next;
    else
        d->jobs = j->next;
    if (j->next)
        j->next->prev = j->prev;
    d->n_jobs--;
    for (uint32_t i = 0; i < j->n_streams; i++)
        mr__d_stream_free(j->streams[i]);
    while (j->clients) {
        mr__d_client *c = j->clients;
        mr__d_connection *x = mr__id_map_get(&d->connections, c->connection);
        if (x)
            x->client = NULL;
        j->clients = c->next;
        mr_free(c->host);
        mr_free(c);
    }
    while (j->waiting) {
        mr__d_waiting *w = j->waiting;
        j->waiting = w->next;
        mr__wire_free(w->join);
        mr_free(w);
    }
    mr__id_map_reset(&j->rebuilt);
    mr_free(j->warning);
    mr_free(j->pace);
    mr__wire_free(j->spec);
    mr_free(j->streams);
    mr_free(j->name);
    mr_free(j);
}

uint64_t mr__d_record_job(mr__dispatcher *d, const mr__d_job *j)
{
    Mr__Wire__Job spec = *j->spec;
    spec.rebuilding = j->rebuilding;
    spec.former = j->former;
    spec.awaits = j->awaits;
    mr__record r = {.kind = MR__RECORD_JOB, .job_id = j->id, .name = j->name, .job = &spec};
    return d->out.record(d->ctx, &r);
}

uint64_t mr__d_forget_job(mr__dispatcher *d, mr__d_job *j)
{
    mr__record r = {.kind = MR__RECORD_FORGET, .job_id = j->id};
    uint64_t number = d->out.record(d->ctx, &r);
    mr__d_job_free(d, j);
    return number;
}

/* ---- streams ---- */

mr_code mr__d_stream_new(mr__d_job *j, mr__d_stream **out, mr_status *st)
{
    MR_TRY(MR_GROW(j->streams, j->streams_capacity, j->n_streams + (size_t)1, MR__MOST_STREAMS,
                   "a job's streams", st));
    mr__d_stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->job = j;
    s->index = j->n_streams;
    s->generation = j->generation;
    j->streams[j->n_streams++] = s;
    *out = s;
    return MR_OK;
}

void mr__d_stream_free(mr__d_stream *s)
{
    mr__d_set_reader(s, NULL);
    mr__d_put(s, NULL);
    if (s->home) {
        if (s->own_prev)
            s->own_prev->own_next = s->own_next;
        else
            s->home->own = s->own_next;
        if (s->own_next)
            s->own_next->own_prev = s->own_prev;
    }
    mr_free(s->position);
    mr_free(s->awaited);
    mr_free(s->splits);
    mr_free(s);
}

mr_code mr__d_job_streams(mr__d_job *j, mr_status *st)
{
    mr__d_stream *s;
    while (!mr__d_shared(j) && j->n_streams < j->spec->streams)
        MR_TRY(mr__d_stream_new(j, &s, st));
    return MR_OK;
}

mr_code mr__d_stream_set(mr__d_stream *s, const Mr__Wire__Place *place, mr_status *st)
{
    uint8_t *position = NULL;
    if (place->position.len) {
        position = mr_memdup(place->position.data, place->position.len);
        if (!position)
            return mr_fail_memory(st, place->position.len, "a position");
    }
    mr_free(s->position);
    s->position = position;
    s->position_bytes = place->position.len;
    s->job->elements += place->elements - s->elements;
    s->elements = place->elements;
    s->skip = place->skip;
    if (place->end && !s->end)
        s->job->n_ended++;
    else if (!place->end && s->end)
        s->job->n_ended--;
    s->end = place->end;
    mr__d_review(s);
    return MR_OK;
}

mr_code mr__d_add_split(mr__d_stream *s, uint64_t split, mr_status *st)
{
    MR_TRY(MR_GROW(s->splits, s->splits_capacity, s->n_splits + 1, SIZE_MAX / 16,
                   "a stream's splits", st));
    s->splits[s->n_splits++] = split;
    if (split >= s->job->next_split)
        s->job->next_split = split + 1;
    return MR_OK;
}

mr_code mr__d_record_split(mr__dispatcher *d, mr__d_stream *s, uint64_t split, mr_status *st)
{
    mr__d_job *j = s->job;
    MR_TRY(mr__d_add_split(s, split, st));
    mr__record r = {.kind = MR__RECORD_SPLIT, .job_id = j->id, .stream = s->index, .split = split};
    j->split_recorded = d->out.record(d->ctx, &r);
    return MR_OK;
}

/* Borrows from s. */
static Mr__Wire__Place place_of(const mr__d_stream *s)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = s->index;
    p.generation = s->generation;
    p.worker = s->worker ? s->worker->address : (char *)"";
    p.elements = s->elements;
    p.position.data = s->position;
    p.position.len = s->position_bytes;
    p.skip = s->skip;
    p.end = s->end;
    p.reader = s->owner;
    p.home = s->home ? s->home->address : (char *)"";
    return p;
}

Mr__Wire__Place mr__d_place_with_splits(const mr__d_stream *s)
{
    Mr__Wire__Place place = place_of(s);
    place.n_splits = s->n_splits;
    place.splits = s->splits;
    return place;
}

uint64_t mr__d_record_stream(mr__dispatcher *d, const mr__d_stream *s)
{
    Mr__Wire__Place place = place_of(s);
    mr__record r = {.kind = MR__RECORD_STREAM, .job_id = s->job->id, .place = &place};
    return s->job->recorded = d->out.record(d->ctx, &r);
}

void mr__d_end_move(mr__d_stream *s)
{
    mr__dispatcher *d = s->job->d;
    mr__d_worker *to = s->next_host;
    if (!to)
        return;
    if (s->move_prev)
        s->move_prev->move_next = s->move_next;
    else
        d->moves = s->move_next;
    if (s->move_next)
        s->move_next->move_prev = s->move_prev;
    d->n_moves--;
    to->n_coming--;
    s->worker->n_going--;
    s->next_host = NULL;
    mr__d_rank(d, to);
    mr__d_rank(d, s->worker);
}

void mr__d_cancel_move(mr__d_stream *s)
{
    const mr__d_worker *to = s->next_host;
    if (!to)
        return;
    Mr__Wire__Hosted h = MR__WIRE__HOSTED__INIT;
    h.job_id = s->job->id;
    h.stream = s->index;
    h.generation = s->used;
    mr__d_end_move(s);
    mr__d_unhost(s->job->d, to, &h);
}

void mr__d_cancel_moves_of(mr__dispatcher *d, const mr__d_client *c)
{
    for (mr__d_stream *s = d->moves, *next; s; s = next) {
        next = s->move_next;
        if (s->reader == c)
            mr__d_cancel_move(s);
    }
}

void mr__d_put(mr__d_stream *s, mr__d_worker *w)
{
    mr__d_cancel_move(s);
    if (s->worker) {
        if (s->prev)
            s->prev->next = s->next;
        else
            s->worker->streams = s->next;
        if (s->next)
            s->next->prev = s->prev;
        s->worker->n_streams--;
        mr__d_rank(s->job->d, s->worker);
    }
    s->worker = w;
    s->prev = s->next = NULL;
    if (w) {
        s->next = w->streams;
        if (w->streams)
            w->streams->prev = s;
        w->streams = s;
        w->n_streams++;
        mr__d_rank(s->job->d, w);
    }
    mr__d_review(s);
}

void mr__d_set_home(mr__d_stream *s, mr__d_worker *w)
{
    if (s->home == w)
        return;
    s->home = w;
    s->own_next = w->own;
    if (w->own)
        w->own->own_prev = s;
    w->own = s;
    mr__d_review(s);
}

void mr__d_set_reader(mr__d_stream *s, mr__d_client *c)
{
    if (s->reader != c)
        mr__d_cancel_move(s);
    if (s->reader)
        s->reader->n_streams--;
    s->reader = c;
    if (c) {
        c->n_streams++;
        s->owner = c->id;
    }
    mr__d_review(s);
}

bool mr__d_reads(const mr__d_client *c, const mr__d_stream *s)
{
    uint32_t consumers = s->job->spec->consumers;
    return consumers == 0 || s->index % consumers == c->consumer;
}

/* ---- messages to peers ---- */

void mr__d_tell_reader(mr__dispatcher *d, const mr__d_stream *s, uint64_t after)
{
    const mr__d_client *c = s->reader;
    if (!c || !c->connection || !c->let_in)
        return;
    Mr__Wire__Place place = mr__d_place_with_splits(s), *list[1] = {&place};
    Mr__Wire__Placed placed = MR__WIRE__PLACED__INIT;
    placed.job_id = s->job->id;
    placed.n_places = 1;
    placed.places = list;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PLACED;
    m.placed = &placed;
    d->out.send(d->ctx, c->connection, &m, after);
}

void mr__d_tell_warning(mr__dispatcher *d, const mr__d_client *c, const char *text)
{
    Mr__Wire__Warning warning = MR__WIRE__WARNING__INIT;
    warning.job_id = c->job->id;
    warning.text = (char *)(uintptr_t)text;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_WARNING;
    m.warning = &warning;
    if (c->connection && c->let_in)
        d->out.send(d->ctx, c->connection, &m, 0);
}

void mr__d_warn(mr__dispatcher *d, mr__d_job *j, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    mr__d_note_line(d, MR_LOG_WARNING, fmt, line);
    mr_free(j->warning);
    j->warning = mr_strdup(line);
    for (const mr__d_client *c = j->clients; c; c = c->next)
        mr__d_tell_warning(d, c, line);
}

void mr__d_tell_finished(mr__dispatcher *d, const mr__d_job *j, const mr__d_client *only,
                         uint64_t after)
{
    Mr__Wire__Finished finished = MR__WIRE__FINISHED__INIT;
    finished.job_id = j->id;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_FINISHED;
    m.finished = &finished;
    for (const mr__d_client *c = j->clients; c; c = c->next)
        if (c->connection && (!only || c == only))
            d->out.send(d->ctx, c->connection, &m, after);
}

void mr__d_unhost(mr__dispatcher *d, const mr__d_worker *w, const Mr__Wire__Hosted *h)
{
    if (!w->connection)
        return;
    Mr__Wire__Unhost x = MR__WIRE__UNHOST__INIT;
    x.job_id = h->job_id;
    x.stream = h->stream;
    x.generation = h->generation;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_UNHOST;
    m.unhost = &x;
    d->out.send(d->ctx, w->connection, &m, 0);
}

void mr__d_take_off(mr__dispatcher *d, mr__d_stream *s)
{
    if (!s->worker)
        return;
    Mr__Wire__Hosted h = MR__WIRE__HOSTED__INIT;
    h.job_id = s->job->id;
    h.stream = s->index;
    h.generation = s->generation;
    mr__d_unhost(d, s->worker, &h);
    mr__d_put(s, NULL);
}

void mr__d_release_streams(mr__dispatcher *d, mr__d_job *j)
{
    for (uint32_t i = 0; i < j->n_streams; i++) {
        mr__d_stream *s = j->streams[i];
        if (s->worker && !s->reader)
            mr__d_take_off(d, s);
    }
}
