/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side of a client: connections, the reader, and what it delivers. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "shard/streams/stream_cut.h"
#include "transport/service/client/client_state.h"

#define SECOND              ((int64_t)1000000000)
#define FINISH_NS           (1 * SECOND) /* to send what is queued */
#define OF(type, member, p) ((type *)((char *)(p)-offsetof(type, member)))

static int64_t now_of(const mr__remote *r)
{
    return mr__loop_now(r->loop);
}

/* ---- to the consumer ---- */

/* Once for all that a turn of the loop brought: to be woken costs the consumer more than to take
 * a block. */
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

/* ---- what the reader wants done ---- */

void mr__c_fail(mr__remote *r, const mr_status *why)
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

static void out_connect_dispatcher(void *ctx)
{
    mr__remote *r = ctx;
    mr__dial_open(&r->dials, NULL);
}

static void out_close_dispatcher(void *ctx)
{
    mr__remote *r = ctx;
    mr__dial_close(&r->dials, NULL);
}

static void out_to_dispatcher(void *ctx, const mr__message *m)
{
    mr__remote *r = ctx;
    mr__dial_send(&r->dials, NULL, m);
}

static void out_connect_worker(void *ctx, const char *address)
{
    mr__remote *r = ctx;
    mr__dial_open(&r->dials, address);
}

static void out_to_worker(void *ctx, const char *address, const mr__message *m)
{
    mr__remote *r = ctx;
    mr__dial_send(&r->dials, address, m);
}

static void out_close_worker(void *ctx, const char *address)
{
    mr__remote *r = ctx;
    mr__dial_close(&r->dials, address);
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

static void out_deliver(void *ctx, const mr__arrival *from)
{
    mr__remote *r = ctx;
    mr_status st;
    mr_block *block = from->kind == MR__ARRIVED_BLOCK ? from->block : NULL;
    if (from->kind == MR__ARRIVED_STREAM || from->kind == MR__ARRIVED_GONE ||
        from->kind == MR__ARRIVED_SPLITS || from->kind == MR__ARRIVED_OVER) {
        mr__c_shared_arrived(r, from);
        return;
    }
    mr__c_stream *s = from->stream < r->n_streams ? r->streams[from->stream] : NULL;
    if (!s || s->is_cut) { /* what comes after a gap must not be taken for what was lost */
        drop_block(block);
        return;
    }
    mr__c_arrived *a = mr_calloc(1, sizeof *a);
    mr_code rc = a ? copy_position(from->position, from->position_bytes, &a->position, &st)
                   : mr_fail_memory(&st, sizeof *a, "what came in");
    if (rc != MR_OK) {
        s->is_cut = true;
        drop_block(block);
        mr_free(a);
        mr__c_fail(r, &st);
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
    if (waits) { /* it counts from here what it waits for */
        mr__job_reader_waits(r->reader, false, now_of(r));
        mr__job_reader_waits(r->reader, true, now_of(r));
    }
}

/* The job with what the dispatcher knows of it; its graph is ours. */
static mr_code take_job(mr__remote *r, const Mr__Wire__Joined *j, mr_status *st)
{
    Mr__Wire__Job whole = *j->job, *copy = NULL;
    if ((whole.streams < 1 && !mr__c_is_shared(r)) || whole.streams > MR_MOST_STREAMS ||
        whole.mode != r->job->mode || whole.block_length != r->job->block_length ||
        whole.consumers != r->job->consumers)
        return mr_fail(st, MR_DATA_LOSS, "the dispatcher says another job than was asked for");
    whole.graph = r->job->graph;
    MR_TRY(mr__wire_copy(&whole.base, &copy, st));
    mr__wire_free(r->job);
    r->job = copy;
    r->join.job = copy;
    r->base.job = copy;
    return MR_OK;
}

mr_code mr__c_add_stream(mr__remote *r, const Mr__Wire__Place *p, mr_status *st)
{
    uint32_t index = p->stream;
    mr__c_stream *s = NULL, **more = NULL;
    mr_buffer *copy = NULL;
    size_t size = r->n_streams;
    if (index >= MR_MOST_STREAMS || p->skip > p->elements || (index < size && r->streams[index]))
        return mr_fail(st, MR_DATA_LOSS, "the dispatcher says a stream that cannot be");
    MR_TRY(copy_position(p->position.data, p->position.len, &copy, st));
    if (index >= size) {
        size = index + (size_t)1 > 2 * size ? index + (size_t)1 : 2 * size;
        more = mr_calloc(size, sizeof(mr__c_stream *));
    }
    s = mr_calloc(1, sizeof *s);
    if (!s || (index >= r->n_streams && !more) || (p->home[0] && !(s->home = mr_strdup(p->home))) ||
        (p->n_splits && !(s->splits = mr_memdup(p->splits, p->n_splits * sizeof *p->splits)))) {
        mr_buffer_unref(copy);
        mr__c_free_stream(s);
        mr_free(more);
        return mr_fail_memory(st, sizeof *s, "a stream");
    }
    s->index = index;
    s->n_splits = p->n_splits;
    s->given = s->consumed = p->elements;
    mr__c_set_mark(&s->before, copy, p->elements - p->skip);
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

static mr_code take_places(mr__remote *r, const Mr__Wire__Joined *j, mr_status *st)
{
    size_t consumers = r->job->consumers ? r->job->consumers : 1;
    bool shared = mr__c_is_shared(r);
    for (size_t i = 0; i < j->n_places; i++) {
        const Mr__Wire__Place *p = j->places[i];
        if (!shared && (p->stream >= r->job->streams || p->stream % consumers != r->o.consumer))
            return mr_fail(st, MR_DATA_LOSS, "the dispatcher says a stream that is not there");
        MR_TRY(mr__c_add_stream(r, p, st));
    }
    for (uint32_t i = r->o.consumer; !shared && i < r->job->streams; i += (uint32_t)consumers)
        if (i >= r->n_streams || !r->streams[i])
            return mr_fail(st, MR_DATA_LOSS, "the dispatcher does not say where stream %u is", i);
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
        mr__c_fail(r, &st);
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
    mr__c_fail(ctx, why);
}

static void out_note(void *ctx, mr_log_level level, const char *line)
{
    (void)ctx;
    mr_log(level, "%s", line);
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

/* ---- connections ---- */

static void wind(mr__remote *r)
{
    mr_status st;
    if (r->stops)
        return;
    int64_t at = mr__job_reader_tick(r->reader, now_of(r));
    if (at != INT64_MAX && mr__timer_set(r->loop, &r->tick, at, &st) != MR_OK)
        mr__c_fail(r, &st);
}

static void dial_opened(void *ctx, const char *address)
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

static void dial_message(void *ctx, const char *address, const mr__message *m)
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

static mr_code dial_block(void *ctx, const char *address, const mr__incoming *head,
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

static void dial_closed(void *ctx, const char *address, const mr_status *why)
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

static const mr__dial_out dial_out = {dial_opened, dial_message, dial_block, dial_closed};

/* ---- news of the consumer ---- */

/* all: memory goes back too that is too little to send a message for. */
static void take_news(mr__remote *r, bool all)
{
    int64_t now = now_of(r);
    pthread_mutex_lock(&r->lock);
    r->news_bytes = 0;
    mr__c_stream *list = r->news_first;
    r->news_first = r->news_last = NULL; /* the consumer may add more meanwhile */
    while (list) {
        mr__c_stream *s = list;
        list = s->next_news;
        s->has_news = false;
        if (s->gone) /* what it says may be of another life of that stream */
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
    bool flush = r->wants_flush, leave = r->wants_leave, waits = r->waits;
    r->wants_flush = r->wants_leave = false;
    r->stops |= r->wants_stop;
    pthread_mutex_unlock(&r->lock);
    if (r->stops) {
        mr__job_reader_leave(r->reader); /* a busy dispatcher may not have answered in time */
        return;
    }
    mr__dials_give_back(&r->dials, all);
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

/* Once a second at least, before the dispatcher learns of it. */
static void ticked(mr__timer *t)
{
    take_news(OF(mr__remote, tick, t), true);
}

void mr__c_post_news(mr__remote *r)
{
    if (r->news_posted)
        return;
    r->news_posted = true;
    mr__loop_post(r->loop, &r->news);
}

void mr__c_add_news(mr__remote *r, mr__c_stream *s)
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

/* ---- the thread of the loop ---- */

static void finish_late(mr__timer *t)
{
    OF(mr__remote, finish, t)->is_late = true;
}

void *mr__c_run_loop(void *arg)
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
    mr__dials_finish(&r->dials);
    if (rc == MR_OK)
        rc = mr__timer_set(r->loop, &r->finish, now_of(r) + FINISH_NS, &st);
    while (rc == MR_OK && !mr__dials_are_closed(&r->dials)) {
        if (r->is_late)
            mr__dials_close(&r->dials);
        rc = mr__loop_turn(r->loop, r->is_late ? now_of(r) + SECOND : INT64_MAX, &st);
    }
    if (rc == MR_OK)
        rc = mr__loop_turn(r->loop, now_of(r), &st); /* for lookups that were abandoned */
    if (rc != MR_OK)
        mr__c_fail(r, &st);
    wake_consumer(r);
    pthread_mutex_lock(&r->lock);
    r->over = rc == MR_OK;
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

mr_code mr__c_make_reader(mr__remote *r, mr_status *st)
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
        return mr_fail(st, MR_INTERNAL, "no random bytes");
    MR_TRY(mr__loop_open(mr_iter_no_uring(r->o.it) ? MR__LOOP_EPOLL : MR__LOOP_AUTO, &r->loop, st));
    r->news.run = news_came;
    r->tick.fire = ticked;
    r->finish.fire = finish_late;
    mr__dials_init(&r->dials, r->loop, r->service, r->o.transfer, r->token, &dial_out, r);
    return mr__job_reader_new(&r->reader, &o, &reader_out, r, now_of(r), st);
}
