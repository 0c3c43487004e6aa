/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_RUN_H
#define MR_TRANSPORT_SERVICE_WORKER_RUN_H
/* A worker as it runs: the state machine of worker_streams.h on a loop, with a listener for
 * clients, a connection to the dispatcher that is made again whenever it is lost, and a producer
 * for each stream that is read.
 *
 *     clients <--> | worker_streams.h | <--> dispatcher
 *                           |
 *                       producer.h ...
 *
 * Limits: 1,024 connections of clients, 10 s for a handshake; a client that does not read has no
 * more than 16 MiB and a block of each stream waiting for it, whatever credit it gave. At a memory
 * limit it is the block of each stream alone; the memory shared with clients of this host is an
 * eighth of it, and a stream whose graph does not fit beside the others is refused.
 *
 * thread   one at a time per object */
#include "pipeline/engine/iterator.h"
#include "transport/net/loop.h"
#include "transport/wire/handshake.h"

typedef struct mr__worker_run mr__worker_run;

typedef struct mr__worker_run_opts {
    const char *dispatcher; /* HOST:PORT */
    const char *listen;     /* "127.0.0.1:0"; port 0: a free one */
    const char *status;     /* where the status page is; NULL: there is none */
    mr__token token;        /* borrowed */
    const char *const *tags;
    size_t n_tags;
    mr_executor *executor; /* that streams run on; borrowed */
    int64_t memory_limit;  /* resident bytes of this process, at most; 0: none */
    bool watch;            /* their iterators are, as by mr_iterator_opts.watch */
    mr__loop_kind loop;
    mr_cancel *cancel;           /* triggered: drains and ends */
    void (*draining)(void *ctx); /* the drain begins; NULL: nobody asks */
    void *ctx;
} mr__worker_run_opts;

/* Listens; the dispatcher need not be there yet. Texts of opts are borrowed until it is closed.
 * errors   as mr__address_resolve, mr__listen and mr__status_page_open */
mr_code mr__worker_run_open(mr__worker_run **out, const mr__worker_run_opts *opts,
                            mr_status *st) MR_NODISCARD;
/* Where clients connect, as the dispatcher and they are informed of it. */
const char *mr__worker_run_address(const mr__worker_run *r);
/* NULL: there is none. */
const char *mr__worker_run_status_address(const mr__worker_run *r);
bool mr__worker_run_is_loopback(const mr__worker_run *r);
/* Serves until it is cancelled, or drained by the dispatcher; its streams are given back then.
 * errors   what ended it: MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: the dispatcher's refusal */
mr_code mr__worker_run_serve(mr__worker_run *r, mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
void mr__worker_run_close(mr__worker_run *r);
#endif
