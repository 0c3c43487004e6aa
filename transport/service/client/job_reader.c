/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/job_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "transport/service/client/job_reader_state.h"
#include "transport/service/jitter.h"

#define SECOND        ((int64_t)1000000000)
#define BACKOFF_FIRST ((int64_t)50000000)
#define BACKOFF_MOST  (5 * SECOND)

enum {
    MOST_MISSES = 8, /* after that a missing file is an error of its element */
    MOST_DAMAGED = 3,
    SILENT_S = 5,
    SAY_AFTER_S = 10,
    LEFT_OUT_S = 15,
    REFUSED_S = 60,
    BLOCKS_AHEAD = 4,
    CATCH_UP_S = 5,
    MOST_JOB = 15 << 20, /* Join and Host add to it, and are messages of at most 16 MiB */
    MOST_PLACES = 16 << 20
};

static void fail(mr__job_reader *r, const mr_status *why)
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

/* The consumer waits, and more elements may still arrive. */
static bool is_waiting(const mr__job_reader *r)
{
    bool more = !r->is_joined || (r->shared && !r->finished);
    for (size_t i = 0; i < r->n_streams && !more; i++)
        more |= !r->streams[i].ended;
    return r->waits && more;
}

/* ---- streams ---- */

/* Returns NULL only if out of memory, also for n = 0. */
static uint8_t *copy_bytes(const void *p, size_t n)
{
    uint8_t *copy = mr_malloc(n + 1);
    if (copy && n)
        memcpy(copy, p, n);
    return copy;
}

/* The stream with this index; NULL: this client does not read it. */
static mr__r_stream *stream_of(mr__job_reader *r, uint32_t index)
{
    uintptr_t at = (uintptr_t)mr__id_map_get(&r->by_index, (uint64_t)index + 1);
    return at ? &r->streams[at - 1] : NULL;
}

/* dynamic: the splits of s, from number `first` on. *more = true if some of them are new.
 * errors   MR_DATA_LOSS: a gap, or a split that differs from the known one;
 *          MR_RESOURCE_EXHAUSTED */
static mr_code add_splits(mr__r_stream *s, uint64_t first, const uint64_t *v, size_t n, bool *more,
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
        MR_TRY(MR_GROW(s->splits, s->splits_capacity, s->n_splits + 1, SIZE_MAX / 16,
                       "a stream's splits", st));
        s->splits[s->n_splits++] = v[i];
        if (more)
            *more = true;
    }
    return MR_OK;
}

static void drop_next(mr__job_reader *r, mr__r_stream *s);

/* Starts or restarts s at p. */
static mr_code set_stream(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__Place *p,
                          mr_status *st)
{
    uint64_t all = r->opts.most_bytes ? r->opts.most_bytes : MR__LEAST_BYTES, n = r->n_streams;
    uint8_t *position = copy_bytes(p->position.data, p->position.len);
    char *home = mr_strdup(p->home);
    if (!position || !home) {
        mr_free(position);
        mr_free(home);
        return mr_fail_memory(st, p->position.len, "a position");
    }
    drop_next(r, s);
    mr_free(s->position);
    mr_free(s->home);
    mr_free(s->end_position);
    mr_free(s->splits);
    if (r->shared && n < MR__SHARED_STREAMS)
        n = MR__SHARED_STREAMS; /* more may be added */
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
    return add_splits(s, 0, p->splits, p->n_splits, NULL, st);
}

static mr_code add_stream(mr__job_reader *r, const Mr__Wire__Place *p, mr_status *st)
{
    MR_TRY(MR_GROW(r->streams, r->streams_capacity, r->n_streams + 1, SIZE_MAX / 16,
                   "a job's streams", st));
    MR_TRY(mr__id_map_set(&r->by_index, (uint64_t)p->stream + 1,
                          (void *)(uintptr_t)(r->n_streams + 1), st));
    memset(&r->streams[r->n_streams++], 0, sizeof *r->streams);
    return set_stream(r, &r->streams[r->n_streams - 1], p, st);
}

static void deliver_splits(mr__job_reader *r, const mr__r_stream *s)
{
    const mr__arrival a = {.kind = MR__ARRIVED_SPLITS,
                           .stream = s->index,
                           .splits = s->splits,
                           .n_splits = s->n_splits};
    r->out.deliver(r->ctx, &a);
}

static void deliver_end(mr__job_reader *r, const mr__r_stream *s, const void *position, size_t n)
{
    mr__arrival end = {.kind = MR__ARRIVED_END,
                       .stream = s->index,
                       .first = s->received,
                       .position = position,
                       .position_bytes = n};
    r->out.deliver(r->ctx, &end);
}

/* Shared: another client reads s from now on. */
static void give_up(mr__job_reader *r, mr__r_stream *s)
{
    mr__arrival gone = {.kind = MR__ARRIVED_GONE, .stream = s->index};
    drop_next(r, s);
    s->gone = s->ended = s->end_said = true;
    s->opened = s->lost = false;
    s->acknowledged = s->consumed = s->received;
    r->out.deliver(r->ctx, &gone);
}

/* Shared: starts to read the stream at p. s: its entry, if this client read it before; NULL: it did
 * not. Returns NULL if out of memory. */
static mr__r_stream *take_stream(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__Place *p)
{
    mr_status st;
    if ((s ? set_stream(r, s, p, &st) : add_stream(r, p, &st)) != MR_OK) {
        fail(r, &st);
        return NULL;
    }
    s = stream_of(r, p->stream);
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
        deliver_end(r, s, s->position, s->position_bytes);
    return s;
}

/* ---- messages ---- */

static Mr__Wire__Place place_of(const mr__r_stream *s)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = s->index;
    p.generation = s->generation;
    p.worker = s->worker ? s->worker->address : (char *)"";
    p.elements = s->consumed;
    p.position = (ProtobufCBinaryData){s->position_bytes, s->position};
    p.skip = s->skip;
    p.end = s->ended && s->consumed == s->received;
    if (p.end && s->end_position) {
        p.position = (ProtobufCBinaryData){s->end_position_bytes, s->end_position};
        p.skip = 0;
    }
    p.home = s->home;
    return p;
}

/* Makes the places of this client's streams (news: only of those with something to acknowledge) and
 * a list of pointers to them. Returns their number. The caller frees *places and *list. */
static size_t places_of(const mr__job_reader *r, bool news, Mr__Wire__Place **places,
                        Mr__Wire__Place ***list)
{
    size_t n = 0;
    *places = mr_calloc(r->n_streams + 1, sizeof **places);
    *list = mr_calloc(r->n_streams + 1, sizeof **list);
    for (size_t i = 0; *places && *list && i < r->n_streams; i++) {
        const mr__r_stream *s = &r->streams[i];
        if (s->gone)
            continue;
        Mr__Wire__Place p = place_of(s);
        if (!news) {
            p.n_splits = s->n_splits;
            p.splits = s->splits;
        }
        if (news && s->consumed == s->acknowledged && (!p.end || s->end_said))
            continue;
        (*places)[n] = p;
        (*list)[n] = &(*places)[n];
        n++;
    }
    return n;
}

/* Says m, unless it has more bytes than any message: of the positions, since the graph fits. The
 * connection would end, again and again. */
static void say_places(mr__job_reader *r, const mr__message *m)
{
    mr_status st;
    size_t n = mr__wire__message__get_packed_size(m);
    if (n <= MOST_PLACES) {
        r->out.to_dispatcher(r->ctx, m);
        return;
    }
    mr_fail(&st, MR_RESOURCE_EXHAUSTED,
            "the positions of this job's %zu streams, and its graph, have %zu bytes together; a "
            "service accepts at most %d: use fewer streams, or let operations hold less data",
            r->n_streams, n, MOST_PLACES);
    fail(r, &st);
}

static void say_join(mr__job_reader *r)
{
    Mr__Wire__Join j = *r->opts.join;
    Mr__Wire__Place *places = NULL, **list = NULL;
    j.request = ++r->request;
    j.client_id = r->client_id;
    Mr__Wire__Job job = *r->opts.join->job;
    if (r->is_joined) {
        job.key = (ProtobufCBinaryData){r->key_bytes, r->key};
        j.job = &job;
        j.job_id = r->job_id;
        j.n_places = places_of(r, false, &places, &list);
        j.places = list;
    }
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_JOIN;
    m.join = &j;
    say_places(r, &m);
    mr_free(places);
    mr_free(list);
}

static void say_acknowledge(mr__job_reader *r)
{
    Mr__Wire__Place *places, **list;
    Mr__Wire__Acknowledge a = MR__WIRE__ACKNOWLEDGE__INIT;
    a.job_id = r->job_id;
    a.client_id = r->client_id;
    a.request = ++r->request;
    a.n_places = places_of(r, true, &places, &list);
    a.places = list;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE;
    m.acknowledge = &a;
    say_places(r, &m);
    if (r->flushing)
        r->flush_request = a.request;
    mr_free(places);
    mr_free(list);
}

void mr__job_reader_leave(mr__job_reader *r)
{
    if (r->dispatcher != MR__UP || r->has_left)
        return;
    Mr__Wire__Leave leave = MR__WIRE__LEAVE__INIT;
    leave.job_id = r->job_id;
    leave.client_id = r->client_id;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_LEAVE;
    m.leave = &leave;
    r->out.to_dispatcher(r->ctx, &m);
    r->has_left = true;
}

/* Acknowledgements are cumulative: what was sent counts as acknowledged. If it is lost with the
 * connection, Join repeats it. */
static void note_said(mr__job_reader *r)
{
    for (size_t i = 0; i < r->n_streams; i++) {
        mr__r_stream *s = &r->streams[i];
        s->acknowledged = s->consumed;
        s->end_said = s->ended && s->consumed == s->received;
    }
}

static bool has_news(const mr__job_reader *r)
{
    for (size_t i = 0; i < r->n_streams; i++) {
        const mr__r_stream *s = &r->streams[i];
        bool end = s->ended && s->consumed == s->received && !s->end_said;
        if (s->consumed != s->acknowledged || end)
            return true;
    }
    return false;
}

/* address: of a worker; NULL: the dispatcher. */
static void say_pulse(mr__job_reader *r, const char *address)
{
    Mr__Wire__Pulse p = MR__WIRE__PULSE__INIT;
    Mr__Wire__Usage usage = MR__WIRE__USAGE__INIT, *list[1] = {&usage};
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PULSE;
    m.pulse = &p;
    if (!address && r->admitted) {
        usage.job_id = r->job_id;
        usage.bytes = r->usage.bytes - r->reported.bytes;
        usage.wait_ns = r->usage.wait_ns - r->reported.wait_ns;
        usage.own_ns = r->usage.own_ns - r->reported.own_ns;
        r->reported = r->usage;
        p.n_usage = 1;
        p.usage = list;
    }
    if (address)
        r->out.to_worker(r->ctx, address, &m);
    else
        r->out.to_dispatcher(r->ctx, &m);
}

static void say_lost(mr__job_reader *r, mr__r_stream *s)
{
    Mr__Wire__Lost l = MR__WIRE__LOST__INIT;
    l.job_id = r->job_id;
    l.stream = s->index;
    l.generation = s->generation;
    l.missing = s->misses > 0 || s->elsewhere;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_LOST;
    m.lost = &l;
    r->out.to_dispatcher(r->ctx, &m);
    s->lost_at = INT64_MAX;
}

/* ---- why nothing arrives ---- */

/* A client of a shared job has read all of its streams, and the job continues. */
static bool is_left_out(const mr__job_reader *r)
{
    bool open = false;
    for (size_t i = 0; i < r->n_streams; i++)
        open |= !r->streams[i].ended;
    return r->shared && r->admitted && !open;
}

/* Writes a reason to append to a message, such as "; no worker serves the job"; "": unknown. */
static void why_nothing(const mr__job_reader *r, char *out, size_t size)
{
    bool served = false;
    for (const mr__r_worker *w = r->workers; w; w = w->next)
        served |= w->state == MR__UP;
    const char *cause = r->why[0] ? ": " : "";
    *out = '\0';
    if (r->dispatcher != MR__UP)
        snprintf(out, size, "; its dispatcher cannot be reached%s%s", cause, r->why);
    else if (is_left_out(r))
        snprintf(out, size, "; other clients read all streams, or their workers are disconnected");
    else if (!served) /* even Joined arrives only when some worker knows the job */
        snprintf(out, size, "; no worker%s serves the job",
                 r->admitted && r->opts.local_workers ? " on this host" : "");
}

static void note_waits(const mr__job_reader *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_streams; i++)
        n += !r->streams[i].ended && !r->streams[i].opened;
    if (r->dispatcher != MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "waiting for the dispatcher at %s%s%s",
                 r->opts.dispatcher, r->why[0] ? ": " : "", r->why);
    else
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 is_left_out(r) ? "waiting for a stream of the job at %s: other clients read all "
                                  "of them, or their workers are disconnected"
                 : r->opts.local_workers ? "waiting for workers on this host of the service at %s"
                                         : "waiting for workers of the service at %s",
                 r->opts.dispatcher);
    if (n)
        mr__note(r->out.note, r->ctx, MR_LOG_INFO, "%zu streams have no reachable worker", n);
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

static void say_open(mr__job_reader *r, const mr__r_stream *s, const mr__r_worker *w,
                     uint64_t generation, uint64_t credit)
{
    Mr__Wire__Open o = MR__WIRE__OPEN__INIT;
    o.job_id = r->job_id;
    o.stream = s->index;
    o.generation = generation;
    o.first = s->received;
    o.credit = credit;
    o.compression = r->opts.compression;
    o.measured = r->opts.measured;
    o.key = (ProtobufCBinaryData){r->key_bytes, r->key};
    o.missing_moves = r->opts.missing_moves && s->misses < MOST_MISSES;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_OPEN;
    m.open = &o;
    r->out.to_worker(r->ctx, w->address, &m);
}

static void open_stream(mr__job_reader *r, mr__r_stream *s)
{
    s->opened = s->begun = true;
    s->returned = 0;
    say_open(r, s, s->worker, s->generation, s->window > s->held ? s->window - s->held : 1);
}

/* Reads s from its worker; connects first if necessary. */
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

/* The stream cannot be read from its worker: reports this to the dispatcher after the backoff. */
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
        say_lost(r, s);
}

/* Closes connections that no stream needs. */
static void drop_idle_workers(mr__job_reader *r)
{
    for (mr__r_worker **at = &r->workers; *at;) {
        mr__r_worker *w = *at;
        bool used = false;
        for (size_t i = 0; i < r->n_streams; i++)
            used |= (r->streams[i].worker == w && !r->streams[i].ended) ||
                    (r->streams[i].next && r->streams[i].next->worker == w);
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

/* ---- moving a stream to another worker ---- */

static void say_shut(mr__job_reader *r, const mr__r_stream *s, const mr__r_worker *w)
{
    Mr__Wire__Shut shut = MR__WIRE__SHUT__INIT;
    shut.job_id = r->job_id;
    shut.stream = s->index;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_SHUT;
    m.shut = &shut;
    if (w->state == MR__UP)
        r->out.to_worker(r->ctx, w->address, &m);
}

static void say_credit(mr__job_reader *r, const mr__r_stream *s, const mr__r_worker *w,
                       uint64_t bytes)
{
    Mr__Wire__Credit c = MR__WIRE__CREDIT__INIT;
    c.job_id = r->job_id;
    c.stream = s->index;
    c.bytes = bytes;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_CREDIT;
    m.credit = &c;
    r->out.to_worker(r->ctx, w->address, &m);
}

static void say_prepared(mr__job_reader *r, uint32_t stream, uint64_t generation, bool failed)
{
    Mr__Wire__Prepared p = MR__WIRE__PREPARED__INIT;
    p.job_id = r->job_id;
    p.stream = stream;
    p.generation = generation;
    p.failed = failed;
    mr__message m = MR__WIRE__MESSAGE__INIT;
    m.body_case = MR__WIRE__MESSAGE__BODY_PREPARED;
    m.prepared = &p;
    if (r->admitted)
        r->out.to_dispatcher(r->ctx, &m);
}

static void free_next(mr__r_next *n)
{
    mr__message_free(n->said);
    mr__wire_free(n->head);
    mr_free(n);
}

/* s does not move (any more). */
static void drop_next(mr__job_reader *r, mr__r_stream *s)
{
    mr__r_next *n = s->next;
    if (!n)
        return;
    s->next = NULL;
    if (n->opened)
        say_shut(r, s, n->worker);
    if (n->head)
        r->out.drop(r->ctx, n->block);
    free_next(n);
}

/* s cannot be read from the worker that it is to move to: it stays. */
static void fail_next(mr__job_reader *r, mr__r_stream *s)
{
    if (!s->next)
        return;
    say_prepared(r, s->index, s->next->generation, true);
    drop_next(r, s);
}

/* Opens s at its new worker, with credit for one block; connects first if necessary. */
static void go_next(mr__job_reader *r, mr__r_stream *s, int64_t now)
{
    mr__r_next *n = s->next;
    if (!n || n->opened || now < n->open_at)
        return;
    if (n->worker->state == MR__UP) {
        n->opened = true;
        n->granted = 1;
        n->got = 0;
        say_open(r, s, n->worker, n->generation, 1);
    } else if (n->worker->state == MR__DOWN) {
        n->worker->state = MR__CONNECTING;
        r->out.connect_worker(r->ctx, n->worker->address);
    }
}

static void take_prepare(mr__job_reader *r, const Mr__Wire__Prepare *p, int64_t now)
{
    mr__r_stream *s = p->job_id == r->job_id ? stream_of(r, p->stream) : NULL;
    if (!s || s->gone || s->ended || p->generation <= s->generation || !r->admitted ||
        (s->next && s->next->generation >= p->generation))
        return;
    drop_next(r, s);
    mr__r_worker *w = p->worker[0] ? need_worker(r, p->worker) : NULL;
    if (!w || !(s->next = mr_calloc(1, sizeof *s->next))) {
        say_prepared(r, p->stream, p->generation, true);
        return;
    }
    s->next->worker = w;
    s->next->generation = p->generation;
    go_next(r, s, now);
}

/* The stream that a worker's message is about, if it is to move there. */
static mr__r_stream *mover(mr__job_reader *r, const char *address, uint64_t job, uint32_t index,
                           uint64_t generation)
{
    mr__r_stream *s = job == r->job_id ? stream_of(r, index) : NULL;
    bool counts = s && s->next && s->next->opened && s->next->generation == generation &&
                  strcmp(s->next->worker->address, address) == 0;
    return counts ? s : NULL;
}

/* Something of the new worker has arrived, which took that much credit and ends at element `end`.
 * Returns true if it is to be kept: the stream can move. Else the next one may come. */
static bool reaches(mr__job_reader *r, mr__r_stream *s, uint64_t end, size_t bytes, int64_t now)
{
    mr__r_next *n = s->next;
    if (!n->come_at)
        n->come_at = now;
    n->got += bytes;
    if (end <= s->received && now - n->come_at < CATCH_UP_S * SECOND) {
        n->granted += bytes;
        say_credit(r, s, n->worker, bytes);
        return false;
    }
    return true;
}

static void say_ready(mr__job_reader *r, mr__r_stream *s)
{
    s->next->is_said = true;
    say_prepared(r, s->index, s->next->generation, false);
}

/* A message of the new worker; kept as it is until the stream moves. */
static void keep_message(mr__job_reader *r, mr__r_stream *s, const mr__message *m)
{
    mr_status st;
    if (s->next->is_said || mr__wire_copy(&m->base, &s->next->said, &st) != MR_OK)
        fail_next(r, s);
    else
        say_ready(r, s);
}

static void keep_block(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__BlockHead *head,
                       size_t bytes, void *block, int64_t now)
{
    mr_status st;
    mr__r_next *n = s->next;
    uint64_t end;
    bool good = !n->is_said && head->first <= s->received &&
                !__builtin_add_overflow(head->first, head->rows, &end);
    n->worker->heard = now;
    if (!good || !reaches(r, s, end, bytes, now)) {
        r->out.drop(r->ctx, block);
        if (!good)
            fail_next(r, s);
        return;
    }
    if (mr__wire_copy(&head->base, &n->head, &st) != MR_OK) {
        r->out.drop(r->ctx, block);
        fail_next(r, s);
        return;
    }
    n->block = block;
    n->bytes = bytes;
    say_ready(r, s);
}

/* The dispatcher has put it on record that s moves: it continues at its new worker, which gets the
 * credit that the window leaves. What it has sent so far arrives now. */
static void take_over(mr__job_reader *r, mr__r_stream *s, int64_t now)
{
    mr__r_next *n = s->next;
    s->next = NULL;
    if (s->worker && s->opened)
        say_shut(r, s, s->worker);
    s->worker = n->worker;
    s->generation = n->generation;
    s->opened = s->begun = true;
    s->lost = s->anew = false;
    s->backoff = 0;
    s->returned = 0;
    uint64_t used = s->held + (n->head ? n->bytes : n->said ? (size_t)MR__ERROR_CREDIT : 0);
    uint64_t room = s->window > used ? s->window - used : 0;
    if (room + n->got > n->granted)
        say_credit(r, s, n->worker, room + n->got - n->granted);
    if (n->head)
        mr__job_reader_worker_block(r, n->worker->address, n->head, n->bytes, n->block, now);
    else if (n->said)
        mr__job_reader_worker_message(r, n->worker->address, n->said, now);
    free_next(n);
}

static void take_place(mr__job_reader *r, const Mr__Wire__Place *p, int64_t now)
{
    mr__r_stream *s = stream_of(r, p->stream);
    if (r->shared && s && !s->gone && p->generation > s->generation && p->elements > s->consumed)
        give_up(r, s); /* other clients have read from it in the meantime */
    if (r->shared && (!s || s->gone) && !(s = take_stream(r, s, p)))
        return;
    if (!s || p->generation < s->generation)
        return;
    s->seen = true;
    if (p->generation > s->generation) { /* acknowledgements of the old one may have been dropped */
        s->acknowledged = 0;
        s->end_said = false;
        s->elsewhere = false; /* it was about the previous worker */
        if (s->next && s->next->opened && s->next->generation == p->generation &&
            strcmp(s->next->worker->address, p->worker) == 0) {
            take_over(r, s, now);
            return;
        }
        drop_next(r, s);
    }
    if (s->ended) {
        s->generation = p->generation;
        return;
    }
    /* No worker in the same generation: the dispatcher waits for the previous one, and so do we. */
    bool same = p->generation == s->generation && s->worker && !s->lost &&
                (!p->worker[0] || strcmp(s->worker->address, p->worker) == 0);
    if (same) {
        go_on(r, s);
        return;
    }
    if (p->generation == s->generation && s->lost && s->lost_at == INT64_MAX)
        s->lost_at = now; /* Lost was sent to a dispatcher that has ended */
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
    say_join(r);
}

static void retry_dispatcher(mr__job_reader *r, int64_t now)
{
    for (size_t i = 0; i < r->n_streams; i++)
        drop_next(r, &r->streams[i]);
    r->dispatcher = MR__DOWN;
    r->admitted = false;
    r->backoff = next_backoff(r->backoff);
    r->retry_at = now + mr__jittered(&r->random, r->backoff);
    if (r->flushing)
        r->flush_request = 0; /* requested again after the next Joined */
}

void mr__job_reader_dispatcher_closed(mr__job_reader *r, const mr_status *why, int64_t now)
{
    if (why->code == MR_PERMISSION_DENIED || why->code == MR_FAILED_PRECONDITION) {
        fail(r, why);
        return;
    }
    snprintf(r->why, sizeof r->why, "%.250s", why->code == MR_END ? "" : why->message);
    if (r->dispatcher == MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING,
                 "the connection to the dispatcher at %s is lost; trying again",
                 r->opts.dispatcher);
    retry_dispatcher(r, now);
    /* A user may start the client up to a second before the dispatcher without a warning. */
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
        MR_TRY(add_stream(r, j->places[i], st));
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
    if (r->is_joined && j->job_id != r->job_id) { /* rebuilt by a dispatcher that had lost it */
        for (size_t i = 0; i < r->n_streams; i++) {
            r->streams[i].opened = r->streams[i].lost = false;
            r->streams[i].worker = NULL;
        }
    }
    r->job_id = j->job_id;
    r->key_bytes = j->job->key.len;
    if (r->key_bytes)
        memcpy(r->key, j->job->key.data, r->key_bytes);
    if (!r->is_joined) {
        r->is_joined = true;
        if (make_streams(r, j, &st) != MR_OK) {
            fail(r, &st);
            return;
        }
        r->out.joined(r->ctx, j);
        for (size_t i = 0; i < r->n_streams; i++)
            if (r->streams[i].ended)
                deliver_end(r, &r->streams[i], r->streams[i].position,
                            r->streams[i].position_bytes);
    }
    for (size_t i = 0; i < r->n_streams; i++)
        r->streams[i].seen = false;
    for (size_t i = 0; i < j->n_places; i++)
        take_place(r, j->places[i], now);
    for (size_t i = 0; i < r->n_streams && r->shared; i++)
        if (!r->streams[i].seen && !r->streams[i].gone)
            give_up(r, &r->streams[i]);
    drop_idle_workers(r);
    if (r->flushing && !r->flush_request) {
        say_acknowledge(r);
        note_said(r);
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

/* The dispatcher may refuse to admit this client again, because it has not noticed yet that an
 * earlier connection ended, or because it lost its account and cannot write a new one yet. The
 * client tries for REFUSED_S seconds. */
static void take_failed(mr__job_reader *r, const mr_status *why, int64_t now)
{
    bool again = r->is_joined && !r->admitted &&
                 (why->code == MR_FAILED_PRECONDITION || why->code == MR_RESOURCE_EXHAUSTED);
    if (again && !r->refused_since)
        r->refused_since = now;
    if (!again || now - r->refused_since >= REFUSED_S * SECOND) {
        fail(r, why);
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
        if (r->flushing &&
            r->admitted) { /* acknowledgements of the older generation did not count */
            say_acknowledge(r);
            note_said(r);
        }
        break;
    case MR__WIRE__MESSAGE__BODY_PREPARE:
        take_prepare(r, m->prepare, now);
        break;
    case MR__WIRE__MESSAGE__BODY_FINISHED:
        if (r->shared && !r->finished) {
            mr__arrival over = {.kind = MR__ARRIVED_OVER};
            r->finished = true;
            r->out.deliver(r->ctx, &over);
        }
        break;
    case MR__WIRE__MESSAGE__BODY_WARNING:
        if (strncmp(r->warned, m->warning->text, sizeof r->warned - 1) != 0) { /* a new one */
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
        break; /* Pulse; other messages are ignored */
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
    for (size_t i = 0; i < r->n_streams; i++) {
        if (r->streams[i].worker == w)
            go_on(r, &r->streams[i]);
        if (r->streams[i].next && r->streams[i].next->worker == w)
            go_next(r, &r->streams[i], now);
    }
}

/* Something of this worker could not be decoded: counts for the streams read from it. Returns one
 * that made no progress in MOST_DAMAGED attempts, or NULL. */
static const mr__r_stream *count_damage(mr__job_reader *r, const mr__r_worker *w, mr_code code)
{
    const mr__r_stream *hopeless = NULL;
    if (w->state != MR__UP || (code != MR_DATA_LOSS && code != MR_RESOURCE_EXHAUSTED &&
                               code != MR_INTERNAL && code != MR_UNIMPLEMENTED))
        return NULL;
    for (size_t i = 0; i < r->n_streams; i++) {
        mr__r_stream *s = &r->streams[i];
        if (s->worker == w && s->opened && !s->ended && ++s->damaged >= MOST_DAMAGED)
            hopeless = s;
    }
    return hopeless;
}

void mr__job_reader_worker_closed(mr__job_reader *r, const char *address, const mr_status *why,
                                  int64_t now)
{
    mr__r_worker *w = worker_at(r, address);
    if (!w)
        return;
    const mr__r_stream *hopeless = count_damage(r, w, why->code);
    bool elsewhere = r->opts.local_workers && why->code == MR_INVALID_ARGUMENT;
    if (elsewhere)
        mr__note(r->out.note, r->ctx, MR_LOG_INFO,
                 "worker %s is not on this host; its streams move", address);
    else if (w->state == MR__UP)
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "worker %s is lost: %s", address,
                 why->code == MR_END ? "it closed the connection" : why->message);
    w->state = MR__DOWN;
    bool is_read = false;
    for (size_t i = 0; i < r->n_streams; i++) {
        mr__r_stream *s = &r->streams[i];
        is_read |= s->worker == w && !s->ended;
        if (s->next && s->next->worker == w)
            fail_next(r, s);
    }
    if (!is_read)
        return;
    /* A worker that is shutting down may look once as if it did not satisfy the options. */
    bool refused = why->code == MR_FAILED_PRECONDITION || why->code == MR_INVALID_ARGUMENT;
    bool again = false;
    for (size_t i = 0; i < r->n_streams && refused && !elsewhere; i++)
        if (r->streams[i].worker == w && !r->streams[i].ended && r->streams[i].refused++)
            again = true;
    if (why->code == MR_PERMISSION_DENIED || again) { /* another token, or refused twice */
        fail(r, why);
        return;
    }
    if (hopeless) {
        mr_status st;
        mr_fail(&st, why->code,
                "the block of stream %" PRIu32 " from element %" PRIu64
                " on cannot be decoded; %d attempts failed, the last one from worker %s: %.600s",
                hopeless->index, hopeless->received, MOST_DAMAGED, address, why->message);
        fail(r, &st);
        return;
    }
    for (size_t i = 0; i < r->n_streams; i++)
        if (r->streams[i].worker == w) {
            r->streams[i].elsewhere = elsewhere;
            lose(r, &r->streams[i], now);
        }
}

/* dynamic: the stream reaches more splits. */
static void take_splits(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__StreamSplits *x,
                        int64_t now)
{
    mr_status st;
    bool more = false;
    size_t before = s->n_splits;
    if (add_splits(s, x->first, x->splits, x->n_splits, &more, &st) != MR_OK) {
        mr__note(r->out.note, r->ctx, MR_LOG_WARNING, "%s", st.message);
        lose(r, s, now);
        return;
    }
    if (more && r->dispatcher == MR__UP && !r->admitted) {
        s->opened = false; /* Join was sent without them: reopen when it is answered */
        s->anew = true;
        s->n_splits = before;
        return;
    }
    if (more)
        deliver_splits(r, s);
}

/* The stream of a worker's message; NULL: the message is outdated. */
static mr__r_stream *speaker(mr__job_reader *r, const char *address, uint64_t job, uint32_t index,
                             uint64_t generation)
{
    mr__r_stream *s = job == r->job_id ? stream_of(r, index) : NULL;
    bool counts = s && s->opened && s->generation == generation && s->worker &&
                  strcmp(s->worker->address, address) == 0;
    return counts ? s : NULL;
}

/* The same for elements and the end, which must follow the splits that they belong to. */
static mr__r_stream *teller(mr__job_reader *r, const char *address, uint64_t job, uint32_t index,
                            uint64_t generation)
{
    mr__r_stream *s = speaker(r, address, job, index, generation);
    return s && !s->anew ? s : NULL;
}

/* Grants released bytes again in quarters of the window, not for every block. */
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
                 "stream %" PRIu32 " resumes at worker %s, %.3f s after it was lost", s->index,
                 s->worker->address, (double)(now - s->lost_since) * 1e-9);
    s->lost_since = 0;
    s->has_come = true;
    s->backoff = 0;
    s->misses = 0;
    s->elsewhere = false;
    s->refused = 0;
    s->damaged = 0;
    r->said_waits = false;
}

/* An error of the worker that s is to move to: of an element, or it does not serve the stream. It
 * may have heard of it later than this client; other errors do not matter while the old worker
 * serves. */
static void take_next_error(mr__job_reader *r, mr__r_stream *s, const mr__message *m, int64_t now)
{
    const Mr__Wire__StreamError *e = m->stream_error;
    mr__r_next *n = s->next;
    if (!e->fatal) {
        if (n->is_said || e->first > s->received)
            fail_next(r, s);
        else if (reaches(r, s, e->first + 1, MR__ERROR_CREDIT, now))
            keep_message(r, s, m);
    } else if (e->status->code == MR_UNAVAILABLE && !n->come_at && n->backoff < BACKOFF_MOST) {
        n->opened = false;
        n->backoff = next_backoff(n->backoff);
        n->open_at = now + n->backoff;
    } else {
        fail_next(r, s);
    }
}

/* dynamic: the new worker may be ahead of the old one; the splits are on record. */
static void take_next_splits(mr__job_reader *r, mr__r_stream *s, const Mr__Wire__StreamSplits *x)
{
    mr_status st;
    bool more = false;
    if (add_splits(s, x->first, x->splits, x->n_splits, &more, &st) != MR_OK)
        fail_next(r, s);
    if (more)
        deliver_splits(r, s);
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
        mr__r_stream *moves = mover(r, address, e->job_id, e->stream, e->generation);
        if (moves) {
            take_next_error(r, moves, m, now);
            return;
        }
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
            bool fresh = !s->has_come && !s->lost_since;
            lose(r, s, now);
            if (fresh) { /* its worker had not heard of it yet: nothing was lost */
                s->lost_since = 0;
                s->begun = false;
            }
        } else if (e->fatal) {
            fail(r, &why);
        } else if (e->first > s->received) {
            lose(r, s, now);
        } else if (e->first == s->received) {
            if (why.element >= 0) /* its number counts within the stream */
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
        } else { /* its worker takes over, and the old one has sent it already */
            s->returned += MR__ERROR_CREDIT;
            give_credit(r, s);
        }
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_STREAM_SPLITS) {
        const Mr__Wire__StreamSplits *x = m->stream_splits;
        mr__r_stream *s = speaker(r, address, x->job_id, x->stream, x->generation);
        mr__r_stream *moves = mover(r, address, x->job_id, x->stream, x->generation);
        if (moves)
            take_next_splits(r, moves, x);
        if (s && (!s->anew || x->first == 0)) {
            s->anew = false;
            take_splits(r, s, x, now);
        }
    } else if (m->body_case == MR__WIRE__MESSAGE__BODY_STREAM_END) {
        const Mr__Wire__StreamEnd *e = m->stream_end;
        mr__r_stream *moves = mover(r, address, e->job_id, e->stream, e->generation);
        if (moves) {
            keep_message(r, moves, m);
            return;
        }
        mr__r_stream *s = teller(r, address, e->job_id, e->stream, e->generation);
        if (!s)
            return;
        if (e->elements != s->received) { /* elements were lost in transit */
            lose(r, s, now);
            return;
        }
        if (e->position.len && (s->end_position = copy_bytes(e->position.data, e->position.len)))
            s->end_position_bytes = e->position.len;
        drop_next(r, s);
        s->ended = true;
        s->opened = false;
        arrived(r, s, now);
        deliver_end(r, s, e->position.data, e->position.len);
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
    mr__r_stream *moves = mover(r, address, head->job_id, head->stream, head->generation);
    if (moves && !r->is_over) {
        keep_block(r, moves, head, bytes, block, now);
        return;
    }
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
    r->usage.bytes += bytes;
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
    mr__r_stream *s = stream_of(r, index);
    (void)now;
    if (!s || s->gone || elements > s->received)
        return;
    if (elements > s->consumed) {
        uint8_t *copy = copy_bytes(position, position_bytes);
        if (copy) { /* out of memory: the older place stays, which is also correct */
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

void mr__job_reader_pace(mr__job_reader *r, int64_t wait_ns, int64_t own_ns)
{
    r->usage.wait_ns = (uint64_t)wait_ns;
    r->usage.own_ns = (uint64_t)own_ns;
}

void mr__job_reader_waits(mr__job_reader *r, bool waits, int64_t now)
{
    if (waits && !r->waits)
        r->waits_since = now;
    r->waits = waits;
    r->said_waits &= waits;
    /* Shared: the dispatcher ends the job when it knows that every stream has ended. */
    if (!waits || !r->shared || !r->admitted || r->is_over || r->flushing || !has_news(r))
        return;
    for (size_t i = 0; i < r->n_streams; i++)
        if (!r->streams[i].ended || r->streams[i].consumed != r->streams[i].received)
            return;
    say_acknowledge(r);
    note_said(r);
}

void mr__job_reader_flush(mr__job_reader *r, bool leave, int64_t now)
{
    (void)now;
    r->leaving |= leave;
    if (r->is_over || !r->is_joined) { /* nothing to acknowledge */
        r->out.flushed(r->ctx);
        return;
    }
    r->flushing = true;
    r->flush_request = 0;
    if (r->admitted) {
        say_acknowledge(r);
        note_said(r);
    }
}

/* ---- time ---- */

static void tick_dispatcher(mr__job_reader *r, int64_t now)
{
    mr_status why;
    if (r->dispatcher == MR__DOWN && now >= r->retry_at) {
        if (!r->ever_connected && now >= r->give_up_at) {
            mr_fail(&why, MR_UNAVAILABLE,
                    "no dispatcher answers at %s%s%s; start one, or correct the address",
                    r->opts.dispatcher, r->why[0] ? ": " : "", r->why);
            fail(r, &why);
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
        if (r->admitted && has_news(r)) {
            say_acknowledge(r);
            note_said(r);
        }
        say_pulse(r, NULL);
        r->tell_at = now + SECOND;
    }
}

/* A worker whose connection is silent is lost, like one that closed it. */
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
            say_pulse(r, w->address);
        }
    }
    if (due)
        r->pulse_at = now + SECOND;
}

/* When the wait becomes an error. A client without streams waits longer, since the dispatcher may
 * itself wait for workers before it ends the job. */
static int64_t stalls_at(const mr__job_reader *r)
{
    int64_t most = r->opts.stall_timeout_ns;
    if (!most)
        return INT64_MAX;
    if (is_left_out(r) && most < LEFT_OUT_S * SECOND)
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
        why_nothing(r, cause, sizeof cause);
        mr_fail(&why, MR_UNAVAILABLE, "nothing came from the service at %s for %.1f s%s",
                r->opts.dispatcher, (double)(now - r->waits_since) * 1e-9, cause);
        fail(r, &why);
    } else if (!r->said_waits && now - r->waits_since >= SAY_AFTER_S * SECOND) {
        note_waits(r);
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
            say_lost(r, s);
        else if (s->lost_at < next)
            next = s->lost_at;
    }
    for (size_t i = 0; i < r->n_streams; i++) {
        const mr__r_next *n = r->streams[i].next;
        if (!n || n->opened || !n->open_at)
            continue;
        go_next(r, &r->streams[i], now);
        if (!n->opened && n->open_at > now && n->open_at < next)
            next = n->open_at;
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
    size_t job = mr__wire__job__get_packed_size(opts->join->job);
    if (job > MOST_JOB)
        return mr_fail(
            st, MR_RESOURCE_EXHAUSTED,
            "the graph has %zu bytes, with its lists of files; a service accepts at most "
            "%d: let its workers read large tensors from files",
            job, MOST_JOB);
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
        mr__r_next *n = r->streams[i].next;
        if (n && n->head)
            r->out.drop(r->ctx, n->block);
        if (n)
            free_next(n);
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
