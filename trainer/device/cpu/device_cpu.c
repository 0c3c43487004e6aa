/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device with real asynchronous streams.
 *
 * A stream is a thread that runs the commands of a ring; submitting blocks only while the ring is
 * full. A sleeping thread is not woken by each command, which would cost more than most of them,
 * but by anything that may be awaited: host calls, queries, marks. A compute stream is not woken by
 * marks either: a waiter starts it. A caller that synchronises with an idle stream does the work
 * itself, and so does a caller that flushes one, if that takes less time than waking the thread:
 * the work stays with one thread and its core's caches. An event counts: `recorded` at submission,
 * `reached` when the stream gets there. A wait stores the count at its submission, so events can be
 * recorded repeatedly without a reset, and freed before streams reach them, as in CUDA. Lock order:
 * an event's, then a stream's. */
#include "trainer/device/cpu/device_cpu.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/alloc.h"
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/stream_cpu.h"
#include "trainer/device/drop.h"
#include "trainer/device/spin.h"
#include "trainer/device/timeline_impl.h"

enum { RING = 128, UNTOLD = 96, MAX_DEVICES = 1024, ALIGNMENT = 64 };
static const double brief = 20e-6; /* seconds; about the cost of waking the thread */

typedef struct stream stream;

typedef struct event {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t numbered; /* the latest of these may not be in its stream yet */
    uint64_t recorded;
    _Atomic uint64_t reached;
    stream *by; /* recorded it last; valid until that is reached */
    unsigned waiters;
    size_t uses; /* commands that refer to it, and its owner */
    mr_code rc;  /* of the stream that reached it last */
} event;

typedef enum verb { COPY, SET, LAUNCH, HOST_CALL, RECORD, WAIT, FREE, SECTION } verb;

typedef struct command {
    verb verb;
    int byte; /* of SECTION: its mark; of LAUNCH: whether it is an operation of the table */
    mr_kernel_fn kernel;
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
        struct {
            mr_drop *drop;
            uint64_t number;
        } section;
        _Alignas(16) unsigned char args[MR_KERNEL_ARGS];
    } u;
} command;

struct stream {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    mr_stream_kind kind;
    bool left; /* left to its waiters: no core is free for its thread besides the computing ones */
    bool wanted;       /* a thread waits for its commands */
    size_t head, tail; /* head: running or next to run; tail: next free; tail - head <= RING */
    unsigned waiters;  /* for room or for the end of all commands */
    bool running;      /* a thread runs the commands */
    bool asleep;       /* the stream's own thread waits to be woken */
    bool is_brief;     /* the last run took less than `brief` */
    bool stop;
    bool failed; /* st is the sticky error */
    pthread_t thread;
    void *plans;
    mr_drop *drop;       /* of the section that the commands run are in; NULL: none */
    uint64_t section;    /* its number */
    mr__spinner spinner; /* for waits for events */
    mr_status st;
    command ring[RING];
};

static _Atomic size_t n_computing; /* streams of MR_STREAM_COMPUTE */

/* The stream whose commands this thread runs. */
static _Thread_local stream *running;

/* Settings that a thread changes while it runs commands, to be restored. */
typedef struct settings {
    stream *running;
    uint64_t floats;
    int threads;
} settings;

static uint64_t float_settings(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

static void set_float_settings(uint64_t v)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)v);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(v));
#else
    (void)v;
#endif
}

/* Decaying running means become denormal numbers, which are slow on CPUs: they are flushed to 0. */
static settings enter(stream *s)
{
#if defined(__x86_64__)
    const uint64_t flush = 0x8040;
#else
    const uint64_t flush = UINT64_C(1) << 24;
#endif
    settings old = {running, float_settings(), mr__matmul_enter_one_thread()};
    set_float_settings(old.floats | flush);
    running = s;
    return old;
}

static void leave(const settings *old)
{
    running = old->running;
    set_float_settings(old->floats);
    mr__matmul_leave_one_thread(old->threads);
}

static void cpu_probe(size_t *count, char *why, size_t size)
{
    *count = MAX_DEVICES; /* logical: any number */
    if (size > 0)
        why[0] = '\0';
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

static void cpu_properties(void *self, mr_device_properties *out)
{
    (void)self;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    *out = (mr_device_properties){.unified = true, .host_kernels = true};
    snprintf(out->model, sizeof out->model, "processor");
    if (pages > 0 && page > 0)
        out->memory_bytes = (uint64_t)pages * (uint64_t)page;
}

static size_t cpu_libraries(mr_device_library *out, size_t room)
{
    if (room == 0)
        return 0;
    *out = (mr_device_library){.name = "onednn"};
    mr__matmul_version(out->version, sizeof out->version);
    return 1;
}

/* Call with the lock held; releases it, since the woken thread needs it. The thread checks for
 * commands that are not being run. */
static void wake_and_unlock(stream *s)
{
    bool wake = s->asleep && !s->running && s->head != s->tail;
    s->wanted = s->head != s->tail;
    if (wake)
        s->asleep = false;
    pthread_mutex_unlock(&s->lock);
    if (wake)
        pthread_cond_broadcast(&s->moved);
}

/* Whether the command can be deferred. */
static bool can_wait(const stream *s, verb v)
{
    bool is_mark = v == RECORD || v == WAIT;
    return v != HOST_CALL && (!is_mark || s->kind == MR_STREAM_COMPUTE || s->left);
}

/* Call with the lock held. */
static void await_room(stream *s)
{
    mr__span *span = mr__span_begin(MR_SPAN_WAIT, "room in the stream");
    while (s->tail - s->head == RING) {
        s->waiters++;
        pthread_cond_wait(&s->moved, &s->lock);
        s->waiters--;
    }
    mr__span_end(span);
}

static void submit(stream *s, const command *c, size_t args)
{
    pthread_mutex_lock(&s->lock);
    if (s->tail - s->head == RING)
        await_room(s);
    /* Copies only the used part of the arguments: most commands are small. */
    memcpy(&s->ring[s->tail % RING], c, offsetof(command, u) + args);
    s->tail++;
    if (can_wait(s, c->verb) && s->tail - s->head < UNTOLD)
        pthread_mutex_unlock(&s->lock);
    else
        wake_and_unlock(s);
}

static mr_code cpu_memory_alloc(void *self, mr_memory kind, size_t bytes, void *stream_, void **out,
                                mr_status *st)
{
    (void)self;
    (void)kind;
    (void)stream_; /* freed memory is reusable at once: that is valid in any order */
    void *p = bytes <= SIZE_MAX - ALIGNMENT ? mr_aligned_alloc(ALIGNMENT, bytes + ALIGNMENT) : NULL;
    if (!p)
        return mr_fail_memory(st, bytes, "device memory");
    *out = p;
    return MR_OK;
}

static void cpu_memory_free(void *self, mr_memory kind, void *p, void *stream_)
{
    (void)self;
    (void)kind;
    if (stream_)
        submit(stream_, &(command){.verb = FREE, .u.copy = {.dst = p}}, sizeof(void *));
    else
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
    e->uses = 1;
    *out = e;
    return MR_OK;
}

/* Call with the lock held; releases it. */
static void let_go(event *e)
{
    bool last = --e->uses == 0;
    pthread_mutex_unlock(&e->lock);
    if (!last)
        return;
    pthread_cond_destroy(&e->moved);
    pthread_mutex_destroy(&e->lock);
    mr_free(e);
}

static void cpu_event_free(void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    let_go(e);
}

static void event_reach(event *e, uint64_t count, const stream *s)
{
    pthread_mutex_lock(&e->lock);
    if (e->reached < count)
        e->reached = count;
    e->rc = s->failed ? s->st.code : MR_OK;
    if (e->waiters > 0)
        pthread_cond_broadcast(&e->moved);
    let_go(e);
}

/* Wakes the thread of s; a thread that is running its commands now wakes it later. */
static void call_for(stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->wanted = s->head != s->tail;
    if (s->asleep && !s->running && s->wanted) {
        s->asleep = false;
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
}

static mr_code report(bool failed, const mr_status *from, mr_status *st)
{
    if (failed && st)
        *st = *from;
    return failed ? from->code : MR_OK;
}

static void event_await(event *e, uint64_t count, mr__spinner *spinner);

static mr_code cpu_event_synchronize(void *event_, mr_status *st)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    event_await(e, e->recorded, NULL);
    mr_code rc = e->rc;
    pthread_mutex_unlock(&e->lock);
    return rc == MR_OK ? rc : mr_fail(st, rc, "an operation before this event failed");
}

static bool cpu_event_done(void *event_)
{
    event *e = event_;
    pthread_mutex_lock(&e->lock);
    bool done = e->reached >= e->recorded;
    if (!done)
        call_for(e->by);
    pthread_mutex_unlock(&e->lock);
    return done;
}

void mr__cpu_fail(mr_code code, const char *fmt, ...)
{
    stream *s = running;
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&s->lock);
    if (!s->failed) {
        mr_failv(&s->st, code, fmt, ap);
        s->failed = true;
    }
    pthread_mutex_unlock(&s->lock);
    va_end(ap);
}

static void mark_section(stream *s, const command *c)
{
    switch ((mr_section_mark)c->byte) {
    case MR_SECTION_BEGINS:
        s->drop = c->u.section.drop;
        s->section = c->u.section.number;
        break;
    case MR_SECTION_IS_KEPT:
        if (s->drop)
            mr__drop_keep(s->drop, s->section);
        break;
    case MR_SECTION_ENDS:
        s->drop = NULL;
        break;
    }
}

/* Whether the command computes, and its section was dropped. */
static bool is_dropped(const stream *s, const command *c)
{
    bool computes = c->verb == COPY || c->verb == SET || (c->verb == LAUNCH && c->byte);
    return computes && s->drop && mr__drop_is_dropped(s->drop, s->section);
}

static void run_command(stream *s, command *c)
{
    if (is_dropped(s, c))
        return;
    switch (c->verb) {
    case COPY:
        memcpy(c->u.copy.dst, c->u.copy.src, c->u.copy.bytes);
        break;
    case SET:
        memset(c->u.copy.dst, c->byte, c->u.copy.bytes);
        break;
    case LAUNCH:
        c->kernel(c->u.args);
        break;
    case HOST_CALL:
        c->u.call.fn(c->u.call.ctx);
        break;
    case RECORD:
        event_reach(c->u.event.e, c->u.event.count, s);
        break;
    case WAIT:
        pthread_mutex_lock(&c->u.event.e->lock);
        event_await(c->u.event.e, c->u.event.count, &s->spinner);
        let_go(c->u.event.e);
        break;
    case FREE:
        mr_free(c->u.copy.dst);
        break;
    case SECTION:
        mark_section(s, c);
        break;
    }
}

/* Call with the lock held; releases it during each command. Runs all commands, or those before the
 * first that may have to wait, or up to the awaited record. */
static void run(stream *s, bool waits, const event *until, uint64_t count)
{
    double began = mr_iter_now();
    s->running = true;
    while (s->head != s->tail && !(until && until->reached >= count)) {
        command *c = &s->ring[s->head % RING]; /* not overwritten before head advances */
        if (c->verb == WAIT && !waits)
            break;
        pthread_mutex_unlock(&s->lock);
        run_command(s, c);
        pthread_mutex_lock(&s->lock);
        bool full = s->tail - s->head == RING;
        if ((++s->head == s->tail || full) && s->waiters > 0)
            pthread_cond_broadcast(&s->moved);
    }
    s->running = false;
    s->wanted = s->wanted && s->head != s->tail;
    s->is_brief = mr_iter_now() - began < brief;
}

/* Call with the lock held of an event that has not been reached, so s is valid until it is run.
 * Returns whether no thread ran it, and the caller now does. */
static bool take_over(stream *s)
{
    pthread_mutex_lock(&s->lock);
    bool mine = s->left && !s->running && s->asleep;
    if (mine)
        s->running = true; /* until run() sets it again */
    pthread_mutex_unlock(&s->lock);
    return mine;
}

/* Runs the commands before the record: none of them waits for a command after this wait. */
static void run_until(stream *s, const event *e, uint64_t count)
{
    settings old = enter(s);
    pthread_mutex_lock(&s->lock);
    run(s, true, e, count);
    /* The thread may have been called, or asked to stop, while it could not continue. */
    if (s->asleep && (s->stop || (s->wanted && s->head != s->tail))) {
        s->asleep = false;
        pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    leave(&old);
}

/* Call with the lock held; releases it meanwhile. spinner NULL: the wait may be long. */
static void event_await(event *e, uint64_t count, mr__spinner *spinner)
{
    while (e->reached < count && e->recorded == count && take_over(e->by)) {
        stream *s = e->by;
        pthread_mutex_unlock(&e->lock);
        run_until(s, e, count);
        pthread_mutex_lock(&e->lock);
    }
    if (e->reached < count && spinner) {
        uint64_t reached = e->reached;
        pthread_mutex_unlock(&e->lock);
        mr__spin_while(spinner, &e->reached, reached);
        pthread_mutex_lock(&e->lock);
    }
    if (e->reached < count)
        call_for(e->by);
    e->waiters++;
    while (e->reached < count)
        pthread_cond_wait(&e->moved, &e->lock);
    e->waiters--;
}

static void *stream_main(void *stream_)
{
    stream *s = stream_;
    mr__onednn_own_thread();
    enter(s);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->running || (s->head == s->tail && !s->stop)) {
            s->asleep = true;
            pthread_cond_wait(&s->moved, &s->lock);
        }
        s->asleep = false;
        if (s->head == s->tail)
            break;
        run(s, true, NULL, 0);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static mr_code cpu_stream_new(void *self, mr_stream_kind kind, void **out, mr_status *st)
{
    (void)self;
    stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->kind = kind;
    s->left = kind == MR_STREAM_COMM && mr__spinner_of(n_computing + 1).most == 0;
    s->spinner = mr__spinner_of(2);
    mr__spinning_lock_init(&s->lock);
    pthread_cond_init(&s->moved, NULL);
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0) {
        pthread_cond_destroy(&s->moved);
        pthread_mutex_destroy(&s->lock);
        mr_free(s);
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "cannot start the thread of a device stream: there is no memory for its "
                       "stack, or there are too many threads");
    }
    n_computing += kind == MR_STREAM_COMPUTE;
    *out = s;
    return MR_OK;
}

static void cpu_stream_free(void *stream_)
{
    stream *s = stream_;
    n_computing -= s->kind == MR_STREAM_COMPUTE;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_broadcast(&s->moved);
    pthread_join(s->thread, NULL);
    mr__cpu_plans_free(s->plans);
    pthread_cond_destroy(&s->moved);
    pthread_mutex_destroy(&s->lock);
    mr_free(s);
}

static mr_code cpu_copy(void *stream_, void *dst, const void *src, size_t bytes, mr_status *st)
{
    (void)st;
    command c = {.verb = COPY, .u.copy = {dst, src, bytes}};
    submit(stream_, &c, sizeof c.u.copy);
    return MR_OK;
}

static mr_code cpu_set(void *stream_, void *dst, int byte, size_t bytes, mr_status *st)
{
    (void)st;
    command c = {.verb = SET, .byte = byte, .u.copy = {.dst = dst, .bytes = bytes}};
    submit(stream_, &c, sizeof c.u.copy);
    return MR_OK;
}

static mr_code cpu_host_call(void *stream_, mr_stream_fn fn, void *ctx, mr_status *st)
{
    (void)st;
    command c = {.verb = HOST_CALL, .u.call = {fn, ctx}};
    submit(stream_, &c, sizeof c.u.call);
    return MR_OK;
}

static mr_code launch(stream *s, mr_kernel_fn fn, bool computes, const void *args, size_t size,
                      mr_status *st)
{
    command c;
    if (size > sizeof c.u.args)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a kernel takes at most %zu bytes, found %zu",
                       sizeof c.u.args, size);
    c.verb = LAUNCH;
    c.byte = computes;
    c.kernel = fn;
    if (size > 0)
        memcpy(c.u.args, args, size);
    submit(s, &c, size);
    return MR_OK;
}

/* Others may wait for what a kernel of theirs does. */
static mr_code cpu_launch(void *stream_, mr_kernel_fn fn, const void *args, size_t size,
                          mr_status *st)
{
    return launch(stream_, fn, false, args, size, st);
}

mr_code mr__cpu_launch(mr_stream *s, mr_kernel_fn fn, const void *args, size_t size, mr_status *st)
{
    return launch(s->self, fn, true, args, size, st);
}

void **mr__cpu_plans(mr_stream *s)
{
    return &((stream *)s->self)->plans;
}

static mr_code cpu_record(void *stream_, void *event_, mr_status *st)
{
    event *e = event_;
    (void)st;
    pthread_mutex_lock(&e->lock);
    uint64_t count = ++e->numbered;
    e->uses++;
    pthread_mutex_unlock(&e->lock);
    command c = {.verb = RECORD, .u.event = {e, count}};
    submit(stream_, &c, sizeof c.u.event);
    /* A waiter that sees the record and wakes the stream then finds the command in it. */
    pthread_mutex_lock(&e->lock);
    if (count > e->recorded) {
        if (e->by != stream_ && e->reached < e->recorded)
            call_for(e->by); /* waiters for that record can no longer find the stream */
        e->recorded = count;
        e->by = stream_;
    }
    pthread_mutex_unlock(&e->lock);
    return MR_OK;
}

static mr_code cpu_wait(void *stream_, void *event_, mr_status *st)
{
    event *e = event_;
    (void)st;
    pthread_mutex_lock(&e->lock);
    uint64_t count = e->recorded;
    bool reached = e->reached >= count;
    e->uses += !reached;
    pthread_mutex_unlock(&e->lock);
    command c = {.verb = WAIT, .u.event = {e, count}};
    if (!reached)
        submit(stream_, &c, sizeof c.u.event);
    return MR_OK;
}

static mr_code cpu_stream_status(void *stream_, mr_status *st)
{
    stream *s = stream_;
    pthread_mutex_lock(&s->lock);
    mr_code rc = report(s->failed, &s->st, st);
    wake_and_unlock(s);
    return rc;
}

static mr_code cpu_stream_synchronize(void *stream_, mr_status *st)
{
    stream *s = stream_;
    settings old = enter(s);
    pthread_mutex_lock(&s->lock);
    while (s->head != s->tail) {
        if (!s->running) {
            run(s, true, NULL, 0);
            continue;
        }
        s->wanted = true;
        s->waiters++;
        pthread_cond_wait(&s->moved, &s->lock);
        s->waiters--;
    }
    mr_code rc = report(s->failed, &s->st, st);
    pthread_mutex_unlock(&s->lock);
    leave(&old);
    return rc;
}

/* Runs the work in this thread if waking the stream's would take longer. */
static void cpu_flush(void *stream_)
{
    stream *s = stream_;
    pthread_mutex_lock(&s->lock);
    if (s->is_brief && !s->running) {
        settings old = enter(s);
        run(s, false, NULL, 0);
        leave(&old);
    }
    wake_and_unlock(s);
}

static mr_code cpu_section(void *stream_, mr_section_mark mark, mr_drop *drop, uint64_t section,
                           mr_status *st)
{
    (void)st;
    command c = {.verb = SECTION, .byte = (int)mark, .u.section = {drop, section}};
    submit(stream_, &c, sizeof c.u.section);
    return MR_OK;
}

static void *cpu_native_stream(void *stream_)
{
    (void)stream_;
    return NULL;
}

const mr_device_backend mr__device_cpu = {
    .abi = MR_DEVICE_ABI,
    .size = sizeof(mr_device_backend),
    .kind = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .properties = cpu_properties,
    .libraries = cpu_libraries,
    .memory_alloc = cpu_memory_alloc,
    .memory_free = cpu_memory_free,
    .stream_new = cpu_stream_new,
    .stream_free = cpu_stream_free,
    .event_new = cpu_event_new,
    .event_free = cpu_event_free,
    .copy = cpu_copy,
    .set = cpu_set,
    .host_call = cpu_host_call,
    .launch = cpu_launch,
    .record = cpu_record,
    .wait = cpu_wait,
    .event_synchronize = cpu_event_synchronize,
    .event_done = cpu_event_done,
    .stream_synchronize = cpu_stream_synchronize,
    .stream_status = cpu_stream_status,
    .native_stream = cpu_native_stream,
    .flush = cpu_flush,
    .section = cpu_section,
    .math = &mr__math_cpu,
};
