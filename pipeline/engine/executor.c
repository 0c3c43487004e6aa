/* SPDX-License-Identifier: Apache-2.0 */
/* See executor.h for the rules. The queues are lists under one lock: a task processes about one
 * block, so the lock is taken at most a few thousand times per second. Waiting is spin, then futex:
 * a wake-up costs tens of microseconds, most tasks less. */
#include "pipeline/engine/executor.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "pipeline/engine/work_clock.h"
#include "pipeline/log.h"
#include "pipeline/system/cgroup.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/spin_once.h"
#include "pipeline/wait/wait.h"

enum {
    SPINS = 1500,
    MAX_THREADS = 1024,
    MOST_SPARE = 64 /* threads that replace those asleep within their tasks */
};

typedef struct tasks {
    mr__task *head, *tail;
} tasks;

struct mr_executor {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work;  /* a task was queued, or stop was set */
    pthread_cond_t gone;  /* a blocking thread ended */
    tasks heavy, light;   /* queued */
    int n_idle;
    int n_running; /* pool threads that run a task, asleep or not */
    int n_asleep;  /* of those */
    int n_blocking;
    bool stop;
    bool keeps_places; /* tasks that sleep do */
    int n_threads;     /* maximum number that may run tasks at once */
    int n_started, most_started;
    int n_coming;         /* started, and have not checked the queues yet */
    unsigned forks;       /* mr__forks() where it was made */
    atomic_int n_callers; /* threads that pull and are awake; not guarded */
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

static tasks *queue_of(mr_executor *ex, const mr__task *t)
{
    return t->light ? &ex->light : &ex->heavy;
}

static void unlink_task(mr_executor *ex, mr__task *t)
{
    tasks *q = queue_of(ex, t);
    if (t->prev)
        t->prev->next = t->next;
    else
        q->head = t->next;
    if (t->next)
        t->next->prev = t->prev;
    else
        q->tail = t->prev;
    t->next = t->prev = NULL;
}

/* The task that a thread of the pool should run now; NULL: none. If no task runs, a light one
 * may run however many threads are pulling. */
static mr__task *first_task(const mr_executor *ex)
{
    int running = ex->n_running - (ex->keeps_places ? 0 : ex->n_asleep);
    if (running >= ex->n_threads)
        return NULL;
    if (ex->heavy.head)
        return ex->heavy.head;
    /* Relaxed: an outdated number only delays a task, and the next one reads it again. */
    int callers = atomic_load_explicit(&ex->n_callers, memory_order_relaxed);
    return running && running + callers >= ex->n_threads ? NULL : ex->light.head;
}

static int start_thread(mr_executor *ex);

/* true: a task may run, and a waiting thread must be woken for it. If no thread waits, because
 * some sleep within their tasks, starts another thread, which need not be woken. */
static bool must_wake(mr_executor *ex)
{
    if (!first_task(ex))
        return false;
    if (ex->n_idle)
        return true;
    if (!ex->n_coming && ex->n_started < ex->most_started)
        start_thread(ex);
    return false;
}

/* Another thread replaces a sleeping one, but not for a light task: waking costs as much. */
static void pool_thread_sleeps(void *ctx, int sleeping)
{
    mr_executor *ex = ctx;
    pthread_mutex_lock(&ex->lock);
    ex->n_asleep += sleeping;
    bool wake = ex->heavy.head && must_wake(ex);
    pthread_mutex_unlock(&ex->lock);
    if (wake)
        pthread_cond_signal(&ex->work);
}

static void caller_sleeps(void *ctx, int sleeping)
{
    mr_executor *ex = ctx;
    atomic_fetch_sub_explicit(&ex->n_callers, sleeping, memory_order_relaxed);
}

mr__sleep_watch mr__executor_enter(mr_executor *ex)
{
    mr__sleep_watch before = mr__sleep_watch_set((mr__sleep_watch){caller_sleeps, ex});
    if (before.ctx == ex) /* a thread of the pool, or a caller within a call */
        mr__sleep_watch_set(before);
    else
        atomic_fetch_add_explicit(&ex->n_callers, 1, memory_order_relaxed);
    return before;
}

void mr__executor_leave(mr_executor *ex, mr__sleep_watch before)
{
    if (before.ctx == ex)
        return;
    atomic_fetch_sub_explicit(&ex->n_callers, 1, memory_order_relaxed);
    mr__sleep_watch_set(before);
}

static void *pool_thread(void *arg)
{
    mr_executor *ex = arg;
    mr__work_clock_of_pool();
    mr__sleep_watch_set((mr__sleep_watch){pool_thread_sleeps, ex});
    pthread_mutex_lock(&ex->lock);
    ex->n_coming--;
    for (bool has_come = true;; has_come = false) {
        mr__task *t;
        while (!(t = first_task(ex)) && !ex->stop) {
            int64_t began = mr__ticks();
            ex->n_idle++;
            pthread_cond_wait(&ex->work, &ex->lock);
            ex->n_idle--;
            has_come = true;
            mr__waited_since(began);
        }
        if (!t)
            break;
        unlink_task(ex, t);
        atomic_store_explicit(&t->state, MR_TASK_RUNNING, memory_order_relaxed);
        ex->n_running++;
        /* While it started it counted as the thread to wake for all queued tasks. */
        bool wake = has_come && must_wake(ex);
        pthread_mutex_unlock(&ex->lock);
        if (wake)
            pthread_cond_signal(&ex->work);
        run_task(t);
        pthread_mutex_lock(&ex->lock);
        ex->n_running--;
    }
    pthread_mutex_unlock(&ex->lock);
    return NULL;
}

/* Under the lock. errno; 0: it runs. */
static int start_thread(mr_executor *ex)
{
    /* Pool threads block all signals: they belong to the program. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&ex->threads[ex->n_started], NULL, pool_thread, ex);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err)
        ex->most_started = ex->n_started;
    else
        ex->n_started++, ex->n_coming++;
    return err;
}

mr_code mr_executor_new(int n_threads, mr_executor **out, mr_status *st)
{
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "an executor has 0 to %d threads, not %d",
                       MAX_THREADS, n_threads);
    int most = n_threads ? n_threads + MOST_SPARE : 0;
    size_t bytes = sizeof(mr_executor) + (size_t)most * sizeof(pthread_t);
    mr_executor *ex = mr_calloc(1, bytes);
    if (!ex)
        return mr_fail_memory(st, bytes, "an executor");
    pthread_mutex_init(&ex->lock, NULL);
    pthread_cond_init(&ex->work, NULL);
    pthread_cond_init(&ex->gone, NULL);
    ex->most_started = most;
    ex->forks = mr__forks();
    int err = 0;
    pthread_mutex_lock(&ex->lock);
    while (ex->n_started < n_threads && !err)
        err = start_thread(ex);
    if (err) /* fewer threads only affect the speed */
        mr_log(MR_LOG_WARNING, "only %d of %d pool threads could be started (errno %d)",
               ex->n_started, n_threads, err);
    ex->n_threads = ex->n_started;
    pthread_mutex_unlock(&ex->lock);
    *out = ex;
    return MR_OK;
}

unsigned mr__executor_forks(const mr_executor *ex)
{
    return ex->forks;
}

void mr_executor_free(mr_executor *ex)
{
    if (!ex || ex->forks != mr__forks()) /* a child has no thread to join, and no lock to trust */
        return;
    pthread_mutex_lock(&ex->lock);
    ex->stop = true;
    pthread_cond_broadcast(&ex->work);
    while (ex->n_blocking)
        pthread_cond_wait(&ex->gone, &ex->lock);
    pthread_mutex_unlock(&ex->lock);
    for (int i = 0; i < ex->n_started; i++)
        pthread_join(ex->threads[i], NULL);
    pthread_cond_destroy(&ex->gone);
    pthread_cond_destroy(&ex->work);
    pthread_mutex_destroy(&ex->lock);
    mr_free(ex);
}

int mr_usable_cpus(void)
{
    cpu_set_t set;
    int most = mr__cgroup_limits()->cpus;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    n = n < most ? n : most;
    return n > 0 ? n : 1;
}

static mr_executor none = {.lock = PTHREAD_MUTEX_INITIALIZER,
                           .work = PTHREAD_COND_INITIALIZER,
                           .gone = PTHREAD_COND_INITIALIZER};

/* The tasks in its queue are the parent's. */
static void empty_in_child(void)
{
    none.heavy = none.light = (tasks){0};
    atomic_store(&none.n_callers, 0);
}
MR__AROUND_FORK(none.lock, empty_in_child)

mr_executor *mr__executor_none(void)
{
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

void mr__executor_keep_places(mr_executor *ex)
{
    pthread_mutex_lock(&ex->lock);
    ex->keeps_places = true;
    pthread_mutex_unlock(&ex->lock);
}

void mr__task_submit(mr_executor *ex, mr__task *t)
{
    pthread_mutex_lock(&ex->lock);
    atomic_store_explicit(&t->state, MR_TASK_QUEUED, memory_order_relaxed);
    tasks *q = queue_of(ex, t);
    t->next = NULL;
    t->prev = q->tail;
    if (q->tail)
        q->tail->next = t;
    else
        q->head = t;
    q->tail = t;
    bool wake = must_wake(ex);
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
    mr__work_clock_of_pool();
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

/* Removes a queued task from the queue, in one step from QUEUED to `state`, so that no thread sees
 * it as idle, which counts as done, before it runs. */
static bool take(mr_executor *ex, mr__task *t, mr__task_state state)
{
    /* Relaxed: only a queued task is changed, and that is checked again under the lock. */
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

/* A thread that sleeps until a task is done. */
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
        /* Checked after the state has changed: a later trigger finds the state and changes it. */
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
