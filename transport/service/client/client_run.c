/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/client_run.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>

#include "pipeline/engine/op_source.h"
#include "pipeline/log_internal.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "shard/streams/stream_cut.h"
#include "transport/service/client/job_reader.h"
#include "transport/wire/token_file.h"

#define SECOND              ((int64_t)1000000000)
#define FINISH_NS           (1 * SECOND) /* to send what is queued */
#define LEAVE_SECONDS       1.0          /* to leave the job on close */
#define SOON_MS             1            /* within which most waits end */
#define OF(type, member, p) ((type *)((char *)(p)-offsetof(type, member)))

/* The loop is woken for an eighth of a stream's window (its part of the memory); credit is granted
 * in quarters of it. */
enum { NEWS_PARTS = 8 };

/* An arrival of a stream. The first one of a queue may be partly consumed; the end stays queued. */
typedef struct arrived_item {
    struct arrived_item *next;
    int kind; /* MR__ARRIVED_... */
    mr_block block;
    size_t at;    /* rows returned or skipped */
    uint64_t end; /* number of the next element */
    size_t bytes;
    mr_buffer *position; /* after its last element */
    mr_status status;
} arrived_item;

/* A saved position of a stream; the next element after it is number `element`. */
typedef struct stream_mark {
    mr_buffer *position; /* NULL: the beginning */
    uint64_t element;
} stream_mark;

typedef struct remote_stream {
    uint32_t index;
    bool is_cut; /* loop only: an arrival was lost and the client has failed */
    char *home;  /* shared: the only worker that may host it; NULL: any */
    /* guarded by the lock */
    uint64_t *splits; /* dynamic: those assigned to it, as far as known */
    size_t n_splits;
    bool gone; /* shared: another client reads it; it is in the list `gone` */
    struct remote_stream *next_gone;
    arrived_item *first, *last;
    struct remote_stream *next_news;
    bool has_news;
    uint64_t consumed; /* elements, to be reported to the reader */
    stream_mark consumed_at;
    size_t released;
    /* consumer only */
    uint64_t given;            /* elements returned */
    size_t back;               /* of these, rows that the op has not delivered yet */
    stream_mark before, after; /* around the last result; after: set once all of it is returned */
    size_t to_release;         /* bytes of returned blocks, to be released */
    bool ended;
    mr_buffer *end_position;
} remote_stream;

enum pace { AWAY, ASKS, WAITS }; /* what the consumer does */

typedef struct mr__remote {
    mr__stream_source base;
    mr__remote_opts o;
    Mr__Wire__Job *job; /* final once joined */
    Mr__Wire__Join join;
    char *service;
    mr__token token;
    mr_cancel *cancel;
    const mr_spec *spec;
    pthread_t thread;
    bool has_thread;
    int event; /* an eventfd: something arrived for the consumer */
    pthread_mutex_t lock;
    /* guarded by the lock */
    remote_stream **streams; /* by index; NULL: another client's; only the loop changes the list */
    size_t n_streams;
    remote_stream *gone;
    bool joined, is_failed, flushed, over;
    bool all_ended; /* shared: all streams have ended, also those of other clients */
    mr_status failed;
    bool sleeps;    /* the consumer waits for the event */
    enum pace pace; /* what the consumer does, since pace_since */
    int64_t pace_since, wait_ns, own_ns;
    remote_stream *news_first, *news_last;
    size_t news_bytes; /* released, not yet known to the loop */
    bool news_posted, wants_flush, wants_leave, wants_stop, waits;
    /* consumer only */
    bool failure_said;
    void *place;         /* the last result of place */
    remote_stream *last; /* shared: the stream whose rows were returned last */
    size_t turn;         /* shared: index of the stream whose turn is next */
    /* loop only */
    mr__posted news;
    mr__loop *loop;
    mr__job_reader *reader;
    mr__client_connections connections;
    mr__timer tick, finish;
    bool stops, is_late;
    bool has_for_consumer; /* wake it at the end of this turn */
} mr__remote;

static void set_mark(stream_mark *m, mr_buffer *position, uint64_t element)
{
    mr_buffer_unref(m->position);
    m->position = position ? mr_buffer_ref(position) : NULL;
    m->element = element;
}

static void free_arrived(arrived_item *a)
{
    mr_block_reset(&a->block);
    mr_buffer_unref(a->position);
    mr_free(a);
}

static void free_stream(remote_stream *s)
{
    if (!s)
        return;
    while (s->first) {
        arrived_item *a = s->first;
        s->first = a->next;
        free_arrived(a);
    }
    mr_buffer_unref(s->consumed_at.position);
    mr_buffer_unref(s->before.position);
    mr_buffer_unref(s->after.position);
    mr_buffer_unref(s->end_position);
    mr_free(s->splits);
    mr_free(s->home);
    mr_free(s);
}

/* True if clients share the job; final once it is joined. */
static bool is_shared(const mr__remote *r)
{
    return r->job->mode == MR__WIRE__MODE__DYNAMIC ||
           r->job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

/* ---- news from the consumer; call with the lock held ---- */

/* The consumer begins to do something else, or the same: adds the time that has passed. */
static void set_pace(mr__remote *r, enum pace pace)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC), passed = now - r->pace_since;
    r->wait_ns += r->pace == WAITS ? passed : 0;
    r->own_ns += r->pace == AWAY ? passed : 0;
    r->pace = pace;
    r->pace_since = now;
}

/* Call with the lock held. */
static void post_news(mr__remote *r)
{
    if (r->news_posted)
        return;
    r->news_posted = true;
    mr__loop_post(r->loop, &r->news);
}

/* Queues news of s; the loop takes it when posted, or within a second. */
static void add_news(mr__remote *r, remote_stream *s)
{
    if (!s->has_news) {
        s->has_news = true;
        s->next_news = NULL;
        if (r->news_last)
            r->news_last->next_news = s;
        else
            r->news_first = s;
        r->news_last = s;
    }
}

/* Call with the lock held. */
static void set_waits(mr__remote *r, bool waits)
{
    if (r->waits == waits)
        return;
    r->waits = waits;
    post_news(r);
}

/* Reports the released bytes of s to the loop, together with the next news. Call with the lock
 * held. */
static void release(mr__remote *r, remote_stream *s)
{
    uint64_t all = r->o.most_bytes ? r->o.most_bytes : MR__LEAST_BYTES;
    size_t parts = r->n_streams ? r->n_streams : 1;
    if (is_shared(r) && parts < MR__SHARED_STREAMS)
        parts = MR__SHARED_STREAMS;
    if (!s->to_release)
        return;
    s->released += s->to_release;
    r->news_bytes += s->to_release;
    s->to_release = 0;
    add_news(r, s);
    if (r->news_bytes >= all / NEWS_PARTS / parts)
        post_news(r);
}

/* The mark for the place of s, without the rows that the op has not delivered yet. */
static const stream_mark *mark_of(const remote_stream *s, uint64_t *elements)
{
    *elements = s->given - s->back;
    bool all = (s->after.position || s->after.element) && *elements >= s->after.element;
    return all ? &s->after : &s->before;
}

/* Marks all returned rows of s as consumed, except those that the op has not delivered yet. Call
 * with the lock held. */
static void consume(mr__remote *r, remote_stream *s)
{
    uint64_t elements;
    const stream_mark *m = mark_of(s, &elements);
    if (elements <= s->consumed)
        return;
    s->consumed = elements;
    set_mark(&s->consumed_at, m->position, m->element);
    add_news(r, s);
}

/* *out = the place of s, without the rows that the op has not delivered yet; borrows from s. */
static void fill_place(const remote_stream *s, Mr__Wire__Place *out)
{
    uint64_t elements;
    const stream_mark *m = mark_of(s, &elements);
    mr_buffer *position = s->ended && s->end_position ? s->end_position : m->position;
    mr__wire__place__init(out);
    out->stream = s->index;
    out->elements = elements;
    out->skip = position == m->position ? elements - m->element : 0;
    if (position)
        out->position = (ProtobufCBinaryData){mr_buffer_size(position), mr_buffer_data(position)};
    out->end = s->ended;
    out->n_splits = s->n_splits;
    out->splits = s->splits;
    if (s->home)
        out->home = s->home;
}

/* ---- the loop: from the reader to the consumer ---- */

static int64_t now_of(const mr__remote *r)
{
    return mr__loop_now(r->loop);
}

/* Called once per turn of the loop, because waking up costs the consumer more than taking a
 * block. */
static void wake_consumer(mr__remote *r)
{
    if (!r->has_for_consumer)
        return;
    r->has_for_consumer = false;
    pthread_mutex_lock(&r->lock);
    bool wakes = r->sleeps;
    r->sleeps = false;
    pthread_mutex_unlock(&r->lock);
    if (wakes)
        mr__event_raise(r->event);
}

static void fail(mr__remote *r, const mr_status *why)
{
    pthread_mutex_lock(&r->lock);
    if (!r->is_failed) {
        r->failed = *why;
        mr_status_of_no_element(&r->failed);
    }
    r->is_failed = true;
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
}

static mr_code copy_position(const void *p, size_t n, mr_buffer **out, mr_status *st)
{
    *out = NULL;
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_buffer_alloc(out, n, st));
    memcpy(mr_buffer_data(*out), p, n);
    return MR_OK;
}

static void drop_block(mr_block *b)
{
    if (!b)
        return;
    mr_block_reset(b);
    mr_free(b);
}

static void out_drop(void *ctx, void *block)
{
    (void)ctx;
    drop_block(block);
}

/* Adds a stream of this client, at p. */
static mr_code add_stream(mr__remote *r, const Mr__Wire__Place *p, mr_status *st)
{
    uint32_t index = p->stream;
    remote_stream *s = NULL, **more = NULL;
    mr_buffer *copy = NULL;
    size_t size = r->n_streams;
    if (index >= MR_MOST_STREAMS || p->skip > p->elements || (index < size && r->streams[index]))
        return mr_fail(st, MR_DATA_LOSS, "the dispatcher sent an impossible stream");
    MR_TRY(copy_position(p->position.data, p->position.len, &copy, st));
    if (index >= size) {
        size = index + (size_t)1 > 2 * size ? index + (size_t)1 : 2 * size;
        more = mr_calloc(size, sizeof(remote_stream *));
    }
    s = mr_calloc(1, sizeof *s);
    if (!s || (index >= r->n_streams && !more) || (p->home[0] && !(s->home = mr_strdup(p->home))) ||
        (p->n_splits && !(s->splits = mr_memdup(p->splits, p->n_splits * sizeof *p->splits)))) {
        mr_buffer_unref(copy);
        free_stream(s);
        mr_free(more);
        return mr_fail_memory(st, sizeof *s, "a stream");
    }
    s->index = index;
    s->n_splits = p->n_splits;
    s->given = s->consumed = p->elements;
    set_mark(&s->before, copy, p->elements - p->skip);
    mr_buffer_unref(copy);
    pthread_mutex_lock(&r->lock);
    if (more) {
        if (r->n_streams)
            memcpy(more, r->streams, r->n_streams * sizeof *more);
        mr_free(r->streams);
        r->streams = more;
        r->n_streams = size;
    }
    r->streams[index] = s;
    pthread_mutex_unlock(&r->lock);
    return MR_OK;
}

static mr_code take_stream(mr__remote *r, const mr__arrival *a, mr_status *st)
{
    Mr__Wire__Place p = MR__WIRE__PLACE__INIT;
    p.stream = a->stream;
    p.elements = a->first;
    p.skip = a->skip;
    p.position = (ProtobufCBinaryData){a->position_bytes, (uint8_t *)(uintptr_t)a->position};
    p.home = (char *)(uintptr_t)a->home;
    p.splits = (uint64_t *)(uintptr_t)a->splits;
    p.n_splits = a->n_splits;
    return add_stream(r, &p, st);
}

static mr_code take_splits(mr__remote *r, const mr__arrival *a, mr_status *st)
{
    remote_stream *s = a->stream < r->n_streams ? r->streams[a->stream] : NULL;
    if (!s)
        return MR_OK;
    uint64_t *copy = mr_memdup(a->splits, a->n_splits * sizeof *copy);
    if (!copy)
        return mr_fail_memory(st, a->n_splits * sizeof *copy, "a stream's splits");
    pthread_mutex_lock(&r->lock);
    mr_free(s->splits);
    s->splits = copy;
    s->n_splits = a->n_splits;
    pthread_mutex_unlock(&r->lock);
    return MR_OK;
}

/* A stream is added, removed or assigned splits, or all have ended. */
static void shared_arrived(mr__remote *r, const mr__arrival *a)
{
    mr_status st;
    remote_stream *s = NULL;
    mr_code rc = a->kind == MR__ARRIVED_STREAM   ? take_stream(r, a, &st)
                 : a->kind == MR__ARRIVED_SPLITS ? take_splits(r, a, &st)
                                                 : MR_OK;
    if (rc != MR_OK) {
        fail(r, &st);
        return;
    }
    pthread_mutex_lock(&r->lock);
    if (a->kind == MR__ARRIVED_OVER)
        r->all_ended = true;
    else if (a->kind == MR__ARRIVED_GONE && a->stream < r->n_streams)
        s = r->streams[a->stream];
    if (s) { /* the consumer may be using it: freed on close */
        s->gone = true;
        s->next_gone = r->gone;
        r->gone = s;
        r->streams[a->stream] = NULL;
    }
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
}

static void out_deliver(void *ctx, const mr__arrival *from)
{
    mr__remote *r = ctx;
    mr_status st;
    mr_block *block = from->kind == MR__ARRIVED_BLOCK ? from->block : NULL;
    if (from->kind == MR__ARRIVED_STREAM || from->kind == MR__ARRIVED_GONE ||
        from->kind == MR__ARRIVED_SPLITS || from->kind == MR__ARRIVED_OVER) {
        shared_arrived(r, from);
        return;
    }
    remote_stream *s = from->stream < r->n_streams ? r->streams[from->stream] : NULL;
    if (!s || s->is_cut) { /* elements after a gap must not take the place of the lost ones */
        drop_block(block);
        return;
    }
    arrived_item *a = mr_calloc(1, sizeof *a);
    mr_code rc = a ? copy_position(from->position, from->position_bytes, &a->position, &st)
                   : mr_fail_memory(&st, sizeof *a, "what came in");
    if (rc != MR_OK) {
        s->is_cut = true;
        drop_block(block);
        mr_free(a);
        fail(r, &st);
        return;
    }
    a->kind = (int)from->kind;
    a->end = from->first + (from->kind == MR__ARRIVED_END ? 0 : from->rows);
    a->bytes = from->bytes;
    a->at = from->skip;
    if (block)
        mr_block_move(&a->block, block);
    drop_block(block);
    if (from->status)
        a->status = *from->status;
    pthread_mutex_lock(&r->lock);
    if (s->last)
        s->last->next = a;
    else
        s->first = a;
    s->last = a;
    bool waits = r->waits;
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
    if (waits) { /* restart the stall timeout */
        mr__job_reader_waits(r->reader, false, now_of(r));
        mr__job_reader_waits(r->reader, true, now_of(r));
    }
}

/* Replaces the job by the dispatcher's final one, which does not include the graph. */
static mr_code take_job(mr__remote *r, const Mr__Wire__Joined *j, mr_status *st)
{
    Mr__Wire__Job whole = *j->job, *copy = NULL;
    if ((whole.streams < 1 && !is_shared(r)) || whole.streams > MR_MOST_STREAMS ||
        whole.mode != r->job->mode || whole.block_length != r->job->block_length ||
        whole.consumers != r->job->consumers)
        return mr_fail(st, MR_DATA_LOSS, "the dispatcher sent another job than requested");
    whole.graph = r->job->graph;
    MR_TRY(mr__wire_copy(&whole.base, &copy, st));
    mr__wire_free(r->job);
    r->job = copy;
    r->join.job = copy;
    r->base.job = copy;
    return MR_OK;
}

static mr_code take_places(mr__remote *r, const Mr__Wire__Joined *j, mr_status *st)
{
    size_t consumers = r->job->consumers ? r->job->consumers : 1;
    bool shared = is_shared(r);
    for (size_t i = 0; i < j->n_places; i++) {
        const Mr__Wire__Place *p = j->places[i];
        if (!shared && (p->stream >= r->job->streams || p->stream % consumers != r->o.consumer))
            return mr_fail(st, MR_DATA_LOSS, "the dispatcher sent a stream that does not exist");
        MR_TRY(add_stream(r, p, st));
    }
    for (uint32_t i = r->o.consumer; !shared && i < r->job->streams; i += (uint32_t)consumers)
        if (i >= r->n_streams || !r->streams[i])
            return mr_fail(st, MR_DATA_LOSS, "the dispatcher did not send the place of stream %u",
                           i);
    return MR_OK;
}

static void out_joined(void *ctx, const Mr__Wire__Joined *j)
{
    mr__remote *r = ctx;
    mr_status st;
    mr_code rc = take_job(r, j, &st);
    if (rc == MR_OK)
        rc = take_places(r, j, &st);
    if (rc != MR_OK) {
        fail(r, &st);
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->joined = true;
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
}

static void out_flushed(void *ctx)
{
    mr__remote *r = ctx;
    pthread_mutex_lock(&r->lock);
    r->flushed = true;
    r->has_for_consumer = true;
    pthread_mutex_unlock(&r->lock);
}

static void out_failed(void *ctx, const mr_status *why)
{
    fail(ctx, why);
}

static void out_note(void *ctx, mr_log_level level, const char *format, const char *line)
{
    (void)ctx;
    mr__log_line(level, format, line);
}

/* ---- the loop: connections ---- */

static void out_connect_dispatcher(void *ctx)
{
    mr__remote *r = ctx;
    mr__client_connections_open(&r->connections, NULL);
}

static void out_close_dispatcher(void *ctx)
{
    mr__remote *r = ctx;
    mr__client_connections_close(&r->connections, NULL);
}

static void out_to_dispatcher(void *ctx, const mr__message *m)
{
    mr__remote *r = ctx;
    mr__client_connections_send(&r->connections, NULL, m);
}

static void out_connect_worker(void *ctx, const char *address)
{
    mr__remote *r = ctx;
    mr__client_connections_open(&r->connections, address);
}

static void out_to_worker(void *ctx, const char *address, const mr__message *m)
{
    mr__remote *r = ctx;
    mr__client_connections_send(&r->connections, address, m);
}

static void out_close_worker(void *ctx, const char *address)
{
    mr__remote *r = ctx;
    mr__client_connections_close(&r->connections, address);
}

static const mr__job_reader_out reader_out = {.connect_dispatcher = out_connect_dispatcher,
                                              .close_dispatcher = out_close_dispatcher,
                                              .to_dispatcher = out_to_dispatcher,
                                              .connect_worker = out_connect_worker,
                                              .to_worker = out_to_worker,
                                              .close_worker = out_close_worker,
                                              .deliver = out_deliver,
                                              .drop = out_drop,
                                              .joined = out_joined,
                                              .flushed = out_flushed,
                                              .failed = out_failed,
                                              .note = out_note};

static void wind(mr__remote *r)
{
    mr_status st;
    if (r->stops)
        return;
    int64_t at = mr__job_reader_tick(r->reader, now_of(r));
    if (at != INT64_MAX && mr__timer_set(r->loop, &r->tick, at, &st) != MR_OK)
        fail(r, &st);
}

static void connection_opened(void *ctx, const char *address)
{
    mr__remote *r = ctx;
    if (r->stops)
        return;
    if (address)
        mr__job_reader_worker_opened(r->reader, address, now_of(r));
    else
        mr__job_reader_dispatcher_opened(r->reader, now_of(r));
    wind(r);
}

static void connection_message(void *ctx, const char *address, const mr__message *m)
{
    mr__remote *r = ctx;
    if (r->stops)
        return;
    if (address)
        mr__job_reader_worker_message(r->reader, address, m, now_of(r));
    else
        mr__job_reader_dispatcher_message(r->reader, m, now_of(r));
    wind(r);
}

static mr_code connection_block(void *ctx, const char *address, const mr__incoming *head,
                                mr_buffer *payload, mr_status *st)
{
    mr__remote *r = ctx;
    mr_block *b = r->stops || !address ? NULL : mr_calloc(1, sizeof *b);
    if (!b) {
        mr_buffer_unref(payload);
        return r->stops ? MR_OK : mr_fail_memory(st, sizeof *b, "a block");
    }
    mr_code rc = mr__incoming_block(head, payload, r->spec, b, st);
    if (rc != MR_OK) {
        drop_block(b);
        return rc;
    }
    mr__job_reader_worker_block(r->reader, address, head->head, (size_t)head->raw, b, now_of(r));
    return MR_OK;
}

static void connection_closed(void *ctx, const char *address, const mr_status *why)
{
    mr__remote *r = ctx;
    if (r->stops)
        return;
    if (address)
        mr__job_reader_worker_closed(r->reader, address, why, now_of(r));
    else
        mr__job_reader_dispatcher_closed(r->reader, why, now_of(r));
    wind(r);
}

static const mr__client_connections_out connection_out = {connection_opened, connection_message,
                                                          connection_block, connection_closed};

/* ---- the loop: news from the consumer ---- */

/* all: also returns shared memory that is too little for a message of its kind. */
static void take_news(mr__remote *r, bool all)
{
    int64_t now = now_of(r);
    pthread_mutex_lock(&r->lock);
    r->news_bytes = 0;
    remote_stream *list = r->news_first;
    r->news_first = r->news_last = NULL; /* the consumer may add more in the meantime */
    while (list) {
        remote_stream *s = list;
        list = s->next_news;
        s->has_news = false;
        if (s->gone) /* the stream may belong to this client again since then */
            continue;
        uint64_t elements = s->consumed, skip = elements - s->consumed_at.element;
        mr_buffer *position = s->consumed_at.position;
        if (position)
            mr_buffer_ref(position);
        size_t released = s->released;
        s->released = 0;
        pthread_mutex_unlock(&r->lock);
        mr__job_reader_consumed(r->reader, s->index, elements,
                                position ? mr_buffer_data(position) : NULL,
                                position ? mr_buffer_size(position) : 0, skip, released, now);
        mr_buffer_unref(position);
        pthread_mutex_lock(&r->lock);
    }
    set_pace(r, r->pace);
    mr__job_reader_pace(r->reader, r->wait_ns, r->own_ns);
    bool flush = r->wants_flush, leave = r->wants_leave, waits = r->waits;
    r->wants_flush = r->wants_leave = false;
    r->stops |= r->wants_stop;
    pthread_mutex_unlock(&r->lock);
    if (r->stops) {
        mr__job_reader_leave(r->reader); /* a busy dispatcher may not have answered in time */
        return;
    }
    mr__client_connections_give_back(&r->connections, all);
    mr__job_reader_waits(r->reader, waits, now);
    if (flush || leave)
        mr__job_reader_flush(r->reader, leave, now);
    wind(r);
}

static void news_came(mr__posted *p)
{
    mr__remote *r = OF(mr__remote, news, p);
    pthread_mutex_lock(&r->lock);
    r->news_posted = false;
    pthread_mutex_unlock(&r->lock);
    take_news(r, false);
}

/* At least once a second, before each acknowledgement. */
static void ticked(mr__timer *t)
{
    take_news(OF(mr__remote, tick, t), true);
}

/* ---- the loop: its thread ---- */

static void finish_late(mr__timer *t)
{
    OF(mr__remote, finish, t)->is_late = true;
}

static void *run_loop(void *arg)
{
    mr__remote *r = arg;
    mr_status st;
    mr_code rc = MR_OK;
    wind(r);
    wake_consumer(r);
    while (!r->stops && rc == MR_OK) {
        rc = mr__loop_turn(r->loop, INT64_MAX, &st);
        wake_consumer(r);
    }
    mr__client_connections_finish(&r->connections);
    if (rc == MR_OK)
        rc = mr__timer_set(r->loop, &r->finish, now_of(r) + FINISH_NS, &st);
    while (rc == MR_OK && !mr__client_connections_are_closed(&r->connections)) {
        if (r->is_late)
            mr__client_connections_close_all(&r->connections);
        rc = mr__loop_turn(r->loop, r->is_late ? now_of(r) + SECOND : INT64_MAX, &st);
    }
    if (rc == MR_OK)
        rc = mr__loop_turn(r->loop, now_of(r), &st); /* for abandoned lookups */
    if (rc != MR_OK)
        fail(r, &st);
    wake_consumer(r);
    pthread_mutex_lock(&r->lock);
    r->over = rc == MR_OK;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Creates the loop, the connections and the reader. */
static mr_code make_reader(mr__remote *r, mr_status *st)
{
    mr__job_reader_opts o = {.dispatcher = r->service,
                             .join = &r->join,
                             .connect_timeout_ns = (int64_t)(r->o.connect_timeout * 1e9),
                             .stall_timeout_ns = (int64_t)(r->o.stall_timeout * 1e9),
                             .missing_moves = r->o.missing_moves,
                             .local_workers = r->o.local_workers,
                             .most_bytes = r->o.most_bytes,
                             .compression = r->o.compression,
                             .measured = r->o.measured};
    if (mr__sys->getrandom(&o.seed, sizeof o.seed, 0) != (ssize_t)sizeof o.seed)
        return mr_fail(st, MR_INTERNAL, "cannot read random bytes");
    MR_TRY(mr__loop_open(mr_iter_no_uring(r->o.it) ? MR__LOOP_EPOLL : MR__LOOP_AUTO, &r->loop, st));
    r->news.run = news_came;
    r->tick.fire = ticked;
    r->finish.fire = finish_late;
    mr__client_connections_init(&r->connections, r->loop, r->service, r->o.transfer, r->token,
                                &connection_out, r);
    return mr__job_reader_new(&r->reader, &o, &reader_out, r, now_of(r), st);
}

/* ---- the consumer: waiting and reading ---- */

/* Waits for the event. timeout_ms < 0: no timeout. Call with the lock held.
 * returns  MR_OK, MR_CANCELLED, MR_DEADLINE_EXCEEDED (no status) */
static mr_code sleep_until_event(mr__remote *r, int timeout_ms, bool cancellable, mr_status *st)
{
    uint64_t count;
    struct pollfd p[2] = {{.fd = r->event, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    double began = mr_iter_now();
    if (cancellable) {
        if (mr_cancel_is_cancelled(r->cancel))
            return mr_iter_fail_cancelled(st);
        MR_TRY(mr_cancel_fd(r->cancel, &p[1].fd, st));
    }
    r->sleeps = true;
    set_pace(r, WAITS);
    pthread_mutex_unlock(&r->lock);
    int n = mr__sys->poll(p, 2, timeout_ms);
    if (p[0].revents && mr__sys->read(r->event, &count, sizeof count) < 0)
        n = 1; /* it was read already: check again */
    pthread_mutex_lock(&r->lock);
    r->sleeps = false;
    set_pace(r, ASKS);
    if (cancellable)
        mr_iter_add_wait(r->o.it, mr_iter_now() - began);
    if (cancellable && mr_cancel_is_cancelled(r->cancel))
        return mr_iter_fail_cancelled(st);
    return n == 0 ? MR_DEADLINE_EXCEEDED : MR_OK;
}

/* Waits for the event or a cancel; informs the loop if the wait is long. Call with the lock held.
 * returns  MR_OK, MR_CANCELLED */
static mr_code sleep_until_news(mr__remote *r, mr_status *st)
{
    if (!r->waits) { /* posting costs more than a short wait */
        mr_code rc = sleep_until_event(r, SOON_MS, true, st);
        if (rc != MR_DEADLINE_EXCEEDED)
            return rc;
        set_waits(r, true);
    }
    return sleep_until_event(r, -1, true, st);
}

/* Returns the failure once, then MR_END. */
static mr_code say_failure(mr__remote *r, mr_status *st)
{
    if (r->failure_said)
        return MR_END;
    r->failure_said = true;
    if (st)
        *st = r->failed;
    return r->failed.code;
}

/* Moves up to `want` rows of the first arrival of s to b. Call without the lock. */
static mr_code give(mr__remote *r, remote_stream *s, size_t want, mr_block *b, mr_status *st)
{
    arrived_item *a = s->first;
    if (a->kind == MR__ARRIVED_END) {
        s->ended = true;
        if (a->position) {
            mr_buffer_unref(s->end_position);
            s->end_position = mr_buffer_ref(a->position);
        }
        return MR_END;
    }
    if (s->after.position || s->after.element) { /* all of the last result was returned */
        set_mark(&s->before, s->after.position, s->after.element);
        set_mark(&s->after, NULL, 0);
    }
    if (a->kind == MR__ARRIVED_BLOCK) {
        size_t n = a->block.rows - a->at;
        n = n < want ? n : want;
        MR_TRY(mr_block_slice(b, &a->block, a->at, n, st));
        a->at += n;
        s->given += n;
        if (a->at < a->block.rows)
            return MR_OK;
    } else {
        s->given++;
        if (st)
            *st = a->status;
    }
    mr_code rc = a->kind == MR__ARRIVED_ERROR ? a->status.code : MR_OK;
    set_mark(&s->after, a->position, a->end);
    s->to_release += a->bytes;
    pthread_mutex_lock(&r->lock);
    s->first = a->next;
    if (!s->first)
        s->last = NULL;
    pthread_mutex_unlock(&r->lock);
    free_arrived(a);
    return rc;
}

/* ---- the source of a job whose streams belong to this client alone ---- */

static mr_code next(mr__stream_source *src, uint32_t index, size_t want, mr_block *b, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    remote_stream *s = r->streams[index];
    mr_code rc = MR_OK;
    mr_block_clear(b);
    if (s->ended)
        return MR_END;
    pthread_mutex_lock(&r->lock);
    set_pace(r, ASKS);
    s->back = 0;
    release(r, s);
    while (rc == MR_OK && !s->first && !r->is_failed)
        rc = sleep_until_news(r, st);
    set_waits(r, false);
    set_pace(r, AWAY);
    bool failed = !s->first && r->is_failed;
    pthread_mutex_unlock(&r->lock);
    if (rc != MR_OK)
        return rc;
    return failed ? say_failure(r, st) : give(r, s, want, b, st);
}

static bool waits(mr__stream_source *src, uint32_t index)
{
    mr__remote *r = (mr__remote *)src;
    remote_stream *s = r->streams[index];
    pthread_mutex_lock(&r->lock);
    bool none = !s->ended && !s->first && !r->is_failed;
    pthread_mutex_unlock(&r->lock);
    return none;
}

static mr_code any(mr__stream_source *src, uint32_t *out, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    uint32_t step = r->job->consumers ? r->job->consumers : 1, found = UINT32_MAX;
    mr_code rc = MR_OK;
    pthread_mutex_lock(&r->lock);
    set_pace(r, ASKS);
    while (rc == MR_OK && found == UINT32_MAX) {
        for (uint32_t i = r->o.consumer; i < r->job->streams; i += step)
            if (!r->streams[i]->ended && (r->streams[i]->first || r->is_failed)) {
                found = i;
                break;
            }
        if (found != UINT32_MAX)
            break;
        rc = sleep_until_news(r, st);
    }
    set_waits(r, false);
    set_pace(r, AWAY);
    pthread_mutex_unlock(&r->lock);
    *out = found;
    return rc;
}

static void stands(mr__stream_source *src, uint32_t index, size_t back)
{
    mr__remote *r = (mr__remote *)src;
    remote_stream *s = r->streams[index];
    pthread_mutex_lock(&r->lock);
    s->back = back;
    consume(r, s);
    pthread_mutex_unlock(&r->lock);
}

static mr_code place(mr__stream_source *src, uint32_t index, Mr__Wire__Place *out, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    fill_place(r->streams[index], out);
    size_t n = out->position.len;
    mr_free(r->place);
    r->place = mr_malloc(n ? n : 1);
    if (!r->place)
        return mr_fail_memory(st, n, "a position");
    if (n)
        memcpy(r->place, out->position.data, n);
    out->position.data = r->place;
    return MR_OK;
}

static void flush(mr__stream_source *src)
{
    mr__remote *r = (mr__remote *)src;
    pthread_mutex_lock(&r->lock);
    r->wants_flush = true;
    post_news(r);
    pthread_mutex_unlock(&r->lock);
}

/* Leaves the job, waiting for a connected dispatcher for up to LEAVE_SECONDS. */
static void leave(mr__remote *r)
{
    double until = mr_iter_now() + LEAVE_SECONDS;
    pthread_mutex_lock(&r->lock);
    bool waits = r->joined && !r->is_failed;
    r->flushed = false;
    r->wants_leave = waits;
    if (waits)
        post_news(r);
    while (waits && !r->flushed && !r->is_failed) {
        int left = (int)((until - mr_iter_now()) * 1e3);
        if (left <= 0 || sleep_until_event(r, left, false, NULL) == MR_DEADLINE_EXCEEDED)
            break;
    }
    r->wants_stop = true;
    post_news(r);
    pthread_mutex_unlock(&r->lock);
}

static void free_streams(mr__remote *r)
{
    for (size_t i = 0; i < r->n_streams; i++)
        free_stream(r->streams[i]);
    while (r->gone) {
        remote_stream *s = r->gone;
        r->gone = s->next_gone;
        free_stream(s);
    }
    mr_free(r->streams);
}

static void free_remote(mr__remote *r)
{
    mr__job_reader_free(r->reader);
    if (r->loop) {
        mr__timer_clear(r->loop, &r->tick);
        mr__timer_clear(r->loop, &r->finish);
    }
    if (!r->has_thread || r->over) /* else I/O is still in flight: leak the loop */
        mr__loop_close(r->loop);
    free_streams(r);
    mr__wire_free(r->job);
    if (r->event >= 0)
        mr__sys->close(r->event);
    mr_cancel_unref(r->cancel);
    pthread_mutex_destroy(&r->lock);
    mr_free(r->join.places);
    mr_free(r->join.name);
    mr__token_free(&r->token);
    mr_free(r->service);
    mr_free(r->place);
    mr_free(r);
}

static void close_source(mr__stream_source *src)
{
    mr__remote *r = (mr__remote *)src;
    if (r->has_thread) {
        leave(r);
        pthread_join(r->thread, NULL);
    }
    free_remote(r);
}

static const mr__stream_source_class remote_class = {.next = next,
                                                     .waits = waits,
                                                     .place = place,
                                                     .stands = stands,
                                                     .flush = flush,
                                                     .any = any,
                                                     .close = close_source};

/* ---- the source of a shared job: rows of any stream that has some ---- */

/* Marks the last result as consumed. */
static void consume_last(mr__remote *r)
{
    remote_stream *s = r->last;
    if (!s || s->gone)
        return;
    release(r, s);
    consume(r, s);
}

/* Frees blocks of streams that other clients read now. */
static void drop_gone(mr__remote *r)
{
    for (remote_stream *s = r->gone; s; s = s->next_gone)
        while (s->first) {
            arrived_item *a = s->first;
            s->first = a->next;
            free_arrived(a);
        }
}

/* The next stream, in turn, with an arrival; NULL: none. */
static remote_stream *find_ready(mr__remote *r)
{
    for (size_t k = 0; k < r->n_streams; k++) {
        size_t i = (r->turn + k) % r->n_streams;
        remote_stream *s = r->streams[i];
        if (!s || s->ended || !s->first)
            continue;
        if (s->first->kind == MR__ARRIVED_END) {
            mr_buffer_unref(s->end_position);
            s->end_position = s->first->position ? mr_buffer_ref(s->first->position) : NULL;
            s->ended = true;
            continue;
        }
        r->turn = i + 1;
        return s;
    }
    return NULL;
}

static mr_code next_of_all(mr__stream_source *src, size_t want, mr_block *b, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    remote_stream *s = NULL;
    mr_code rc = MR_OK;
    mr_block_clear(b);
    pthread_mutex_lock(&r->lock);
    set_pace(r, ASKS);
    consume_last(r);
    drop_gone(r);
    while (rc == MR_OK && !(s = find_ready(r)) && !r->is_failed && !r->all_ended) {
        rc = sleep_until_news(r, st);
        drop_gone(r);
    }
    set_waits(r, false);
    set_pace(r, AWAY);
    bool failed = !s && r->is_failed;
    pthread_mutex_unlock(&r->lock);
    if (rc != MR_OK)
        return rc;
    if (!s)
        return failed ? say_failure(r, st) : MR_END;
    r->last = s;
    return give(r, s, want, b, st);
}

static void stands_in_all(mr__stream_source *src, uint32_t stream, size_t back)
{
    mr__remote *r = (mr__remote *)src;
    (void)stream;
    (void)back;
    pthread_mutex_lock(&r->lock);
    consume_last(r);
    pthread_mutex_unlock(&r->lock);
}

static mr_code places(mr__stream_source *src, Mr__Wire__Place ***out, size_t *n, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    Mr__Wire__Place place;
    mr_code rc = MR_OK;
    *n = 0;
    pthread_mutex_lock(&r->lock);
    *out = mr_calloc(r->n_streams + 1, sizeof **out);
    if (!*out)
        rc = mr_fail_memory(st, r->n_streams * sizeof **out, "a position");
    for (size_t i = 0; rc == MR_OK && i < r->n_streams; i++) {
        if (!r->streams[i])
            continue;
        fill_place(r->streams[i], &place);
        rc = mr__wire_copy(&place.base, &(*out)[*n], st);
        *n += rc == MR_OK;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static const mr__stream_source_class shared_class = {.next_of_all = next_of_all,
                                                     .places = places,
                                                     .stands = stands_in_all,
                                                     .flush = flush,
                                                     .close = close_source};

/* ---- opening ---- */

static uint32_t seconds(double s)
{
    return s > 1e9 ? (uint32_t)1000000000 : s < 1 ? 1 : (uint32_t)(s + 0.5);
}

static mr_code make_join(mr__remote *r, Mr__Wire__Place *const *places, size_t n, mr_status *st)
{
    mr__wire__join__init(&r->join);
    r->join.name = mr_strdup(r->o.name ? r->o.name : "");
    r->join.job = r->job;
    r->join.resume = r->o.resume;
    r->join.begins = r->o.begins;
    r->join.restores = r->o.restores;
    r->join.consumer = r->o.consumer;
    r->join.timeout_seconds = seconds(r->o.client_timeout);
    r->join.places = mr_calloc(n + 1, sizeof *r->join.places);
    if (!r->join.name || !r->join.places)
        return mr_fail_memory(st, n * sizeof *places, "a job");
    if (n)
        memcpy(r->join.places, places, n * sizeof *places);
    r->join.n_places = n;
    return MR_OK;
}

/* Waits until the dispatcher has admitted this client. */
static mr_code join(mr__remote *r, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&r->lock);
    set_waits(r, true);
    while (rc == MR_OK && !r->joined && !r->is_failed)
        rc = sleep_until_news(r, st);
    set_waits(r, false);
    set_pace(r, AWAY);
    if (rc == MR_OK && r->is_failed) {
        if (st)
            *st = r->failed;
        rc = r->failed.code;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static mr_code start(mr__remote *r, Mr__Wire__Place *const *places, size_t n, mr_status *st)
{
    r->service = mr_strdup(r->o.service);
    if (!r->service)
        return mr_fail_memory(st, strlen(r->o.service), "an address");
    r->event = mr__sys->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->event < 0)
        return mr_fail_errno(st, errno, "an event descriptor");
    MR_TRY(mr__token_open(NULL, r->o.tls, MR__TLS_CONNECTS, &r->token, st));
    MR_TRY(make_join(r, places, n, st));
    MR_TRY(make_reader(r, st));
    if (pthread_create(&r->thread, NULL, run_loop, r) != 0)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "cannot start a thread for the service");
    r->has_thread = true;
    return join(r, st);
}

mr_code mr__remote_source_open(mr__stream_source **out, Mr__Wire__Job *job,
                               Mr__Wire__Place *const *places, size_t n_places,
                               const mr__remote_opts *opts, mr_status *st)
{
    mr__remote *r = mr_calloc(1, sizeof *r);
    if (!r) {
        mr__wire_free(job);
        return mr_fail_memory(st, sizeof *r, "a reader of the service");
    }
    r->base = (mr__stream_source){&remote_class, job};
    r->o = *opts;
    r->job = job;
    r->event = -1;
    r->spec = opts->it->spec;
    r->cancel = mr_cancel_ref(mr_iter_cancel(opts->it));
    mr_status_init(&r->failed);
    r->pace_since = mr__clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    mr_code rc = start(r, places, n_places, st);
    if (rc != MR_OK) {
        close_source(&r->base);
        return rc;
    }
    if (is_shared(r))
        r->base.class_ = &shared_class;
    *out = &r->base;
    return MR_OK;
}
