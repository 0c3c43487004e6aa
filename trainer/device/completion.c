/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/completion.h"
#include <math.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/system/timed_wait.h"

/* How often, about, a wait looks whether the streams are well. It must: a stream that has failed
 * runs nothing more, on CUDA not even a call back to the host, so nothing would end the wait. It
 * counts on no time-out otherwise: what lands signals. */
enum { LOOK_NS = 1000000000 };

void mr__landing_init(mr__landing *l)
{
    pthread_mutex_init(&l->lock, NULL);
    mr__timed_cond_init(&l->moved);
    l->under_way = 0;
    l->landed_at = 0;
}

void mr__landing_destroy(mr__landing *l)
{
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
}

static void land(void *landing)
{
    mr__landing *l = landing;
    pthread_mutex_lock(&l->lock);
    if (--l->under_way == 0) {
        l->landed_at = mr_iter_now();
        pthread_cond_signal(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
}

static void land_here(void *args)
{
    land(*(mr__landing **)args);
}

mr_code mr__landing_expect(mr__landing *l, mr_stream *s, mr_status *st)
{
    pthread_mutex_lock(&l->lock);
    l->under_way++;
    pthread_mutex_unlock(&l->lock);
    /* A kernel, where that is a function of the host, does not wake the stream as a call does. */
    mr_code rc = s->backend->launch ? mr_stream_launch(s, land_here, &l, sizeof l, st)
                                    : mr_stream_host_call(s, land, l, st);
    if (rc != MR_OK)
        land(l);
    return rc;
}

bool mr__landing_is_clear(mr__landing *l)
{
    pthread_mutex_lock(&l->lock);
    bool clear = l->under_way == 0;
    pthread_mutex_unlock(&l->lock);
    return clear;
}

double mr__landing_time(mr__landing *l)
{
    pthread_mutex_lock(&l->lock);
    double at = l->under_way == 0 ? l->landed_at : (double)INFINITY;
    pthread_mutex_unlock(&l->lock);
    return at;
}

static mr_code look(mr_stream *const *streams, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr_stream_status(streams[i], st));
    return MR_OK;
}

mr_code mr__landing_await(mr__landing *l, mr_stream *const *streams, size_t n, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&l->lock);
    while (l->under_way > 0 && rc == MR_OK)
        if (!mr__cond_wait_for(&l->moved, &l->lock, LOOK_NS))
            rc = look(streams, n, st);
    pthread_mutex_unlock(&l->lock);
    return rc;
}
