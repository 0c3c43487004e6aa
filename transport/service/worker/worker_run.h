/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_WORKER_RUN_H
#define MR_TRANSPORT_SERVICE_WORKER_WORKER_RUN_H
/* Runs a worker: the state machine of worker_streams.h on a loop, with a listener for clients, a
 * connection to the dispatcher that is re-established whenever it is lost, and a producer for each
 * stream that is read.
 *
 *     clients <--> | worker_streams.h | <--> dispatcher
 *                           |
 *                       producer.h ...
 *
 * Limits: 1,024 connections of clients, 10 s for a handshake; for a client that does not read, at
 * most 16 MiB plus a block of each stream are queued, whatever its credit. With a memory limit, it
 * is only the block of each stream; the memory shared with clients on this host is an eighth of
 * the limit, and a stream whose graph does not fit besides the others is refused.
 *
 * thread   one at a time per object */
#include "pipeline/engine/iterator.h"
#include "transport/net/loop.h"
#include "transport/wire/handshake.h"

typedef struct mr__worker_run mr__worker_run;

typedef struct mr__worker_run_opts {
    const char *dispatcher; /* HOST:PORT */
    const char *listen;     /* "127.0.0.1:0"; port 0: a free one */
    const char *status;     /* HOST:PORT of the status page; NULL: no page */
    mr__token token;        /* borrowed */
    mr__token status_token; /* of the page; borrowed */
    const char *const *tags;
    size_t n_tags;
    mr_executor *executor; /* that streams run on; borrowed */
    int64_t memory_limit;  /* maximum resident bytes of this process; 0: no limit */
    bool watch;            /* mr_iterator_opts.watch of the streams' iterators */
    mr__loop_kind loop;
    mr_cancel *cancel;           /* triggered: drains and ends */
    void (*draining)(void *ctx); /* called when the drain begins; NULL: none */
    void (*ready)(void *ctx); /* called once, when the dispatcher has first accepted it; or NULL */
    void *ctx;
} mr__worker_run_opts;

/* Listens; the dispatcher need not run yet. Strings of opts are borrowed until it is closed.
 * errors   as mr__address_resolve, mr__listen and mr__status_page_open */
mr_code mr__worker_run_open(mr__worker_run **out, const mr__worker_run_opts *opts,
                            mr_status *st) MR_NODISCARD;
/* The address for clients, as announced to them and to the dispatcher. */
const char *mr__worker_run_address(const mr__worker_run *r);
/* NULL: no page. */
const char *mr__worker_run_status_address(const mr__worker_run *r);
bool mr__worker_run_is_loopback(const mr__worker_run *r);
/* Serves until it is cancelled or drained by the dispatcher, and then returns its streams.
 * errors   the failure that ended it: MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: the
 *          dispatcher's refusal */
mr_code mr__worker_run_serve(mr__worker_run *r, mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
void mr__worker_run_close(mr__worker_run *r);
#endif
