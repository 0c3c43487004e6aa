/* SPDX-License-Identifier: Apache-2.0 */
/* See executor.h for the rules. The queue is a list under one lock: tasks are of block size, so it
 * is taken some thousand times a second at most. Waiting is spin, then futex: a wake-up costs tens
 * of microseconds, most tasks less. */
#include "pipeline/engine/executor.h"

#include <pthread.h>
#include <signal.h>

#include "pipeline/engine/statistics.h"
#include "pipeline/log.h"
#include "pipeline/spin_once.h"
#include "pipeline/wait/wait.h"

enum { SPINS = 1500, MAX_THREADS = 1024 };

struct mr_executor {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work;  /* a task was queued, or stop was set */
    pthread_cond_t gone;  /* a blocking thread ended */
    mr__task *head, *tail;
    int n_idle;
    int n_blocking;
    bool stop;
    int n_threads;
    pthread_t threads[];
};

/* Runs a task that this thread has put in state RUNNING. */
static void run_task(mr__task *t)
{
    t->run(t);
    /* Release pairs with the acquire in mr__task_done and mr__task_wait: results before "done".
     * After this the owner may free t, so a sleeper is woken by address only. */
    if (atomic_exchange_explicit(&t->state, MR_TASK_DONE, memory_order_acq_rel) == MR_TASK_WAITED)
        mr__wait_futex_wake(&t->state);
}

static void unlink_task(mr_executor *ex, mr__task *t)
{
    if (t->prev)
        t->prev->next = t->next;
    else
        ex->head = t->next;
    if (t->next)
        t->next->prev = t->prev;
    else
        ex->tail = t->prev;
    t->next = t->prev = NULL;
}

static void *pool_thread(void *arg)
{
    mr_executor *ex = arg;
    mr__stats_pool_thread();
    pthread_mutex_lock(&ex->lock);
    for (;;) {
        while (!ex->head && !ex->stop) {
            int64_t began = mr__ticks();
            ex->n_idle++;
            pthread_cond_wait(&ex->work, &ex->lock);
            ex->n_idle--;
            mr__waited_since(began);
        }
        if (!ex->head)
            break;
        mr__task *t = ex->head;
        unlink_task(ex, t);
        atomic_store_explicit(&t->state, MR_TASK_RUNNING, memory_order_relaxed);
        pthread_mutex_unlock(&ex->lock);
        run_task(t);
        pthread_mutex_lock(&ex->lock);
    }
    pthread_mutex_unlock(&ex->lock);
    return NULL;
}

mr_code mr_executor_new(int n_threads, mr_executor **out, mr_status *st)
{
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "an executor has 0 to %d threads, not %d",
                       MAX_THREADS, n_threads);
    size_t bytes = sizeof(mr_executor) + (size_t)n_threads * sizeof(pthread_t);
    mr_executor *ex = mr_calloc(1, bytes);
    if (!ex)
        return mr_fail_memory(st, bytes, "an executor");
    pthread_mutex_init(&ex->lock, NULL);
    pthread_cond_init(&ex->work, NULL);
    pthread_cond_init(&ex->gone, NULL);
    /* Signals are the program's business: pool threads take none. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; ex->n_threads < n_threads; ex->n_threads++) {
        int err = pthread_create(&ex->threads[ex->n_threads], NULL, pool_thread, ex);
        if (err) {
            /* Fewer threads change nothing but the speed. */
            mr_log(MR_LOG_WARNING, "only %d of %d pool threads could be started (errno %d)",
                   ex->n_threads, n_threads, err);
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    *out = ex;
    return MR_OK;
}

void mr_executor_free(mr_executor *ex)
{
    if (!ex)
        return;
    pthread_mutex_lock(&ex->lock);
    ex->stop = true;
    pthread_cond_broadcast(&ex->work);
    while (ex->n_blocking)
        pthread_cond_wait(&ex->gone, &ex->lock);
    pthread_mutex_unlock(&ex->lock);
    for (int i = 0; i < ex->n_threads; i++)
        pthread_join(ex->threads[i], NULL);
    pthread_cond_destroy(&ex->gone);
    pthread_cond_destroy(&ex->work);
    pthread_mutex_destroy(&ex->lock);
    mr_free(ex);
}

mr_executor *mr__executor_none(void)
{
    static mr_executor none = {.lock = PTHREAD_MUTEX_INITIALIZER,
                               .work = PTHREAD_COND_INITIALIZER,
                               .gone = PTHREAD_COND_INITIALIZER};
    return &none;
}

int mr_executor_threads(const mr_executor *ex)
{
    return mr__executor_threads(ex);
}

int mr__executor_threads(const mr_executor *ex)
{
    return ex->n_threads;
}

void mr__task_submit(mr_executor *ex, mr__task *t)
{
    pthread_mutex_lock(&ex->lock);
    atomic_store_explicit(&t->state, MR_TASK_QUEUED, memory_order_relaxed);
    t->next = NULL;
    t->prev = ex->tail;
    if (ex->tail)
        ex->tail->next = t;
    else
        ex->head = t;
    ex->tail = t;
    bool wake = ex->n_idle > 0;
    pthread_mutex_unlock(&ex->lock);
    if (wake)
        pthread_cond_signal(&ex->work);
}

struct blocking {
    mr_executor *ex;
    mr__task *task;
};

static void *blocking_thread(void *arg)
{
    struct blocking b = *(struct blocking *)arg;
    mr_free(arg);
    mr__stats_pool_thread();
    run_task(b.task);
    pthread_mutex_lock(&b.ex->lock);
    b.ex->n_blocking--;
    pthread_cond_broadcast(&b.ex->gone);
    pthread_mutex_unlock(&b.ex->lock);
    return NULL;
}

void mr__task_submit_blocking(mr_executor *ex, mr__task *t)
{
    struct blocking *b = ex->n_threads ? mr_malloc(sizeof *b) : NULL;
    if (!b) {
        mr__task_submit(ex, t);
        return;
    }
    *b = (struct blocking){ex, t};
    atomic_store_explicit(&t->state, MR_TASK_RUNNING, memory_order_relaxed);
    pthread_mutex_lock(&ex->lock);
    ex->n_blocking++;
    pthread_mutex_unlock(&ex->lock);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t thread;
    int err = pthread_create(&thread, &attr, blocking_thread, b);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (err) {
        mr_free(b);
        pthread_mutex_lock(&ex->lock);
        ex->n_blocking--;
        pthread_mutex_unlock(&ex->lock);
        mr__task_submit(ex, t);
    }
}

/* Takes a queued task out of the queue: in one step from QUEUED to `state`, so that nobody sees an
 * idle task, which counts as done, on its way to running. */
static bool take(mr_executor *ex, mr__task *t, mr__task_state state)
{
    /* Relaxed: only a queued task is touched, and that is decided again under the lock. */
    if (atomic_load_explicit(&t->state, memory_order_relaxed) != MR_TASK_QUEUED)
        return false;
    pthread_mutex_lock(&ex->lock);
    bool mine = atomic_load_explicit(&t->state, memory_order_relaxed) == MR_TASK_QUEUED;
    if (mine) {
        unlink_task(ex, t);
        atomic_store_explicit(&t->state, (int)state, memory_order_relaxed);
    }
    pthread_mutex_unlock(&ex->lock);
    return mine;
}

bool mr__task_withdraw(mr_executor *ex, mr__task *t)
{
    return take(ex, t, MR_TASK_IDLE);
}

bool mr__task_done(mr__task *t)
{
    /* Acquire pairs with run_task's exchange. */
    int s = atomic_load_explicit(&t->state, memory_order_acquire);
    return s == MR_TASK_DONE || s == MR_TASK_IDLE;
}

/* Someone who sleeps until a task is done. */
typedef struct sleeper {
    mr_cancel_waiter waiter; /* first */
    mr__task *task;
} sleeper;

static void wake_sleeper(mr_cancel_waiter *w)
{
    mr__task *t = ((sleeper *)w)->task;
    int waited = MR_TASK_WAITED;
    if (atomic_compare_exchange_strong(&t->state, &waited, MR_TASK_RUNNING))
        mr__wait_futex_wake(&t->state);
}

/* The task runs in another thread. */
static bool sleep_until_done(mr__task *t, mr_cancel *cancel)
{
    while (!mr__task_done(t)) {
        int running = MR_TASK_RUNNING;
        /* On failure the task is WAITED already, or done. */
        atomic_compare_exchange_strong(&t->state, &running, MR_TASK_WAITED);
        /* Looked at after the state has changed: a trigger from now on finds it and changes it. */
        if (mr_cancel_is_cancelled(cancel))
            return mr__task_done(t);
        if (atomic_load(&t->state) == MR_TASK_WAITED)
            mr__wait_futex(&t->state, MR_TASK_WAITED);
    }
    return true;
}

bool mr__task_wait_or_cancel(mr_executor *ex, mr__task *t, mr_cancel *cancel)
{
    if (mr__task_done(t))
        return true;
    if (mr_cancel_is_cancelled(cancel))
        return false;
    if (take(ex, t, MR_TASK_RUNNING)) {
        run_task(t);
        return true;
    }
    for (int i = 0; i < SPINS; i++) {
        if (mr__task_done(t))
            return true;
        mr__spin_once();
    }
    sleeper s = {.waiter.wake = wake_sleeper, .task = t};
    if (cancel)
        mr_cancel_register(cancel, &s.waiter);
    bool done = sleep_until_done(t, cancel);
    if (cancel)
        mr_cancel_unregister(cancel, &s.waiter);
    return done;
}

void mr__task_wait(mr_executor *ex, mr__task *t)
{
    mr__task_wait_or_cancel(ex, t, NULL);
}
