/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/errand.h"

static void finish(mr__errand *e)
{
    pthread_mutex_destroy(&e->lock);
    e->free(e);
}

static void *work(void *arg)
{
    mr__errand *e = arg;
    e->run(e);
    pthread_mutex_lock(&e->lock);
    bool abandoned = e->abandoned;
    e->finished = true;
    if (!abandoned) /* under the lock: the loop may be closed as soon as this was abandoned */
        mr__loop_post(e->loop, &e->posted);
    pthread_mutex_unlock(&e->lock);
    if (abandoned)
        finish(e);
    return NULL;
}

static void posted(mr__posted *p)
{
    mr__errand *e = (mr__errand *)p;
    pthread_mutex_lock(&e->lock); /* the thread has finished with it */
    bool abandoned = e->abandoned;
    pthread_mutex_unlock(&e->lock);
    if (!abandoned)
        e->done(e);
    finish(e);
}

mr_code mr__errand_start(mr__errand *e, mr__loop *l, mr_status *st)
{
    pthread_t thread;
    pthread_attr_t detached;
    e->posted.run = posted;
    e->loop = l;
    e->finished = e->abandoned = false;
    pthread_mutex_init(&e->lock, NULL);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int err = pthread_create(&thread, &detached, work, e);
    pthread_attr_destroy(&detached);
    if (!err)
        return MR_OK;
    pthread_mutex_destroy(&e->lock);
    return mr_fail(st, MR_RESOURCE_EXHAUSTED, "cannot start a thread");
}

void mr__errand_abandon(mr__errand *e)
{
    pthread_mutex_lock(&e->lock);
    e->abandoned = true;
    pthread_mutex_unlock(&e->lock);
}
