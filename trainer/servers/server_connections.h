/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_SERVER_CONNECTIONS_H
#define MR_TRAINER_SERVERS_SERVER_CONNECTIONS_H
/* Connections of a client to its servers, with at most one pending call on each. Instead of using
 * callbacks, the caller runs the loop, then inspects the connections.
 *
 * thread   one at a time per loop */
#include "pipeline/wait/cancel.h"
#include "trainer/servers/server_call.h"
#include "transport/net/lookup.h"

typedef struct mr__server_connections mr__server_connections;

typedef enum mr__server_state {
    MR__SERVER_AWAY, /* not connected; `why` says how the last connection ended */
    MR__SERVER_DIALING,
    MR__SERVER_READY
} mr__server_state;

typedef struct mr__server_connection {
    mr__connection c; /* first */
    mr__server_connections *all;
    mr__server_state state;
    mr__lookup *lookup; /* DIALING: the name lookup, before there is a connection; NULL: none */
    bool is_waiting;    /* for the answer to call `number` */
    bool has_answer;
    uint64_t number;   /* of the last call */
    mr__call answer;   /* with has_answer */
    const char *what;  /* "parameter server" */
    size_t index;      /* within that kind */
    char address[256]; /* as configured */
    int64_t again_ns;  /* earliest time of the next attempt */
    mr_status why;
} mr__server_connection;

struct mr__server_connections {
    mr__loop *loop;
    mr_cancel *cancel;   /* NULL: none */
    Mr__Wire__Role role; /* of the caller: COORDINATOR, or TRAINER for a worker */
    mr__token token;
    uint64_t job;
    mr__server_connection *v;
    size_t n;
    bool has_lost; /* one that was needed */
};

/* p must not move while it is open.
 * errors   MR_INVALID_ARGUMENT: no address · MR_RESOURCE_EXHAUSTED · those of the loop */
mr_code mr__server_connections_open(mr__server_connections *p, size_t n,
                                    mr_status *st) MR_NODISCARD;
/* `what` is static text. */
mr_code mr__server_connection_name(mr__server_connection *p, const char *what, size_t index,
                                   const char *address, mr_status *st) MR_NODISCARD;
/* Closes the connections; if `finish` is set, after queued data have been sent. */
void mr__server_connections_close(mr__server_connections *p, bool finish);

/* Dials the servers of [from, to) that are away and due. Names are looked up asynchronously.
 * errors   MR_RESOURCE_EXHAUSTED, ... */
mr_code mr__server_connections_dial(mr__server_connections *p, size_t from, size_t to,
                                    mr_status *st) MR_NODISCARD;
/* One iteration of the loop, of at most 100 ms. errors MR_CANCELLED · the loop's */
mr_code mr__server_connections_turn(mr__server_connections *p, mr_status *st) MR_NODISCARD;
/* The server must be ready and have no pending call; an earlier answer is dropped.
 * errors   as mr__call_send */
mr_code mr__server_connection_call(mr__server_connections *all, mr__server_connection *p,
                                   mr__call_kind kind, const json_t *text, const float *values,
                                   size_t n, mr_status *st) MR_NODISCARD;
/* Runs the loop until all of [0, n) have answered; answers stay until the next call.
 * errors   MR_UNAVAILABLE: one is lost; names it · the error that one of them answered */
mr_code mr__server_connections_await(mr__server_connections *all, size_t n,
                                     mr_status *st) MR_NODISCARD;
/* MR_OK while [0, n) are connected. errors MR_UNAVAILABLE: names the first that is not */
mr_code mr__server_connections_check(mr__server_connections *all, size_t n,
                                     mr_status *st) MR_NODISCARD;
/* Dials until [from, to) are ready (any: at least one), for at most `seconds`.
 * errors   MR_DEADLINE_EXCEEDED: names a missing one · MR_CANCELLED · MR_PERMISSION_DENIED,
 *          ...: it refused */
mr_code mr__server_connections_gather(mr__server_connections *all, size_t from, size_t to, bool any,
                                      double seconds, mr_status *st) MR_NODISCARD;
#endif
