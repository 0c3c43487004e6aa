/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_EXECUTOR_H
#define MR_PIPELINE_ENGINE_EXECUTOR_H
/* The thread pool. Tasks are of block size; a thread that needs a task's result runs it itself if
 * no thread has taken it yet (the helping rule), so a pool never deadlocks, however nested the
 * graph is, and a pool of 0 threads works: every task runs in the thread that waits for it.
 *
 * As many tasks run at once as the pool has threads, not counting those that sleep: others take
 * their places meanwhile. Short tasks are for processors that nobody uses: for them the threads
 * that pull count too (mr__executor_enter), since a thread more than there are processors makes all
 * of them take turns.
 *
 *     idle --submit--> queued --taken by a thread or by mr__task_wait--> running --> done
 *
 * Lock order: an op's own lock before the executor's; the executor calls nothing under its lock.
 *
 * thread   any, but for each task submit, wait and reuse follow one another
 * since    0.1 */
#include <stdatomic.h>
#include "op_iterator.h"
#include "pipeline/wait/wait.h"

typedef enum mr__task_state {
    MR_TASK_IDLE,
    MR_TASK_QUEUED,
    MR_TASK_RUNNING,
    MR_TASK_WAITED, /* running, and someone sleeps until it is done */
    MR_TASK_DONE
} mr__task_state;

#define MR__LIGHT_TASK 200e-6 /* seconds: some wake-ups */

/* Embedded in what it works on; zeroed memory is an idle task. */
typedef struct mr__task mr__task;
struct mr__task {
    mr__task *next, *prev;       /* the executor's queue */
    void (*run)(mr__task *self); /* set before submitting */
    atomic_int state;
    bool light; /* it is short: less than MR__LIGHT_TASK; set before submitting */
};

/* Queues an idle or done task. With 0 threads it waits for mr__task_wait. Never fails. */
void mr__task_submit(mr_executor *ex, mr__task *t);
/* The same on a thread of its own (for what may block); falls back to the queue if no thread is to
 * be had. */
void mr__task_submit_blocking(mr_executor *ex, mr__task *t);
/* Returns when t is done (an idle one at once): runs it here if nobody has taken it, else spins a
 * little, then sleeps. */
void mr__task_wait(mr_executor *ex, mr__task *t);
/* The same, but gives up when `cancel` (may be NULL) is triggered: false, and t still runs, or is
 * still queued; it must be waited for before it goes. */
bool mr__task_wait_or_cancel(mr_executor *ex, mr__task *t, mr_cancel *cancel);
/* true: t is not queued or running. Acquire: its results may be read. */
bool mr__task_done(mr__task *t);
/* Takes back a queued task (true), which is then idle. */
bool mr__task_withdraw(mr_executor *ex, mr__task *t);
/* One without threads, for when there is no memory for another; shared, never freed. */
mr_executor *mr__executor_none(void);
/* Between them the calling thread counts as one that pulls, while it does not sleep. One of the
 * pool's own, or within another pair, counts already. `before` is what mr__executor_enter gave. */
mr__sleep_watch mr__executor_enter(mr_executor *ex);
void mr__executor_leave(mr_executor *ex, mr__sleep_watch before);
/* CPUs that this process may use. */
int mr__usable_cpus(void);
/* Threads in the pool. */
int mr__executor_threads(const mr_executor *ex);
/* From now on a task that sleeps keeps its place, and no more are under way than there are threads:
 * for a run with a memory limit, which reckons with what each of them may make. */
void mr__executor_keep_places(mr_executor *ex);
#endif
