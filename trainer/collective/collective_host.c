/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/collective_host.h"
#include <pthread.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/ring/ring_sums.h"

enum { OPERATIONS = 64 /* maximum in flight */ };

typedef struct operation {
    mr__host_sums *h;
    mr_collective_call call; /* the first rank's, without its pointers */
    char *memory;
} operation;

struct mr__host_sums {
    mr__ring *ring;
    mr_device *first;
    size_t n, world, process; /* number of processes, and of this one */
    char *staging;            /* pinned; all operations use it in turn */
    size_t capacity;
    size_t *sizes; /* bytes that each process gathers */
    operation operations[OPERATIONS];
    pthread_mutex_t lock;
    mr_status failure;
};

/* The memory of an operation: the inputs of all ranks, or the gathered result. */
static size_t bytes_of(const mr__host_sums *h, const mr_collective_call *c)
{
    size_t one = c->count * mr_dtype_size(c->dtype);
    return c->op == MR_ALL_GATHER  ? one * h->n * h->world
           : c->op == MR_BROADCAST ? one
                                   : one * h->n;
}

/* memory[0..count) = the values of this process's ranks, reduced in their order. */
static void fold_ranks(const mr__host_sums *h, const mr_collective_call *c, char *memory)
{
    mr__fold_fn fold = mr__ring_fold((mr__ring_op)c->reduction, c->dtype);
    size_t bytes = c->count * mr_dtype_size(c->dtype);
    for (size_t r = 1; r < h->n; r++)
        fold(memory, memory + r * bytes, c->count);
}

static mr_code reduce_all(mr__host_sums *h, const mr_collective_call *c, char *memory,
                          mr_status *st)
{
    bool mean = c->reduction == MR_REDUCTION_MEAN;
    mr__ring_op op = mean ? MR__RING_SUM : (mr__ring_op)c->reduction;
    fold_ranks(h, c, memory);
    if (h->ring)
        MR_TRY(mr__ring_all_reduce(h->ring, op, c->dtype, memory, c->count, st));
    if (mean)
        mr__ring_divide(c->dtype, memory, c->count, (uint32_t)(h->n * h->world));
    return MR_OK;
}

static mr_code do_operation(mr__host_sums *h, const operation *o, mr_status *st)
{
    const mr_collective_call *c = &o->call;
    size_t bytes = c->count * mr_dtype_size(c->dtype);
    switch (c->op) {
    case MR_ALL_REDUCE:
    case MR_REDUCE:
        return reduce_all(h, c, o->memory, st);
    case MR_BROADCAST:
        return h->ring
                   ? mr__ring_broadcast(h->ring, (uint32_t)(c->root / h->n), o->memory, bytes, st)
                   : MR_OK;
    case MR_ALL_GATHER:
        for (size_t i = 0; i < h->world; i++)
            h->sizes[i] = bytes * h->n;
        return h->ring ? mr__ring_all_gather(h->ring, o->memory, h->sizes, st) : MR_OK;
    case MR_BARRIER:
        return h->ring ? mr__ring_barrier(h->ring, st) : MR_OK;
    }
    return MR_OK;
}

static void on_host(void *op)
{
    operation *o = op;
    mr_status st;
    if (do_operation(o->h, o, &st) == MR_OK)
        return;
    pthread_mutex_lock(&o->h->lock);
    if (o->h->failure.code == MR_OK)
        o->h->failure = st;
    pthread_mutex_unlock(&o->h->lock);
}

/* The old memory may be in use until the stream is idle. */
static mr_code reserve(mr__host_sums *h, mr_stream *s, size_t bytes, mr_status *st)
{
    void *p;
    if (bytes <= h->capacity)
        return MR_OK;
    MR_TRY(mr_stream_synchronize(s, st));
    MR_TRY(mr_device_alloc(h->first, MR_MEMORY_PINNED, bytes, &p, st));
    mr_device_free(h->first, MR_MEMORY_PINNED, h->staging);
    h->staging = p;
    h->capacity = bytes;
    return MR_OK;
}

/* The destination of rank r's values; NULL: none. */
static char *place_of(const mr__host_sums *h, const mr_collective_call *c, size_t r)
{
    size_t one = c->count * mr_dtype_size(c->dtype);
    switch (c->op) {
    case MR_ALL_GATHER:
        return h->staging + (h->process * h->n + r) * one;
    case MR_BROADCAST:
        return c->root == h->process * h->n + r ? h->staging : NULL;
    case MR_BARRIER:
        return NULL;
    default:
        return h->staging + r * one;
    }
}

mr_code mr__host_sums_submit(mr__host_sums *h, const mr_collective_call *calls, uint64_t number,
                             mr_status *st)
{
    const mr_collective_call *c = &calls[0];
    mr_stream *s = c->stream;
    size_t one = c->count * mr_dtype_size(c->dtype);
    size_t result = c->op == MR_ALL_GATHER ? one * h->n * h->world : one;
    operation *o = &h->operations[number % OPERATIONS];
    MR_TRY(reserve(h, s, bytes_of(h, c), st));
    for (size_t r = 0; r < h->n; r++) {
        char *to = place_of(h, c, r);
        if (to)
            MR_TRY(mr_stream_copy(s, to, calls[r].in, one, st));
    }
    *o = (operation){.h = h, .call = *c, .memory = h->staging};
    MR_TRY(mr_stream_host_call(s, on_host, o, st));
    for (size_t r = 0; r < h->n && c->op != MR_BARRIER; r++)
        if (c->op != MR_REDUCE || c->root == h->process * h->n + r)
            MR_TRY(mr_stream_copy(s, calls[r].out, h->staging, result, st));
    return MR_OK;
}

mr_code mr__host_sums_poll(mr__host_sums *h, mr_status *st)
{
    pthread_mutex_lock(&h->lock);
    mr_code rc = h->failure.code;
    if (rc != MR_OK && st)
        *st = h->failure;
    pthread_mutex_unlock(&h->lock);
    return rc;
}

mr_code mr__host_sums_new(mr__host_sums **out, mr_device *first, size_t n, mr__ring *ring,
                          mr_status *st)
{
    mr__host_sums *h = mr_calloc(1, sizeof *h);
    size_t world = ring ? mr__world_size(mr__ring_world(ring)) : 1;
    if (!h)
        return mr_fail_memory(st, sizeof *h, "a collective");
    h->sizes = mr_calloc(world, sizeof *h->sizes);
    if (!h->sizes) {
        mr_free(h);
        return mr_fail_memory(st, world * sizeof *h->sizes, "a collective");
    }
    h->ring = ring;
    h->first = first;
    h->n = n;
    h->world = world;
    h->process = ring ? mr__world_rank(mr__ring_world(ring)) : 0;
    mr_status_init(&h->failure);
    pthread_mutex_init(&h->lock, NULL);
    *out = h;
    return MR_OK;
}

void mr__host_sums_free(mr__host_sums *h)
{
    if (!h)
        return;
    mr_device_free(h->first, MR_MEMORY_PINNED, h->staging);
    pthread_mutex_destroy(&h->lock);
    mr_free(h->sizes);
    mr_free(h);
}
