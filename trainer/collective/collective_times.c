/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/collective_times.h"
#include <pthread.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/memory/alloc.h"

/* A stream, and its current state. */
typedef struct place {
    mr__sum_times *times;
    bool sums; /* an engine's stream, which runs operations; else one that waits for them */
    bool on;
} place;

struct mr__sum_times {
    pthread_mutex_t lock;
    size_t n_ranks, running, waiting; /* places that are on */
    double since;                     /* counted up to this time */
    mr_collective_times so_far;
    place places[]; /* per rank: the engine's stream, then its own */
};

mr__sum_times *mr__sum_times_new(size_t n_ranks)
{
    mr__sum_times *t = mr_calloc(1, sizeof *t + 2 * n_ranks * sizeof *t->places);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->n_ranks = n_ranks;
    for (size_t i = 0; i < 2 * n_ranks; i++)
        t->places[i] = (place){.times = t, .sums = i % 2 == 0};
    return t;
}

void mr__sum_times_free(mr__sum_times *t)
{
    if (!t)
        return;
    pthread_mutex_destroy(&t->lock);
    mr_free(t);
}

static void turn(place *p, bool on)
{
    mr__sum_times *t = p->times;
    pthread_mutex_lock(&t->lock);
    double now = mr_iter_now();
    if (t->running > 0) {
        t->so_far.seconds += now - t->since;
        t->so_far.exposed_seconds += (now - t->since) * (double)t->waiting / (double)t->n_ranks;
    }
    t->since = now;
    size_t *n = p->sums ? &t->running : &t->waiting;
    *n += (size_t)on - (size_t)p->on;
    p->on = on;
    pthread_mutex_unlock(&t->lock);
}

static void begin(void *ctx)
{
    turn(ctx, true);
}

static void end(void *ctx)
{
    turn(ctx, false);
}

static void begin_here(void *args)
{
    turn(*(place **)args, true);
}

static void end_here(void *args)
{
    turn(*(place **)args, false);
}

mr_code mr__sum_times_mark(mr__sum_times *t, mr__sum_mark mark, size_t rank, mr_stream *stream,
                           mr_status *st)
{
    bool waits = mark == MR__WAIT_BEGINS || mark == MR__WAIT_ENDS;
    bool begins = mark == MR__SUM_BEGINS || mark == MR__WAIT_BEGINS;
    place *p = &t->places[2 * rank + waits];
    /* A kernel that is a host function does not wake the stream, unlike a host call. */
    if (stream->backend->launch)
        return mr_stream_launch(stream, begins ? begin_here : end_here, &p, sizeof(place *), st);
    return mr_stream_host_call(stream, begins ? begin : end, p, st);
}

void mr__sum_times_stop(mr__sum_times *t)
{
    for (size_t i = 0; i < 2 * t->n_ranks; i++)
        turn(&t->places[i], false);
}

void mr__sum_times_read(mr__sum_times *t, mr_collective_times *out)
{
    pthread_mutex_lock(&t->lock);
    *out = t->so_far;
    pthread_mutex_unlock(&t->lock);
}
