/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/job_reader_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/note.h"
#include "transport/service/jitter.h"

#define SECOND        ((int64_t)1000000000)
#define BACKOFF_FIRST ((int64_t)50000000)
#define BACKOFF_MOST  (5 * SECOND)
enum {
    MOST_MISSES = 8, /* then a missing file is an element's error */
    SILENT_S = 5,
    SAY_AFTER_S = 10,
    LEFT_OUT_S = 15,
    REFUSED_S = 60,
    BLOCKS_AHEAD = 4
};

void mr__r_fail(mr__job_reader *r, const mr_status *why)
{
    if (r->is_over)
        return;
    r->is_over = true;
    r->out.failed(r->ctx, why);
}

static int64_t next_backoff(int64_t d)
{
    d = d ? 2 * d : BACKOFF_FIRST;
    return d < BACKOFF_MOST ? d : BACKOFF_MOST;
}

/* The consumer waits, and something may still come. */
static bool is_waiting(const mr__job_reader *r)
{
    bool more = !r->is_joined || (r->shared && !r->finished);
    for (size_t i = 0; i < r->n_streams && !more; i++)
        more |= !r->streams[i].ended;
    return r->waits && more;
}

/* ---- workers ---- */

static mr__r_worker *worker_at(mr__job_reader *r, const char *address)
{
    for (mr__r_worker *w = r->workers; w; w = w->next)
        if (strcmp(w->address, address) == 0)
            return w;
    return NULL;
}

static mr__r_worker *need_worker(mr__job_reader *r, const char *address)
{
    mr__r_worker *w = worker_at(r, address);
    if (w)
        return w;
    w = mr_calloc(1, sizeof *w);
    if (!w || !(w->address = mr_strdup(address))) {
        mr_free(w);
        return NULL;
    }
    w->next = r->workers;
    r->workers = w;
    return w;
}

static void open_stream(mr__job_reader *r, mr__r_stream *s)
{
    Mr__Wire__Open o = MR__WIRE__OPEN__INIT;
    o.job_id = r->job_id;
    o.stream = s->index;
    o.generation = s->generation;
    o.first = s->received;
    o.credit = s->window > s->held ? s->window - s->held : 1;
    o.compression = r->opts.compression;
    o.measured = r->opts.measured;
    o.missing_moves = r->opts.missing_moves && s->misses < MOST_MISSES;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_OPEN;
    m.open = &o;
    s->opened = s->begun = true;
    s->returned = 0;
    r->out.to_worker(r->ctx, s->worker->address, &m);
}

/* Reads s where it is hosted, connecting first where that is needed. */
static void go_on(mr__job_reader *r, mr__r_stream *s)
{
    if (!s->worker || s->ended || s->opened || s->lost)
        return;
    if (s->worker->state == MR__UP) {
        open_stream(r, s);
    } else if (s->worker->state == MR__DOWN) {
        s->worker->state = MR__CONNECTING;
        r->out.connect_worker(r->ctx, s->worker->address);
    }
}

/* The stream cannot be read where it is: this is reported to the dispatcher in a while. */
static void lose(mr__job_reader *r, mr__r_stream *s, int64_t now)
{
    s->opened = false;
    if (s->ended || s->lost)
        return;
    s->lost = true;
    if (!s->lost_since)
        s->lost_since = now;
    s->lost_at = now + (s->backoff ? mr__jittered(&r->random, s->backoff) : 0);
    s->backoff = next_backoff(s->backoff);
    if (r->admitted && s->lost_at <= now)
        mr__r_say_lost(r, s);
}

/* Lets connections go that no stream needs. */
static void drop_idle_workers(mr__job_reader *r)
{
    for (mr__r_worker **at = &r->workers; *at;) {
        mr__r_worker *w = *at;
        bool used = false;
        for (size_t i = 0; i < r->n_streams; i++)
            used |= r->streams[i].worker == w && !r->streams[i].ended;
        if (used) {
            at = &w->next;
            continue;
        }
        for (size_t i = 0; i < r->n_streams; i++)
            if (r->streams[i].worker == w)
                r->streams[i].worker = NULL;
        *at = w->next;
        if (w->state != MR__DOWN)
            r->out.close_worker(r->ctx, w->address);
        mr_free(w->address);
        mr_free(w);
    }
}

static void take_place(mr__job_reader *r, const Mr__Wire__Place *p, int64_t now)
{
    mr__r_stream *s = mr__r_stream_of(r, p->stream);
    if (r->shared && s && !s->gone && p->generation > s->generation && p->elements > s->consumed)
        mr__r_give_up(r, s); /* others read on in it meanwhile */
    if (r->shared && (!s || s->gone) && !(s = mr__r_take_stream(r, s, p)))
        return;
    if (!s || p->generation < s->generation)
        return;
    s->seen = true;
    if (p->generation > s->generation) { /* what was said under the old one may have been dropped */
        s->acknowledged = 0;
        s->end_said = false;
        s->elsewhere = false; /* said of the worker before */
    }
    if (s->ended) {
        s->generation = p->generation;
        return;
    }
    /* No worker in the same generation: the dispatcher waits for the one that had it, as we do. */
    bool same = p->generation == s->generation && s->worker && !s->lost &&
                (!p->worker[0] || strcmp(s->worker->address, p->worker) == 0);
    if (same) {
        go_on(r, s);
        return;
    }
    if (p->generation == s->generation && s->lost && s->lost_at == INT64_MAX)
        s->lost_at = now; /* it was said to a dispatcher that is gone */
    mr__r_worker *w = p->worker[0] ? need_worker(r, p->worker) : NULL;
    if (p->worker[0] && !w)
        mr__note(r->out.note, r->ctx, MR_LOG_ERROR, "out of memory for a connection to worker %s",
                 p->worker);
    if (p->generation > s->generation) {
        if (s->begun && !s->lost_since)
            s->lost_since = now;
        s->lost = false;
    }
    s->generation = p->generation;
    s->worker = w;
    s->opened = s->anew = false;
    go_on(r, s);
}

/* ---- events of the dispatcher ---- */

void mr__job_reader_dispatcher_opened(mr__job_reader *r, int64_t now)
{
    if (r->is_over)
        return;
    r->dispatcher = MR__UP;
    r->ever_connected = true;
    r->heard = now;
    r->tell_at = now + SECOND;
    mr__r_join(r);
}

static void retry_dispatcher(mr__job_reader *r, int64_t now)
{
    r->dispatcher = MR__DOWN;
    r->admitted = false;
    r->backoff = next_backoff(r->backoff);
    r->retry_at = now + mr__jittered(&r->random, r->backoff);
    if (r->flushing)
        r->flush_request = 0; /* asked again after the next Joined */
}

void mr__job_reader_dispatcher_closed(mr__job_reader *r, const mr_status *why, int64_t now)
{
    if (why->code == MR_PERMISSION_DENIED || why->code == MR_FAILED_PRECONDITION) {
        mr__r_fail(r, why);
        return;
    }
    snprintf(r->why, sizeof r->why, "%.250s", why->code == MR_END ? "" : why->message);
    if (r->dispatcher == MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 "the connection to the dispatcher at %s is lost; trying again",
                 r->opts.dispatcher);
    retry_dispatcher(r, now);
    /* Whoever starts it before the dispatcher has a second for that. */
    int64_t second = r->give_up_at - r->opts.connect_timeout_ns + SECOND;
    if (r->ever_connected || r->said_absent || r->retry_at < second || r->retry_at >= r->give_up_at)
        return;
    mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
             "no dispatcher answers at %s%s%s; trying for %.0f s (connect_timeout)",
             r->opts.dispatcher, r->why[0] ? ": " : "", r->why,
             (double)r->opts.connect_timeout_ns * 1e-9);
    r->said_absent = true;
}

static mr_code make_streams(mr__job_reader *r, const Mr__Wire__Joined *j, mr_status *st)
{
    r->shared =
        j->job->mode == MR__WIRE__MODE__DYNAMIC || j->job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
    uint64_t all = r->opts.most_bytes ? r->opts.most_bytes : MR__LEAST_BYTES;
    for (size_t i = 0; i < j->n_places; i++)
        MR_TRY(mr__r_add_stream(r, j->places[i], st));
    for (size_t i = 0; i < r->n_streams && !r->shared; i++)
        r->streams[i].window = all / r->n_streams + 1;
    return MR_OK;
}

static void take_joined(mr__job_reader *r, const Mr__Wire__Joined *j, int64_t now)
{
    mr_status st;
    r->backoff = 0;
    r->admitted = true;
    r->refused_since = 0;
    if (r->is_joined && j->job_id != r->job_id) { /* made again by a dispatcher that lost it */
        for (size_t i = 0; i < r->n_streams; i++) {
            r->streams[i].opened = r->streams[i].lost = false;
            r->streams[i].worker = NULL;
        }
    }
    r->job_id = j->job_id;
    if (!r->is_joined) {
        r->is_joined = true;
        if (make_streams(r, j, &st) != MR_OK) {
            mr__r_fail(r, &st);
            return;
        }
        r->out.joined(r->ctx, j);
        for (size_t i = 0; i < r->n_streams; i++)
            if (r->streams[i].ended)
                mr__r_deliver_end(r, &r->streams[i], r->streams[i].position,
                                  r->streams[i].position_bytes);
    }
    for (size_t i = 0; i < r->n_streams; i++)
        r->streams[i].seen = false;
    for (size_t i = 0; i < j->n_places; i++)
        take_place(r, j->places[i], now);
    for (size_t i = 0; i < r->n_streams && r->shared; i++)
        if (!r->streams[i].seen && !r->streams[i].gone)
            mr__r_give_up(r, &r->streams[i]);
    drop_idle_workers(r);
    if (r->flushing && !r->flush_request) {
        mr__r_acknowledge(r);
        mr__r_note_said(r);
    }
}

static void take_acknowledged(mr__job_reader *r, const Mr__Wire__Acknowledged *a, int64_t now)
{
    (void)now;
    if (!r->flushing || !r->flush_request || a->request < r->flush_request)
        return;
    r->flushing = false;
    if (r->leaving) {
        mr__job_reader_leave(r);
        r->is_over = true;
    }
    r->out.flushed(r->ctx);
}

/* A former life of this client, or of its connection, may hold its place until it is missed; a
 * dispatcher that lost its account, and cannot write one yet, takes no jobs: joining again is tried
 * for a while. */
static void take_failed(mr__job_reader *r, const mr_status *why, int64_t now)
{
    bool again = r->is_joined && !r->admitted &&
                 (why->code == MR_FAILED_PRECONDITION || why->code == MR_RESOURCE_EXHAUSTED);
    if (again && !r->refused_since)
        r->refused_since = now;
    if (!again || now - r->refused_since >= REFUSED_S * SECOND) {
        mr__r_fail(r, why);
        return;
    }
    r->out.close_dispatcher(r->ctx);
    retry_dispatcher(r, now);
}

void mr__job_reader_dispatcher_message(mr__job_reader *r, const mr__message *m, int64_t now)
{
    r->heard = now;
    if (r->is_over)
        return;
    switch (m->body_case) {
    case MR__WIRE__MESSAGE__BODY_JOINED:
        take_joined(r, m->joined, now);
        break;
    case MR__WIRE__MESSAGE__BODY_PLACED:
        for (size_t i = 0; i < m->placed->n_places; i++)
            take_place(r, m->placed->places[i], now);
        drop_idle_workers(r);
        if (r->flushing && r->admitted) { /* what was said of the older generation did not count */
            mr__r_acknowledge(r);
            mr__r_note_said(r);
        }
        break;
    case MR__WIRE__MESSAGE__BODY_FINISHED:
        if (r->shared && !r->finished) {
            mr__arrival over = {.kind = MR__ARRIVED_OVER};
            r->finished = true;
            r->out.deliver(r->ctx, &over);
        }
        break;
    case MR__WIRE__MESSAGE__BODY_WARNING:
        if (strncmp(r->warned, m->warning->text, sizeof r->warned - 1) != 0) { /* news */
            snprintf(r->warned, sizeof r->warned, "%s", m->warning->text);
            mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "%s", r->warned);
        }
        break;
    case MR__WIRE__MESSAGE__BODY_ACKNOWLEDGED:
        take_acknowledged(r, m->acknowledged, now);
        break;
    case MR__WIRE__MESSAGE__BODY_FAILED: {
        mr_status why;
        mr__status_from_wire(m->failed->status, &why);
        take_failed(r, &why, now);
        break;
    }
    default:
        break; /* Pulse; and nothing else is news */
    }
}

/* ---- events of workers ---- */

void mr__job_reader_worker_opened(mr__job_reader *r, const char *address, int64_t now)
{
    mr__r_worker *w = worker_at(r, address);
    if (!w)
        return;
    w->state = MR__UP;
    w->heard = now;
    for (size_t i = 0; i < r->n_streams; i++)
        if (r->streams[i].worker == w)
            go_on(r, &r->streams[i]);
}

void mr__job_reader_worker_closed(mr__job_reader *r, const char *address, const mr_status *why,
                                  int64_t now)
{
    mr__r_worker *w = worker_at(r, address);
    if (!w)
        return;
    bool elsewhere = r->opts.local_workers && why->code == MR_INVALID_ARGUMENT;
    if (elsewhere)
        mr__note(r->out.note, r->ctx, MR_LOG_INFO,
                 "worker %s is not of this host; its streams move", address);
    else if (w->state == MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "worker %s is lost: %s", address,
                 why->code == MR_END ? "it closed the connection" : why->message);
    w->state = MR__DOWN;
    /* A worker that ends just then may look once as if it could not be read as is wanted. */
    bool refused = why->code == MR_FAILED_PRECONDITION || why->code == MR_INVALID_ARGUMENT;
    bool again = false;
    for (size_t i = 0; i < r->n_streams && refused && !elsewhere; i++)
        if (r->streams[i].worker == w && !r->streams[i].ended && r->streams[i].refused++)
            again = true;
    if (why->code == MR_PERMISSION_DENIED || again) { /* another token, or such a worker */
        mr__r_fail(r, why);
        return;
    }
    for (size_t i = 0; i < r->n_streams; i++)
        if (r->streams[i].worker == w) {
            r->streams[i].elsewhere = elsewhere;
            lose(r, &r->streams[i], now);
        }
}

/* dynamic: the stream comes to more splits. */
static void take_splits(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__StreamSplits *x,
                        int64_t now)
{
    mr_status st;
    bool more = false;
    size_t before = s->n_splits;
    if (mr__r_add_splits(s, x->first, x->splits, x->n_splits, &more, &st) != MR_OK) {
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "%s", st.message);
        lose(r, s, now);
        return;
    }
    if (more && r->dispatcher == MR__UP && !r->admitted) {
        s->opened = false; /* Join went without them: opened again when it is answered */
        s->anew = true;
        s->n_splits = before;
        return;
    }
    if (more)
        mr__r_deliver_splits(r, s);
}

/* The stream that m is about, if it may still say anything. */
static mr__r_stream *speaker(mr__job_reader *r, const char *address, uint64_t job, uint32_t index,
                             uint64_t generation)
{
    mr__r_stream *s = job == r->job_id ? mr__r_stream_of(r, index) : NULL;
    bool counts = s && s->opened && s->generation == generation && s->worker &&
                  strcmp(s->worker->address, address) == 0;
    return counts ? s : NULL;
}

/* The same for elements and the end, which follow the splits that they are made of. */
static mr__r_stream *teller(mr__job_reader *r, const char *address, uint64_t job, uint32_t index,
                            uint64_t generation)
{
    mr__r_stream *s = speaker(r, address, job, index, generation);
    return s && !s->anew ? s : NULL;
}

/* What was released is given again by and by, not for every block. */
static void give_credit(mr__job_reader *r, mr__r_stream *s)
{
    if (!s->opened || s->returned < s->window / 4)
        return;
    Mr__Wire__Credit c = MR__WIRE__CREDIT__INIT;
    c.job_id = r->job_id;
    c.stream = s->index;
    c.bytes = s->returned;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_CREDIT;
    m.credit = &c;
    s->returned = 0;
    r->out.to_worker(r->ctx, s->worker->address, &m);
}

static void arrived(mr__job_reader *r, mr__r_stream *s, int64_t now)
{
    if (s->lost_since)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 "stream %" PRIu32 " goes on at worker %s, %.3f s after it was lost", s->index,
                 s->worker->address, (double)(now - s->lost_since) * 1e-9);
    s->lost_since = 0;
    s->backoff = 0;
    s->misses = 0;
    s->elsewhere = false;
    s->refused = 0;
    r->said_waits = false;
}

void mr__job_reader_worker_message(mr__job_reader *r, const char *address, const mr__message *m,
                                   int64_t now)
{
    mr__r_worker *w = worker_at(r, address);
    if (r->is_over || !w)
        return;
    w->heard = now;
    if (m->body_case == MR__WIRE__MESSAGE__BODY_STREAM_ERROR) {
        const Mr__Wire__StreamError *e = m->stream_error;
        mr__r_stream *s = speaker(r, address, e->job_id, e->stream, e->generation);
        mr_status why;
        if (!s || (s->anew && !e->fatal))
            return;
        mr__status_from_wire(e->status, &why);
        if (e->fatal &&
            (why.code == MR_UNAVAILABLE || (r->opts.missing_moves && why.code == MR_NOT_FOUND))) {
            if (why.code == MR_NOT_FOUND) {
                s->misses++;
                mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "stream %" PRIu32 " moves: %s: %s",
                         s->index, why.file, why.message);
            }
            lose(r, s, now);
        } else if (e->fatal) {
            mr__r_fail(r, &why);
        } else if (e->first > s->received) {
            lose(r, s, now);
        } else if (e->first == s->received) {
            if (why.element >= 0) /* it counts within the stream */
                mr_status_prefix(&why, "stream %" PRIu32, s->index);
            mr__arrival a = {.kind = MR__ARRIVED_ERROR,
                             .stream = s->index,
                             .first = e->first,
                             .rows = 1,
                             .bytes = MR__ERROR_CREDIT,
                             .position = e->position.data,
                             .position_bytes = e->position.len,
                             .status = &why};
            s->received++;
            s->held += MR__ERROR_CREDIT;
            arrived(r, s, now);
            r->out.deliver(r->ctx, &a);
        }
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_STREAM_SPLITS) {
        const Mr__Wire__StreamSplits *x = m->stream_splits;
        mr__r_stream *s = speaker(r, address, x->job_id, x->stream, x->generation);
        if (s && (!s->anew || x->first == 0)) {
            s->anew = false;
            take_splits(r, s, x, now);
        }
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_STREAM_END) {
        const Mr__Wire__StreamEnd *e = m->stream_end;
        mr__r_stream *s = teller(r, address, e->job_id, e->stream, e->generation);
        if (!s)
            return;
        if (e->elements != s->received) { /* something was lost on the way */
            lose(r, s, now);
            return;
        }
        if (e->position.len && (s->end_position = mr__r_copy(e->position.data, e->position.len)))
            s->end_position_bytes = e->position.len;
        s->ended = true;
        s->opened = false;
        arrived(r, s, now);
        mr__r_deliver_end(r, s, e->position.data, e->position.len);
        drop_idle_workers(r);
    }
}

void mr__job_reader_worker_block(mr__job_reader *r, const char *address,
                                 const Mr__Wire__BlockHead *head, size_t bytes, void *block,
                                 int64_t now)
{
    mr__r_stream *s = teller(r, address, head->job_id, head->stream, head->generation);
    uint64_t end;
    if (s)
        s->worker->heard = now;
    if (!s || r->is_over) {
        r->out.drop(r->ctx, block);
        return;
    }
    if (head->first > s->received || __builtin_add_overflow(head->first, head->rows, &end)) {
        r->out.drop(r->ctx, block);
        lose(r, s, now);
        return;
    }
    if (end <= s->received) {
        s->returned += bytes;
        give_credit(r, s);
        r->out.drop(r->ctx, block);
        return;
    }
    mr__arrival a = {.kind = MR__ARRIVED_BLOCK,
                     .stream = s->index,
                     .first = s->received,
                     .bytes = bytes,
                     .skip = (size_t)(s->received - head->first),
                     .rows = end - s->received,
                     .position = head->position.data,
                     .position_bytes = head->position.len,
                     .block = block};
    s->received = end;
    s->held += bytes;
    if (!r->opts.most_bytes && s->window < (uint64_t)BLOCKS_AHEAD * bytes) {
        s->returned += (uint64_t)BLOCKS_AHEAD * bytes - s->window;
        s->window = (uint64_t)BLOCKS_AHEAD * bytes;
    }
    arrived(r, s, now);
    r->out.deliver(r->ctx, &a);
}

/* ---- the consumer ---- */

void mr__job_reader_consumed(mr__job_reader *r, uint32_t index, uint64_t elements,
                             const void *position, size_t position_bytes, uint64_t skip,
                             size_t bytes, int64_t now)
{
    mr__r_stream *s = mr__r_stream_of(r, index);
    (void)now;
    if (!s || s->gone || elements > s->received)
        return;
    if (elements > s->consumed) {
        uint8_t *copy = mr__r_copy(position, position_bytes);
        if (copy) { /* without memory the older place stays, which is right too */
            mr_free(s->position);
            s->position = copy;
            s->position_bytes = position_bytes;
            s->skip = skip;
            s->consumed = elements;
        }
    }
    s->held -= bytes < s->held ? bytes : s->held;
    s->returned += bytes;
    give_credit(r, s);
}

void mr__job_reader_waits(mr__job_reader *r, bool waits, int64_t now)
{
    if (waits && !r->waits)
        r->waits_since = now;
    r->waits = waits;
    r->said_waits &= waits;
    /* Shared: that all is over is known when the dispatcher knows that every stream has ended. */
    if (!waits || !r->shared || !r->admitted || r->is_over || r->flushing || !mr__r_has_news(r))
        return;
    for (size_t i = 0; i < r->n_streams; i++)
        if (!r->streams[i].ended || r->streams[i].consumed != r->streams[i].received)
            return;
    mr__r_acknowledge(r);
    mr__r_note_said(r);
}

void mr__job_reader_flush(mr__job_reader *r, bool leave, int64_t now)
{
    r->leaving |= leave;
    if (r->is_over || !r->is_joined) { /* there is nothing to acknowledge */
        r->out.flushed(r->ctx);
        return;
    }
    r->flushing = true;
    r->flush_request = 0;
    if (r->admitted) {
        mr__r_acknowledge(r);
        mr__r_note_said(r);
        r->tell_at = now + SECOND;
    }
}

/* ---- time ---- */

static void tick_dispatcher(mr__job_reader *r, int64_t now)
{
    mr_status why;
    if (r->dispatcher == MR__DOWN && now >= r->retry_at) {
        if (!r->ever_connected && now >= r->give_up_at) {
            mr_fail(&why, MR_UNAVAILABLE,
                    "no dispatcher answers at %s%s%s; start one, or mend the address",
                    r->opts.dispatcher, r->why[0] ? ": " : "", r->why);
            mr__r_fail(r, &why);
            return;
        }
        r->dispatcher = MR__CONNECTING;
        r->out.connect_dispatcher(r->ctx);
    } else if (r->dispatcher == MR__UP && now - r->heard >= SILENT_S * SECOND) {
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 "the dispatcher at %s is silent; connecting again", r->opts.dispatcher);
        snprintf(r->why, sizeof r->why, "it is silent");
        r->out.close_dispatcher(r->ctx);
        retry_dispatcher(r, now);
    } else if (r->dispatcher == MR__UP && now >= r->tell_at) {
        if (r->admitted && mr__r_has_news(r)) {
            mr__r_acknowledge(r);
            mr__r_note_said(r);
        } else {
            mr__r_pulse(r, NULL);
        }
        r->tell_at = now + SECOND;
    }
}

/* A worker whose connection says nothing is lost, as one that closed it. */
static void tick_workers(mr__job_reader *r, int64_t now)
{
    mr_status why;
    bool due = now >= r->pulse_at;
    for (mr__r_worker *w = r->workers; w; w = w->next) {
        if (w->state == MR__UP && now - w->heard >= SILENT_S * SECOND) {
            r->out.close_worker(r->ctx, w->address);
            mr_fail(&why, MR_UNAVAILABLE, "it is silent");
            mr__job_reader_worker_closed(r, w->address, &why, now);
        } else if (w->state == MR__UP && due) {
            mr__r_pulse(r, w->address);
        }
    }
    if (due)
        r->pulse_at = now + SECOND;
}

/* When it has waited for too long. The dispatcher, which is there, may wait for workers itself
 * before the job ends. */
static int64_t stalls_at(const mr__job_reader *r)
{
    int64_t most = r->opts.stall_timeout_ns;
    if (!most)
        return INT64_MAX;
    if (mr__r_is_left_out(r) && most < LEFT_OUT_S * SECOND)
        most = LEFT_OUT_S * SECOND;
    return r->waits_since + most;
}

static void tick_waiting(mr__job_reader *r, int64_t now)
{
    mr_status why;
    if (!is_waiting(r))
        return;
    if (now >= stalls_at(r)) {
        char cause[512];
        mr__r_why_nothing(r, cause, sizeof cause);
        mr_fail(&why, MR_UNAVAILABLE, "nothing came from the service at %s for %.1f s%s",
                r->opts.dispatcher, (double)(now - r->waits_since) * 1e-9, cause);
        mr__r_fail(r, &why);
    } else if (!r->said_waits && now - r->waits_since >= SAY_AFTER_S * SECOND) {
        mr__r_note_waits(r);
        r->said_waits = true;
    }
}

int64_t mr__job_reader_tick(mr__job_reader *r, int64_t now)
{
    if (r->is_over)
        return INT64_MAX;
    tick_dispatcher(r, now);
    int64_t next = r->dispatcher == MR__DOWN ? r->retry_at
                   : r->dispatcher == MR__UP ? r->tell_at
                                             : INT64_MAX;
    for (size_t i = 0; i < r->n_streams; i++) {
        mr__r_stream *s = &r->streams[i];
        if (!s->lost || s->lost_at == INT64_MAX || !r->admitted)
            continue;
        if (now >= s->lost_at)
            mr__r_say_lost(r, s);
        else if (s->lost_at < next)
            next = s->lost_at;
    }
    if (r->workers && r->pulse_at < next)
        next = r->pulse_at > now ? r->pulse_at : now;
    tick_workers(r, now);
    tick_waiting(r, now);
    if (is_waiting(r)) {
        int64_t due = r->waits_since + (r->said_waits ? 3600 : SAY_AFTER_S) * SECOND;
        int64_t stall = stalls_at(r);
        due = stall < due ? stall : due;
        next = due < next ? due : next;
    }
    return next;
}

mr_code mr__job_reader_new(mr__job_reader **out, const mr__job_reader_opts *opts,
                           const mr__job_reader_out *to, void *ctx, int64_t now, mr_status *st)
{
    mr__job_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a reader of the service");
    r->opts = *opts;
    r->out = *to;
    r->ctx = ctx;
    r->random = opts->seed;
    r->client_id = opts->seed | 1;
    r->retry_at = now;
    r->give_up_at = now + opts->connect_timeout_ns;
    *out = r;
    return MR_OK;
}

void mr__job_reader_free(mr__job_reader *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_streams; i++) {
        mr_free(r->streams[i].position);
        mr_free(r->streams[i].home);
        mr_free(r->streams[i].end_position);
        mr_free(r->streams[i].splits);
    }
    mr_free(r->streams);
    mr__id_map_reset(&r->by_index);
    while (r->workers) {
        mr__r_worker *w = r->workers;
        r->workers = w->next;
        mr_free(w->address);
        mr_free(w);
    }
    mr_free(r);
}
