/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_SERVER_H
#define MR_TRANSPORT_SERVICE_SERVER_H
/* What the daemons have in common: a loop with a listener, the connections that it accepted, a
 * status page, and the way it all ends: an alarm or a failure begins the drain, in which
 * connections are finished; what is not finished after 2 s is dropped.
 *
 * A newcomer beyond 1,024 connections takes the place of the oldest that has not yet shaken hands,
 * else it is refused.
 *
 * thread   the loop's */
#include "transport/net/alarm.h"
#include "pipeline/memory/id_map.h"
#include "transport/service/status/status_page.h"
#include "transport/wire/connection.h"

typedef struct mr__server mr__server;

/* An accepted connection. */
typedef struct mr__guest {
    mr__connection c; /* first */
    struct mr__guest *next, *prev;
    mr__server *server;
    uint64_t id;
    bool is_known; /* the owner was called with it, and hears when it is closed */
    bool is_ready; /* it has shaken hands */
    char from[128];
} mr__guest;

struct mr__server {
    /* set by the owner; calls may be NULL, and none but `closed` comes in the drain */
    size_t guest_bytes; /* of a struct that begins with mr__guest */
    Mr__Wire__Role role;
    mr__token token;
    bool may_leave; /* guests that are gone are no news */
    void (*ready)(mr__guest *g);
    void (*message)(mr__guest *g, const mr__message *m);
    void (*sent)(mr__guest *g);
    /* The last call, for each guest. tell: it was known, and this is no drain. */
    void (*closed)(mr__guest *g, bool tell);
    void (*drain)(mr__server *s);   /* the page and the listener are closed, the guests not yet */
    bool (*is_busy)(mr__server *s); /* something of the owner's is still open */
    /* the server's */
    mr__loop *loop;
    mr__listener listener, local;
    bool is_listening, is_listening_locally;
    char local_name[64]; /* of the local socket; "": there is none */
    mr__guest *newest, *oldest;
    size_t n_guests;
    uint64_t last_id;
    mr__id_map by_id;
    bool said_full;
    mr__status_page *page; /* NULL: none */
    mr__timer finish;
    bool is_draining, is_over; /* over: what still is queued is dropped */
    mr_status failed;
    mr__alarm alarm;
};

/* The rest of *s is zero but for what the owner set. Whatever comes of it, mr__server_end follows.
 * errors   those of mr__loop_open */
mr_code mr__server_open(mr__server *s, mr__loop_kind kind, mr_status *st) MR_NODISCARD;
/* errors   those of mr__address_resolve and mr__listen */
mr_code mr__server_listen(mr__server *s, const char *listen, mr_status *st) MR_NODISCARD;
/* Listens on a local socket too, which the handshake names. Where that cannot be, peers of this
 * host come as all others. */
void mr__server_listen_locally(mr__server *s);
/* Begins the drain when `cancel` is triggered; NULL: never. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__server_heed(mr__server *s, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* The status page of the `kind` of daemon that is at `address`; listen NULL: none. The rest as in
 * mr__status_page_opts.
 * errors   those of mr__status_page_open */
mr_code mr__server_show(mr__server *s, const char *listen, const char *kind, const char *address,
                        const mr__status_table *tables, char *(*report)(void *ctx), void *ctx,
                        mr_status *st) MR_NODISCARD;
mr__guest *mr__server_guest(const mr__server *s, uint64_t id); /* NULL: it is gone */
/* The drain begins, and this is the failure that the daemon ends with, if it is the first. */
void mr__server_fail(mr__server *s, const mr_status *why);
/* Turns until the drain begins, and then until everything is closed.
 * errors   the failure that it ends with */
mr_code mr__server_serve(mr__server *s, mr_status *st) MR_NODISCARD;
/* Closes what is open, at once, without a drain. false: that failed, and the loop is left. */
bool mr__server_stop(mr__server *s);
/* Last. closed: the loop too. */
void mr__server_end(mr__server *s, bool closed);
#endif
