/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_CONNECTIONS_H
#define MR_TRANSPORT_SERVICE_CLIENT_CONNECTIONS_H
/* The connections of a client: one to the dispatcher, and one to each worker, by its address. Names
 * are resolved in a thread. In the handshake a worker names its local socket. If that can be
 * reached, it replaces the TCP connection: the worker is on this host and shares memory that
 * contains its blocks.
 *
 * thread   the loop's */
#include "transport/net/lookup.h"
#include "transport/wire/connection.h"

/* address NULL: the dispatcher. Nothing is called for a connection after
 * mr__client_connections_close. */
typedef struct mr__client_connections_out {
    void (*opened)(void *ctx, const char *address);
    void (*message)(void *ctx, const char *address, const mr__message *m);
    /* payload is taken over; an error closes the connection */
    mr_code (*block)(void *ctx, const char *address, const mr__incoming *head, mr_buffer *payload,
                     mr_status *st);
    void (*closed)(void *ctx, const char *address,
                   const mr_status *why); /* also if it never opened */
} mr__client_connections_out;

typedef enum mr__transfer {
    MR__TRANSFER_AUTO, /* shared memory with workers on this host */
    MR__TRANSFER_TCP,
    MR__TRANSFER_SHARED_MEMORY /* a worker on another host is refused: MR_INVALID_ARGUMENT */
} mr__transfer;

typedef struct mr__client_connection mr__client_connection;
typedef struct mr__client_connections {
    mr__loop *loop;
    const char *service;
    mr__transfer transfer;
    mr__token token;
    const mr__client_connections_out *out;
    void *ctx;
    mr__client_connection *first;
} mr__client_connections;

/* service (the dispatcher's address) and token are borrowed. */
void mr__client_connections_init(mr__client_connections *set, mr__loop *l, const char *service,
                                 mr__transfer transfer, mr__token token,
                                 const mr__client_connections_out *out, void *ctx);
/* There must be no connection to that address yet; `opened` or `closed` follows. */
void mr__client_connections_open(mr__client_connections *set, const char *address);
void mr__client_connections_send(mr__client_connections *set, const char *address,
                                 const mr__message *m);
void mr__client_connections_close(mr__client_connections *set, const char *address);
/* Returns blocks in shared memory to their workers, if they justify a message, or `all`. */
void mr__client_connections_give_back(mr__client_connections *set, bool all);
/* No more calls follow; what is queued is sent (close_all: dropped). Turn the loop until
 * mr__client_connections_are_closed, and then one more time. */
void mr__client_connections_finish(mr__client_connections *set);
void mr__client_connections_close_all(mr__client_connections *set);
bool mr__client_connections_are_closed(const mr__client_connections *set);
#endif
