/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_EXECUTOR_H
#define MR_PIPELINE_ENGINE_EXECUTOR_H
/* The thread pool. A task processes about one block. A thread that needs the result of a task runs
 * it itself if no thread has taken it yet (the helping rule). So a pool never deadlocks, however
 * nested the graph is, and a pool of 0 threads works: every task runs in the thread that waits for
 * it.
 *
 * The pool runs up to one task per thread at once, not counting tasks that sleep: other tasks run
 * meanwhile. Short tasks run only on idle processors: for them the threads that pull count too
 * (mr__executor_enter), because more threads than processors would make all of them take turns.
 *
 *     idle --submit--> queued --taken by a thread or by mr__task_wait--> running --> done
 *
 * Lock order: an op's own lock before the executor's; the executor calls nothing under its lock.
 *
 * thread   any; submit, wait and reuse of one task must not overlap
 * since    0.1 */
#include <stdatomic.h>
#include "op_iterator.h"
#include "pipeline/wait/wait.h"

typedef enum mr__task_state {
    MR_TASK_IDLE,
    MR_TASK_QUEUED,
    MR_TASK_RUNNING,
    MR_TASK_WAITED, /* running, and a thread sleeps until it is done */
    MR_TASK_DONE
} mr__task_state;

#define MR__LIGHT_TASK 200e-6 /* seconds: the time of a few wake-ups */

/* Embedded in the object that it works on; zeroed memory is an idle task. */
typedef struct mr__task mr__task;
struct mr__task {
    mr__task *next, *prev;       /* the executor's queue */
    void (*run)(mr__task *self); /* set before submitting */
    atomic_int state;
    bool light; /* it is short: less than MR__LIGHT_TASK; set before submitting */
};

/* Queues an idle or done task. With 0 threads it runs in mr__task_wait. Never fails. */
void mr__task_submit(mr_executor *ex, mr__task *t);
/* The same on a separate thread, for tasks that may block; falls back to the queue if no thread can
 * be started. */
void mr__task_submit_blocking(mr_executor *ex, mr__task *t);
/* Returns when t is done (at once if it is idle): runs it here if no thread has taken it, else
 * spins briefly, then sleeps. */
void mr__task_wait(mr_executor *ex, mr__task *t);
/* The same, but returns false when `cancel` (may be NULL) is triggered; t is then still running or
 * queued, and must be waited for before its memory is freed. */
bool mr__task_wait_or_cancel(mr_executor *ex, mr__task *t, mr_cancel *cancel);
/* true: t is not queued or running. Acquire: its results may be read. */
bool mr__task_done(mr__task *t);
/* Removes t from the queue; true: it was queued and is now idle. */
bool mr__task_withdraw(mr_executor *ex, mr__task *t);
/* An executor without threads, for when allocating another fails; shared, never freed. */
mr_executor *mr__executor_none(void);
/* Between them the calling thread counts as one that pulls, except while it sleeps. Has no
 * effect on the pool's own threads and within another pair, which count already. `before` is the
 * result of mr__executor_enter. */
mr__sleep_watch mr__executor_enter(mr_executor *ex);
void mr__executor_leave(mr_executor *ex, mr__sleep_watch before);
/* mr__forks() of the process that made it, in which its threads are. */
unsigned mr__executor_forks(const mr_executor *ex);
/* Threads in the pool. */
int mr__executor_threads(const mr_executor *ex);
/* From now on a sleeping task keeps its place, so that no more tasks are started than there are
 * threads: for runs with a memory limit, whose needs include the memory of one task per thread. */
void mr__executor_keep_places(mr_executor *ex);
#endif
