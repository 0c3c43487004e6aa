/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/status/daemon_thread.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/system/fork.h"

mr_code mr__daemon_thread_init(mr__daemon_thread *t, mr_cancel *parent, mr_status *st)
{
    return mr_cancel_new(parent, &t->stop, st);
}

static mr_code check_process(const mr__daemon_thread *t, mr_status *st)
{
    char what[32];
    snprintf(what, sizeof what, "the %s", t->what);
    return mr__check_process(t->forks, what, st);
}

bool mr__daemon_thread_is_here(const mr__daemon_thread *t)
{
    return t->forks == mr__forks();
}

static mr_code begin(mr__daemon_thread *t, mr_status *st)
{
    MR_TRY(check_process(t, st));
    if (t->has_run)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "this %s has run already; open another one to run it again", t->what);
    t->has_run = true;
    return MR_OK;
}

static void *serve(void *arg)
{
    mr__daemon_thread *t = arg;
    mr_status_init(&t->result);
    t->result.code = t->serve(t->ctx, &t->result);
    return NULL;
}

mr_code mr__daemon_thread_run(mr__daemon_thread *t, mr_status *st)
{
    MR_TRY(begin(t, st));
    return t->serve(t->ctx, st);
}

mr_code mr__daemon_thread_start(mr__daemon_thread *t, mr_status *st)
{
    MR_TRY(begin(t, st));
    int err = pthread_create(&t->thread, NULL, serve, t);
    if (err) {
        t->has_run = false;
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "cannot start a thread for the %s: %s", t->what,
                       strerror(err));
    }
    t->is_running = true;
    return MR_OK;
}

mr_code mr__daemon_thread_wait(mr__daemon_thread *t, mr_status *st)
{
    MR_TRY(check_process(t, st));
    if (!t->is_running)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the %s was not started", t->what);
    pthread_join(t->thread, NULL);
    t->is_running = false;
    if (st && t->result.code != MR_OK)
        *st = t->result;
    return t->result.code;
}

void mr__daemon_thread_stop(mr__daemon_thread *t)
{
    if (mr__daemon_thread_is_here(t))
        mr_cancel_trigger(t->stop);
}

void mr__daemon_thread_end(mr__daemon_thread *t)
{
    if (!t->is_running)
        return;
    mr__daemon_thread_stop(t);
    pthread_join(t->thread, NULL);
    t->is_running = false;
}

void mr__daemon_thread_reset(mr__daemon_thread *t)
{
    mr_cancel_unref(t->stop);
    t->stop = NULL;
}
