/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_DAEMON_THREAD_H
#define MR_TRANSPORT_SERVICE_STATUS_DAEMON_THREAD_H
/* Runs a daemon once, in the caller's thread (run) or in its own (start, wait), until `stop` is
 * triggered. In a forked child all calls with a status fail, and mr__daemon_thread_is_here is false.
 *
 * thread   mr__daemon_thread_stop any, also a signal handler; the rest one at a time per object */
#include <pthread.h>
#include "pipeline/wait/cancel.h"

typedef struct mr__daemon_thread {
    /* set by the owner */
    mr_code (*serve)(void *ctx, mr_status *st); /* until `stop` is triggered */
    void *ctx;
    const char *what; /* "dispatcher" */
    unsigned forks;   /* mr__forks() */
    /* private to daemon_thread.c */
    mr_cancel *stop;
    pthread_t thread;
    bool has_run, is_running; /* is_running: `thread` must be joined */
    mr_status result;
} mr__daemon_thread;

/* Creates t->stop, which `parent` (NULL: none) also triggers. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__daemon_thread_init(mr__daemon_thread *t, mr_cancel *parent, mr_status *st) MR_NODISCARD;
/* Serves in this thread. errors those of serve; MR_FAILED_PRECONDITION: it has run already */
mr_code mr__daemon_thread_run(mr__daemon_thread *t, mr_status *st) MR_NODISCARD;
/* Serves in its own thread. errors MR_RESOURCE_EXHAUSTED; MR_FAILED_PRECONDITION: as above */
mr_code mr__daemon_thread_start(mr__daemon_thread *t, mr_status *st) MR_NODISCARD;
/* Waits until that thread ends. errors those of serve; MR_FAILED_PRECONDITION: not started */
mr_code mr__daemon_thread_wait(mr__daemon_thread *t, mr_status *st) MR_NODISCARD;
void mr__daemon_thread_stop(mr__daemon_thread *t);
/* false: it belongs to the process that this one was forked from. */
bool mr__daemon_thread_is_here(const mr__daemon_thread *t);
/* Stops it and waits until it ends. */
void mr__daemon_thread_end(mr__daemon_thread *t);
/* The last call, once nothing refers to t->stop. */
void mr__daemon_thread_reset(mr__daemon_thread *t);
#endif
