/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: assigns them to workers and readers, and makes more of them while a job runs. */
#include <inttypes.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/dispatcher/dispatcher_state.h"

/* ---- assigning a stream to a worker ---- */

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

static void say_host(mr__dispatcher *d, const mr__d_stream *s, const mr__d_worker *w,
                     uint64_t generation, uint64_t after)
{
    Mr__Wire__Place place = mr__d_place_with_splits(s);
    place.generation = generation;
    place.worker = w->address;
    Mr__Wire__Host host = MR__WIRE__HOST__INIT;
    host.job_id = s->job->id;
    host.job = s->job->spec;
    host.place = &place;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_HOST;
    m.host = &host;
    d->out.send(d->ctx, w->connection, &m, after);
}

/* A generation of s that no worker had. */
static uint64_t new_generation(mr__d_stream *s)
{
    s->used = (s->used > s->generation ? s->used : s->generation) + 1;
    return s->used;
}

/* Assigns s to w (NULL: it waits), in a new generation. */
static void give(mr__dispatcher *d, mr__d_stream *s, mr__d_worker *w)
{
    mr__d_take_off(d, s);
    mr__d_forget_awaited(s);
    s->generation = new_generation(s);
    if (w && !s->end)
        w->given = ++d->n_given;
    mr__d_put(s, s->end ? NULL : w);
    uint64_t after = mr__d_record_stream(d, s);
    if (s->worker)
        say_host(d, s, s->worker, s->generation, after);
    mr__d_tell_reader(d, s, after);
}

/* ---- moving a stream while its worker serves it ---- */

void mr__d_move(mr__dispatcher *d, mr__d_stream *s, mr__d_worker *w)
{
    s->next_host = w;
    s->move_since = d->now;
    s->move_prev = NULL;
    s->move_next = d->moves;
    if (d->moves)
        d->moves->move_prev = s;
    d->moves = s;
    d->n_moves++;
    w->n_coming++;
    s->worker->n_going++;
    w->given = ++d->n_given;
    mr__d_rank(d, w);
    mr__d_rank(d, s->worker);
    say_host(d, s, w, new_generation(s), s->job->recorded);
    Mr__Wire__Prepare prepare = MR__WIRE__PREPARE__INIT;
    prepare.job_id = s->job->id;
    prepare.stream = s->index;
    prepare.generation = s->used;
    prepare.worker = w->address;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PREPARE;
    m.prepare = &prepare;
    d->out.send(d->ctx, s->reader->connection, &m, s->job->recorded);
}

/* The worker that s moves to has it from now on; the old one drops it. */
static void commit_move(mr__dispatcher *d, mr__d_stream *s)
{
    mr__d_worker *w = s->next_host;
    uint64_t generation = s->used;
    mr__d_note(d, MR_LOG_INFO, "stream %" PRIu32 " of %s moved from worker %s to %s", s->index,
               mr__d_title(s->job), s->worker->address, w->address);
    s->moved_at = d->now;
    s->restore_ns = d->now - s->move_since;
    mr__d_end_move(s);
    mr__d_take_off(d, s);
    s->generation = generation;
    d->n_moved++;
    mr__d_put(s, w);
    mr__d_tell_reader(d, s, mr__d_record_stream(d, s));
}

void mr__d_take_prepared(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__Prepared *p)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, p->job_id);
    mr__d_stream *s = j && p->stream < j->n_streams ? j->streams[p->stream] : NULL;
    if (!s || !s->next_host || s->used != p->generation || !x->client || s->reader != x->client)
        return;
    if (!p->failed && mr__d_serves(s->next_host)) {
        commit_move(d, s);
        return;
    }
    s->barred_until = d->now + MR__MOVE_S * MR__SECOND;
    mr__d_note(d, MR_LOG_INFO, "stream %" PRIu32 " of %s stays at worker %s", s->index,
               mr__d_title(j), s->worker->address);
    mr__d_cancel_move(s);
}

void mr__d_assign(mr__dispatcher *d, mr__d_stream *s, const mr__d_worker *not_to)
{
    mr__d_worker *w;
    if (s->next_host && mr__d_serves(s->next_host)) { /* which is restoring it already */
        commit_move(d, s);
        return;
    }
    if (s->home)
        w = mr__d_serves(s->home) ? s->home : NULL;
    else if (s->missed)
        w = mr__d_next_serving(d, s->worker);
    else if (!(w = mr__d_least_loaded(d, not_to)))
        w = mr__d_least_loaded(d, NULL);
    give(d, s, w);
}

void mr__d_assign_all(mr__dispatcher *d)
{
    while (d->to_assign.first && d->n_heap)
        mr__d_assign(d, d->to_assign.first, NULL);
}

void mr__d_move_all(mr__dispatcher *d, mr__d_worker *w)
{
    while (w->streams) {
        mr__d_stream *s = w->streams;
        if (s->reader) {
            mr__d_assign(d, s, w);
            if (s->worker == w) /* its home: it waits until w returns */
                mr__d_put(s, NULL);
        } else {
            mr__d_take_off(d, s);
        }
    }
}

/* ---- readers ---- */

/* The client of a shared job that reads the fewest streams, a connected one if possible; NULL: no
 * client. */
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
        if (heir) /* in a new generation: later acknowledgements of `gone` do not count */
            mr__d_assign(d, s, NULL);
    }
}

/* ---- making more ---- */

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

/* Every client and every worker with room gets a stream, until the splits are used up. */
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
        if (mr__d_serves(w) && w->n_streams < MR__ROOM && !hosts_some_of(w, j) &&
            (s = add_stream(d, j, idlest(j))))
            give(d, s, w);
}

/* Every worker that registers while the job runs gets a stream. */
void mr__d_make_own(mr__dispatcher *d, mr__d_job *j, mr__d_worker *only)
{
    mr__d_stream *s;
    for (mr__d_worker *w = only ? only : d->workers; w; w = only ? NULL : w->next) {
        if (!mr__d_serves(w) || has_some_of(w, j) || !(s = add_stream(d, j, NULL)))
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
        mr__d_make_own(d, j, only);
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
            mr__d_warn(d, j,
                       "%s continues without worker %s, which did not return within %d s: its "
                       "elements are missing unless it returns before the job ends",
                       mr__d_title(j), w->address, MR__COME_BACK_S);
}

/* ---- splits ---- */

/* Assigns the next split of this repetition to s, with a record; false: no more splits. */
static bool hand_out(mr__dispatcher *d, mr__d_stream *s, uint64_t repetition)
{
    mr__d_job *j = s->job;
    uint64_t n = j->spec->splits, first, end;
    mr_status st;
    if (j->rebuilding)
        return true; /* unanswered: the worker asks again */
    if (!n || __builtin_mul_overflow(repetition, n, &first) ||
        __builtin_add_overflow(first, n, &end) || j->next_split >= end)
        return false;
    uint64_t split = j->next_split > first ? j->next_split : first;
    if (mr__d_record_split(d, s, split, &st) != MR_OK)
        mr__d_note(d, MR_LOG_ERROR, "cannot hand out a split: %s", st.message);
    return true;
}

void mr__d_take_want(mr__dispatcher *d, const mr__d_connection *x, const Mr__Wire__WantSplit *want)
{
    mr__d_job *j = mr__id_map_get(&d->jobs_by_id, want->job_id);
    mr__d_stream *s = j && want->stream < j->n_streams ? j->streams[want->stream] : NULL;
    bool hosts = s && s->worker && s->worker == x->worker && s->generation == want->generation;
    bool restores = s && s->next_host && s->next_host == x->worker && s->used == want->generation;
    if ((!hosts && !restores) || j->spec->mode != MR__WIRE__MODE__DYNAMIC ||
        want->index > s->n_splits)
        return;
    Mr__Wire__Split split = MR__WIRE__SPLIT__INIT;
    split.job_id = j->id;
    split.stream = s->index;
    split.generation = want->generation;
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
