/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_HANDSHAKE_H
#define MR_TRANSPORT_WIRE_HANDSHAKE_H
/* Mutual authentication of two peers: the first messages of a connection, as a state machine
 * without I/O.
 *
 *     connects                     accepts
 *     Hello     ----------------->           version, role, nonce
 *               <-----------------  Challenge   version, role, nonce, token required or not
 *     Proof     ----------------->           HMAC over both nonces
 *               <-----------------  Welcome     HMAC over both nonces, by the acceptor
 *               <-----------------  Refusal     instead of either, before it closes
 *
 * If a token is set, each side proves by HMAC-SHA256 (RFC 2104) that it knows the token; the token
 * itself is never sent, and a proof of one direction is invalid in the other. Without a token the
 * proofs are empty, and the acceptor refuses a peer whose user it cannot tell, or that belongs to
 * another user, in place of Welcome; connection.h decides this. An acceptor may know several
 * tokens, each with a name; it continues with the one that the peer has proven to know.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include "transport/wire/messages.h"
#include "transport/wire/tls_certificates.h"

enum { MR__NONCE_BYTES = 32, MR__HMAC_BYTES = 32, MR__NAME_BYTES = 128 };

/* The tokens of an acceptor that tells its peers apart: the one that a peer proves to know says
 * its name. A name may have several. */
typedef struct mr__token_name {
    const char *name;
    const void *data;
    size_t bytes;
} mr__token_name;

typedef struct mr__token {
    const void *data; /* NULL: no token */
    size_t bytes;
    const mr__token_name *names; /* NULL: the token has no name; else `data` is that of names[0] */
    size_t n_names;
    bool any_user;          /* without a token: peers of any user, and from any host, are trusted */
    struct mr__tls *tls;    /* borrowed; NULL: connections are in the clear */
    const uint8_t *session; /* on a local socket: the id of the TLS session whose key `data` is;
                               MR__TLS_ID_BYTES, borrowed; NULL: none */
} mr__token;

/* Whether peers that completed the handshake are known: they have the token or a certificate, or
 * belong to this process's user. */
static inline bool mr__token_tells_peers(mr__token t)
{
    return t.data || !t.any_user || mr__tls_is_mutual(t.tls);
}

/* out = the proof that a side knows the token, which has data: an HMAC-SHA256 over `word`, which
 * names the side (at most 16 characters), and the nonces of the two. binding (NULL: none): the
 * MR__TLS_KEY_BYTES of the TLS session in which the proof is valid; who passes it on to another
 * session proves nothing. false: OpenSSL failed. */
bool mr__token_prove(mr__token t, const char *word, const uint8_t *of_connecting,
                     const uint8_t *of_accepting, const uint8_t *binding,
                     uint8_t out[MR__HMAC_BYTES]) MR_NODISCARD;
/* Whether `proof` is that, in constant time. */
bool mr__token_is_proven(mr__token t, const char *word, const uint8_t *of_connecting,
                         const uint8_t *of_accepting, const uint8_t *binding,
                         const uint8_t proof[MR__HMAC_BYTES]) MR_NODISCARD;

typedef struct mr__handshake {
    bool accepts, done;
    int step;
    Mr__Wire__Role role, peer_role;
    mr__token token;
    uint8_t own[MR__NONCE_BYTES], peer[MR__NONCE_BYTES];
    char host[128];            /* the peer, human-readable */
    char name[MR__NAME_BYTES]; /* the peer's, of its token or certificate; "": it has shown none */
    uint32_t process;
    char local[108]; /* the acceptor's local socket; set by the acceptor, sent to the peer */
    const char
        *refusal;    /* the acceptor's reason to refuse this peer; NULL: none. Set by its owner */
    bool challenged; /* the acceptor has sent Challenge */
    bool lends;      /* the acceptor sends blocks without a copy; set by the acceptor's owner */
    bool no_memory;  /* the connecting side shares no memory; set by its owner */
    bool confirms;   /* the connecting side confirms which blocks it has received whole */
} mr__handshake;

/* nonce: MR__NONCE_BYTES fresh random bytes. token is borrowed. local: the acceptor's local socket,
 * "" none. */
void mr__handshake_init(mr__handshake *h, bool accepts, Mr__Wire__Role role, mr__token token,
                        const uint8_t *nonce, const char *local);
/* *frame = the refusal of a peer with which there is no handshake; owned, mr_free.
 * returns  code, with the message in st */
mr_code mr__handshake_refuse(mr__handshake *h, void **frame, size_t *bytes, mr_code code,
                             const char *message, mr_status *st);
/* The first frame of the connecting side; owned, mr_free. */
mr_code mr__handshake_hello(mr__handshake *h, void **frame, size_t *bytes,
                            mr_status *st) MR_NODISCARD;
/* Takes the peer's next message. *frame (owned; NULL: nothing) must be sent. h->done is true once
 * the peer has authenticated.
 * errors   the connection must be closed after *frame, if not NULL, has been sent:
 *          MR_FAILED_PRECONDITION: another version, or the peer's refusal of ours
 *          MR_PERMISSION_DENIED: another token, or its refusal; MR_DATA_LOSS: not a handshake */
mr_code mr__handshake_take(mr__handshake *h, const mr__message *m, void **frame, size_t *bytes,
                           mr_status *st) MR_NODISCARD;
#endif
