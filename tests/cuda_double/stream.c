/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, a thread each; events; the clocks of operations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/cuda_double/double.h"

pthread_mutex_t cd_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cd_moved = PTHREAD_COND_INITIALIZER;
_Thread_local cd_op *cd_running;
_Thread_local bool cd_capturing;

struct CUstream_st {
    cd_head head;
    int device;
    unsigned slot;
    cd_op *first, *last;
    uint64_t submitted, done, wake_at; /* a thread waits for that many to be done */
    bool closing, captures;
    cd_op *captured, *last_captured;
    cd_clock clock; /* of what is submitted */
    pthread_cond_t more;
    pthread_t thread;
    struct CUstream_st *next; /* that has ended */
};

/* A record of an event, which streams may wait for after the event is recorded again. */
typedef struct mark {
    int refs;
    bool done;
    int device;
    cd_clock clock;
} mark;

struct CUevent_st {
    cd_head head;
    int device;
    mark *mark; /* NULL: not recorded yet */
};

static cd_clock host; /* what the host knows to have run */
static struct slot {
    bool used;
    uint32_t n; /* operations, of all streams that had it */
} slots[CD_SLOTS];
static pthread_mutex_t callbacks[CD_DEVICES]; /* one function of a device's streams at a time */
static cudaError_t errors[CD_DEVICES];
static cudaStream_t ended; /* whose threads are to be joined */
static unsigned n_closing; /* streams that were destroyed, but have not ended */
static _Thread_local int current;
static _Thread_local cudaError_t last_error;

__attribute__((constructor)) static void start(void)
{
    for (int i = 0; i < CD_DEVICES; i++)
        pthread_mutex_init(&callbacks[i], NULL);
}

static void join(cd_clock *to, const cd_clock *from)
{
    for (int i = 0; i < CD_SLOTS; i++)
        to->at[i] = to->at[i] > from->at[i] ? to->at[i] : from->at[i];
}

const cd_clock *cd_host_clock(void)
{
    return &host;
}

int cd_current_device(void)
{
    return current;
}

int cd_stream_device(cudaStream_t s, const char *call)
{
    cd_check(CD_STREAM, s, call);
    return s->device;
}

cudaError_t cd_device_error(int device)
{
    return __atomic_load_n(&errors[device], __ATOMIC_ACQUIRE);
}

bool cd_any_device_error(void)
{
    bool failed = false;
    for (int d = 0; d < CD_DEVICES; d++)
        failed = failed || cd_device_error(d);
    return failed;
}

void cd_set_device_error(int device, cudaError_t e)
{
    pthread_mutex_lock(&cd_lock);
    __atomic_store_n(&errors[device], e, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&cd_moved);
    pthread_mutex_unlock(&cd_lock);
}

cudaError_t cd_keep_error(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        last_error = e;
    return e;
}

void cd_wait_until(bool (*done)(void *arg), void *arg, int device)
{
    while (!done(arg) && !cd_device_error(device))
        pthread_cond_wait(&cd_moved, &cd_lock);
}

/* ---- operations */

cd_op *cd_op_new(cudaStream_t s, const char *name, cd_run *run, size_t payload)
{
    cd_op *op = calloc(1, sizeof *op + payload);
    if (!op)
        cd_misuse("no memory of the host");
    if (s)
        cd_check(CD_STREAM, s, name);
    op->name = name;
    op->run = run;
    op->stream = s;
    op->device = s ? s->device : current;
    op->bytes = payload;
    return op;
}

cd_op *cd_op_copy(const cd_op *op, cudaStream_t s)
{
    cd_op *copy = cd_op_new(s, op->name, op->run, op->bytes);
    memcpy(copy->payload, op->payload, op->bytes);
    copy->device = s ? s->device : op->device;
    if (copy->device != op->device)
        cd_misuse("%s of cuda:%d in a stream of cuda:%d", op->name, op->device, copy->device);
    return copy;
}

uint32_t cd_submit_locked(cd_op *op)
{
    cudaStream_t s = op->stream;
    struct slot *slot = &slots[s->slot];
    if (s->captures)
        cd_misuse("%s: its stream is captured", op->name);
    join(&s->clock, &host);
    if (++slot->n >> 24)
        cd_misuse("more operations than can be counted");
    s->clock.at[s->slot] = slot->n;
    op->epoch = s->slot << 24 | slot->n;
    op->clock = s->clock;
    cd_tell_done(op);
    *(s->last ? &s->last->next : &s->first) = op;
    s->last = op;
    s->submitted++;
    pthread_cond_signal(&s->more);
    return op->epoch;
}

void cd_submit(cd_op *op)
{
    cudaStream_t s = op->stream;
    pthread_mutex_lock(&cd_lock);
    if (s->captures && cd_capturing && !op->drop) {
        *(s->last_captured ? &s->last_captured->next : &s->captured) = op;
        s->last_captured = op;
    } else
        cd_submit_locked(op);
    pthread_mutex_unlock(&cd_lock);
}

void cd_capture_begin(cudaStream_t s)
{
    pthread_mutex_lock(&cd_lock);
    if (s->captures || cd_capturing)
        cd_misuse("cudaStreamBeginCapture: in a capture");
    s->captures = cd_capturing = true;
    pthread_mutex_unlock(&cd_lock);
}

cd_op *cd_capture_end(cudaStream_t s)
{
    cd_check(CD_STREAM, s, "cudaStreamEndCapture");
    pthread_mutex_lock(&cd_lock);
    if (!s->captures || !cd_capturing)
        cd_misuse("cudaStreamEndCapture: the stream is not captured by this thread");
    cd_op *ops = s->captured;
    s->captures = cd_capturing = false;
    s->captured = s->last_captured = NULL;
    pthread_mutex_unlock(&cd_lock);
    return ops;
}

void cd_stream_follows(cudaStream_t s, const cd_op *op)
{
    join(&s->clock, &op->clock);
}

static void hold_up(uint64_t *seed)
{
    unsigned most = cd_set()->delay_us;
    uint64_t r = cd_random(seed);
    if (most == 0 || r % 8 != 0)
        return;
    struct timespec t = {0, (long)(r / 8 % most) * 1000};
    nanosleep(&t, NULL);
}

static void *stream_main(void *arg)
{
    cudaStream_t s = arg;
    uint64_t seed = cd_set()->seed * 1000003 + s->slot;
    pthread_mutex_lock(&cd_lock);
    while (s->first || !s->closing) {
        cd_op *op = s->first;
        if (!op) {
            pthread_cond_wait(&s->more, &cd_lock);
            continue;
        }
        pthread_mutex_unlock(&cd_lock);
        hold_up(&seed);
        cd_tell_after(op);
        cd_running = op;
        /* After an error of the device nothing runs, functions of the host neither. */
        if (!cd_device_error(s->device))
            op->run(op);
        if (op->drop)
            op->drop(op);
        cd_tell_done(s);
        pthread_mutex_lock(&cd_lock);
        s->first = op->next;
        if (!s->first)
            s->last = NULL;
        s->done++;
        free(op);
        if (s->done >= s->wake_at) {
            s->wake_at = UINT64_MAX;
            pthread_cond_broadcast(&cd_moved);
        }
    }
    pthread_mutex_unlock(&cd_lock);
    cd_kernel_end();
    pthread_mutex_lock(&cd_lock);
    slots[s->slot].used = false;
    s->next = ended;
    ended = s;
    n_closing--;
    pthread_cond_broadcast(&cd_moved);
    pthread_mutex_unlock(&cd_lock);
    return NULL;
}

/* cd_lock is held; threads that have ended take no lock any more. */
static void join_ended(void)
{
    for (cudaStream_t s; (s = ended);) {
        ended = s->next;
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->more);
        free(s);
    }
}

void cd_streams_end(void)
{
    struct timespec until;
    int e = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20; /* what is left in a stream may wait for what never comes */
    pthread_mutex_lock(&cd_lock);
    while (n_closing > 0 && e == 0)
        e = pthread_cond_timedwait(&cd_moved, &cd_lock, &until);
    join_ended();
    pthread_mutex_unlock(&cd_lock);
}

/* What every call of the runtime begins with. */
#define ENTER(call, device_)                                                                       \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return cd_keep_error(cudaErrorUnknown);                                                \
        if (cd_device_error(device_))                                                              \
            return cd_keep_error(cd_device_error(device_));                                        \
    } while (0)

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaSetDevice(int device)
{
    if (cd_fails("cudaSetDevice"))
        return cd_keep_error(cudaErrorUnknown);
    if (device < 0 || device >= cd_set()->devices)
        return cd_keep_error(cudaErrorInvalidDevice);
    current = device;
    return cd_keep_error(cd_device_error(device));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    ENTER("cudaStreamCreateWithPriority", current);
    if (flags != cudaStreamNonBlocking || priority > 0 || priority < -5)
        cd_misuse("cudaStreamCreateWithPriority: flags %u, priority %d", flags, priority);
    cudaStream_t s = cd_new(CD_STREAM, sizeof *s);
    s->device = current;
    s->wake_at = UINT64_MAX;
    pthread_cond_init(&s->more, NULL);
    pthread_mutex_lock(&cd_lock);
    join_ended();
    for (s->slot = 1; s->slot < CD_SLOTS && slots[s->slot].used; s->slot++)
        ;
    if (s->slot == CD_SLOTS)
        cd_misuse("more than %d streams", CD_SLOTS - 1);
    slots[s->slot].used = true;
    pthread_mutex_unlock(&cd_lock);
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0)
        cd_misuse("no thread for a stream");
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    bool fails = cd_fails("cudaStreamDestroy");
    cd_check(CD_STREAM, s, "cudaStreamDestroy");
    cudaError_t e = cd_device_error(s->device);
    if (s->captures)
        cd_misuse("cudaStreamDestroy: the stream is captured");
    cd_retire(CD_STREAM, s,
              "cudaStreamDestroy"); /* the thread frees it when the stream has run dry */
    pthread_mutex_lock(&cd_lock);
    s->closing = true;
    n_closing++;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&cd_lock);
    return cd_keep_error(fails ? cudaErrorUnknown : e);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    cd_check(CD_STREAM, s, "cudaStreamSynchronize");
    bool fails =
        cd_fails("cudaStreamSynchronize"); /* with what an operation left, after the wait */
    pthread_mutex_lock(&cd_lock);
    if (s->captures)
        cd_misuse("cudaStreamSynchronize: the stream is captured");
    cd_clock upto = s->clock;
    uint64_t n = s->submitted;
    while (s->done < n) {
        s->wake_at = s->wake_at < n ? s->wake_at : n;
        pthread_cond_wait(&cd_moved, &cd_lock);
    }
    join(&host, &upto);
    pthread_mutex_unlock(&cd_lock);
    cd_tell_after(s);
    return cd_keep_error(fails ? cudaErrorUnknown : cd_device_error(s->device));
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    cd_check(CD_STREAM, s, "cudaStreamQuery");
    ENTER("cudaStreamQuery", s->device);
    pthread_mutex_lock(&cd_lock);
    if (s->captures)
        cd_misuse("cudaStreamQuery: the stream is captured");
    bool all = s->done == s->submitted;
    if (all)
        join(&host, &s->clock);
    pthread_mutex_unlock(&cd_lock);
    if (all)
        cd_tell_after(s);
    return all ? cd_keep_error(cd_device_error(s->device)) : cudaErrorNotReady;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER("cudaDeviceGetStreamPriorityRange", current);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* ---- events */

static void mark_drop(mark *m)
{
    if (m && --m->refs == 0)
        free(m);
}

typedef struct mark_op {
    mark *m;
} mark_op;

static void run_record(cd_op *op)
{
    (void)op; /* drop_mark does it, also after an error */
}

static void drop_mark(cd_op *op)
{
    mark *m = ((mark_op *)op->payload)->m;
    pthread_mutex_lock(&cd_lock);
    if (op->run == run_record) {
        cd_tell_done(m);
        m->done = true;
    }
    mark_drop(m);
    pthread_cond_broadcast(&cd_moved);
    pthread_mutex_unlock(&cd_lock);
}

static bool is_done(void *m)
{
    return ((mark *)m)->done;
}

static void run_wait(cd_op *op)
{
    mark *m = ((mark_op *)op->payload)->m;
    pthread_mutex_lock(&cd_lock);
    cd_wait_until(is_done, m, op->device);
    pthread_mutex_unlock(&cd_lock);
    cd_tell_after(m);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    ENTER("cudaEventCreateWithFlags", current);
    if (flags != cudaEventDisableTiming)
        cd_misuse("cudaEventCreateWithFlags: flags %u", flags);
    cudaEvent_t e = cd_new(CD_EVENT, sizeof *e);
    e->device = current;
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    bool fails = cd_fails("cudaEventDestroy");
    cd_check(CD_EVENT, e, "cudaEventDestroy");
    pthread_mutex_lock(&cd_lock);
    mark_drop(e->mark);
    pthread_mutex_unlock(&cd_lock);
    cd_drop(CD_EVENT, e, "cudaEventDestroy");
    return cd_keep_error(fails ? cudaErrorUnknown : cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    cd_check(CD_EVENT, e, "cudaEventRecord");
    cd_check(CD_STREAM, s, "cudaEventRecord");
    ENTER("cudaEventRecord", s->device);
    if (e->device != s->device)
        cd_misuse("cudaEventRecord: an event of cuda:%d in a stream of cuda:%d", e->device,
                  s->device);
    cd_op *op = cd_op_new(s, "cudaEventRecord", run_record, sizeof(mark_op));
    mark *m = calloc(1, sizeof *m);
    if (!m)
        cd_misuse("no memory of the host");
    m->refs = 2;
    m->device = s->device;
    op->drop = drop_mark;
    ((mark_op *)op->payload)->m = m;
    pthread_mutex_lock(&cd_lock);
    cd_submit_locked(op);
    m->clock = op->clock;
    mark_drop(e->mark);
    e->mark = m;
    pthread_mutex_unlock(&cd_lock);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    cd_check(CD_EVENT, e, "cudaStreamWaitEvent");
    cd_check(CD_STREAM, s, "cudaStreamWaitEvent");
    ENTER("cudaStreamWaitEvent", s->device);
    if (flags)
        cd_misuse("cudaStreamWaitEvent: flags %u", flags);
    cd_op *op = cd_op_new(s, "cudaStreamWaitEvent", run_wait, sizeof(mark_op));
    op->drop = drop_mark;
    pthread_mutex_lock(&cd_lock);
    if (e->mark) {
        e->mark->refs++;
        ((mark_op *)op->payload)->m = e->mark;
        join(&s->clock, &e->mark->clock);
        cd_submit_locked(op);
        op = NULL;
    }
    pthread_mutex_unlock(&cd_lock);
    free(op); /* of an event that was never recorded: no wait */
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    cd_check(CD_EVENT, e, "cudaEventQuery");
    ENTER("cudaEventQuery", e->device);
    pthread_mutex_lock(&cd_lock);
    bool done = !e->mark || e->mark->done;
    if (done && e->mark) {
        join(&host, &e->mark->clock);
        cd_tell_after(e->mark);
    }
    pthread_mutex_unlock(&cd_lock);
    return done ? cd_keep_error(cd_device_error(e->device)) : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    cd_check(CD_EVENT, e, "cudaEventSynchronize");
    bool fails = cd_fails("cudaEventSynchronize");
    pthread_mutex_lock(&cd_lock);
    mark *m = e->mark;
    if (m) {
        m->refs++;
        while (!m->done)
            pthread_cond_wait(&cd_moved, &cd_lock);
        join(&host, &m->clock);
        cd_tell_after(m);
        mark_drop(m);
    }
    pthread_mutex_unlock(&cd_lock);
    return cd_keep_error(fails ? cudaErrorUnknown : cd_device_error(e->device));
}

/* ---- functions of the host */

typedef struct call_op {
    cudaHostFn_t fn;
    void *arg;
} call_op;

static void run_call(cd_op *op)
{
    const call_op *c = (const call_op *)op->payload;
    pthread_mutex_lock(&cd_lock);
    join(&host, &op->clock);
    pthread_mutex_unlock(&cd_lock);
    pthread_mutex_lock(&callbacks[op->device]);
    cd_in_host_call = true;
    c->fn(c->arg);
    cd_in_host_call = false;
    pthread_mutex_unlock(&callbacks[op->device]);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    cd_check(CD_STREAM, s, "cudaLaunchHostFunc");
    ENTER("cudaLaunchHostFunc", s->device);
    cd_op *op = cd_op_new(s, "cudaLaunchHostFunc", run_call, sizeof(call_op));
    *(call_op *)op->payload = (call_op){fn, arg};
    cd_submit(op);
    return cudaSuccess;
}
