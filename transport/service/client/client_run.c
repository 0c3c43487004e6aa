/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/client_run.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/service/client/client_state.h"
#include "transport/wire/token_file.h"

#define LEAVE_SECONDS 1.0 /* to leave the job, when it is closed */
#define SOON_MS       1   /* in which most of what is waited for comes */

/* A stream's window is the stream's part of the memory, and credit is given by quarters of it. */
enum { NEWS_PARTS = 8 };

void mr__c_set_mark(mr__c_mark *m, mr_buffer *position, uint64_t element)
{
    mr_buffer_unref(m->position);
    m->position = position ? mr_buffer_ref(position) : NULL;
    m->element = element;
}

void mr__c_free_arrived(mr__c_arrived *a)
{
    mr_block_reset(&a->block);
    mr_buffer_unref(a->position);
    mr_free(a);
}

void mr__c_free_stream(mr__c_stream *s)
{
    if (!s)
        return;
    while (s->first) {
        mr__c_arrived *a = s->first;
        s->first = a->next;
        mr__c_free_arrived(a);
    }
    mr_buffer_unref(s->consumed_at.position);
    mr_buffer_unref(s->before.position);
    mr_buffer_unref(s->after.position);
    mr_buffer_unref(s->end_position);
    mr_free(s->splits);
    mr_free(s->home);
    mr_free(s);
}

bool mr__c_is_shared(const mr__remote *r)
{
    return r->job->mode == MR__WIRE__MODE__DYNAMIC ||
           r->job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

/* ---- the consumer ---- */

/* Waits for the event; the lock is held. until_ns < 0: until it comes or it is cancelled.
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
    pthread_mutex_unlock(&r->lock);
    int n = mr__sys->poll(p, 2, timeout_ms);
    if (p[0].revents && mr__sys->read(r->event, &count, sizeof count) < 0)
        n = 1; /* somebody else has read it: looked at again */
    pthread_mutex_lock(&r->lock);
    r->sleeps = false;
    if (cancellable)
        mr_iter_add_wait(r->o.it, mr_iter_now() - began);
    if (cancellable && mr_cancel_is_cancelled(r->cancel))
        return mr_iter_fail_cancelled(st);
    return n == 0 ? MR_DEADLINE_EXCEEDED : MR_OK;
}

mr_code mr__c_sleep(mr__remote *r, mr_status *st)
{
    if (!r->waits) { /* to post costs more than a short wait */
        mr_code rc = sleep_until_event(r, SOON_MS, true, st);
        if (rc != MR_DEADLINE_EXCEEDED)
            return rc;
        mr__c_set_waits(r, true);
    }
    return sleep_until_event(r, -1, true, st);
}

mr_code mr__c_say_failure(mr__remote *r, mr_status *st)
{
    if (r->failure_said)
        return MR_END;
    r->failure_said = true;
    if (st)
        *st = r->failed;
    return r->failed.code;
}

void mr__c_set_waits(mr__remote *r, bool waits)
{
    if (r->waits == waits)
        return;
    r->waits = waits;
    mr__c_post_news(r);
}

void mr__c_release(mr__remote *r, mr__c_stream *s)
{
    uint64_t all = r->o.most_bytes ? r->o.most_bytes : MR__LEAST_BYTES;
    size_t parts = r->n_streams ? r->n_streams : 1;
    if (mr__c_is_shared(r) && parts < MR__SHARED_STREAMS)
        parts = MR__SHARED_STREAMS;
    if (!s->to_release)
        return;
    s->released += s->to_release;
    r->news_bytes += s->to_release;
    s->to_release = 0;
    mr__c_add_news(r, s);
    if (r->news_bytes >= all / NEWS_PARTS / parts)
        mr__c_post_news(r);
}

mr_code mr__c_give(mr__remote *r, mr__c_stream *s, size_t want, mr_block *b, mr_status *st)
{
    mr__c_arrived *a = s->first;
    if (a->kind == MR__ARRIVED_END) {
        s->ended = true;
        if (a->position) {
            mr_buffer_unref(s->end_position);
            s->end_position = mr_buffer_ref(a->position);
        }
        return MR_END;
    }
    if (s->after.position || s->after.element) { /* before what is given now */
        mr__c_set_mark(&s->before, s->after.position, s->after.element);
        mr__c_set_mark(&s->after, NULL, 0);
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
    mr__c_set_mark(&s->after, a->position, a->end);
    s->to_release += a->bytes;
    pthread_mutex_lock(&r->lock);
    s->first = a->next;
    if (!s->first)
        s->last = NULL;
    pthread_mutex_unlock(&r->lock);
    mr__c_free_arrived(a);
    return rc;
}

static mr_code next(mr__stream_source *src, uint32_t index, size_t want, mr_block *b, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    mr__c_stream *s = r->streams[index];
    mr_code rc = MR_OK;
    mr_block_clear(b);
    if (s->ended)
        return MR_END;
    pthread_mutex_lock(&r->lock);
    s->back = 0;
    mr__c_release(r, s);
    while (rc == MR_OK && !s->first && !r->is_failed)
        rc = mr__c_sleep(r, st);
    mr__c_set_waits(r, false);
    bool failed = !s->first && r->is_failed;
    pthread_mutex_unlock(&r->lock);
    if (rc != MR_OK)
        return rc;
    return failed ? mr__c_say_failure(r, st) : mr__c_give(r, s, want, b, st);
}

static mr_code any(mr__stream_source *src, uint32_t *out, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    uint32_t step = r->job->consumers ? r->job->consumers : 1, found = UINT32_MAX;
    mr_code rc = MR_OK;
    pthread_mutex_lock(&r->lock);
    while (rc == MR_OK && found == UINT32_MAX) {
        for (uint32_t i = r->o.consumer; i < r->job->streams; i += step)
            if (!r->streams[i]->ended && (r->streams[i]->first || r->is_failed)) {
                found = i;
                break;
            }
        if (found != UINT32_MAX)
            break;
        rc = mr__c_sleep(r, st);
    }
    mr__c_set_waits(r, false);
    pthread_mutex_unlock(&r->lock);
    *out = found;
    return rc;
}

/* Where s stands less what the consumer still has. */
static const mr__c_mark *mark_of(const mr__c_stream *s, uint64_t *elements)
{
    *elements = s->given - s->back;
    bool all = (s->after.position || s->after.element) && *elements >= s->after.element;
    return all ? &s->after : &s->before;
}

void mr__c_consume(mr__remote *r, mr__c_stream *s)
{
    uint64_t elements;
    const mr__c_mark *m = mark_of(s, &elements);
    if (elements <= s->consumed)
        return;
    s->consumed = elements;
    mr__c_set_mark(&s->consumed_at, m->position, m->element);
    mr__c_add_news(r, s);
}

static void stands(mr__stream_source *src, uint32_t index, size_t back)
{
    mr__remote *r = (mr__remote *)src;
    mr__c_stream *s = r->streams[index];
    pthread_mutex_lock(&r->lock);
    s->back = back;
    mr__c_consume(r, s);
    pthread_mutex_unlock(&r->lock);
}

void mr__c_place(const mr__c_stream *s, Mr__Wire__Place *out)
{
    uint64_t elements;
    const mr__c_mark *m = mark_of(s, &elements);
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

static mr_code place(mr__stream_source *src, uint32_t index, Mr__Wire__Place *out, mr_status *st)
{
    mr__remote *r = (mr__remote *)src;
    mr__c_place(r->streams[index], out);
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

void mr__c_flush(mr__stream_source *src)
{
    mr__remote *r = (mr__remote *)src;
    pthread_mutex_lock(&r->lock);
    r->wants_flush = true;
    mr__c_post_news(r);
    pthread_mutex_unlock(&r->lock);
}

/* Leaves the job, if the dispatcher is there to hear of it. */
static void leave(mr__remote *r)
{
    double until = mr_iter_now() + LEAVE_SECONDS;
    pthread_mutex_lock(&r->lock);
    bool waits = r->joined && !r->is_failed;
    r->flushed = false;
    r->wants_leave = waits;
    if (waits)
        mr__c_post_news(r);
    while (waits && !r->flushed && !r->is_failed) {
        int left = (int)((until - mr_iter_now()) * 1e3);
        if (left <= 0 || sleep_until_event(r, left, false, NULL) == MR_DEADLINE_EXCEEDED)
            break;
    }
    r->wants_stop = true;
    mr__c_post_news(r);
    pthread_mutex_unlock(&r->lock);
}

static void free_streams(mr__remote *r)
{
    for (size_t i = 0; i < r->n_streams; i++)
        mr__c_free_stream(r->streams[i]);
    while (r->gone) {
        mr__c_stream *s = r->gone;
        r->gone = s->next_gone;
        mr__c_free_stream(s);
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
    if (!r->has_thread || r->over) /* else something is still in flight: it is kept */
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

void mr__c_close(mr__stream_source *src)
{
    mr__remote *r = (mr__remote *)src;
    if (r->has_thread) {
        leave(r);
        pthread_join(r->thread, NULL);
    }
    free_remote(r);
}

static const mr__stream_source_class remote_class = {.next = next,
                                                     .place = place,
                                                     .stands = stands,
                                                     .flush = mr__c_flush,
                                                     .any = any,
                                                     .close = mr__c_close};

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

/* Waits until the dispatcher has let it in. */
static mr_code join(mr__remote *r, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&r->lock);
    mr__c_set_waits(r, true);
    while (rc == MR_OK && !r->joined && !r->is_failed)
        rc = mr__c_sleep(r, st);
    mr__c_set_waits(r, false);
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
    MR_TRY(mr__token_read(NULL, &r->token, st));
    MR_TRY(make_join(r, places, n, st));
    MR_TRY(mr__c_make_reader(r, st));
    if (pthread_create(&r->thread, NULL, mr__c_run_loop, r) != 0)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "no thread can be started for the service");
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
    pthread_mutex_init(&r->lock, NULL);
    mr_code rc = start(r, places, n_places, st);
    if (rc != MR_OK) {
        mr__c_close(&r->base);
        return rc;
    }
    if (mr__c_is_shared(r))
        r->base.class_ = &mr__c_shared_class;
    *out = &r->base;
    return MR_OK;
}
