/* SPDX-License-Identifier: Apache-2.0 */
/* Joining jobs: which client may read which streams, and the preparation of new jobs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/service/dispatcher/dispatcher_state.h"

static void answer_joined(mr__dispatcher *d, const mr__d_client *c, uint64_t request,
                          uint64_t after)
{
    mr__d_job *j = c->job;
    Mr__Wire__Place *places = mr_calloc(j->n_streams + (size_t)1, sizeof *places);
    Mr__Wire__Place **list = mr_calloc(j->n_streams + (size_t)1, sizeof *list);
    size_t n = 0;
    for (uint32_t i = 0; places && list && i < j->n_streams; i++)
        if (j->streams[i]->reader == c) {
            places[n] = mr__d_place_with_splits(j->streams[i]);
            list[n] = &places[n];
            n++;
        }
    if (!places || !list) {
        mr_status why;
        mr_fail_memory(&why, j->n_streams * sizeof *places, "a job's places");
        mr__d_fail(d, c->connection, request, j->id, &why);
    } else {
        Mr__Wire__Job without_graph = *j->spec;
        without_graph.graph = (ProtobufCBinaryData){0, NULL};
        Mr__Wire__Joined joined = MR__WIRE__JOINED__INIT;
        joined.request = request;
        joined.job_id = j->id;
        joined.client_id = c->id;
        joined.job = &without_graph;
        joined.n_places = n;
        joined.places = list;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        m.body_case = MR__WIRE__MESSAGE__BODY_JOINED;
        m.joined = &joined;
        d->out.send(d->ctx, c->connection, &m, after);
    }
    mr_free(places);
    mr_free(list);
}

static mr_code differs(const char *name, const char *what, const char *theirs, const char *ours,
                       mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "job \"%.100s\" runs with %s %s, not %s; use another job_name, or the same %s",
                   name, what, theirs, ours, what);
}

/* The modes in which the client sets the number of streams. */
static bool has_streams(Mr__Wire__Mode mode)
{
    return mode == MR__WIRE__MODE__EXACTLY_ONCE || mode == MR__WIRE__MODE__DYNAMIC;
}

static mr_code check_same_job(const mr__d_job *j, const Mr__Wire__Join *join, mr_status *st)
{
    char a[32], b[32];
    const Mr__Wire__Job *have = j->spec, *want = join->job;
    if (have->mode != want->mode)
        return differs(j->name, "processing_mode", mr__d_modes[have->mode], mr__d_modes[want->mode],
                       st);
    if (want->streams && want->streams != have->streams && j->prepared && has_streams(have->mode)) {
        snprintf(a, sizeof a, "%" PRIu32, have->streams);
        snprintf(b, sizeof b, "%" PRIu32, want->streams);
        return differs(j->name, "streams", a, b, st);
    }
    if (have->block_length != want->block_length) {
        snprintf(a, sizeof a, "%" PRIu32, have->block_length);
        snprintf(b, sizeof b, "%" PRIu32, want->block_length);
        return differs(j->name, "block_length", a, b, st);
    }
    if (have->consumers != want->consumers) {
        snprintf(a, sizeof a, "%" PRIu32, have->consumers);
        snprintf(b, sizeof b, "%" PRIu32, want->consumers);
        return differs(j->name, "num_consumers", a, b, st);
    }
    size_t n = have->graph.len;
    if (n != want->graph.len || (n && memcmp(have->graph.data, want->graph.data, n) != 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "job \"%.100s\" runs another graph; use another job_name, or the same graph",
                       j->name);
    return MR_OK;
}

/* True if this consumer has acknowledged something. */
static bool progressed(const mr__d_job *j, uint32_t consumer)
{
    uint32_t step = j->spec->consumers ? j->spec->consumers : 1;
    for (uint32_t i = consumer; i < j->n_streams; i += step)
        if (j->streams[i]->elements || j->streams[i]->end)
            return true;
    return false;
}

void mr__d_drop_client(mr__dispatcher *d, mr__d_client *c, int64_t now)
{
    mr__d_connection *x = mr__id_map_get(&d->connections, c->connection);
    if (x)
        x->client = NULL;
    mr__d_client **at = &c->job->clients;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->job->left_at = now;
    mr__d_lose_reader(d, c->job, c);
    mr_free(c->host);
    mr_free(c);
}

static void cut_off(mr__dispatcher *d, mr__d_client *c)
{
    uint64_t old = c->connection;
    mr__d_connection *x = mr__id_map_get(&d->connections, old);
    c->connection = 0;
    if (!x)
        return;
    x->client = NULL;
    d->out.close(d->ctx, old, NULL);
}

/* True if the client restores a position instead of returning to a job that it was in. */
static bool is_restored(const Mr__Wire__Join *join)
{
    return (join->restores || join->n_places) && !join->job_id && !join->begins;
}

/* Warns that its position is ignored, because other clients have continued to read the job. */
static void say_goes_on(mr__dispatcher *d, const mr__d_client *c)
{
    static const char format[] = "%s has several clients: one that restores a position resumes "
                                 "after the acknowledged elements";
    char line[256];
    snprintf(line, sizeof line, format, mr__d_title(c->job));
    mr__d_note_line(d, MR_LOG_WARNING, format, line);
    mr__d_tell_warning(d, c, line);
}

/* Checks that a joining client may read the job: no other connected client reads its streams. */
static mr_code check_place(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join, int64_t now,
                           mr_status *st)
{
    uint32_t consumers = j->spec->consumers;
    bool shared = mr__d_shared(j);
    if (consumers && shared)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_consumers is for the modes with fixed streams; clients of a \"%s\" job "
                       "share it by its name",
                       mr__d_modes[j->spec->mode]);
    if (consumers > j->n_streams)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_consumers is %" PRIu32 ", but the job has %" PRIu32
                       " streams; use at least that many streams",
                       consumers, j->n_streams);
    for (mr__d_client *c = j->clients, *next; c; c = next) {
        next = c->next;
        if (consumers && c->consumer != join->consumer)
            continue;
        if (c->id == join->client_id) { /* it is back, maybe before its old connection was missed */
            cut_off(d, c);
            continue;
        }
        /* A client that restores a position of a job with one client is that client, restarted. */
        if (shared && (j->spec->shared || !is_restored(join)))
            continue;
        if (c->connection == 0) { /* it was cut off: the newcomer takes over */
            mr__d_drop_client(d, c, now);
            continue;
        }
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s is being read%s by process %" PRIu32
                       " on %.100s; wait until it ends, or use num_consumers to share the job",
                       mr__d_title(j), consumers ? " for this consumer_index" : "", c->process,
                       c->host);
    }
    bool again = shared || join->resume || join->job_id || (join->n_places && !join->begins) ||
                 mr__d_finished(j);
    if (!again && progressed(j, join->consumer))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "%s was read in part by a client that left; continue it with resume=true, "
                       "or end it with 'millrace service cancel'",
                       mr__d_title(j));
    return MR_OK;
}

static mr_code begun_anew(const mr__d_job *j, mr_status *st)
{
    return mr_fail(
        st, MR_DATA_LOSS,
        "the dispatcher lost its account, and %s was rebuilt without this client: elements that it "
        "has read are handed out again; start the job again, or under another job_name",
        mr__d_title(j));
}

/* True if the client was in a job of this name that is not on record, and not in this one: the
 * account was lost. (A shared job that is rebuilt has another id, so that this is detected.) */
static bool is_of_former(const mr__d_job *j, const Mr__Wire__Join *join)
{
    if (!join->job_id || join->job_id == j->id)
        return false;
    for (const mr__d_client *c = j->clients; c; c = c->next)
        if (c->id == join->client_id)
            return false;
    for (size_t i = 0; i < join->n_places; i++) {
        uint32_t stream = join->places[i]->stream;
        if (stream < j->n_streams && j->streams[stream]->owner == join->client_id)
            return false;
    }
    return true;
}

/* Whether it can still be prevented that elements read by a client of a former job are assigned
 * again. */
static mr_code check_former(const mr__d_job *j, const Mr__Wire__Join *join, mr_status *st)
{
    if (j->made_now || !join->n_places || !is_of_former(j, join))
        return MR_OK;
    if (mr__d_shared(j))
        /* Two former jobs of that name use the numbers of streams and splits differently. */
        return (j->rebuilding || !j->n_streams) && (!j->former || j->former == join->job_id)
                   ? MR_OK
                   : begun_anew(j, st);
    if (j->spec->seed != join->job->seed) /* other elements, maybe */
        return begun_anew(j, st);
    for (size_t i = 0; i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        const mr__d_stream *s = p->stream < j->n_streams ? j->streams[p->stream] : NULL;
        if (s && (s->elements > p->elements || (s->end && !p->end)))
            return begun_anew(j, st);
    }
    return MR_OK;
}

static mr_code new_client(mr__d_job *j, mr__d_connection *x, const Mr__Wire__Join *join,
                          int64_t now, mr__d_client **out, mr_status *st)
{
    for (mr__d_client *c = j->clients; c; c = c->next)
        if (c->id == join->client_id) {
            mr__d_cancel_moves_of(j->d, c);
            c->connection = x->id;
            c->heard = now;
            c->let_in = false;
            x->client = c;
            *out = c;
            return MR_OK;
        }
    mr__d_client *c = mr_calloc(1, sizeof *c);
    if (!c || !(c->host = mr_strdup(x->host))) {
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "a client");
    }
    uint32_t silent = join->timeout_seconds ? join->timeout_seconds : MR__CLIENT_SILENT_S;
    c->id = join->client_id;
    c->connection = x->id;
    c->job = j;
    c->consumer = join->consumer;
    c->process = x->process;
    c->heard = now;
    c->silent_ns = silent * MR__SECOND;
    c->next = j->clients;
    j->clients = c;
    x->client = c;
    *out = c;
    return MR_OK;
}

/* A client that restores a position sends the positions of its streams: they override the
 * acknowledged ones. A client whose connection was lost sends them too; then only the generation
 * that it reads can be news, and only if the dispatcher lost its account. */
static mr_code take_places(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join,
                           bool restores, bool made_now, int64_t now, mr_status *st)
{
    for (size_t i = 0; i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        if (p->stream >= j->n_streams)
            return mr_fail(
                st, MR_INVALID_ARGUMENT,
                "the position is from a job with more streams: it has stream number %" PRIu32
                " of %" PRIu32,
                p->stream, j->n_streams);
        mr__d_stream *s = j->streams[p->stream];
        bool news = p->elements > s->elements || (p->elements == s->elements && p->end && !s->end);
        bool ahead = p->generation > s->generation; /* the account was lost */
        if (!restores && !made_now && !news && !ahead)
            continue;
        if (restores || made_now || news)
            MR_TRY(mr__d_stream_set(s, p, st));
        if (ahead)
            s->generation = p->generation;
        if (s->worker && (restores || ahead)) /* it hosts another generation */
            mr__d_assign(d, s, NULL);
        if (made_now && p->home[0] && !s->home) { /* the first workers keep their indexes */
            mr__d_worker *w = NULL;
            MR_TRY(mr__d_worker_known(d, p->home, &w, st));
            mr__d_list_worker(d, p->stream, w);
        }
        if (made_now && p->worker[0] && !s->awaited)
            mr__d_await(s, p->worker, now + MR__AWAITED_S * MR__SECOND);
        mr__d_record_stream(d, s);
    }
    return MR_OK;
}

static void await_others(mr__d_job *j, int64_t now)
{
    j->rebuilding = j->holding = true;
    j->hold_until = now + MR__COME_BACK_S * MR__SECOND;
    j->recorded = mr__d_record_job(j->d, j);
}

void mr__d_await_former(mr__dispatcher *d, mr__d_job *j, bool seen, int64_t now)
{
    bool lost = !d->has_loaded && d->n_with_orphans &&
                (d->started == INT64_MIN || now - d->started < MR__ORPHAN_S * MR__SECOND);
    if (j->prepared && mr__d_shared(j) && j->name[0] && !j->n_streams && !j->rebuilding &&
        (seen || lost))
        await_others(j, now);
}

/* Checks that the splits of a position were assigned in this job, not in one that was lost. */
static mr_code check_position(const mr__d_job *j, const Mr__Wire__Join *join, mr_status *st)
{
    for (size_t i = 0; i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        const mr__d_stream *s = p->stream < j->n_streams ? j->streams[p->stream] : NULL;
        bool same = s && p->n_splits <= s->n_splits;
        for (size_t k = 0; same && k < p->n_splits; k++)
            same = p->splits[k] == s->splits[k];
        if (!same || (p->home[0] && (!s->home || strcmp(p->home, s->home->address) != 0)))
            return begun_anew(j, st);
    }
    return MR_OK;
}

/* parallel_epochs: the previous repetition had a stream on each of these workers. Each of them also
 * begins this repetition, even if it is away at present. */
static mr_code await_workers(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join,
                             int64_t now, mr_status *st)
{
    for (size_t i = 0; i < join->n_places; i++) {
        mr__d_worker *w = NULL;
        if (!join->places[i]->home[0])
            continue;
        MR_TRY(mr__d_worker_known(d, join->places[i]->home, &w, st));
        if (w->connection || w->taken_out)
            continue;
        w->back_until = now + MR__COME_BACK_S * MR__SECOND;
        w->lost_at = now;
        j->awaits = true;
    }
    j->recorded = mr__d_record_job(d, j);
    return MR_OK;
}

/* Takes over the streams that a client of a shared job reports, unless they were assigned to
 * another client since; a restored position counts only if it takes nothing from other clients. */
static mr_code take_shared_places(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join,
                                  bool restores, bool made_now, int64_t now, mr_status *st)
{
    if (made_now && join->job_id) /* the account was lost: other clients may be in this job too */
        await_others(j, now);
    else
        mr__d_await_former(d, j, is_of_former(j, join), now);
    if (join->n_places && join->job_id && join->job_id != j->id && j->rebuilding && !j->former) {
        j->former = join->job_id;
        j->recorded = mr__d_record_job(d, j);
    }
    if (join->begins && join->n_places && !join->job_id && !mr__d_finished(j) &&
        j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
        MR_TRY(await_workers(d, j, join, now, st));
    if ((!join->n_places && !restores) || (join->begins && !join->job_id))
        return MR_OK;
    if (restores && !j->spec->shared)
        mr__d_unmake(d, j);
    if (made_now || j->rebuilding || (restores && !j->spec->shared)) {
        MR_TRY(mr__d_rebuild(d, j, join, st));
        uint64_t n = j->rebuilding ? 0 : mr__d_rebuilt(d, j);
        if (n && made_now)
            mr__d_warn(d, j,
                       "%s is rebuilt from a position: %" PRIu64
                       " splits or streams that it does not name start over; elements that other "
                       "clients read from them are repeated",
                       mr__d_title(j), n);
        return MR_OK;
    }
    if (restores) /* the client is warned when it is let in */
        return check_position(j, join, st);
    for (size_t i = 0; i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        mr__d_stream *s = p->stream < j->n_streams ? j->streams[p->stream] : NULL;
        if (s && s->owner == join->client_id)
            MR_TRY(mr__d_take_news(d, s, p, st));
    }
    return MR_OK;
}

/* Another client is, or was, in this job: from now on no position of one may take it back. */
static void note_sharing(mr__dispatcher *d, mr__d_job *j, const Mr__Wire__Join *join)
{
    for (const mr__d_client *c = j->clients; c && !j->spec->shared; c = c->next)
        if (c->connection && c->id != join->client_id) { /* not itself before a reconnect */
            j->spec->shared = true;
            j->recorded = mr__d_record_job(d, j);
        }
}

static void hand_out_streams(mr__dispatcher *d, mr__d_job *j)
{
    mr__d_assign_all(d);
    mr__d_share_out(d, j);
    mr__d_make_streams(d, j, NULL);
}

/* The job is prepared: the client is let in. */
static void admit(mr__dispatcher *d, mr__d_job *j, mr__d_connection *x, const Mr__Wire__Join *join,
                  int64_t now)
{
    mr_status st;
    mr__d_client *c = NULL;
    bool restores = is_restored(join), shared = mr__d_shared(j), made_now = j->made_now;
    mr_code rc = check_same_job(j, join, &st);
    if (rc == MR_OK)
        rc = check_former(j, join, &st);
    if (rc == MR_OK)
        rc = check_place(d, j, join, now, &st);
    if (rc == MR_OK && shared)
        note_sharing(d, j, join);
    if (rc == MR_OK)
        rc = shared ? take_shared_places(d, j, join, restores, made_now, now, &st)
                    : take_places(d, j, join, restores, made_now, now, &st);
    if (rc == MR_OK)
        rc = new_client(j, x, join, now, &c, &st);
    if (rc != MR_OK) {
        mr__d_fail(d, x->id, join->request, j->id, &st);
        return;
    }
    j->made_now = false;
    if (join->job_id && join->job_id != j->id)
        mr__d_drop_orphans(d, join->job_id);
    /* The first client to return must not take the streams of those that return later. */
    int64_t others = now + MR__COME_BACK_S * MR__SECOND;
    if (j->holding && !j->clients->next && j->hold_until < others)
        j->hold_until = others;
    bool news = !j->finished_at; /* its message may be the end of the last stream */
    j->finished_at = mr__d_finished(j) ? now : 0;
    mr__d_take_streams(j, c, join);
    for (mr__d_worker *w = d->n_with_orphans ? d->workers : NULL; w; w = w->next)
        if (w->connection && w->n_orphans)
            mr__d_adopt_orphans(d, w);
    /* All streams at once: while it reads one, both it and the account know of the others. */
    if (j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
        hand_out_streams(d, j);
    answer_joined(d, c, join->request, j->recorded);
    c->let_in = true;
    hand_out_streams(d, j);
    if (j->warning)
        mr__d_tell_warning(d, c, j->warning);
    if (shared && restores && j->spec->shared && !j->rebuilding)
        say_goes_on(d, c);
    if (shared && mr__d_finished(j))
        mr__d_tell_finished(d, j, news ? NULL : c, j->recorded);
}

/* ---- preparing a job ---- */

void mr__d_refuse_waiting(mr__dispatcher *d, mr__d_job *j, const mr_status *why)
{
    while (j->waiting) {
        mr__d_waiting *w = j->waiting;
        j->waiting = w->next;
        mr__d_fail(d, w->connection, w->join->request, j->id, why);
        mr__wire_free(w->join);
        mr_free(w);
    }
}

/* Sets the number of streams or splits, and the workers of the static modes' streams. */
static mr_code cut(mr__dispatcher *d, mr__d_job *j, mr_status *st)
{
    uint32_t n = 0;
    switch (j->spec->mode) {
    case MR__WIRE__MODE__EXACTLY_ONCE:
        MR_TRY(d->opts.streams(d->opts.streams_ctx, j->spec, &n, st));
        j->spec->streams = n;
        break;
    case MR__WIRE__MODE__DYNAMIC:
        if (!j->spec->splits) {
            MR_TRY(d->opts.streams(d->opts.streams_ctx, j->spec, &n, st));
            j->spec->splits = n;
        }
        break;
    case MR__WIRE__MODE__PARALLEL_EPOCHS:
        break;
    default:
        if (!d->opts.n_workers)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "processing_mode \"%s\" needs a fixed list of workers; start the "
                           "dispatcher with --workers HOST:PORT,... or --num-workers N",
                           mr__d_modes[j->spec->mode]);
        j->spec->streams = (uint32_t)d->opts.n_workers;
    }
    MR_TRY(mr__d_job_streams(j, st));
    for (size_t i = 0; mr__d_static(j) && i < d->opts.n_workers; i++)
        if (d->listed[i])
            mr__d_set_home(j->streams[i], d->listed[i]);
    return MR_OK;
}

/* The job's lists are final: cuts it, and lets the waiting clients in. */
static void prepare(mr__dispatcher *d, mr__d_job *j, int64_t now)
{
    mr_status st;
    if (cut(d, j, &st) != MR_OK) {
        mr__d_refuse_waiting(d, j, &st);
        mr__d_job_free(d, j);
        return;
    }
    j->prepared = j->made_now = true;
    j->awaits = j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS && mr__d_awaits_workers(d, now);
    j->recorded = mr__d_record_job(d, j);
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
        mr__d_note(d, MR_LOG_INFO, "%s begins, in %" PRIu64 " splits", mr__d_title(j),
                   j->spec->splits);
    else if (mr__d_shared(j))
        mr__d_note(d, MR_LOG_INFO, "%s begins, on every worker", mr__d_title(j));
    else
        mr__d_note(d, MR_LOG_INFO, "%s begins, in %" PRIu32 " streams", mr__d_title(j),
                   j->n_streams);
    while (j->waiting) {
        mr__d_waiting *w = j->waiting;
        j->waiting = w->next;
        mr__d_connection *x = mr__id_map_get(&d->connections, w->connection);
        if (x)
            admit(d, j, x, w->join, now);
        mr__wire_free(w->join);
        mr_free(w);
    }
}

static void ask_for_lists(mr__dispatcher *d, mr__d_job *j)
{
    if (j->prepared || j->matching || j->spec->has_lists)
        return;
    for (mr__d_worker *w = d->workers; w; w = w->next) {
        if (!w->connection || w->draining)
            continue;
        Mr__Wire__Match match = MR__WIRE__MATCH__INIT;
        match.job_id = j->id;
        match.job = j->spec;
        mr__message m = MR__WIRE__MESSAGE__INIT;
        m.body_case = MR__WIRE__MESSAGE__BODY_MATCH;
        m.match = &match;
        j->matching = w->connection;
        d->out.send(d->ctx, w->connection, &m, 0);
        return;
    }
}

void mr__d_ask_for_lists(mr__dispatcher *d)
{
    for (mr__d_job *j = d->jobs; j; j = j->next)
        ask_for_lists(d, j);
}

void mr__d_take_lists(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Lists *lists,
                      int64_t now)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, lists->job_id);
    mr_status st;
    if (!j || j->matching != x->id || j->prepared)
        return;
    j->matching = 0;
    if (lists->status) {
        mr__status_from_wire(lists->status, &st);
        mr__d_refuse_waiting(d, j, &st);
        mr__d_job_free(d, j);
        return;
    }
    /* Records the whole job again, with its lists: a job is one message. */
    Mr__Wire__Job with = *j->spec;
    with.n_lists = lists->n_lists;
    with.lists = lists->lists;
    with.has_lists = true;
    if (with.mode == MR__WIRE__MODE__DYNAMIC)
        with.splits = lists->splits;
    else if (!with.streams)
        with.streams = lists->streams;
    size_t n = mr__wire__job__get_packed_size(&with);
    void *bytes = mr_malloc(n ? n : 1);
    Mr__Wire__Job *spec = NULL;
    mr_code rc = bytes ? MR_OK : mr_fail_memory(&st, n, "a job's lists");
    if (rc == MR_OK) {
        mr__wire__job__pack(&with, bytes);
        rc = mr__wire_unpack(&mr__wire__job__descriptor, bytes, n, &spec, &st);
    }
    mr_free(bytes);
    if (rc != MR_OK) {
        mr__d_refuse_waiting(d, j, &st);
        mr__d_job_free(d, j);
        return;
    }
    mr__wire_free(j->spec);
    j->spec = spec;
    prepare(d, j, now);
}

static mr_code wait_in_line(mr__d_job *j, const mr__d_connection *x, const Mr__Wire__Join *join,
                            mr_status *st)
{
    mr__d_waiting *w = mr_calloc(1, sizeof *w);
    size_t n = mr__wire__join__get_packed_size(join);
    void *bytes = mr_malloc(n ? n : 1);
    mr_code rc = w && bytes ? MR_OK : mr_fail_memory(st, n, "a client that waits");
    if (rc == MR_OK) {
        mr__wire__join__pack(join, bytes);
        rc = mr__wire_unpack(&mr__wire__join__descriptor, bytes, n, &w->join, st);
    }
    mr_free(bytes);
    if (rc != MR_OK) {
        mr_free(w);
        return rc;
    }
    w->connection = x->id;
    mr__d_waiting **at = &j->waiting;
    while (*at)
        at = &(*at)->next;
    *at = w;
    return MR_OK;
}

/* *out = NULL: it is not known. */
static mr_code find_job(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Join *join,
                        mr__d_job **out, mr_status *st)
{
    mr__d_job *j = join->job_id ? mr__id_map_get(&d->jobs_by_id, join->job_id) : NULL;
    *out = NULL;
    if (d->opts.names_only && !x->name[0])
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "this dispatcher ties jobs to names, and this client has none: its "
                       "certificate needs a common name");
    if (j && !mr__d_owns(x, j))
        return mr_fail(st, MR_PERMISSION_DENIED, "job %016" PRIx64 " is not of the name \"%s\"",
                       join->job_id, x->name);
    if (!j && join->name[0])
        j = mr__d_job_named(d, x->name, join->name, join->job->repetition);
    *out = j;
    return MR_OK;
}

/* Sets whose the job is, and by which key its blocks are read: a new one, or that of the clients
 * and workers that were in it, if this dispatcher has lost its account. */
static mr_code tie(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Join *join,
                   uint8_t key[MR__JOB_KEY_BYTES], Mr__Wire__Job *spec, mr_status *st)
{
    static char nobody[1];
    spec->owner = nobody;
    spec->key = (ProtobufCBinaryData){0, NULL};
    if (!d->opts.names_only)
        return MR_OK;
    if (join->job_id && join->job->key.len == MR__JOB_KEY_BYTES)
        memcpy(key, join->job->key.data, MR__JOB_KEY_BYTES);
    else if (mr__sys->getrandom(key, MR__JOB_KEY_BYTES, 0) != MR__JOB_KEY_BYTES)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes for a job's key");
    spec->owner = x->name;
    spec->key = (ProtobufCBinaryData){MR__JOB_KEY_BYTES, key};
    return MR_OK;
}

/* Another repetition of a job is cut and seeded as those before it were. */
static mr_code make_job(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Join *join,
                        mr__d_job **out, mr_status *st)
{
    const mr__d_job *like = mr__d_job_like(d, x->name, join->name, NULL);
    uint8_t key[MR__JOB_KEY_BYTES];
    Mr__Wire__Job spec = *join->job;
    spec.shared = false;
    if (like) {
        MR_TRY(check_same_job(like, join, st));
        if (like->prepared) {
            spec = *like->spec;
            spec.shared = false;
            spec.repetition = join->job->repetition;
        }
        spec.seed = like->spec->seed;
    }
    MR_TRY(tie(d, x, join, key, &spec, st));
    /* Workers continue streams that are rebuilt unchanged; those of shared jobs are not. */
    bool shared =
        spec.mode == MR__WIRE__MODE__DYNAMIC || spec.mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
    uint64_t id = shared ? 0 : join->job_id;
    return mr__d_job_new(d, id ? id : mr__d_random(d), join->name, &spec, out, st);
}

void mr__d_take_join(mr__dispatcher *d, mr__d_connection *x, const Mr__Wire__Join *join,
                     int64_t now)
{
    mr_status st;
    mr__d_job *j = NULL;
    mr_code rc = find_job(d, x, join, &j, &st);
    if (rc == MR_OK && x->client)
        rc = mr_fail(&st, MR_FAILED_PRECONDITION, "this connection already reads a job");
    else if (rc == MR_OK && !j && d->disk_full)
        rc = mr__d_disk_full(&st);
    else if (rc == MR_OK && !j)
        rc = make_job(d, x, join, &j, &st);
    if (rc == MR_OK && !j->prepared)
        rc = wait_in_line(j, x, join, &st);
    if (rc != MR_OK) {
        mr__d_fail(d, x->id, join->request, 0, &st);
    } else if (j->prepared) {
        admit(d, j, x, join, now);
    } else if (j->spec->has_lists) {
        prepare(d, j, now);
    } else {
        ask_for_lists(d, j);
    }
}
