/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WAIT_WAIT_H
#define MR_PIPELINE_WAIT_WAIT_H
/* Waits. None has a timeout: each ends with the event that it waits for, or with a cancel object
 * (which may be NULL). The time slept is counted per thread, so that statistics can distinguish
 * waiting from work.
 *
 * thread   any */
#include <stdatomic.h>
#include <sys/types.h>

#include "pipeline/wait/cancel.h"

/* Spins briefly, then sleeps while *word is `seen`. Returns early when cancelled: cancellation adds
 * 2 to *word, which leaves bit 0 to the owner. Call mr__wait_wake after every change of *word. */
void mr__wait_while(atomic_uint *word, unsigned seen, mr_cancel *cancel);
void mr__wait_wake(atomic_uint *word);
/* Only the sleep, without spinning and cancellation. */
void mr__wait_futex(void *word, unsigned seen);
void mr__wait_futex_wake(void *word);

/* Waits until a read from fd would not block. Returns 0, -ECANCELED or -errno. */
int mr__wait_readable(int fd, mr_cancel *cancel);

/* The cheapest clock for intervals; its unit is unspecified. */
int64_t mr__ticks(void);
/* An interval of about 0.1 ms, after which reading a clock that takes a system call is worth it. */
int64_t mr__ticks_to_look(void);
/* Total time that the calling thread has slept, in ticks. */
int64_t mr__waited_ticks(void);
/* Counts a wait of this length. */
void mr__waited_add(int64_t ticks);
/* Sets a callback that runs after each wait of any thread, in that thread, with the ticks at its
 * start and end. It is always the same function. */
void mr__waited_tell(void (*after_wait)(int64_t began, int64_t ended));
/* Counts a wait that began at `began` and ends now, for a call that blocks by itself. */
void mr__waited_since(int64_t began);

/* Enclose a sleep: pass the result of mr__sleep_begins to mr__sleep_ends. */
int64_t mr__sleep_begins(void);
void mr__sleep_ends(int64_t began);
/* A callback for the sleeps of the calling thread: 1 when it falls asleep, -1 when it wakes up. */
typedef struct mr__sleep_watch {
    void (*notify)(void *ctx, int sleeping); /* may be NULL */
    void *ctx;
} mr__sleep_watch;
/* Returns the previous callback. */
mr__sleep_watch mr__sleep_watch_set(mr__sleep_watch watch);
#endif
