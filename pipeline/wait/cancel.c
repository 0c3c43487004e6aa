/* SPDX-License-Identifier: Apache-2.0 */
/* Signals are blocked while the lock is held: a handler that triggers cannot have interrupted the
 * holder, so it may wait for the lock.
 *
 * In a forked child the waiters of an object are threads of the parent, and its descriptor wakes
 * them: the first use there forgets both. */
#include "pipeline/wait/cancel.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/eventfd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/spin_once.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/cancel_internal.h"
#include "pipeline/wait/wait.h"

struct mr_cancel {
    atomic_size_t refs;
    atomic_bool cancelled;
    mr_cancel *parent;
    mr_cancel_waiter link; /* registered with parent. Lock order: the parent's first */
    pthread_mutex_t lock;  /* guards the fields below */
    mr_cancel_waiter *first;
    int fd;             /* -1: not yet requested */
    bool has_forgotten; /* waiters of a parent may unregister although they are not listed */
    atomic_uint forks;  /* twice mr__forks() of its last use; odd: it is being renewed */
};

static void wake_child(mr_cancel_waiter *w)
{
    mr_cancel_trigger((mr_cancel *)((char *)w - offsetof(mr_cancel, link)));
}

mr_code mr_cancel_new(mr_cancel *parent, mr_cancel **out, mr_status *st)
{
    mr_cancel *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "a cancel object");
    atomic_init(&c->refs, 1);
    pthread_mutex_init(&c->lock, NULL);
    atomic_init(&c->forks, 2 * mr__forks());
    c->fd = -1;
    if (parent) {
        c->parent = mr_cancel_ref(parent);
        c->link.wake = wake_child;
        mr_cancel_register(parent, &c->link);
    }
    *out = c;
    return MR_OK;
}

mr_cancel *mr_cancel_ref(mr_cancel *c)
{
    /* Relaxed: the caller already holds a reference. */
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

void mr_cancel_unref(mr_cancel *c)
{
    /* Release: this thread's accesses are done. Acquire: so are those of the others before the last
     * one frees the object. */
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (c->parent)
        mr_cancel_unregister(c->parent, &c->link);
    mr_cancel_unref(c->parent);
    if (c->fd >= 0)
        mr__sys->close(c->fd);
    pthread_mutex_destroy(&c->lock);
    mr_free(c);
}

/* Signals are blocked. */
static void renew(mr_cancel *c)
{
    unsigned now = 2 * mr__forks();
    /* Acquire, release: a thread that finds the number new finds the rest new. */
    unsigned seen = atomic_load_explicit(&c->forks, memory_order_acquire);
    while (seen != now) {
        if (seen == now + 1) { /* another thread renews it */
            mr__spin_once();
            seen = atomic_load_explicit(&c->forks, memory_order_acquire);
        } else if (atomic_compare_exchange_weak(&c->forks, &seen, now + 1)) {
            pthread_mutex_init(&c->lock, NULL);
            c->first = NULL;
            c->has_forgotten = true;
            if (c->fd >= 0)
                mr__sys->close(c->fd);
            c->fd = -1;
            atomic_store_explicit(&c->forks, now, memory_order_release);
            break;
        }
    }
}

static void lock(mr_cancel *c, sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, old);
    renew(c);
    pthread_mutex_lock(&c->lock);
}

static void unlock(mr_cancel *c, const sigset_t *old)
{
    pthread_mutex_unlock(&c->lock);
    pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* The write cannot fail: the eventfd's counter would have to reach 2^64 - 2. */
static void signal_fd(int fd)
{
    static const uint64_t one = 1;
    ssize_t n = mr__sys->write(fd, &one, sizeof one);
    (void)n;
}

void mr_cancel_trigger(mr_cancel *c)
{
    int err = errno;
    sigset_t old;
    if (atomic_exchange(&c->cancelled, true))
        return;
    lock(c, &old);
    if (c->fd >= 0)
        signal_fd(c->fd);
    for (mr_cancel_waiter *w = c->first; w; w = w->next)
        w->wake(w);
    unlock(c, &old);
    errno = err;
}

void mr__cancel_forget(mr_cancel *c)
{
    sigset_t old;
    uint64_t times;
    lock(c, &old);
    if (!mr_cancel_is_cancelled(c->parent)) {
        /* Not closed: a wait that has not seen the trigger yet may poll it. */
        ssize_t n = c->fd >= 0 ? mr__sys->read(c->fd, &times, sizeof times) : 0;
        (void)n;
        atomic_store(&c->cancelled, false);
    }
    unlock(c, &old);
}

bool mr_cancel_is_cancelled(const mr_cancel *c)
{
    return c && atomic_load(&c->cancelled);
}

void mr_cancel_register(mr_cancel *c, mr_cancel_waiter *w)
{
    sigset_t old;
    lock(c, &old);
    w->prev = NULL;
    w->next = c->first;
    if (w->next)
        w->next->prev = w;
    c->first = w;
    /* A trigger sets the flag before it takes the lock: either it finds w in the list, or the flag
     * is visible here. */
    if (atomic_load(&c->cancelled))
        w->wake(w);
    unlock(c, &old);
}

void mr_cancel_unregister(mr_cancel *c, mr_cancel_waiter *w)
{
    sigset_t old;
    lock(c, &old);
    bool listed = true;
    if (c->has_forgotten) {
        mr_cancel_waiter *x = c->first;
        while (x && x != w)
            x = x->next;
        listed = x != NULL;
    }
    if (listed && w->prev)
        w->prev->next = w->next;
    else if (listed)
        c->first = w->next;
    if (listed && w->next)
        w->next->prev = w->prev;
    unlock(c, &old);
}

mr_code mr_cancel_fd(mr_cancel *c, int *fd, mr_status *st)
{
    sigset_t old;
    lock(c, &old);
    int err = 0;
    if (c->fd < 0) {
        c->fd = mr__sys->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        err = errno;
        if (c->fd >= 0 && atomic_load(&c->cancelled))
            signal_fd(c->fd);
    }
    *fd = c->fd;
    unlock(c, &old);
    return *fd >= 0 ? MR_OK : mr_fail_errno(st, err, "cannot wait for a cancellation");
}

mr_cancel *mr_cancel_set_thread(mr_cancel *c)
{
    mr__name_scope s = mr__name_scope_get();
    s.cancel = c;
    return mr__name_scope_set(s).cancel;
}

mr_cancel *mr__cancel_of_thread(void)
{
    return mr__name_scope_get().cancel;
}
