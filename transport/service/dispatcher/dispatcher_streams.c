/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: who reads them, which worker they go to, and making more of them where a job grows. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* ---- workers by load: a heap, the lightest first ---- */

/* Of those that host as many, the one that was given a stream longest ago. */
static bool is_lighter(const mr__d_worker *a, const mr__d_worker *b)
{
    return a->n_streams != b->n_streams ? a->n_streams < b->n_streams : a->given < b->given;
}

static void set_place(mr__dispatcher *d, size_t i, mr__d_worker *w)
{
    d->heap[i] = w;
    w->place = i + 1;
}

static void sift_up(mr__dispatcher *d, size_t i)
{
    mr__d_worker *w = d->heap[i];
    for (; i && is_lighter(w, d->heap[(i - 1) / 2]); i = (i - 1) / 2)
        set_place(d, i, d->heap[(i - 1) / 2]);
    set_place(d, i, w);
}

static void sift_down(mr__dispatcher *d, size_t i)
{
    mr__d_worker *w = d->heap[i];
    for (size_t k; (k = 2 * i + 1) < d->n_heap; i = k) {
        if (k + 1 < d->n_heap && is_lighter(d->heap[k + 1], d->heap[k]))
            k++;
        if (!is_lighter(d->heap[k], w))
            break;
        set_place(d, i, d->heap[k]);
    }
    set_place(d, i, w);
}

/* It may be given streams. */
static bool serves(const mr__d_worker *w)
{
    return w->connection && !w->draining;
}

void mr__d_rank(mr__dispatcher *d, mr__d_worker *w)
{
    size_t i = w->place;
    if (serves(w)) {
        if (!i) {
            d->heap[d->n_heap] = w;
            i = ++d->n_heap;
        }
        sift_up(d, i - 1);
        sift_down(d, w->place - 1);
    } else if (i) {
        w->place = 0;
        mr__d_worker *last = d->heap[--d->n_heap];
        if (last == w)
            return;
        set_place(d, i - 1, last);
        sift_up(d, i - 1);
        sift_down(d, last->place - 1);
    }
}

/* The worker that hosts the fewest, but for not_to; NULL: there is none. */
static mr__d_worker *least_loaded(const mr__dispatcher *d, const mr__d_worker *not_to)
{
    if (!d->n_heap)
        return NULL;
    if (d->heap[0] != not_to)
        return d->heap[0];
    if (d->n_heap < 3)
        return d->n_heap == 2 ? d->heap[1] : NULL;
    return is_lighter(d->heap[2], d->heap[1]) ? d->heap[2] : d->heap[1];
}

/* The next that serves after w, round the list: so that a stream comes to all of them. */
static mr__d_worker *next_one(mr__dispatcher *d, mr__d_worker *w)
{
    mr__d_worker *from = w ? w : d->workers;
    for (mr__d_worker *x = from; x;) {
        x = x->next ? x->next : d->workers;
        if (serves(x))
            return x;
        if (x == from)
            break;
    }
    return NULL;
}

/* ---- streams that want a worker ---- */

static void unlink_from(mr__d_queue *q, mr__d_stream *s)
{
    if (s->q_prev)
        s->q_prev->q_next = s->q_next;
    else
        q->first = s->q_next;
    if (s->q_next)
        s->q_next->q_prev = s->q_prev;
    else
        q->last = s->q_prev;
    s->queue = NULL;
}

static void link_to(mr__d_queue *q, mr__d_stream *s)
{
    s->q_next = NULL;
    s->q_prev = q->last;
    if (q->last)
        q->last->q_next = s;
    else
        q->first = s;
    q->last = s;
    s->queue = q;
}

void mr__d_review(mr__d_stream *s)
{
    mr__dispatcher *d = s->job->d;
    mr__d_queue *to = NULL;
    if (!s->worker && !s->end && s->reader) {
        if (s->home)
            to = serves(s->home) ? &d->ready : NULL;
        else
            to = s->awaited ? &d->awaiting : &d->ready;
    }
    if (s->queue == to)
        return;
    if (s->queue)
        unlink_from(s->queue, s);
    if (to)
        link_to(to, s);
}

void mr__d_forget_awaited(mr__d_stream *s)
{
    mr_free(s->awaited);
    s->awaited = NULL;
    mr__d_review(s);
}

void mr__d_await(mr__d_stream *s, const char *address, int64_t until)
{
    mr_free(s->awaited);
    s->awaited = mr_strdup(address);
    s->awaited_until = until;
    mr__d_review(s);
}

void mr__d_tick_awaiting(mr__dispatcher *d, int64_t now)
{
    for (mr__d_stream *s = d->awaiting.first, *next; s; s = next) {
        next = s->q_next;
        if (now >= s->awaited_until)
            mr__d_forget_awaited(s);
    }
}

void mr__d_assign_all(mr__dispatcher *d)
{
    while (d->ready.first && d->n_heap)
        mr__d_assign(d, d->ready.first, NULL);
}

/* ---- giving a stream to a worker ---- */

Mr__Wire__Place mr__d_place_with_splits(const mr__d_stream *s)
{
    Mr__Wire__Place place = mr__d_place(s);
    place.n_splits = s->n_splits;
    place.splits = s->splits;
    return place;
}

static void say_host(mr__dispatcher *d, const mr__d_stream *s, uint64_t after)
{
    Mr__Wire__Place place = mr__d_place_with_splits(s);
    Mr__Wire__Host host = MR__WIRE__HOST__INIT;
    host.job_id = s->job->id;
    host.job = s->job->spec;
    host.place = &place;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_HOST;
    m.host = &host;
    d->out.send(d->ctx, s->worker->connection, &m, after);
}

/* Hands s to w (NULL: it waits), in a new generation. */
static void give(mr__dispatcher *d, mr__d_stream *s, mr__d_worker *w)
{
    mr__d_take_off(d, s);
    mr__d_forget_awaited(s);
    s->generation++;
    if (w && !s->end)
        w->given = ++d->n_given;
    mr__d_put(s, s->end ? NULL : w);
    uint64_t after = mr__d_record_stream(d, s);
    if (s->worker)
        say_host(d, s, after);
    mr__d_tell_reader(d, s, after);
}

void mr__d_assign(mr__dispatcher *d, mr__d_stream *s, const mr__d_worker *not_to)
{
    mr__d_worker *w;
    if (s->home)
        w = serves(s->home) ? s->home : NULL;
    else if (s->missed)
        w = next_one(d, s->worker);
    else if (!(w = least_loaded(d, not_to)))
        w = least_loaded(d, NULL);
    give(d, s, w);
}

/* ---- readers ---- */

bool mr__d_shared(const mr__d_job *j)
{
    return j->spec->mode == MR__WIRE__MODE__DYNAMIC ||
           j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

bool mr__d_static(const mr__d_job *j)
{
    return j->spec->mode >= MR__WIRE__MODE__FILE;
}

void mr__d_set_reader(mr__d_stream *s, mr__d_client *c)
{
    if (s->reader)
        s->reader->n_streams--;
    s->reader = c;
    if (c) {
        c->n_streams++;
        s->owner = c->id;
    }
    mr__d_review(s);
}

/* The client of a shared job that reads the fewest streams; NULL: there is none. */
static mr__d_client *idlest(const mr__d_job *j)
{
    mr__d_client *best = NULL;
    for (mr__d_client *c = j->clients; c; c = c->next)
        if (!best || (!best->connection && c->connection) ||
            ((!best->connection || c->connection) && c->n_streams < best->n_streams))
            best = c;
    return best;
}

void mr__d_take_streams(mr__d_job *j, mr__d_client *c, const Mr__Wire__Join *join)
{
    for (uint32_t i = 0; !mr__d_shared(j) && i < j->n_streams; i++)
        if (mr__d_reads(c, j->streams[i]))
            mr__d_set_reader(j->streams[i], c);
    for (size_t i = 0; mr__d_shared(j) && i < join->n_places; i++) {
        const Mr__Wire__Place *p = join->places[i];
        mr__d_stream *s = p->stream < j->n_streams ? j->streams[p->stream] : NULL;
        if (s && !s->reader && s->owner == c->id)
            mr__d_set_reader(s, c);
    }
}

bool mr__d_share_out(mr__dispatcher *d, mr__d_job *j)
{
    bool any = false;
    if (!mr__d_shared(j) || j->holding || !j->clients)
        return false;
    for (uint32_t i = 0; i < j->n_streams; i++) {
        mr__d_stream *s = j->streams[i];
        if (s->reader || s->end)
            continue;
        mr__d_set_reader(s, idlest(j));
        mr__d_assign(d, s, NULL);
        any = true;
    }
    return any;
}

void mr__d_lose_reader(mr__dispatcher *d, mr__d_job *j, mr__d_client *gone)
{
    for (uint32_t i = 0; gone->n_streams && i < j->n_streams; i++) {
        mr__d_stream *s = j->streams[i];
        if (s->reader != gone)
            continue;
        mr__d_client *heir = mr__d_shared(j) && !s->end ? idlest(j) : NULL;
        mr__d_set_reader(s, heir);
        if (heir) /* what the old one still says of it does not count */
            mr__d_assign(d, s, NULL);
    }
}

/* ---- making more ---- */

mr_code mr__d_stream_new(mr__d_job *j, mr__d_stream **out, mr_status *st)
{
    MR_TRY(mr_grow((void **)&j->streams, &j->streams_capacity, j->n_streams + (size_t)1,
                   sizeof *j->streams, MR__MOST_STREAMS, "a job's streams", st));
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

static mr__d_stream *add_stream(mr__dispatcher *d, mr__d_job *j, mr__d_client *c)
{
    mr_status st;
    mr__d_stream *s = NULL;
    if (mr__d_stream_new(j, &s, &st) != MR_OK) {
        mr__d_note(d, MR_LOG_ERROR, "%s gets no more streams: %s", mr__d_title(j), st.message);
        return NULL;
    }
    mr__d_set_reader(s, c);
    return s;
}

static bool hosts_some_of(const mr__d_worker *w, const mr__d_job *j)
{
    for (const mr__d_stream *s = w->streams; s; s = s->next)
        if (s->job == j)
            return true;
    return false;
}

static bool has_some_of(const mr__d_worker *w, const mr__d_job *j)
{
    for (const mr__d_stream *s = w->own; s; s = s->own_next)
        if (s->job == j)
            return true;
    return false;
}

/* Every client and every worker with room gets a stream, as long as there are splits. */
static void make_dynamic(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only)
{
    uint32_t most = j->spec->streams ? j->spec->streams : MR__MOST_STREAMS;
    mr__d_stream *s;
    if (!d->n_heap || j->n_ended || !j->clients || j->rebuilding)
        return;
    for (mr__d_client *c = only ? NULL : j->clients; c && j->n_streams < most; c = c->next)
        if (!c->n_streams && (s = add_stream(d, j, c)))
            mr__d_assign(d, s, NULL);
    if (!only && (j->n_streams >= d->n_heap || d->heap[0]->n_streams >= MR__ROOM))
        return;
    for (mr__d_worker *w = only ? only : d->workers; w && j->n_streams < most;
         w = only ? NULL : w->next)
        if (serves(w) && w->n_streams < MR__ROOM && !hosts_some_of(w, j) &&
            (s = add_stream(d, j, idlest(j))))
            give(d, s, w);
}

/* Every worker that comes while the job runs has a stream of its own. */
static void make_own(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only)
{
    mr__d_stream *s;
    for (mr__d_worker *w = only ? only : d->workers; w; w = only ? NULL : w->next) {
        if (!serves(w) || has_some_of(w, j) || !(s = add_stream(d, j, NULL)))
            continue;
        mr__d_set_home(s, w);
        mr__d_set_reader(s, idlest(j));
        if (s->reader)
            mr__d_assign(d, s, NULL);
        else
            mr__d_record_stream(d, s);
    }
}

void mr__d_make_streams(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only)
{
    if (!j->prepared)
        return;
    if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
        make_dynamic(d, j, only);
    else if (j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS && !mr__d_finished(j) &&
             !j->rebuilding)
        make_own(d, j, only);
}

bool mr__d_awaits_workers(const mr__dispatcher *d, int64_t now)
{
    for (const mr__d_worker *w = d->workers; w; w = w->next)
        if (!w->connection && now < w->back_until)
            return true;
    return false;
}

void mr__d_go_on_without(mr__dispatcher *d, mr__d_job *j)
{
    for (const mr__d_worker *w = d->workers; w; w = w->next)
        if (!w->connection && w->back_until && !has_some_of(w, j))
            mr__d_warn(
                d, j,
                "%s goes on without worker %s, which is not back after %d s: nothing of it comes, "
                "unless it is back before the job ends",
                mr__d_title(j), w->address, MR__COME_BACK_S);
}

/* ---- splits ---- */

mr_code mr__d_add_split(mr__d_stream *s, uint64_t split, mr_status *st)
{
    MR_TRY(mr_grow((void **)&s->splits, &s->splits_capacity, s->n_splits + 1, sizeof *s->splits,
                   SIZE_MAX / 16, "a stream's splits", st));
    s->splits[s->n_splits++] = split;
    if (split >= s->job->next_split)
        s->job->next_split = split + 1;
    return MR_OK;
}

static mr_code record_split(mr__dispatcher *d, mr__d_stream *s, uint64_t split, mr_status *st)
{
    mr__d_job *j = s->job;
    MR_TRY(mr__d_add_split(s, split, st));
    mr__record r = {.kind = MR__RECORD_SPLIT, .job_id = j->id, .stream = s->index, .split = split};
    j->split_recorded = d->out.record(d->ctx, &r);
    return MR_OK;
}

/* The next split of this repetition goes to s, on record; false: there is none. */
static bool hand_out(mr__dispatcher *d, mr__d_stream *s, uint64_t repetition)
{
    mr__d_job *j = s->job;
    uint64_t n = j->spec->splits, first, end;
    mr_status st;
    if (j->rebuilding)
        return true; /* unanswered: it is asked for again */
    if (!n || __builtin_mul_overflow(repetition, n, &first) ||
        __builtin_add_overflow(first, n, &end) || j->next_split >= end)
        return false;
    uint64_t split = j->next_split > first ? j->next_split : first;
    if (record_split(d, s, split, &st) != MR_OK)
        mr__d_note(d, MR_LOG_ERROR, "a split cannot be handed out: %s", st.message);
    return true;
}

void mr__d_take_want(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__WantSplit *want)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, want->job_id);
    mr__d_stream *s = j && want->stream < j->n_streams ? j->streams[want->stream] : NULL;
    if (!s || !s->worker || s->worker != x->worker || s->generation != want->generation ||
        j->spec->mode != MR__WIRE__MODE__DYNAMIC || want->index > s->n_splits)
        return;
    Mr__Wire__Split split = MR__WIRE__SPLIT__INIT;
    split.job_id = j->id;
    split.stream = s->index;
    split.generation = s->generation;
    split.index = want->index;
    split.repetition = want->repetition;
    split.end = want->index == s->n_splits && !hand_out(d, s, want->repetition);
    if (!split.end && want->index == s->n_splits)
        return;
    if (!split.end)
        split.split = s->splits[want->index];
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_SPLIT;
    m.split = &split;
    d->out.send(d->ctx, x->id, &m, j->split_recorded);
}

/* ---- splits of a job whose record is lost ---- */

enum { MOST_REBUILT = 1 << 27 }; /* each of them is looked at */

/* The splits that p says are those of s, and nobody else's. */
static mr_code take_split_list(mr__dispatcher *d, mr__d_stream *s, const Mr__Wire__Place *p,
                               mr_status *st)
{
    mr__d_job *j = s->job;
    size_t had = 0; /* on record, where this dispatcher died before the stream was */
    while (had < s->n_splits && had < p->n_splits && s->splits[had] == p->splits[had])
        had++;
    if (had < s->n_splits && had < p->n_splits)
        return mr_fail(st, MR_DATA_LOSS,
                       "the dispatcher lost its account, and stream %" PRIu32
                       " has other splits than its client says; start the job anew",
                       s->index);
    for (size_t i = had; i < p->n_splits; i++) {
        if (p->splits[i] >= MOST_REBUILT)
            return mr_fail(st, MR_DATA_LOSS,
                           "the dispatcher has no record of this job, which has had more than %d "
                           "splits, too many to make it again; start it anew",
                           MOST_REBUILT);
        if (mr__id_map_get(&j->rebuilt, p->splits[i] + 1))
            return mr_fail(st, MR_DATA_LOSS,
                           "the dispatcher has no record of this job, and its clients say that "
                           "they have the same splits; start the job anew");
    }
    for (size_t i = had; i < p->n_splits; i++) {
        MR_TRY(mr__id_map_set(&j->rebuilt, p->splits[i] + 1, s, st));
        MR_TRY(record_split(d, s, p->splits[i], st));
    }
    return MR_OK;
}

/* What p says of s; what is hosted of a job that was running may have other splits too. */
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
        if (s->generation >= j->generation) /* what is hosted is of an older one */
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
                           "say which splits its streams have; start the job anew");
        while (p->stream >= j->n_streams) {
            MR_TRY(mr__d_stream_new(j, &s, st));
            mr__d_record_stream(d, s);
        }
        s = j->streams[p->stream];
        if (!s->owner)
            MR_TRY(rebuild_stream(d, s, p, join->client_id, st));
        else if (s->owner == join->client_id) { /* it was here before, and lost its connection */
            /* It may have come to a split since then, at the worker that it was read from. */
            if (j->spec->mode == MR__WIRE__MODE__DYNAMIC)
                MR_TRY(take_split_list(d, s, p, st));
            MR_TRY(mr__d_take_news(d, s, p, st));
        }
        /* else another client has it, or had it later */
    }
    return MR_OK;
}

/* Splits that nobody named go to a stream of their own; so do those that were not given out, where
 * the other streams have ended. */
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
        MR_TRY(record_split(d, s, x, st));
        ++*n;
    }
    return MR_OK;
}

/* Whether all of j that was given out is some stream's, by the account. */
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
        mr__d_note(d, MR_LOG_ERROR, "%s cannot be made again: %s", mr__d_title(j), st.message);
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
        if (!j->streams[i]->home && rc == MR_OK) { /* whose it was is not known: it begins again */
            n += !j->streams[i]->end;
            rc = mr__d_stream_set(j->streams[i], &end, &st);
            mr__d_record_stream(d, j->streams[i]);
        }
    /* Also where all that was named has ended; but a position has named all there are. */
    if (own && was)
        make_own(d, j, NULL);
    if (rc != MR_OK)
        mr__d_note(d, MR_LOG_ERROR, "%s cannot be made again: %s", mr__d_title(j), st.message);
    mr__id_map_reset(&j->rebuilt);
    if (was)
        j->recorded = mr__d_record_job(d, j);
    return n;
}
