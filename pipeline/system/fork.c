/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/fork.h"

static atomic_uint forks;

/* Held to renew the mutex of a lock. */
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

static void count_fork(void)
{
    /* Relaxed: the child has one thread. */
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}
MR__AROUND_FORK(renewing, count_fork)

MR_API unsigned mr__forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

MR_API mr_code mr__check_process(unsigned of, const char *what, mr_status *st)
{
    if (of == mr__forks())
        return MR_OK;
    mr_fail(st, MR_FAILED_PRECONDITION,
            "%s belongs to the process that this one was forked from, and works only there; open "
            "another one here",
            what);
    mr_status_of_no_element(st);
    return MR_FAILED_PRECONDITION;
}

MR_API void mr__lock_init(mr__lock *l)
{
    pthread_mutex_init(&l->mutex, NULL);
    atomic_init(&l->forks, mr__forks());
}

MR_API void mr__lock_destroy(mr__lock *l)
{
    pthread_mutex_destroy(&l->mutex);
}

MR_API void mr__lock_take(mr__lock *l)
{
    /* Acquire pairs with the release below: the mutex is new before the number says so. */
    if (atomic_load_explicit(&l->forks, memory_order_acquire) != mr__forks()) {
        pthread_mutex_lock(&renewing);
        if (atomic_load_explicit(&l->forks, memory_order_relaxed) != mr__forks()) {
            pthread_mutex_init(&l->mutex, NULL);
            atomic_store_explicit(&l->forks, mr__forks(), memory_order_release);
        }
        pthread_mutex_unlock(&renewing);
    }
    pthread_mutex_lock(&l->mutex);
}
