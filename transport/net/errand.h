/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_ERRAND_H
#define MR_TRANSPORT_NET_ERRAND_H
/* Runs a blocking task (resolving a name, searching a directory) on a thread and posts its
 * completion to the loop.
 *
 *     loop --start--> [thread: run] --posted--> done, free     in the loop's thread
 *          --abandon--> only free, when the thread has finished
 *
 * Embedded in the object that it works on, which belongs to the errand until `free` is called.
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

/* The owner must have set run, done and free. errors MR_RESOURCE_EXHAUSTED: no thread; the errand
 * belongs to its owner again */
mr_code mr__errand_start(mr__errand *e, mr__loop *l, mr_status *st) MR_NODISCARD;
/* Gives up waiting for it. The loop must turn one more time before it is closed. */
void mr__errand_abandon(mr__errand *e);
#endif
