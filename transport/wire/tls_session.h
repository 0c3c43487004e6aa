/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_SESSION_H
#define MR_TRANSPORT_WIRE_TLS_SESSION_H
/* A TLS session between memory and memory; its owner moves the bytes:
 *
 *     plaintext --write--> | encrypt | --> out   } to and from a socket: tls_stream.h for those of
 *     plaintext <--read--- | decrypt | <-- in    } a loop, tls_socket.h for others
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pipeline/status.h"
#include "transport/wire/tls_certificates.h"

enum { MR__TLS_KEY_BYTES = 32, MR__TLS_ID_BYTES = 16 };

/* After this number of records, this side encrypts with a new key (a KeyUpdate of RFC 8446, 4.6.3):
 * well before the 2^24.5 that one key of AES-GCM may encrypt (5.5 there). */
enum { MR__TLS_RECORDS = 1 << 24 };

/* A record has up to 16 KiB, and less than 256 bytes besides. Buffers are as large as one until
 * much passes through them. */
enum {
    MR__TLS_RECORD = 16 << 10,
    MR__TLS_WITH_FRAME = MR__TLS_RECORD + 256,
    MR__TLS_SMALL = MR__TLS_WITH_FRAME + 4096,
    MR__TLS_LARGE = 24 * MR__TLS_WITH_FRAME
};

/* The same on both sides, and secret: exported from the session (RFC 8446, 7.5). The id
 * names the session, the key proves to be its peer. */
typedef struct mr__tls_secret {
    uint8_t key[MR__TLS_KEY_BYTES], id[MR__TLS_ID_BYTES];
} mr__tls_secret;

typedef struct mr__tls_bytes {
    uint8_t *bytes; /* owned */
    size_t from, n, size;
} mr__tls_bytes;

typedef struct mr__tls_session {
    struct ssl_st *ssl; /* NULL: closed */
    struct bio_st *bio;
    struct bio_method_st *method;
    bool accepts, peers;
    bool is_open;                       /* the peer was verified */
    bool has_begun;                     /* the first byte was received */
    bool is_tls;                        /* and was of TLS */
    bool is_plain;                      /* the peer does not speak TLS, but our protocol */
    bool has_failed;                    /* nothing more is encrypted or decrypted */
    char host[256];                     /* accepts: "" */
    char peer[256];                     /* the subject of its certificate; "": none */
    char name[128];                     /* its common name; "": none */
    char refused[640];                  /* why its certificate was refused; "": it was not */
    const void *own;                    /* peers: this side's certificate */
    mr__tls_secret secret;              /* is_open */
    uint8_t binding[MR__TLS_KEY_BYTES]; /* is_open: as `secret`, for proofs of a token */
    uint32_t records, most_records;     /* by the present key, and when it is changed */
    mr__tls_bytes in;                   /* received; [from, n) is not yet decrypted */
    mr__tls_bytes out;                  /* encrypted; [from, n) is to be sent */
} mr__tls_session;

/* host: the name that the peer's certificate must have, unless the certificates' own name is set;
 * accepts: not used. If the certificates are those of peers (MR__TLS_PEERS), this side's own
 * certificate suffices too, whatever its name: who shows it has this side's key.
 * errors   MR_RESOURCE_EXHAUSTED; MR_INVALID_ARGUMENT: no name of a certificate */
mr_code mr__tls_session_open(mr__tls_session *s, mr__tls *tls, bool accepts, const char *host,
                             mr_status *st) MR_NODISCARD;
void mr__tls_session_close(mr__tls_session *s); /* also one that is {0} */
/* *to (overwritten) takes over what `from` is, which is then {0}. */
void mr__tls_session_move(mr__tls_session *to, mr__tls_session *from);

/* Where received bytes go, and how many at most; NULL: decrypt first. */
void *mr__tls_session_room(mr__tls_session *s, size_t *n);
void mr__tls_session_received(mr__tls_session *s, size_t n);

/* Continues the handshake; the side that connects speaks first. Then there may be bytes in `out`,
 * also after an error, if there is an alert.
 * errors   MR_PERMISSION_DENIED: one side refuses the other's certificate; `refused` if it is this
 *          one · MR_FAILED_PRECONDITION: the peer does not speak TLS 1.3 */
mr_code mr__tls_session_shake(mr__tls_session *s, mr_status *st) MR_NODISCARD;
/* Decrypts up to `most` bytes; *n 0: more must be received first. Shakes as well.
 * errors   MR_END: the peer sends no more · MR_DATA_LOSS: the bytes were altered · as shake */
mr_code mr__tls_session_read(mr__tls_session *s, void *to, size_t most, size_t *n,
                             mr_status *st) MR_NODISCARD;
/* Encrypts n bytes, at most MR__TLS_RECORD, for which `out` must have room. is_open.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__tls_session_write(mr__tls_session *s, const void *p, size_t n,
                              mr_status *st) MR_NODISCARD;
/* Nothing more is encrypted: tells the peer so, in `out`. */
void mr__tls_session_end(mr__tls_session *s);
#endif
