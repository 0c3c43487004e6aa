/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_ERRAND_H
#define MR_TRANSPORT_NET_ERRAND_H
/* Work that may take long (a name to look up, a folder to search), in a thread of its own; the
 * loop hears of its end.
 *
 *     loop --start--> [thread: run] --posted--> done, free     in the loop's thread
 *          --abandon--> free alone, when the thread is ready
 *
 * Embedded in what it works on, which is the errand's until `free` was called.
 *
 * thread   the loop's; run in its own */
#include <pthread.h>
#include "transport/net/loop.h"

typedef struct mr__errand mr__errand;
struct mr__errand {
    mr__posted posted; /* first */
    void (*run)(mr__errand *e);
    void (*done)(mr__errand *e);
    void (*free)(mr__errand *e); /* in any thread */
    mr__loop *loop;
    pthread_mutex_t lock;
    bool finished, abandoned;
};

/* The owner has set run, done and free. errors MR_RESOURCE_EXHAUSTED: no thread; the errand is its
 * owner's again */
mr_code mr__errand_start(mr__errand *e, mr__loop *l, mr_status *st) MR_NODISCARD;
/* Nobody waits for it any more. The loop must turn once more before it is closed. */
void mr__errand_abandon(mr__errand *e);
#endif
