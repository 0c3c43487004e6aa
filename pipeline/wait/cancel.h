/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WAIT_CANCEL_H
#define MR_PIPELINE_WAIT_CANCEL_H
/* Cancelling: one object that ends every wait it was given to. A thread that waits registers how to
 * be woken, so nothing looks at the object from time to time.
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
 * An object is triggered once and stays so. One may be given to any number of iterators.
 *
 * thread   any
 * since    0.1 */
#include <stdbool.h>

#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cancel mr_cancel;

/* Makes one with a count of 1. parent (NULL: none) triggers it too; a reference is kept.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_cancel_new(mr_cancel *parent, mr_cancel **out, mr_status *st) MR_NODISCARD;
MR_API mr_cancel *mr_cancel_ref(mr_cancel *c); /* returns c */
MR_API void mr_cancel_unref(mr_cancel *c);     /* NULL: nothing */

/* Ends every wait of those who hold c, now and later. From any thread, and from a signal handler;
 * a second time does nothing. */
MR_API void mr_cancel_trigger(mr_cancel *c);
/* Was it triggered? NULL: no. */
MR_API bool mr_cancel_is_cancelled(const mr_cancel *c);

/* Somebody who waits. wake runs in the thread, or the signal handler, that triggers: it must not
 * block, allocate or call mr_cancel functions on the object it is registered with. */
typedef struct mr_cancel_waiter mr_cancel_waiter;
struct mr_cancel_waiter {
    void (*wake)(mr_cancel_waiter *self);
    mr_cancel_waiter *next, *prev; /* the object's */
};
/* Has w->wake called when c is triggered; called before this returns if it was already. It may be
 * called twice. w is borrowed until mr_cancel_unregister, after which wake is not running and will
 * not run. Costs a few system calls: for a wait, not for an element. */
MR_API void mr_cancel_register(mr_cancel *c, mr_cancel_waiter *w);
MR_API void mr_cancel_unregister(mr_cancel *c, mr_cancel_waiter *w);

/* *fd = a descriptor that poll finds readable once c is triggered; c's own: not to be read, written
 * or closed. errors as eventfd(2) */
MR_API mr_code mr_cancel_fd(mr_cancel *c, int *fd, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
