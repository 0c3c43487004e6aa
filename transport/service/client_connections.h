/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DIAL_H
#define MR_TRANSPORT_SERVICE_DIAL_H
/* A client's connections: one to the dispatcher, and one to each worker, by its address. Names are
 * looked up in a thread. A worker says in the handshake where this host reaches it; one that can be
 * reached there is talked to there, and shares memory: blocks lie in it, and nothing goes over the
 * network.
 *
 * thread   the loop's */
#include "transport/net/lookup.h"
#include "transport/wire/connection.h"

/* address NULL: the dispatcher. One that was closed by mr__dial_close is not heard of again. */
typedef struct mr__dial_out {
    void (*opened)(void *ctx, const char *address);
    void (*message)(void *ctx, const char *address, const mr__message *m);
    /* payload is taken over; an error closes the connection */
    mr_code (*block)(void *ctx, const char *address, const mr__incoming *head, mr_buffer *payload,
                     mr_status *st);
    void (*closed)(void *ctx, const char *address, const mr_status *why); /* or never opened */
} mr__dial_out;

typedef enum mr__transfer {
    MR__TRANSFER_AUTO, /* shared memory with workers of this host */
    MR__TRANSFER_TCP,
    MR__TRANSFER_SHARED_MEMORY /* a worker elsewhere is refused: MR_INVALID_ARGUMENT */
} mr__transfer;

typedef struct mr__dial mr__dial;
typedef struct mr__dials {
    mr__loop *loop;
    const char *service;
    mr__transfer transfer;
    mr__token token;
    const mr__dial_out *out;
    void *ctx;
    mr__dial *first;
} mr__dials;

/* service (the dispatcher's address) and token are borrowed. */
void mr__dials_init(mr__dials *d, mr__loop *l, const char *service, mr__transfer transfer,
                    mr__token token, const mr__dial_out *out, void *ctx);
/* `opened` or `closed` follows. There is none to that address. */
void mr__dial_open(mr__dials *d, const char *address);
void mr__dial_send(mr__dials *d, const char *address, const mr__message *m);
void mr__dial_close(mr__dials *d, const char *address);
/* Gives blocks back to workers that they share memory with: some, or (all) each that went. */
void mr__dials_give_back(mr__dials *d, bool all);
/* Nothing is heard of any more; what is queued is sent, or dropped. The loop turns until all are
 * closed, and then once more. */
void mr__dials_finish(mr__dials *d);
void mr__dials_close(mr__dials *d);
bool mr__dials_are_closed(const mr__dials *d);
#endif
