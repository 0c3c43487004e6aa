/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_RUN_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_RUN_H
/* The dispatcher as it runs: the state machine of dispatcher.h on a loop, with a listener, its
 * connections, and the account.
 *
 *     connections <--> | dispatcher.h | --record--> account.h
 *                 <-- held until the record is durable --'
 *
 * Limits: 1,024 connections (a newcomer beyond them takes the place of the oldest that has not yet
 * shaken hands, else it is closed), 10 s for a handshake, 64 MiB of messages that wait for a peer
 * which does not read, one report at a time for a peer that asks. What a limit or a peer's fault
 * ends is one line of the log.
 *
 * thread   one at a time per object */
#include "pipeline/wait/cancel.h"
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/net/loop.h"
#include "transport/wire/handshake.h"

typedef struct mr__dispatcher_run mr__dispatcher_run;

typedef struct mr__dispatcher_run_opts {
    const char *listen;         /* "127.0.0.1:5050"; port 0: a free one */
    const char *state;          /* the account's directory; NULL: in memory */
    const char *status;         /* where the status page is; NULL: there is none */
    mr__token token;            /* borrowed */
    const char *const *workers; /* static modes, as in mr__dispatcher_opts */
    size_t n_workers;
    mr__loop_kind loop;
    mr_cancel *cancel; /* triggered: drains and ends */
    /* The drain begins; NULL: nobody asks. */
    void (*draining)(void *ctx);
    void *ctx;
    /* How many streams a job is cut into, as in mr__dispatcher_opts. */
    mr_code (*streams)(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st);
} mr__dispatcher_run_opts;

/* Reads the account and listens; texts of opts are borrowed until it is closed.
 * errors   as mr__account_open, mr__address_resolve, mr__listen and mr__status_page_open */
mr_code mr__dispatcher_run_open(mr__dispatcher_run **out, const mr__dispatcher_run_opts *opts,
                                mr_status *st) MR_NODISCARD;
const char *mr__dispatcher_run_address(const mr__dispatcher_run *r); /* as bound */
/* NULL: there is none. */
const char *mr__dispatcher_run_status_address(const mr__dispatcher_run *r);
/* Serves until it is cancelled; then all that was said is durable, and all connections
 * are closed.
 * errors   what ended it, or the account's where it could not be made durable */
mr_code mr__dispatcher_run_serve(mr__dispatcher_run *r, mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
void mr__dispatcher_run_close(mr__dispatcher_run *r);
#endif
