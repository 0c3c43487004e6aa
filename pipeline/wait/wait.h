/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WAIT_WAIT_H
#define MR_PIPELINE_WAIT_WAIT_H
/* The places where a thread sleeps. None has a time-out: each ends with what it waits for, or with
 * the cancel object that it was given (NULL: none). The time slept is counted for the thread, which
 * is how the statistics know waiting from work.
 *
 * thread   any */
#include <stdatomic.h>
#include <sys/types.h>

#include "pipeline/wait/cancel.h"

/* Spins a little, then sleeps while *word is `seen`; returns early when cancelled, for which 2 is
 * added to *word: bit 0 is the owner's to keep. Whoever changes *word calls mr__wait_wake after. */
void mr__wait_while(atomic_uint *word, unsigned seen, mr_cancel *cancel);
void mr__wait_wake(atomic_uint *word);
/* The sleep alone, for those who do the rest themselves. */
void mr__wait_futex(void *word, unsigned seen);
void mr__wait_futex_wake(void *word);

/* Waits until a read from fd would not block. 0, -ECANCELED or -errno. */
int mr__wait_readable(int fd, mr_cancel *cancel);

/* A clock for intervals, the cheapest there is; its unit is not known. */
int64_t mr__ticks(void);
/* About a tenth of a millisecond: after it a clock that costs a system call may be read. */
int64_t mr__ticks_to_look(void);
/* Ticks that the calling thread has slept so far. */
int64_t mr__waited_ticks(void);
/* Counts a wait of so many ticks. */
void mr__waited_add(int64_t ticks);
/* From now on after_wait is called after each wait of any thread, in that thread, with the ticks at
 * which it began and ended. It is one function, never another. */
void mr__waited_tell(void (*after_wait)(int64_t began, int64_t ended));
/* Counts a wait that began at `began` and ends now, around a call that blocks by itself. */
void mr__waited_since(int64_t began);

/* Around a sleep: mr__sleep_begins gives what mr__sleep_ends takes. */
int64_t mr__sleep_begins(void);
void mr__sleep_ends(int64_t began);
/* Called when the calling thread begins to sleep (1) and when it goes on (-1). */
typedef struct mr__sleep_watch {
    void (*notify)(void *ctx, int sleeping); /* NULL: nobody is to know */
    void *ctx;
} mr__sleep_watch;
/* Gives back the one before. */
mr__sleep_watch mr__sleep_watch_set(mr__sleep_watch watch);
#endif
