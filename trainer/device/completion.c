/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/completion.h"
#include <math.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/system/timed_wait.h"

/* Interval at which a wait checks the streams for errors. A failed stream runs nothing more, on
 * CUDA not even a host callback, so nothing else would end the wait. */
enum { LOOK_NS = 1000000000 };

void mr__completion_init(mr__completion *c)
{
    pthread_mutex_init(&c->lock, NULL);
    mr__timed_cond_init(&c->moved);
    c->under_way = 0;
    c->done_at = 0;
}

void mr__completion_destroy(mr__completion *c)
{
    pthread_cond_destroy(&c->moved);
    pthread_mutex_destroy(&c->lock);
}

static void complete(void *completion)
{
    mr__completion *c = completion;
    pthread_mutex_lock(&c->lock);
    if (--c->under_way == 0) {
        c->done_at = mr_iter_now();
        pthread_cond_signal(&c->moved);
    }
    pthread_mutex_unlock(&c->lock);
}

static void complete_here(void *args)
{
    complete(*(mr__completion **)args);
}

mr_code mr__completion_expect(mr__completion *c, mr_stream *s, mr_status *st)
{
    pthread_mutex_lock(&c->lock);
    c->under_way++;
    pthread_mutex_unlock(&c->lock);
    /* A kernel that is a host function does not wake the stream, unlike a host call. */
    mr_code rc = s->backend->launch ? mr_stream_launch(s, complete_here, &c, sizeof c, st)
                                    : mr_stream_host_call(s, complete, c, st);
    if (rc != MR_OK)
        complete(c);
    return rc;
}

bool mr__completion_is_done(mr__completion *c)
{
    pthread_mutex_lock(&c->lock);
    bool clear = c->under_way == 0;
    pthread_mutex_unlock(&c->lock);
    return clear;
}

double mr__completion_time(mr__completion *c)
{
    pthread_mutex_lock(&c->lock);
    double at = c->under_way == 0 ? c->done_at : (double)INFINITY;
    pthread_mutex_unlock(&c->lock);
    return at;
}

static mr_code look(mr_stream *const *streams, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_stream_status(streams[i], st));
    return MR_OK;
}

mr_code mr__completion_await(mr__completion *c, mr_stream *const *streams, size_t n, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&c->lock);
    while (c->under_way > 0 && rc == MR_OK)
        if (!mr__cond_wait_for(&c->moved, &c->lock, LOOK_NS))
            rc = look(streams, n, st);
    pthread_mutex_unlock(&c->lock);
    return rc;
}
