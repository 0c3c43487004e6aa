/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_SPIN_H
#define MR_TRAINER_DEVICE_SPIN_H
/* Busy-waiting, for events that arrive sooner than a sleeping thread would wake. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/engine/iterator.h"
#include "pipeline/system/spin_once.h"
#include "pipeline/system/system.h"

/* A lock that is held only for moments: a thread that finds it taken spins briefly. */
static inline void mr__spinning_lock_init(pthread_mutex_t *m)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(m, &attr);
    pthread_mutexattr_destroy(&attr);
}

/* The waits of one thread at one place. After a spin that timed out, later waits skip spinning:
 * one, after the next such spin two, and so on up to LEFT_OUT. */
typedef struct mr__spinner {
    unsigned most, left_out, next_left_out;
} mr__spinner;

/* ALONE: about the cost of a wake-up, including refilling the core's caches. After that the core is
 * offered to other threads, such as those of the pipeline; if none takes it, continuing to spin is
 * better than sleeping, since all others wait for a sleeper at the next rendezvous (bench/train.c).
 * If another thread keeps the core for long, a sleeper gets it back sooner: the next waits skip
 * spinning. */
enum { MR__SPINS_ALONE = 4000, MR__SPINS = 20000, MR__YIELD_EVERY = 64, MR__LEFT_OUT = 4 };
enum { MR__LONG_NS = 200000, MR__LEFT_TO_OTHERS = 256 };

/* Whether the thread still has its core, or soon got it back. */
static inline bool mr__offer_core(void)
{
    int64_t began = mr__clock_ns(CLOCK_MONOTONIC);
    sched_yield();
    return mr__clock_ns(CLOCK_MONOTONIC) - began < MR__LONG_NS;
}

/* For `threads` that work together: a spinning thread must not take the core of another. */
static inline mr__spinner mr__spinner_of(size_t threads)
{
    return (mr__spinner){.most = threads <= (size_t)mr_usable_cpus() ? MR__SPINS : 0};
}

/* Spins a little while *word is `seen`. */
static inline void mr__spin_while(mr__spinner *p, const _Atomic uint64_t *word, uint64_t seen)
{
    if (p->left_out > 0) {
        p->left_out--;
        return;
    }
    /* Relaxed: a lock is taken afterwards, before anything else is read. */
    for (unsigned i = 0; atomic_load_explicit(word, memory_order_relaxed) == seen; i++) {
        if (i == p->most) {
            p->left_out = p->next_left_out = p->next_left_out == 0 ? 1
                                             : p->next_left_out < MR__LEFT_OUT
                                                 ? 2 * p->next_left_out
                                                 : MR__LEFT_OUT;
            return;
        }
        mr__spin_once();
        if (i > MR__SPINS_ALONE && i % MR__YIELD_EVERY == 0 && !mr__offer_core()) {
            p->left_out = MR__LEFT_TO_OTHERS;
            return;
        }
    }
    p->next_left_out = 0;
}
#endif
