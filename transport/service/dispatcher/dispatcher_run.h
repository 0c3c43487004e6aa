/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_RUN_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_RUN_H
/* Runs the dispatcher: the state machine of dispatcher.h on a loop, with a listener, its
 * connections, and the account.
 *
 *     connections <--> | dispatcher.h | --record--> account.h
 *                 <-- held until the record is durable --'
 *
 * Limits: 1,024 connections (a new one beyond them replaces the oldest that has not completed its
 * handshake, else it is closed), 10 s for a handshake, 64 MiB of messages queued for a peer that
 * does not read, one report at a time for each peer. A connection closed because of a limit or an
 * error of the peer is logged with one line.
 *
 * thread   one at a time per object */
#include "pipeline/wait/cancel.h"
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/net/loop.h"
#include "transport/wire/handshake.h"

typedef struct mr__dispatcher_run mr__dispatcher_run;

typedef struct mr__dispatcher_run_opts {
    const char *listen;              /* "127.0.0.1:5050"; port 0: a free one */
    const char *state;               /* the account's directory; NULL: in memory */
    const char *status;              /* HOST:PORT of the status page; NULL: no page */
    mr__token token;                 /* borrowed */
    mr__token status_token;          /* of the page; borrowed */
    bool insecure;                   /* as mr__check_secure */
    const char *const *workers;      /* static modes, as in mr__dispatcher_opts */
    double min_workers, max_workers; /* as mr__dispatcher_opts */
    bool no_balance;                 /* as mr__dispatcher_opts */
    bool names_only;                 /* as mr__dispatcher_opts; the token or TLS says names */
    const char *const *operators;    /* the same */
    size_t n_operators;
    size_t n_workers;
    mr__loop_kind loop;
    mr_cancel *cancel; /* triggered: drains and ends */
    /* Called when the drain begins; NULL: none. */
    void (*draining)(void *ctx);
    void *ctx;
    /* The number of streams that a job is cut into, as in mr__dispatcher_opts. */
    mr_code (*streams)(void *ctx, const Mr__Wire__Job *job, uint32_t *n, mr_status *st);
} mr__dispatcher_run_opts;

/* Reads the account and listens; strings of opts are borrowed until it is closed.
 * errors   as mr__account_open, mr__address_resolve, mr__listen and mr__status_page_open */
mr_code mr__dispatcher_run_open(mr__dispatcher_run **out, const mr__dispatcher_run_opts *opts,
                                mr_status *st) MR_NODISCARD;
const char *mr__dispatcher_run_address(const mr__dispatcher_run *r); /* as bound */
/* NULL: no page. */
const char *mr__dispatcher_run_status_address(const mr__dispatcher_run *r);
/* Serves until it is cancelled; then everything that was sent is durable, and all connections are
 * closed.
 * errors   the failure that ended it, or the account's if it could not be made durable */
mr_code mr__dispatcher_run_serve(mr__dispatcher_run *r, mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
void mr__dispatcher_run_close(mr__dispatcher_run *r);
#endif
