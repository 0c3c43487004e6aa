/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_TIMED_WAIT_H
#define MR_PIPELINE_SYSTEM_TIMED_WAIT_H
/* Condition variables with timeouts on CLOCK_MONOTONIC, which never jumps. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/system/system.h"

static inline void mr__timed_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(c, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* To be called with the lock held. Returns false on timeout, true if signalled or woken
 * spuriously. */
static inline bool mr__cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                                   .tv_nsec = (long)(until_ns % 1000000000)};
    return pthread_cond_timedwait(c, lock, &until) == 0;
}

static inline bool mr__cond_wait_for(pthread_cond_t *c, pthread_mutex_t *lock, int64_t ns)
{
    return mr__cond_wait_until(c, lock, mr__clock_ns(CLOCK_MONOTONIC) + ns);
}
#endif
