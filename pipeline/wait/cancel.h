/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WAIT_CANCEL_H
#define MR_PIPELINE_WAIT_CANCEL_H
/* Cancellation: triggering a cancel object ends every wait that it was passed to. A waiting thread
 * registers a callback that wakes it, so the object is never polled.
 *
 *     static mr_cancel *cancel;
 *     static void on_interrupt(int sig) { mr_cancel_trigger(cancel); }
 *
 *     mr_cancel_new(NULL, &cancel, &st);
 *     mr_iterator_open(&it, ds, &(mr_iterator_opts){.cancel = cancel}, &st);
 *     ... mr_iterator_next returns MR_CANCELLED, also while it waits for a pipe
 *     mr_iterator_close(it);
 *     mr_cancel_unref(cancel);
 *
 * An object is triggered once and stays triggered. It may be passed to any number of iterators.
 *
 * thread   any
 * since    0.1 */
#include <stdbool.h>

#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cancel mr_cancel;

/* Makes an object with a count of 1. If parent is not NULL, triggering the parent triggers it too;
 * it keeps a reference to the parent.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_cancel_new(mr_cancel *parent, mr_cancel **out, mr_status *st) MR_NODISCARD;
MR_API mr_cancel *mr_cancel_ref(mr_cancel *c); /* returns c */
MR_API void mr_cancel_unref(mr_cancel *c);     /* NULL: no-op */

/* Ends all present and future waits on c. May be called from any thread and from a signal handler.
 * A second call has no effect. */
MR_API void mr_cancel_trigger(mr_cancel *c);
/* True if c was triggered; false if it is NULL. */
MR_API bool mr_cancel_is_cancelled(const mr_cancel *c);

/* A waiter. wake runs in the thread or signal handler that triggers: it must not block, allocate,
 * or call mr_cancel functions on the object it is registered with. */
typedef struct mr_cancel_waiter mr_cancel_waiter;
struct mr_cancel_waiter {
    void (*wake)(mr_cancel_waiter *self);
    mr_cancel_waiter *next, *prev; /* list of the cancel object */
};
/* Calls w->wake when c is triggered, or before this returns if it already was. wake may be called
 * twice. w is borrowed until mr_cancel_unregister; after that wake is not running and will not run.
 * Costs a few system calls: register for a wait, not for every element. */
MR_API void mr_cancel_register(mr_cancel *c, mr_cancel_waiter *w);
MR_API void mr_cancel_unregister(mr_cancel *c, mr_cancel_waiter *w);

/* Returns in *fd a descriptor that becomes readable for poll when c is triggered. It belongs to c:
 * do not read, write or close it.
 * errors   as eventfd(2) */
MR_API mr_code mr_cancel_fd(mr_cancel *c, int *fd, mr_status *st) MR_NODISCARD;

/* Sets what ends the waits of this thread for remote files, in calls that take no mr_cancel: when a
 * graph is built or analysed, patterns are listed and columns of Parquet files are read. Iterators
 * use their own. Borrowed until it is set again; NULL: nothing. Returns the previous one.
 * since    0.2 */
MR_API mr_cancel *mr_cancel_set_thread(mr_cancel *c);

#ifdef __cplusplus
}
#endif
#endif
