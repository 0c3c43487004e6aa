/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/wait/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pipeline/system/spin_once.h"
#include "pipeline/system/system.h"

enum {
    SPINS = 1500,      /* takes about as long as a wake-up */
    MAX_RETRIES = 1000 /* of an interrupted poll */
};

static _Thread_local int64_t waited;
static _Thread_local mr__sleep_watch watch;
static _Atomic(void (*)(int64_t, int64_t)) after_wait; /* may be NULL */

int64_t mr__ticks(void)
{
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    int64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#else
    return mr__clock_ns(CLOCK_MONOTONIC);
#endif
}

int64_t mr__ticks_to_look(void)
{
#if defined(__x86_64__)
    return 1 << 18; /* the counter runs at 2 to 5 GHz */
#elif defined(__aarch64__)
    int64_t per_second;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(per_second));
    return per_second / 10000;
#else
    return 100000;
#endif
}

int64_t mr__waited_ticks(void)
{
    return waited;
}

void mr__waited_add(int64_t ticks)
{
    waited += ticks;
    /* Relaxed: a function pointer needs no other data, and is set before the waits to report. */
    void (*f)(int64_t, int64_t) = atomic_load_explicit(&after_wait, memory_order_relaxed);
    if (f) {
        int64_t now = mr__ticks();
        f(now - ticks, now);
    }
}

void mr__waited_since(int64_t began)
{
    mr__waited_add(mr__ticks() - began);
}

void mr__waited_tell(void (*f)(int64_t began, int64_t ended))
{
    atomic_store_explicit(&after_wait, f, memory_order_relaxed);
}

mr__sleep_watch mr__sleep_watch_set(mr__sleep_watch w)
{
    mr__sleep_watch before = watch;
    watch = w;
    return before;
}

int64_t mr__sleep_begins(void)
{
    if (watch.notify)
        watch.notify(watch.ctx, 1);
    return mr__ticks();
}

void mr__sleep_ends(int64_t began)
{
    mr__waited_since(began);
    if (watch.notify)
        watch.notify(watch.ctx, -1);
}

void mr__wait_futex(void *word, unsigned seen)
{
    int64_t began = mr__sleep_begins();
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    mr__sleep_ends(began);
}

void mr__wait_futex_wake(void *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void mr__wait_wake(atomic_uint *word)
{
    mr__wait_futex_wake(word);
}

typedef struct sleeper {
    mr_cancel_waiter waiter; /* first */
    atomic_uint *word;
} sleeper;

/* Changes the word, so that a thread which has checked it but is not yet asleep stays awake. */
static void wake_sleeper(mr_cancel_waiter *w)
{
    atomic_uint *word = ((sleeper *)w)->word;
    atomic_fetch_add(word, 2);
    mr__wait_wake(word);
}

void mr__wait_while(atomic_uint *word, unsigned seen, mr_cancel *cancel)
{
    for (int i = 0; i < SPINS; i++) {
        /* Acquire: writes before the change of *word are visible after it. */
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return;
        mr__spin_once();
    }
    sleeper s = {.waiter.wake = wake_sleeper, .word = word};
    if (cancel)
        mr_cancel_register(cancel, &s.waiter);
    mr__wait_futex(word, seen);
    if (cancel)
        mr_cancel_unregister(cancel, &s.waiter);
}

int mr__wait_readable(int fd, mr_cancel *cancel)
{
    struct pollfd v[2] = {{.fd = fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    mr_status st;
    if (cancel && mr_cancel_fd(cancel, &v[1].fd, &st) != MR_OK)
        return -st.sys_errno;
    int64_t began = mr__sleep_begins();
    int n, err = 0, tries = 0;
    do {
        n = mr__sys->poll(v, 2, -1);
        err = n < 0 ? errno : 0;
    } while (err == EINTR && !mr_cancel_is_cancelled(cancel) && tries++ < MAX_RETRIES);
    mr__sleep_ends(began);
    if (mr_cancel_is_cancelled(cancel))
        return -ECANCELED;
    return -err;
}
