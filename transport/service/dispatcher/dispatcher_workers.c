/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: registering, reporting hosted streams, draining and leaving. */
#include <stdio.h>
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* Never 0. */
static uint64_t hash_of(const char *address)
{
    uint64_t h = mr__fnv1a(MR__FNV_BASIS, address, strlen(address));
    return h ? h : 1;
}

mr__d_worker *mr__d_worker_at(mr__dispatcher *d, const char *address)
{
    mr__d_worker *w = mr__id_map_get(&d->workers_by_address, hash_of(address));
    while (w && strcmp(w->address, address) != 0)
        w = w->same;
    return w;
}

static mr_code new_worker(mr__dispatcher *d, const char *address, mr__d_worker **out, mr_status *st)
{
    uint64_t h = hash_of(address);
    MR_TRY(MR_GROW(d->heap, d->heap_capacity, d->n_workers + 1, SIZE_MAX / 16, "the workers", st));
    mr__d_worker *w = mr_calloc(1, sizeof *w);
    mr_code rc =
        w && (w->address = mr_strdup(address)) ? MR_OK : mr_fail_memory(st, sizeof *w, "a worker");
    if (rc == MR_OK) {
        w->same = mr__id_map_get(&d->workers_by_address, h);
        rc = mr__id_map_set(&d->workers_by_address, h, w, st);
    }
    if (rc != MR_OK) {
        mr_free(w ? w->address : NULL);
        mr_free(w);
        return rc;
    }
    w->weight = 1000;
    w->next = d->workers;
    if (d->workers)
        d->workers->prev = w;
    d->workers = w;
    d->n_workers++;
    *out = w;
    return MR_OK;
}

mr_code mr__d_worker_known(mr__dispatcher *d, const char *address, mr__d_worker **out,
                           mr_status *st)
{
    *out = mr__d_worker_at(d, address);
    return *out ? MR_OK : new_worker(d, address, out, st);
}

void mr__d_free_worker(mr__dispatcher *d, mr__d_worker *w)
{
    uint64_t h = hash_of(w->address);
    mr__d_worker *first = mr__id_map_get(&d->workers_by_address, h);
    w->connection = 0;
    mr__d_rank(d, w);
    while (w->streams)
        mr__d_put(w->streams, NULL);
    if (first != w) {
        while (first->same != w)
            first = first->same;
        first->same = w->same;
    } else if (!w->same || mr__id_map_set(&d->workers_by_address, h, w->same, NULL) != MR_OK) {
        mr__id_map_remove(&d->workers_by_address, h);
    }
    if (w->prev)
        w->prev->next = w->next;
    else
        d->workers = w->next;
    if (w->next)
        w->next->prev = w->prev;
    d->n_workers--;
    d->n_with_orphans -= w->n_orphans != 0;
    mr_free(w->orphans);
    mr_free(w->address);
    mr_free(w);
}

void mr__d_list_worker(mr__dispatcher *d, size_t i, mr__d_worker *w)
{
    if (i >= d->opts.n_workers || d->listed[i] || w->listed)
        return;
    d->listed[i] = w;
    w->listed = true;
    d->n_listed++;
    for (mr__d_job *j = d->jobs; j; j = j->next)
        if (mr__d_static(j) && j->prepared && i < j->n_streams)
            mr__d_set_home(j->streams[i], w);
}

/* The list of the static modes has w, or has room for it. */
static mr_code check_listed(mr__dispatcher *d, mr__d_worker *w, const char *address, mr_status *st)
{
    char list[400] = "";
    if (!d->opts.n_workers || (w && w->listed) ||
        (!d->lists_addresses && d->n_listed < d->opts.n_workers))
        return MR_OK;
    for (size_t i = 0; i < d->opts.n_workers; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                 d->listed[i] ? d->listed[i]->address : "");
    }
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "worker %.100s is not on the dispatcher's list of workers: %s", address, list);
}

/* ---- streams that a worker reports as hosted, of jobs not known (yet) ---- */

/* A worker hosts s in a generation that this dispatcher did not assign: it lost its account, or
 * ended while s moved there. That generation is not used again, else a client that opens it would
 * get the old stream. */
static void outdo(mr__dispatcher *d, mr__d_stream *s, uint64_t generation)
{
    s->generation = generation;
    if (s->worker)
        mr__d_assign(d, s, NULL);
    else /* the reader acknowledges its end in this generation, or waits */
        mr__d_tell_reader(d, s, mr__d_record_stream(d, s));
}

void mr__d_adopt_orphans(mr__dispatcher *d, mr__d_worker *w)
{
    size_t kept = 0;
    d->n_with_orphans -= w->n_orphans != 0;
    for (size_t i = 0; i < w->n_orphans; i++) {
        const Mr__Wire__Hosted *h = &w->orphans[i];
        mr__d_job *j = mr__id_map_get(&d->jobs_by_id, h->job_id);
        if (!j || !j->prepared) {
            w->orphans[kept++] = *h;
            continue;
        }
        mr__d_stream *s = h->stream < j->n_streams ? j->streams[h->stream] : NULL;
        if (s && !s->worker && !s->end && s->generation == h->generation &&
            (!s->home || s->home == w)) {
            mr__d_put(s, w);
            mr__d_forget_awaited(s);
            mr__d_tell_reader(d, s, 0);
            continue;
        }
        bool was_moving = s && h->generation > s->generation && h->generation <= s->used;
        if (s && h->generation >= s->generation && !was_moving)
            outdo(d, s, h->generation);
        mr__d_unhost(d, w, h);
    }
    w->n_orphans = kept;
    d->n_with_orphans += kept != 0;
}

void mr__d_drop_orphans(mr__dispatcher *d, uint64_t job_id)
{
    for (mr__d_worker *w = d->n_with_orphans ? d->workers : NULL; w; w = w->next) {
        size_t kept = 0;
        d->n_with_orphans -= w->n_orphans != 0;
        for (size_t i = 0; i < w->n_orphans; i++) {
            if (w->orphans[i].job_id == job_id)
                mr__d_unhost(d, w, &w->orphans[i]);
            else
                w->orphans[kept++] = w->orphans[i];
        }
        w->n_orphans = kept;
        d->n_with_orphans += kept != 0;
    }
}

static mr_code keep_orphans(mr__dispatcher *d, mr__d_worker *w, const Mr__Wire__Register *r,
                            int64_t now, mr_status *st)
{
    d->n_with_orphans -= w->n_orphans != 0;
    mr_free(w->orphans);
    w->n_orphans = 0;
    w->orphans = mr_calloc(r->n_hosted + 1, sizeof *w->orphans);
    if (!w->orphans)
        return mr_fail_memory(st, r->n_hosted * sizeof *w->orphans, "a worker's streams");
    for (size_t i = 0; i < r->n_hosted; i++)
        w->orphans[i] = *r->hosted[i];
    w->n_orphans = r->n_hosted;
    d->n_with_orphans += w->n_orphans != 0;
    w->orphans_since = now;
    return MR_OK;
}

/* ---- draining ---- */

bool mr__d_has_just_started(const mr__dispatcher *d)
{
    return d->started != INT64_MIN && d->now - d->started < MR__COME_BACK_S * MR__SECOND;
}

bool mr__d_may_come(const mr__dispatcher *d, const mr__d_worker *w)
{
    return !w->connection && w->lost_at <= d->started && mr__d_has_just_started(d);
}

void mr__d_take_out(mr__dispatcher *d, mr__d_worker *w, bool is_out)
{
    w->taken_out = is_out;
    const mr__record r = {
        .kind = MR__RECORD_DRAIN, .name = w->address, .instance = is_out ? w->instance : 0};
    w->recorded = d->out.record(d->ctx, &r);
}

void mr__d_ask_to_end(mr__dispatcher *d, const mr__d_worker *w)
{
    Mr__Wire__Pulse pulse = MR__WIRE__PULSE__INIT;
    pulse.draining = true;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &pulse;
    d->out.send(d->ctx, w->connection, &m, 0);
}

void mr__d_say_drained(mr__dispatcher *d, const mr__d_worker *w)
{
    Mr__Wire__Report report = MR__WIRE__REPORT__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REPORT;
    m.report = &report;
    for (size_t i = 0; d->n_draining && i < d->connections.n; i++) {
        mr__d_connection *x = (mr__d_connection *)d->connections.entries[i].value;
        if (x->drains != w)
            continue;
        x->drains = NULL;
        d->n_draining--;
        report.request = x->drain_request;
        d->out.send(d->ctx, x->id, &m, w->recorded);
    }
}

/* ---- registering and leaving ---- */

void mr__d_lose_worker(mr__dispatcher *d, mr__d_worker *w, const char *how, int64_t now)
{
    mr__d_connection *x = mr__id_map_get(&d->connections, w->connection);
    if (x)
        x->worker = NULL;
    uint64_t connection = w->connection;
    w->connection = 0;
    w->lost_at = now;
    d->n_with_orphans -= w->n_orphans != 0;
    w->n_orphans = 0;
    mr__d_rank(d, w);
    mr__d_say_drained(d, w);
    if (w->draining && !w->n_streams)
        mr__d_note(d, MR_LOG_INFO, "worker %s has drained", w->address);
    else if (w->n_streams)
        mr__d_note(d, MR_LOG_WARNING, "worker %s %s; its %zu streams move", w->address, how,
                   w->n_streams);
    else
        mr__d_note(d, MR_LOG_INFO, "worker %s %s; it had no streams", w->address, how);
    for (mr__d_stream *s = d->moves, *next; s; s = next) {
        next = s->move_next;
        if (s->next_host == w)
            mr__d_cancel_move(s);
    }
    for (mr__d_job *j = d->jobs; j; j = j->next)
        if (j->matching == connection) {
            j->matching = 0;
            d->wants_lists = true;
        }
    mr__d_move_all(d, w);
}

void mr__d_take_register(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Register *r,
                         int64_t now)
{
    mr_status st;
    mr_code rc = MR_OK;
    mr__d_worker *w = mr__d_worker_at(d, r->address);
    if (x->worker || x->role != MR__WIRE__ROLE__WORKER || !r->address[0])
        rc = mr_fail(&st, MR_FAILED_PRECONDITION, "this connection is not from a worker");
    else if (!mr__d_is_operator(d, x))
        rc = mr_fail(&st, MR_PERMISSION_DENIED,
                     "this dispatcher takes workers with a name of --operators only, not with "
                     "\"%s\"",
                     x->name);
    else if ((rc = check_listed(d, w, r->address, &st)) == MR_OK && !w)
        rc = new_worker(d, r->address, &w, &st);
    if (rc == MR_OK &&
        w->connection) { /* it came again before its old connection was seen to end */
        uint64_t old = w->connection;
        mr__d_lose_worker(d, w, "connected again", now);
        d->out.close(d->ctx, old, NULL);
    }
    if (rc == MR_OK)
        rc = keep_orphans(d, w, r, now, &st);
    if (rc != MR_OK) {
        mr__d_fail(d, x->id, 0, 0, &st);
        return;
    }
    w->connection = x->id;
    w->heard = now;
    w->used_at = 0;
    w->back_until = 0;
    w->weight = r->weight ? r->weight : 1000;
    if (w->taken_out && (!r->instance || r->instance != w->instance))
        mr__d_take_out(d, w, false); /* the drained instance has ended: this is another one */
    w->instance = r->instance;
    w->draining = w->taken_out;
    x->worker = w;
    mr__d_rank(d, w);
    for (size_t i = 0; !w->listed && i < d->opts.n_workers; i++)
        mr__d_list_worker(d, i, w);
    Mr__Wire__Registered registered = MR__WIRE__REGISTERED__INIT;
    registered.worker_id = x->id;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_REGISTERED;
    m.registered = &registered;
    d->out.send(d->ctx, x->id, &m, 0);
    if (w->taken_out)
        mr__d_ask_to_end(d, w);
    mr__d_note(d, MR_LOG_INFO, "worker %s %s", w->address, w->taken_out ? "is to end" : "serves");
    mr__d_adopt_orphans(d, w);
    for (mr__d_stream *s = w->own; s; s = s->own_next)
        mr__d_review(s);
    d->wants_lists = true;
    d->newcomer = w;
}

/* A draining worker returns a stream. */
void mr__d_take_returned(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Returned *r)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, r->job_id);
    mr__d_stream *s = j && r->place->stream < j->n_streams ? j->streams[r->place->stream] : NULL;
    if (!s || s->worker != x->worker || !s->worker || s->generation != r->place->generation)
        return;
    x->worker->draining = true;
    mr__d_rank(d, x->worker);
    if (s->reader)
        mr__d_assign(d, s, x->worker);
    else
        mr__d_put(s, NULL);
}

void mr__d_take_pulse(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Pulse *p)
{
    if (x->worker && p->draining) {
        x->worker->draining = true;
        mr__d_rank(d, x->worker);
    }
    mr__d_take_usage(d, x, p);
    Mr__Wire__Pulse back = MR__WIRE__PULSE__INIT;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &back;
    d->out.send(d->ctx, x->id, &m, 0);
}
