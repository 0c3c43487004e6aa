/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for replicas of several processes: the replicas of this one are summed on the first
 * one's stream, in order; a call in that stream then sums over the processes, in a ring; the result
 * is copied to the others. Operations follow each other on that one stream, because all processes
 * must run them in the same order. */
#include <pthread.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/collective_ring.h"
#include "trainer/device/math.h"

enum { OPERATIONS = 64 /* maximum in flight */ };

typedef struct engine engine;
typedef struct operation {
    engine *e;
    float *values; /* host memory */
    size_t count;
    int64_t step;
} operation;

struct engine {
    mr__ring *ring;
    mr_device *first;
    bool unified; /* the host may access device memory */
    /* Otherwise: pinned, of capacity values; all operations use it in turn. */
    float *staging;
    size_t capacity;
    operation operations[OPERATIONS];
    pthread_mutex_t lock;
    mr_status failure; /* of the first operation that failed */
};

static void sum_over_processes(void *op)
{
    operation *o = op;
    engine *e = o->e;
    mr_status st;
    if (mr__ring_all_reduce_at(e->ring, o->step, MR__RING_SUM, MR_FLOAT32, o->values, o->count,
                               &st) == MR_OK)
        return;
    pthread_mutex_lock(&e->lock);
    if (e->failure.code == MR_OK)
        e->failure = st;
    pthread_mutex_unlock(&e->lock);
}

/* calls[0].out = the sum of this process's replicas. */
static mr_code sum_replicas(const mr_collective_call *calls, size_t n, mr_stream *s, mr_status *st)
{
    const mr_math_table *m = mr_device_math(s->device);
    for (size_t r = 1; r < n;) {
        mr_math_reduce o = {.n = calls[0].count, .n_in = 1, .n_out = 1};
        o.in[0] = o.out[0] = calls[0].out;
        while (r < n && o.n_in < MR_MATH_REDUCE)
            o.in[o.n_in++] = calls[r++].out;
        MR_TRY(m->reduce(s, &o, st));
    }
    return MR_OK;
}

/* Grows the pinned memory; the old memory may be in use until the stream is idle. */
static mr_code reserve(engine *e, mr_stream *s, size_t count, mr_status *st)
{
    void *p;
    if (count <= e->capacity)
        return MR_OK;
    MR_TRY(mr_stream_synchronize(s, st));
    MR_TRY(mr_device_alloc(e->first, MR_MEMORY_PINNED, count * sizeof(float), &p, st));
    mr_device_free(e->first, MR_MEMORY_PINNED, e->staging);
    e->staging = p;
    e->capacity = count;
    return MR_OK;
}

static mr_code submit(void *self, const mr_collective_call *calls, size_t n, uint64_t rotation,
                      mr_status *st)
{
    engine *e = self;
    mr_stream *s = calls[0].stream;
    size_t bytes = calls[0].count * sizeof(float);
    operation *o = &e->operations[rotation % OPERATIONS];
    MR_TRY(sum_replicas(calls, n, s, st));
    if (!e->unified) {
        MR_TRY(reserve(e, s, calls[0].count, st));
        MR_TRY(mr_stream_copy(s, e->staging, calls[0].out, bytes, st));
    }
    *o = (operation){e, e->unified ? calls[0].out : e->staging, calls[0].count,
                     mr__world_step(mr__ring_world(e->ring))};
    MR_TRY(mr_stream_host_call(s, sum_over_processes, o, st));
    if (!e->unified)
        MR_TRY(mr_stream_copy(s, calls[0].out, e->staging, bytes, st));
    for (size_t r = 1; r < n; r++)
        MR_TRY(mr_stream_copy(s, calls[r].out, calls[0].out, bytes, st));
    return MR_OK;
}

static mr_code poll(void *self, mr_status *st)
{
    engine *e = self;
    pthread_mutex_lock(&e->lock);
    mr_code rc = e->failure.code;
    if (rc != MR_OK && st)
        *st = e->failure;
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static void close(void *self)
{
    engine *e = self;
    mr_device_free(e->first, MR_MEMORY_PINNED, e->staging);
    pthread_mutex_destroy(&e->lock);
    mr_free(e);
}

mr_code mr__collective_ring_engine(mr__ring *ring, mr_device *const *devices, size_t n, void **self,
                                   mr_status *st)
{
    mr_device_properties p;
    engine *e = mr_calloc(1, sizeof *e);
    (void)n;
    if (!e)
        return mr_fail_memory(st, sizeof *e, "a collective");
    mr_device_describe(devices[0], &p);
    e->ring = ring;
    e->first = devices[0];
    e->unified = p.unified;
    mr_status_init(&e->failure);
    pthread_mutex_init(&e->lock, NULL);
    *self = e;
    return MR_OK;
}

const mr_collective_backend mr__collective_ring = {
    .abi = MR_COLLECTIVE_ABI,
    .name = "ring",
    .close = close,
    .submit = submit,
    .split = SIZE_MAX,
    .touches_peers = true,
    .poll = poll,
};
