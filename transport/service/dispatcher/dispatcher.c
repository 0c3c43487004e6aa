/* SPDX-License-Identifier: Apache-2.0 */
/* The dispatcher's messages and timers. */
#include "transport/service/dispatcher/dispatcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

mr_code mr__dispatcher_new(mr__dispatcher **out, const mr__dispatcher_opts *opts,
                           const mr__dispatcher_out *to, void *ctx, mr_status *st)
{
    mr__dispatcher *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a dispatcher");
    d->opts = *opts;
    d->opts.workers = d->opts.operators = NULL; /* borrowed for this call */
    d->lists_addresses = opts->workers != NULL;
    d->out = *to;
    d->ctx = ctx;
    d->random = opts->seed;
    d->started = d->ticked = INT64_MIN;
    mr_code rc = MR_OK;
    if (opts->n_workers && !(d->listed = mr_calloc(opts->n_workers, sizeof *d->listed)))
        rc = mr_fail_memory(st, opts->n_workers * sizeof *d->listed, "the list of workers");
    for (size_t i = 0; rc == MR_OK && opts->workers && i < opts->n_workers; i++) {
        mr__d_worker *w = NULL;
        rc = mr__d_worker_known(d, opts->workers[i], &w, st);
        if (rc == MR_OK)
            mr__d_list_worker(d, i, w);
    }
    if (rc == MR_OK && opts->n_operators &&
        !(d->operators = mr_calloc(opts->n_operators, sizeof *d->operators)))
        rc = mr_fail_memory(st, opts->n_operators * sizeof *d->operators, "the operators' names");
    for (size_t i = 0; rc == MR_OK && i < opts->n_operators; i++)
        if (!(d->operators[i] = mr_strdup(opts->operators[i])))
            rc = mr_fail_memory(st, strlen(opts->operators[i]), "an operator's name");
    if (rc != MR_OK) {
        mr__dispatcher_free(d);
        return rc;
    }
    *out = d;
    return MR_OK;
}

static void free_connection(mr__d_connection *x)
{
    mr_free(x->host);
    mr_free(x);
}

void mr__dispatcher_free(mr__dispatcher *d)
{
    if (!d)
        return;
    while (d->jobs)
        mr__d_job_free(d, d->jobs);
    while (d->workers)
        mr__d_free_worker(d, d->workers);
    for (size_t i = 0; i < d->connections.n; i++)
        free_connection((mr__d_connection *)d->connections.entries[i].value);
    while (d->datasets) {
        mr__d_dataset *x = d->datasets;
        d->datasets = x->next;
        mr_free(x->id);
        mr_free(x->graph);
        mr_free(x);
    }
    mr__id_map_reset(&d->connections);
    mr__id_map_reset(&d->workers_by_address);
    for (size_t i = 0; d->operators && i < d->opts.n_operators; i++)
        mr_free(d->operators[i]);
    mr_free(d->operators);
    mr_free(d->heap);
    mr_free(d->listed);
    mr__id_map_reset(&d->jobs_by_id);
    mr_free(d);
}

/* ---- messages of clients that read ---- */

/* Finishes j if nothing of it is left to wait for. */
static void finish(mr__dispatcher *d, mr__d_job *j, int64_t now)
{
    if (!mr__d_finished(j) || j->finished_at)
        return;
    j->finished_at = now;
    mr__d_note(d, MR_LOG_INFO, "%s was read to its end", mr__d_title(j));
    if (mr__d_shared(j))
        mr__d_tell_finished(d, j, NULL, j->recorded);
}

static void take_acknowledge(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Acknowledge *a,
                             int64_t now)
{
    mr__d_client *c = x->client;
    mr__d_job *j = c ? c->job : NULL;
    mr_status st;
    uint64_t after = 0;
    bool all = true;
    if (!c || j->id != a->job_id || c->id != a->client_id) {
        mr_fail(&st, MR_FAILED_PRECONDITION, "the job is read by another client, or was cancelled");
        mr__d_fail(d, x->id, a->request, a->job_id, &st);
        return;
    }
    for (size_t i = 0; i < a->n_places; i++) {
        const Mr__Wire__Place *p = a->places[i];
        mr__d_stream *s = p->stream < j->n_streams ? j->streams[p->stream] : NULL;
        if (!s || s->reader != c)
            continue;
        if (p->generation != s->generation) { /* the client repeats it after Placed */
            all = false;
            continue;
        }
        if (p->elements <= s->elements && (!p->end || s->end))
            continue;
        uint64_t before = s->elements;
        if (mr__d_stream_set(s, p, &st) != MR_OK) {
            mr__d_fail(d, x->id, a->request, j->id, &st);
            return;
        }
        d->acknowledged += p->elements > before ? p->elements - before : 0;
        s->missed = false;
        if (s->end)
            mr__d_take_off(d, s); /* its worker has no other way to know that it may drop it */
        after = mr__d_record_stream(d, s);
    }
    finish(d, j, now);
    if (!all)
        return;
    Mr__Wire__Acknowledged done = MR__WIRE__ACKNOWLEDGED__INIT;
    done.job_id = j->id;
    done.request = a->request;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_ACKNOWLEDGED;
    m.acknowledged = &done;
    d->out.send(d->ctx, x->id, &m, after);
}

static void take_leave(mr__dispatcher *d, mr__d_connection *x, int64_t now)
{
    mr__d_client *c = x->client;
    if (!c)
        return;
    mr__d_job *j = c->job;
    mr__d_drop_client(d, c, now);
    mr__d_release_streams(d, j);
    if (!j->name[0] && !j->clients) /* no client can request it again */
        mr__d_forget_job(d, j);
}

static void take_lost(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Lost *lost)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, lost->job_id);
    if (!x->client || x->client->job != j || lost->stream >= j->n_streams)
        return;
    mr__d_stream *s = j->streams[lost->stream];
    if (s->generation != lost->generation || !s->worker || s->reader != x->client)
        return;
    s->missed = lost->missing;
    mr__d_note(d, MR_LOG_WARNING, "a client cannot read stream %" PRIu32 " from worker %s",
               s->index, s->worker->address);
    mr__d_assign(d, s, s->worker);
}

/* ---- events ---- */

/* Does the work that the handlers of a message or timer have left. The order matters: existing
 * streams are assigned before new ones are made for a worker that registered. */
static void settle(mr__dispatcher *d, int64_t now)
{
    mr__d_worker *newcomer = d->newcomer;
    if (d->wants_lists)
        mr__d_ask_for_lists(d);
    for (mr__d_job *j = newcomer ? d->jobs : NULL; j; j = j->next)
        mr__d_await_former(d, j, false, now);
    mr__d_assign_all(d);
    for (mr__d_job *j = newcomer ? d->jobs : NULL; j; j = j->next)
        mr__d_make_streams(d, j, newcomer);
    d->wants_lists = false;
    d->newcomer = NULL;
}

void mr__dispatcher_opened(mr__dispatcher *d, uint64_t connection, Mr__Wire__Role role,
                           const char *host, uint32_t process, int64_t now)
{
    mr_status st;
    mr__d_connection *x = mr_calloc(1, sizeof *x);
    (void)now;
    if (!x || !(x->host = mr_strdup(host)) ||
        mr__id_map_set(&d->connections, connection, x, &st) != MR_OK) {
        if (x)
            free_connection(x);
        mr_fail_memory(&st, sizeof *x, "a connection");
        d->out.close(d->ctx, connection, &st);
        return;
    }
    x->id = connection;
    x->role = role;
    x->process = process;
}

void mr__dispatcher_named(mr__dispatcher *d, uint64_t connection, const char *name)
{
    mr__d_connection *x = mr__id_map_get(&d->connections, connection);
    if (x)
        snprintf(x->name, sizeof x->name, "%s", name);
}

void mr__dispatcher_message(mr__dispatcher *d, uint64_t connection, const mr__message *m,
                            int64_t now)
{
    mr__d_connection *x = mr__id_map_get(&d->connections, connection);
    d->now = now;
    if (!x)
        return;
    if (x->worker)
        x->worker->heard = now;
    if (x->client)
        x->client->heard = now;
    switch (m->body_case) {
    case MR__WIRE__MESSAGE__BODY_JOIN:
        mr__d_take_join(d, x, m->join, now);
        break;
    case MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE:
        take_acknowledge(d, x, m->acknowledge, now);
        break;
    case MR__WIRE__MESSAGE__BODY_LEAVE:
        take_leave(d, x, now);
        break;
    case MR__WIRE__MESSAGE__BODY_LOST:
        take_lost(d, x, m->lost);
        break;
    case MR__WIRE__MESSAGE__BODY_PREPARED:
        mr__d_take_prepared(d, x, m->prepared);
        break;
    case MR__WIRE__MESSAGE__BODY_REGISTER_WORKER:
        mr__d_take_register(d, x, m->register_worker, now);
        break;
    case MR__WIRE__MESSAGE__BODY_LISTS:
        mr__d_take_lists(d, x, m->lists, now);
        break;
    case MR__WIRE__MESSAGE__BODY_RETURNED:
        mr__d_take_returned(d, x, m->returned);
        break;
    case MR__WIRE__MESSAGE__BODY_WANT_SPLIT:
        mr__d_take_want(d, x, m->want_split);
        break;
    case MR__WIRE__MESSAGE__BODY_PULSE:
        mr__d_take_pulse(d, x, m->pulse);
        break;
    case MR__WIRE__MESSAGE__BODY_ASK:
        mr__d_take_ask(d, x, m->ask, now);
        break;
    default: {
        mr_status why;
        mr_fail(&why, MR_DATA_LOSS, "message %d is not for a dispatcher", (int)m->body_case);
        d->out.close(d->ctx, connection, &why);
        mr__dispatcher_closed(d, connection, now);
    }
    }
    settle(d, now);
}

void mr__dispatcher_closed(mr__dispatcher *d, uint64_t connection, int64_t now)
{
    mr__d_connection *x = mr__id_map_get(&d->connections, connection);
    d->now = now;
    if (!x)
        return;
    mr__id_map_remove(&d->connections, connection);
    d->n_draining -= x->drains != NULL;
    if (x->worker)
        mr__d_lose_worker(d, x->worker, "closed its connection", now);
    if (x->client) {
        mr__d_cancel_moves_of(d, x->client); /* the client forgets them as well */
        x->client->connection = 0;
        x->client->heard = now;
    }
    for (mr__d_job *j = d->jobs; j; j = j->next)
        for (mr__d_waiting **at = &j->waiting; *at;) {
            mr__d_waiting *w = *at;
            if (w->connection != connection) {
                at = &w->next;
                continue;
            }
            *at = w->next;
            mr__wire_free(w->join);
            mr_free(w);
        }
    free_connection(x);
    settle(d, now);
}

void mr__dispatcher_disk(mr__dispatcher *d, bool full, int64_t now)
{
    d->now = now;
    if (full != d->disk_full)
        mr__d_note(d, full ? MR_LOG_ERROR : MR_LOG_INFO,
                   full ? "the account cannot be written: no new jobs are taken"
                        : "the account can be written again");
    d->disk_full = full;
}

static mr_code load_stream(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Place *place,
                           mr_status *st)
{
    mr__d_stream *s = NULL;
    if (j && mr__d_shared(j) && place->stream == j->n_streams)
        MR_TRY(mr__d_stream_new(j, &s, st));
    else if (j && place->stream < j->n_streams)
        s = j->streams[place->stream];
    else
        return mr_fail(st, MR_DATA_LOSS, "the account has a stream without a job");
    MR_TRY(mr__d_stream_set(s, place, st));
    s->generation = place->generation;
    s->owner = place->reader;
    if (place->home[0]) {
        mr__d_worker *w = NULL;
        MR_TRY(mr__d_worker_known(d, place->home, &w, st));
        if (mr__d_static(j) && !d->lists_addresses) /* the first workers keep their indexes */
            mr__d_list_worker(d, place->stream, w);
        mr__d_set_home(s, w);
    } else if (place->worker[0]) {
        mr__d_await(s, place->worker, INT64_MAX); /* set by the first tick */
    }
    return MR_OK;
}

static mr_code load_drain(mr__dispatcher *d, const mr__record *r, mr_status *st)
{
    mr__d_worker *w = mr__d_worker_at(d, r->name);
    if (!w && r->instance)
        MR_TRY(mr__d_worker_known(d, r->name, &w, st));
    if (w) {
        w->instance = r->instance;
        w->draining = w->taken_out = r->instance != 0;
    }
    return MR_OK;
}

mr_code mr__dispatcher_load(mr__dispatcher *d, const mr__record *r, mr_status *st)
{
    mr__d_job *j = r->job_id ? mr__id_map_get(&d->jobs_by_id, r->job_id) : NULL;
    d->has_loaded |= r->kind != MR__RECORD_DRAIN; /* drains are independent of jobs */
    switch (r->kind) {
    case MR__RECORD_JOB:
        if (!j) {
            MR_TRY(mr__d_job_new(d, r->job_id, r->name, r->job, &j, st));
            j->prepared = true;
            MR_TRY(mr__d_job_streams(j, st));
        }
        j->spec->shared = r->job->shared; /* the latest value */
        j->rebuilding = r->job->rebuilding;
        j->former = r->job->former;
        j->awaits = r->job->awaits;
        return MR_OK;
    case MR__RECORD_STREAM:
        return load_stream(d, j, r->place, st);
    case MR__RECORD_SPLIT:
        if (!j || r->stream >= j->n_streams)
            return mr_fail(st, MR_DATA_LOSS, "the account has a split without a stream");
        return mr__d_add_split(j->streams[r->stream], r->split, st);
    case MR__RECORD_FORGET:
        if (j)
            mr__d_job_free(d, j);
        return MR_OK;
    case MR__RECORD_DATASET: {
        mr__d_dataset *x;
        return mr__d_add_dataset(d, r->name, r->graph, r->graph_bytes, &x, st);
    }
    case MR__RECORD_DRAIN:
        return load_drain(d, r, st);
    }
    return mr_fail(st, MR_DATA_LOSS, "the account has a record of unknown kind %d", (int)r->kind);
}

/* ---- time ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void end_rebuilding(mr__dispatcher *d, mr__d_job *j, int64_t now)
{
    uint64_t n = mr__d_rebuilt(d, j);
    /* The splits after the last one that a client names are unknown. */
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
        mr__d_warn(d, j,
                   "the dispatcher lost its account: splits of %s that none of its clients claims "
                   "are handed out, again or for the first time; elements that departed clients "
                   "read from them are repeated",
                   mr__d_title(j));
    else if (n)
        mr__d_warn(d, j,
                   "the dispatcher lost its account: %" PRIu64
                   " streams of %s that none of its clients claims start over; elements that "
                   "departed clients read from them are repeated",
                   n, mr__d_title(j));
    finish(d, j, now);
}

static void tick_jobs(mr__dispatcher *d, int64_t now)
{
    for (mr__d_job *j = d->jobs, *next; j; j = next) {
        next = j->next;
        bool silent = false;
        for (mr__d_client *c = j->clients, *after; c; c = after) {
            after = c->next;
            if (now - c->heard < c->silent_ns)
                continue;
            mr__d_note(d, MR_LOG_WARNING,
                       "the client of %s (process %" PRIu32 " on %s) is silent; its streams are "
                       "kept for it",
                       mr__d_title(j), c->process, c->host);
            if (c->connection)
                d->out.close(d->ctx, c->connection, NULL);
            mr__d_drop_client(d, c, now);
            silent = true;
        }
        if (silent)
            mr__d_release_streams(d, j);
        if (j->holding && j->clients && now >= j->hold_until) {
            j->holding = false;
            bool rebuilt = j->rebuilding;
            if (rebuilt)
                end_rebuilding(d, j, now);
            if (mr__d_share_out(d, j) && !rebuilt)
                mr__d_note(d, MR_LOG_WARNING,
                           "a client of %s that did not return is silent; its streams go to others",
                           mr__d_title(j));
            mr__d_make_streams(d, j, NULL);
        }
        if (j->awaits && !mr__d_awaits_workers(d, now)) {
            j->awaits = false;
            j->recorded = mr__d_record_job(d, j);
            mr__d_go_on_without(d, j);
            finish(d, j, now);
        }
        bool over = mr__d_finished(j) && !j->clients &&
                    now - (j->left_at > j->finished_at ? j->left_at : j->finished_at) >=
                        MR__FINISHED_S * MR__SECOND;
        /* Only its own client can request a job without a name. */
        bool left = !j->name[0] && j->prepared && !j->clients && !j->waiting &&
                    now - j->left_at >= MR__ORPHAN_S * MR__SECOND;
        if (over || left || (silent && !j->name[0] && !j->clients))
            mr__d_forget_job(d, j);
    }
}

static void tick_workers(mr__dispatcher *d, int64_t now)
{
    for (mr__d_worker *w = d->workers, *next; w; w = next) {
        next = w->next;
        if (w->taken_out && !w->connection && !mr__d_may_come(d, w))
            mr__d_say_drained(d, w);
        if (w->connection && now - w->heard >= MR__WORKER_SILENT_S * MR__SECOND) {
            uint64_t connection = w->connection;
            mr__d_lose_worker(d, w, "is silent", now);
            d->out.close(d->ctx, connection, NULL);
        } else if (w->connection && w->n_orphans &&
                   now - w->orphans_since >= MR__ORPHAN_S * MR__SECOND) {
            for (size_t i = 0; i < w->n_orphans; i++)
                mr__d_unhost(d, w, &w->orphans[i]);
            w->n_orphans = 0;
            d->n_with_orphans--;
        } else if (!w->connection && !w->own && !w->listed &&
                   mr__d_is_away(d, w, w->taken_out ? MR__DRAINED_S : MR__FINISHED_S)) {
            if (w->taken_out)
                mr__d_take_out(d, w, false);
            mr__d_free_worker(d, w);
        }
    }
}

/* Ticks occur once a second. After a longer gap, this process or its machine was suspended, and
 * peers that seem silent may have sent messages: all of them get the full time again. Otherwise a
 * client that holds elements would lose its streams to another one. */
static void tick_after_sleep(mr__dispatcher *d, int64_t now)
{
    int64_t slept = d->ticked == INT64_MIN ? 0 : now - d->ticked;
    if (slept < MR__SLEPT_S * MR__SECOND)
        return;
    for (mr__d_worker *w = d->workers; w; w = w->next) {
        w->heard = earlier(w->heard + slept, now);
        w->back_until += w->back_until ? slept : 0;
    }
    for (mr__d_job *j = d->jobs; j; j = j->next) {
        j->hold_until += slept;
        j->left_at = earlier(j->left_at + slept, now);
        for (mr__d_client *c = j->clients; c; c = c->next)
            c->heard = earlier(c->heard + slept, now);
    }
    for (mr__d_stream *s = d->awaiting.first; s; s = s->q_next)
        s->awaited_until += slept;
}

int64_t mr__dispatcher_tick(mr__dispatcher *d, int64_t now)
{
    d->now = now;
    tick_after_sleep(d, now);
    d->ticked = now;
    if (d->started == INT64_MIN) {
        d->started = now;
        for (mr__d_worker *w = d->workers; w; w = w->next) {
            w->lost_at = now;
            if (!w->connection && w->own && !w->taken_out)
                w->back_until = now + MR__COME_BACK_S * MR__SECOND;
        }
        for (mr__d_job *j = d->jobs; j; j = j->next)
            for (uint32_t i = 0; i < j->n_streams; i++)
                if (j->streams[i]->awaited)
                    j->streams[i]->awaited_until = now + MR__AWAITED_S * MR__SECOND;
        for (mr__d_job *j = d->jobs; j; j = j->next) {
            j->left_at = now;
            j->holding = mr__d_shared(j);
            j->hold_until = now + MR__CLIENT_SILENT_S * MR__SECOND;
            if (j->holding)
                mr__d_go_on_rebuilding(d, j);
        }
    }
    tick_workers(d, now);
    tick_jobs(d, now);
    if (!mr__d_awaits_workers(d, now)) /* all jobs that awaited them continue without them */
        for (mr__d_worker *w = d->workers; w; w = w->next)
            w->back_until = 0;
    mr__d_measure(d, now);
    mr__d_tick_awaiting(d, now);
    mr__d_tick_balance(d, now);
    mr__d_tick_target(d, now);
    settle(d, now);
    return d->workers || d->jobs ? now + MR__SECOND : INT64_MAX;
}
