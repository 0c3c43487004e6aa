/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static size_t users;

static void hold(void)
{
    pthread_mutex_lock(&lock);
}

static void release(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child has none of its parent's servers, but their limits: what its parent protected, its own
 * servers cannot open. One user, who never leaves, stands for all of the parent's. */
static void begin_child(void)
{
    users = users > 0;
    release();
}

static void watch_forks(void)
{
    (void)pthread_atfork(hold, release, begin_child);
}

static mr_code set_limits(const mrpy_limits *x, mr_status *st)
{
    mr_code rc = mr_service_allow_writes(x->write, x->n_write, st);
    return rc == MR_OK ? mr_service_restrict_files(x->read, x->n_read, st) : rc;
}

static void remove_limits(void)
{
    mr_status st;
    (void)set_limits(&(mrpy_limits){0}, &st);
}

size_t mrpy_limits_users(void)
{
    hold();
    size_t n = users;
    release();
    return n;
}

mr_code mrpy_server_limit(mrpy_server *s, const mrpy_limits *limits, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_once(&once, watch_forks);
    hold();
    if (!users && (rc = set_limits(limits, st)) != MR_OK) {
        remove_limits();
    } else {
        users++;
        s->limits = getpid();
    }
    release();
    return rc;
}

mr_code mrpy_server_open_worker(mrpy_server *s, mr_service_worker_opts *opts, const int *threads,
                                mr_status *st)
{
    mr_code rc = threads ? mr_executor_new(*threads, &s->executor, st) : MR_OK;
    opts->executor = s->executor;
    return rc == MR_OK ? mr_service_worker_open(&s->worker, opts, st) : rc;
}

void mrpy_server_free(mrpy_server *s)
{
    mr_service_worker_close(s->worker);
    mr_executor_free(s->executor);
    mr_service_dispatcher_close(s->dispatcher);
    if (s->limits == getpid()) {
        hold();
        if (--users == 0)
            remove_limits();
        release();
    }
    *s = (mrpy_server){0};
}
