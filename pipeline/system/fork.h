/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_FORK_H
#define MR_PIPELINE_SYSTEM_FORK_H
/* A child made by fork has only the thread that called it: the others, and what they were about to
 * do, do not exist there. So that new iterators work in a child, however busy the parent was:
 *
 *   process-wide locks   MR__AROUND_FORK: fork waits for the lock, so that what it guards is whole
 *   locks of objects     mr__lock: a child finds it free. Its sections are short, or set last what
 *                        says that they are done
 *   objects with threads remember mr__forks() and refuse to work where it differs
 *
 * fork waits for no section that calls a program's functions, or waits for files or other
 * processes.
 *
 * thread   any */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pipeline/status.h"

/* How many forks made this process, counted from the one that loaded the library. It changes only
 * in a child, before fork returns there. May be called in a signal handler. */
unsigned mr__forks(void);
/* MR_OK if `forks` is mr__forks(), else MR_FAILED_PRECONDITION, of no element: `what` ("the
 * iterator") belongs to the parent. */
mr_code mr__check_process(unsigned forks, const char *what, mr_status *st) MR_NODISCARD;

/* ---- locks of objects ---- */

typedef struct mr__lock {
    pthread_mutex_t mutex;
    atomic_uint forks; /* of the process that uses the mutex */
} mr__lock;
#define MR__LOCK_FREE                                                                              \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }

void mr__lock_init(mr__lock *l);
void mr__lock_destroy(mr__lock *l);
void mr__lock_take(mr__lock *l);
static inline void mr__lock_release(mr__lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

/* ---- process-wide locks ---- */

/* At file level: fork takes `lock`, a static mutex within which no other such lock is taken.
 * in_child (or NULL): a function that runs in the child, before the lock is released. */
#define MR__AROUND_FORK(lock, in_child)                                                            \
    static void take_before_fork(void)                                                             \
    {                                                                                              \
        pthread_mutex_lock(&(lock));                                                               \
    }                                                                                              \
    static void release_after_fork(void)                                                           \
    {                                                                                              \
        pthread_mutex_unlock(&(lock));                                                             \
    }                                                                                              \
    static void release_in_child(void)                                                             \
    {                                                                                              \
        void (*then)(void) = in_child;                                                             \
        if (then)                                                                                  \
            then();                                                                                \
        pthread_mutex_unlock(&(lock));                                                             \
    }                                                                                              \
    __attribute__((constructor)) static void watch_forks(void)                                     \
    {                                                                                              \
        pthread_atfork(take_before_fork, release_after_fork, release_in_child);                    \
    }
#endif
