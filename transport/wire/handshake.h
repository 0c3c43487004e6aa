/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_HANDSHAKE_H
#define MR_TRANSPORT_WIRE_HANDSHAKE_H
/* How two peers learn who the other is: the first messages of a connection, as a state machine
 * without I/O.
 *
 *     connects                     accepts
 *     Hello     ----------------->           version, role, nonce
 *               <-----------------  Challenge   version, role, nonce, whether a token is needed
 *     Proof     ----------------->           HMAC over both nonces
 *               <-----------------  Welcome     HMAC over both nonces, by the other one
 *               <-----------------  Refusal     instead of either, before it closes
 *
 * Where a token is set, each side proves that it knows it by HMAC-SHA256 (RFC 2104); the token
 * itself is never sent, and the two directions cannot be mistaken for each other. Without a token
 * the proofs are empty.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "transport/wire/messages.h"

enum { MR__NONCE_BYTES = 32, MR__HMAC_BYTES = 32 };

typedef struct mr__token {
    const void *data; /* NULL: none is needed */
    size_t bytes;
} mr__token;

typedef struct mr__handshake {
    bool accepts, done;
    int step;
    Mr__Wire__Role role, peer_role;
    mr__token token;
    uint8_t own[MR__NONCE_BYTES], peer[MR__NONCE_BYTES];
    char host[128]; /* the peer, for people */
    uint32_t process;
    char local[108]; /* the acceptor's local socket; at the acceptor: what to say */
    bool lends;    /* the acceptor's blocks are sent without a copy; there to be set by the owner */
    bool confirms; /* the one who connects says which blocks are there whole */
} mr__handshake;

/* nonce: MR__NONCE_BYTES fresh random bytes. token is borrowed. local: what the acceptor says of
 * its local socket, "" none. */
void mr__handshake_init(mr__handshake *h, bool accepts, Mr__Wire__Role role, mr__token token,
                        const uint8_t *nonce, const char *local);
/* The first frame of the one who connects; owned, mr_free. */
mr_code mr__handshake_hello(mr__handshake *h, void **frame, size_t *bytes,
                            mr_status *st) MR_NODISCARD;
/* Takes the peer's next message. *frame (owned; NULL: nothing) is to be sent; h->done then says
 * whether the peer has proved itself.
 * errors   the connection must be closed after *frame, if there is one, has been sent:
 *          MR_FAILED_PRECONDITION: another version, or the peer's refusal of ours
 *          MR_PERMISSION_DENIED: another token, or its refusal; MR_DATA_LOSS: not a handshake */
mr_code mr__handshake_take(mr__handshake *h, const mr__message *m, void **frame, size_t *bytes,
                           mr_status *st) MR_NODISCARD;
#endif
