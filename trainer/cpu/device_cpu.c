/* SPDX-License-Identifier: Apache-2.0 */
/* The processor as a device with real asynchronous streams.
 *
 * A stream is a thread that works off a ring of commands; submitting blocks only while the ring is
 * full. An event counts: `recorded` at submission, `reached` when the stream gets there. A wait
 * remembers the count it was submitted at, so events can be recorded again and again without a
 * reset (the meaning CUDA gives them). */
#include "trainer/cpu/device_cpu.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/cpu/matmul.h"

enum { RING = 256, MAX_DEVICES = 1024, ALIGNMENT = 64 };

typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t recorded, reached;
    unsigned waiters;
} event;

typedef enum verb { COPY, CALL, RECORD, WAIT, STOP } verb;

typedef struct command {
    verb verb;
    union {
        struct {
            void *dst;
            const void *src;
            size_t bytes;
        } copy;
        struct {
            mr_stream_fn fn;
            void *ctx;
        } call;
        struct {
            event *e;
            uint64_t count;
        } event;
    } u;
} command;

typedef struct stream {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    size_t head, tail; /* head: next to run; tail: next free; tail - head <= RING */
    command ring[RING];
    pthread_t thread;
} stream;

static size_t cpu_count(void)
{
    return MAX_DEVICES; /* logical: as many as anyone asks for */
}

static mr_code cpu_open(size_t index, void **self, mr_status *st)
{
    (void)index;
    (void)st;
    *self = NULL;
    return MR_OK;
}

static void cpu_close(void *self)
{
    (void)self;
}

static mr_code cpu_memory_alloc(void *self, mr_memory kind, size_t bytes, void **out, mr_status *st)
{
    (void)self;
    (void)kind;
    void *p = bytes <= SIZE_MAX - ALIGNMENT ? mr_aligned_alloc(ALIGNMENT, bytes + ALIGNMENT) : NULL;
    if (!p)
        return mr_fail_memory(st, bytes, "device memory");
    *out = p;
    return MR_OK;
}

static void cpu_memory_free(void *self, mr_memory kind, void *p)
{
    (void)self;
    (void)kind;
    mr_free(p);
}

static mr_code cpu_event_new(void *self, void **out, mr_status *st)
{
    (void)self;
    event *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an event");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->moved, NULL);
    *out = e;
    return MR_OK;
}

static void cpu_event_free(void *event_)
{
    event *e = event_;
    pthread_cond_destroy(&e->moved);
    pthread_mutex_destroy(&e->lock);
    mr_free(e);
}

static void event_reach(event *e, uint64_t count)
{
    pthread_mutex_lock(&e->lock);
    if (e->reached < count)
        e->reached = count;
    if (e->waiters > 0)
        pthread_cond_broadcast(&e->moved);
    pthread_mutex_unlock(&e->lock);
}

static void event_await(event *e, uint64_t count)
{
    pthread_mutex_lock(&e->lock);
    e->waiters++;
    while (e->reached < count)
        pthread_cond_wait(&e->moved, &e->lock);
    e->waiters--;
    pthread_mutex_unlock(&e->lock);
}

static void cpu_event_synchronize(void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    uint64_t count = e->recorded;
    pthread_mutex_unlock(&e->lock);
    event_await(e, count);
}

static bool cpu_event_done(void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    bool done = e->reached == e->recorded;
    pthread_mutex_unlock(&e->lock);
    return done;
}

static void run_command(const command *c)
{
    switch (c->verb) {
    case COPY:
        memcpy(c->u.copy.dst, c->u.copy.src, c->u.copy.bytes);
        break;
    case CALL:
        c->u.call.fn(c->u.call.ctx);
        break;
    case RECORD:
        event_reach(c->u.event.e, c->u.event.count);
        break;
    case WAIT:
        event_await(c->u.event.e, c->u.event.count);
        break;
    case STOP:
        break;
    }
}

static void *stream_main(void *stream_)
{
    stream *s = stream_;
    mr__matmul_use_one_thread();
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->head == s->tail)
            pthread_cond_wait(&s->not_empty, &s->lock);
        command c = s->ring[s->head % RING];
        if (s->tail - s->head == RING)
            pthread_cond_signal(&s->not_full);
        s->head++;
        pthread_mutex_unlock(&s->lock);
        if (c.verb == STOP)
            return NULL;
        run_command(&c);
    }
}

static void submit(stream *s, const command *c)
{
    pthread_mutex_lock(&s->lock);
    while (s->tail - s->head == RING)
        pthread_cond_wait(&s->not_full, &s->lock);
    s->ring[s->tail % RING] = *c;
    if (s->tail++ == s->head)
        pthread_cond_signal(&s->not_empty);
    pthread_mutex_unlock(&s->lock);
}

static mr_code cpu_stream_new(void *self, void **out, mr_status *st)
{
    (void)self;
    stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->not_empty, NULL);
    pthread_cond_init(&s->not_full, NULL);
    int err = pthread_create(&s->thread, NULL, stream_main, s);
    if (err) {
        pthread_cond_destroy(&s->not_full);
        pthread_cond_destroy(&s->not_empty);
        pthread_mutex_destroy(&s->lock);
        mr_free(s);
        return mr_fail_errno(st, err, "cannot start the thread of a device stream");
    }
    *out = s;
    return MR_OK;
}

static void cpu_stream_free(void *stream_)
{
    stream *s = stream_;
    submit(s, &(command){.verb = STOP});
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->not_full);
    pthread_cond_destroy(&s->not_empty);
    pthread_mutex_destroy(&s->lock);
    mr_free(s);
}

static void cpu_copy(void *stream_, void *dst, const void *src, size_t bytes)
{
    submit(stream_, &(command){.verb = COPY, .u.copy = {dst, src, bytes}});
}

static void cpu_call(void *stream_, mr_stream_fn fn, void *ctx)
{
    submit(stream_, &(command){.verb = CALL, .u.call = {fn, ctx}});
}

static void cpu_record(void *stream_, void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    uint64_t count = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    submit(stream_, &(command){.verb = RECORD, .u.event = {e, count}});
}

static void cpu_wait(void *stream_, void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    uint64_t count = e->recorded;
    bool reached = e->reached >= count;
    pthread_mutex_unlock(&e->lock);
    if (!reached)
        submit(stream_, &(command){.verb = WAIT, .u.event = {e, count}});
}

const mr_device_backend mr__device_cpu = {
    .abi = MR_DEVICE_ABI,
    .kind = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .stream_new = cpu_stream_new,
    .stream_free = cpu_stream_free,
    .event_new = cpu_event_new,
    .event_free = cpu_event_free,
    .copy = cpu_copy,
    .call = cpu_call,
    .record = cpu_record,
    .wait = cpu_wait,
    .event_synchronize = cpu_event_synchronize,
    .event_done = cpu_event_done,
};
