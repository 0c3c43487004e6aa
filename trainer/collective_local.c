/* SPDX-License-Identifier: Apache-2.0 */
/* The in-process engine: whoever arrives last hands the operation to the ranks' communication
 * streams, each of which sums a share of the range over all ranks. No rank waits for another before
 * it asks for the result. */
#include "trainer/collective.h"
#include <pthread.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

enum {
    IN_FLIGHT = 64,       /* operations a rank may be ahead of the slowest */
    SPLIT_FLOATS = 16384, /* shorter sums are not worth a wake-up of every stream */
    CHUNK_FLOATS = 1024   /* summed at a time, in a buffer that stays in L1 */
};

typedef struct operation operation;

typedef struct part {
    operation *op;
    size_t from, to;
} part;

struct operation {
    mr_collective *c;
    float **data; /* one a rank */
    part *parts;  /* one a rank */
    size_t n, arrived, parts_left;
    uint64_t finished; /* number + 1 of the last operation that ended in this slot; 0: none */
};

struct mr_collective {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t n_ranks;
    bool aborted;
    size_t running;   /* operations handed to the streams */
    uint64_t *posted; /* operations started, by rank */
    mr_stream **streams;
    operation ops[IN_FLIGHT];
};

static void sum_part(const operation *o, size_t from, size_t to)
{
    float sum[CHUNK_FLOATS];
    size_t ranks = o->c->n_ranks;
    for (size_t at = from; at < to; at += CHUNK_FLOATS) {
        size_t n = to - at < CHUNK_FLOATS ? to - at : CHUNK_FLOATS;
        memcpy(sum, o->data[0] + at, n * sizeof *sum);
        for (size_t r = 1; r < ranks; r++) {
            const float *x = o->data[r] + at;
            for (size_t i = 0; i < n; i++)
                sum[i] += x[i];
        }
        for (size_t r = 0; r < ranks; r++)
            memcpy(o->data[r] + at, sum, n * sizeof *sum);
    }
}

static void run_part(void *part_)
{
    part *p = part_;
    operation *o = p->op;
    mr_collective *c = o->c;
    sum_part(o, p->from, p->to);
    pthread_mutex_lock(&c->lock);
    if (--o->parts_left == 0) {
        o->finished += IN_FLIGHT;
        o->arrived = 0;
        c->running--;
        pthread_cond_broadcast(&c->moved);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Under the lock, which also keeps submissions to a stream one at a time and in order. The streams
 * hold at most one part an operation, so submitting never waits. */
static void launch(mr_collective *c, operation *o, uint64_t number)
{
    if (c->n_ranks == 1) { /* the sum is there already */
        o->finished += IN_FLIGHT;
        o->arrived = 0;
        return;
    }
    c->running++;
    if (o->n < SPLIT_FLOATS) {
        o->parts_left = 1;
        o->parts[0] = (part){o, 0, o->n};
        mr_stream_call(c->streams[number % c->n_ranks], run_part, &o->parts[0]);
        return;
    }
    o->parts_left = c->n_ranks;
    size_t share = (o->n / c->n_ranks + 15) & ~(size_t)15; /* whole cache lines */
    for (size_t r = 0; r < c->n_ranks; r++) {
        size_t from = r * share < o->n ? r * share : o->n;
        size_t to = r + 1 == c->n_ranks || from + share > o->n ? o->n : from + share;
        o->parts[r] = (part){o, from, to};
        mr_stream_call(c->streams[r], run_part, &o->parts[r]);
    }
}

static void init_operations(mr_collective *c)
{
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        c->ops[i].arrived = c->ops[i].parts_left = 0;
        /* So that adding IN_FLIGHT when operation i ends gives i + 1. */
        c->ops[i].finished = (uint64_t)i + 1 - IN_FLIGHT;
    }
}

/* finished counts modulo 2^64: the slot of operation `number` has seen it end. */
static bool has_ended(const operation *o, uint64_t number)
{
    return (int64_t)(o->finished - (number + 1)) >= 0;
}

static mr_code fail_aborted(mr_status *st)
{
    return mr_fail(st, MR_ABORTED, "another replica failed, so this sum cannot be completed");
}

mr_code mr_collective_start(mr_collective *c, size_t rank, float *data, size_t n, uint64_t *ticket,
                            mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&c->lock);
    uint64_t number = c->posted[rank];
    operation *o = &c->ops[number % IN_FLIGHT];
    while (!c->aborted && number >= IN_FLIGHT && !has_ended(o, number - IN_FLIGHT))
        pthread_cond_wait(&c->moved, &c->lock);
    if (c->aborted) {
        rc = fail_aborted(st);
    } else if (o->arrived > 0 && o->n != n) {
        rc =
            mr_fail(st, MR_INVALID_ARGUMENT,
                    "replica %zu sums %zu values where another sums %zu; all replicas must run the "
                    "same steps",
                    rank, n, o->n);
    } else {
        o->n = n;
        o->data[rank] = data;
        c->posted[rank]++;
        *ticket = number;
        if (++o->arrived == c->n_ranks)
            launch(c, o, number);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

mr_code mr_collective_wait(mr_collective *c, size_t rank, uint64_t ticket, mr_status *st)
{
    (void)rank;
    const operation *o = &c->ops[ticket % IN_FLIGHT];
    pthread_mutex_lock(&c->lock);
    while (!c->aborted && !has_ended(o, ticket))
        pthread_cond_wait(&c->moved, &c->lock);
    bool aborted = c->aborted;
    pthread_mutex_unlock(&c->lock);
    return aborted ? fail_aborted(st) : MR_OK;
}

void mr_collective_abort(mr_collective *c)
{
    pthread_mutex_lock(&c->lock);
    c->aborted = true;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
}

void mr_collective_reset(mr_collective *c)
{
    pthread_mutex_lock(&c->lock);
    while (c->running > 0)
        pthread_cond_wait(&c->moved, &c->lock);
    c->aborted = false;
    memset(c->posted, 0, c->n_ranks * sizeof *c->posted);
    init_operations(c);
    pthread_mutex_unlock(&c->lock);
}

static mr_code alloc_parts(mr_collective *c)
{
    c->posted = mr_calloc(c->n_ranks, sizeof *c->posted);
    c->streams = mr_calloc(c->n_ranks, sizeof(mr_stream *));
    if (!c->posted || !c->streams)
        return MR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        c->ops[i].c = c;
        c->ops[i].data = mr_calloc(c->n_ranks, sizeof(float *));
        c->ops[i].parts = mr_calloc(c->n_ranks, sizeof(part));
        if (!c->ops[i].data || !c->ops[i].parts)
            return MR_RESOURCE_EXHAUSTED;
    }
    return MR_OK;
}

mr_code mr_collective_local_new(mr_collective **out, mr_device *const *devices, size_t n,
                                mr_status *st)
{
    mr_collective *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "a collective");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->moved, NULL);
    c->n_ranks = n;
    mr_code rc = alloc_parts(c);
    if (rc != MR_OK)
        rc = mr_fail_memory(st, n * sizeof(part) * IN_FLIGHT, "a collective");
    for (size_t r = 0; r < n && rc == MR_OK; r++)
        rc = mr_stream_new(&c->streams[r], devices[r], st);
    if (rc != MR_OK) {
        mr_collective_free(c);
        return rc;
    }
    init_operations(c);
    *out = c;
    return MR_OK;
}

void mr_collective_free(mr_collective *c)
{
    if (!c)
        return;
    for (size_t r = 0; c->streams && r < c->n_ranks; r++)
        mr_stream_free(c->streams[r]);
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        mr_free(c->ops[i].data);
        mr_free(c->ops[i].parts);
    }
    mr_free(c->streams);
    mr_free(c->posted);
    pthread_cond_destroy(&c->moved);
    pthread_mutex_destroy(&c->lock);
    mr_free(c);
}
