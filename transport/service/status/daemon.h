/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_DAEMON_H
#define MR_TRANSPORT_SERVICE_STATUS_DAEMON_H
/* The common part of dispatcher and worker: a loop with a listener, the accepted connections, a
 * status page, and the drain. An alarm or a failure begins the drain, which finishes all
 * connections; those that are not finished after 2 s are dropped.
 *
 * Beyond 1,024 connections, a new one replaces the oldest that has not completed its handshake,
 * else the one that has been silent longest, if for at least 10 s (peers send a Pulse each second)
 * while this process was not suspended, or is refused.
 *
 * thread   the loop's */
#include "transport/net/alarm.h"
#include "transport/net/stranger_log.h"
#include "pipeline/memory/id_map.h"
#include "transport/service/status/status_page.h"
#include "transport/wire/connection.h"

typedef struct mr__daemon mr__daemon;

/* An accepted connection. */
typedef struct mr__guest {
    mr__connection c; /* first */
    struct mr__guest *next, *prev;
    mr__daemon *daemon;
    uint64_t id;
    bool is_known;  /* `ready` was called, so `closed` will be called with tell */
    bool is_ready;  /* the handshake is complete */
    int64_t heard;  /* is_ready: its last message */
    char from[320]; /* its address or process, with its name */
} mr__guest;

struct mr__daemon {
    /* set by the owner; callbacks may be NULL. During the drain only `closed` is called. */
    size_t guest_bytes; /* of a struct that begins with mr__guest */
    Mr__Wire__Role role;
    mr__token token;
    mr__token status_token; /* of the page; without data: none */
    bool may_leave;         /* guests may be lost in any way: this is not logged as a warning */
    void (*ready)(mr__guest *g);
    void (*message)(mr__guest *g, const mr__message *m);
    void (*sent)(mr__guest *g);
    /* The last call, for each guest. tell: it was known, and the daemon is not draining. */
    void (*closed)(mr__guest *g, bool tell);
    void (*drain)(mr__daemon *d);   /* page and listener are closed, the guests not yet */
    bool (*is_busy)(mr__daemon *d); /* the owner still has something open */
    /* private to daemon.c */
    mr__loop *loop;
    mr__listener listener, local;
    bool is_listening, is_listening_locally;
    char local_name[128]; /* of the local socket; "": no local socket */
    mr__guest *newest, *oldest;
    size_t n_guests;
    uint64_t last_id;
    mr__id_map by_id;
    bool said_full;
    mr__stranger_log strangers;
    mr__status_page *page;  /* NULL: none */
    mr__timer finish, look; /* look: each second, at the files of certificates */
    int64_t looked;
    bool is_draining, is_over; /* is_over: drops everything still queued */
    mr_status failed;
    mr__alarm alarm;
};

/* *d must be zero except for the owner's part. Call mr__daemon_end even if this fails.
 * errors   those of mr__loop_open */
mr_code mr__daemon_open(mr__daemon *d, mr__loop_kind kind, mr_status *st) MR_NODISCARD;
/* errors   those of mr__address_resolve and mr__listen */
mr_code mr__daemon_listen(mr__daemon *d, const char *listen, mr_status *st) MR_NODISCARD;
/* Also listens on a local socket, which the handshake announces. If that fails, peers on this host
 * use TCP like all others, for which a token or mr__token.any_user is needed. Then logs whom an
 * address that other hosts reach admits.
 * errors   without either, those of mr__listen */
mr_code mr__daemon_listen_locally(mr__daemon *d, mr_status *st) MR_NODISCARD;
/* Begins the drain when `cancel` is triggered; NULL: never. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__daemon_heed(mr__daemon *d, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* Opens the status page of a daemon of this `kind` at `address`; listen NULL: no page. The rest as
 * in mr__status_page_opts.
 * errors   those of mr__status_page_open */
mr_code mr__daemon_show(mr__daemon *d, const char *listen, const char *kind, const char *address,
                        const mr__status_table *tables, char *(*report)(void *ctx), void *ctx,
                        mr_status *st) MR_NODISCARD;
mr__guest *mr__daemon_guest(const mr__daemon *d, uint64_t id); /* NULL: disconnected */
/* Begins the drain; mr__daemon_serve returns the first failure. */
void mr__daemon_fail(mr__daemon *d, const mr_status *why);
/* Runs the loop until the drain begins, and then until everything is closed.
 * errors   the first failure */
mr_code mr__daemon_serve(mr__daemon *d, mr_status *st) MR_NODISCARD;
/* Closes everything at once, without a drain. false: that failed, and the loop must not be closed.
 */
bool mr__daemon_stop(mr__daemon *d);
/* The last call. closed: closes the loop too. */
void mr__daemon_end(mr__daemon *d, bool closed);
#endif
