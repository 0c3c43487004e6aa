/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_STREAM_H
#define MR_TRANSPORT_WIRE_TLS_STREAM_H
/* TLS between a connection and its socket:
 *
 *     connection --sends--> | queue --encrypt--> out, out | --> mr__socket
 *                <--read--- | <--decrypt-- in             | <--
 *
 * OpenSSL reads and writes memory only, so the loops know nothing of it. At most two buffers of
 * ciphertext wait for the socket; what is queued after them is encrypted when one is free.
 *
 * Embedded in its owner.
 *
 * thread   the loop's */
#include "transport/net/loop.h"
#include "transport/wire/tls_certificates.h"

enum { MR__TLS_KEY_BYTES = 32, MR__TLS_ID_BYTES = 16 };

/* The same on both sides, and secret: exported from the session (RFC 8446, 7.5). The id
 * names the session, the key proves to be its peer. */
typedef struct mr__tls_secret {
    uint8_t key[MR__TLS_KEY_BYTES], id[MR__TLS_ID_BYTES];
} mr__tls_secret;

typedef struct mr__tls_stream mr__tls_stream;

typedef struct mr__tls_out {
    mr__send send;
    struct iovec one;
    mr__tls_stream *stream;
    uint8_t *bytes;
    size_t n, size;
    bool is_sent; /* the socket has it */
} mr__tls_out;

struct mr__tls_stream {
    mr__socket *socket;
    struct ssl_st *ssl; /* NULL: closed */
    struct bio_method_st *method;
    bool accepts;
    bool is_open;          /* the peer was verified */
    bool has_begun;        /* the first byte was received */
    bool is_plain;         /* the peer does not speak TLS, but our protocol */
    bool finishes;         /* closes when everything queued is sent */
    bool has_failed;       /* nothing more is encrypted or decrypted */
    char host[256];        /* accepts: "" */
    char peer[256];        /* the subject of its certificate; "": none */
    char refused[640];     /* why its certificate was refused; "": it was not */
    mr__tls_secret secret; /* is_open */
    uint8_t *in;
    size_t from, to, in_size;
    mr__send *first, *last; /* not yet encrypted */
    size_t queued_bytes;
    mr__tls_out out[2], *fill; /* fill: what is written to */
    mr__timer soon;            /* what was queued is encrypted in the next turn */
    mr_status why;             /* a failure to encrypt */
};

/* host: the name that the peer's certificate must have, unless the certificates' own name is set;
 * accepts: not used. Then the socket's `opened` calls mr__tls_stream_begin.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__tls_stream_open(mr__tls_stream *s, mr__tls *tls, bool accepts, const char *host,
                            mr__socket *socket, mr_status *st) MR_NODISCARD;
/* Its socket has closed: what is queued was not sent. Also for a stream that is {0}. */
void mr__tls_stream_close(mr__tls_stream *s);
/* The side that connects speaks first. errors: as mr__tls_stream_read */
mr_code mr__tls_stream_begin(mr__tls_stream *s, mr_status *st) MR_NODISCARD;

/* As `room` and `received` of the socket. */
void *mr__tls_stream_room(mr__tls_stream *s, size_t *n);
void mr__tls_stream_received(mr__tls_stream *s, size_t n);
/* Decrypts up to `most` bytes; *n 0: more must be received first.
 * errors   MR_END: the peer sends no more
 *          MR_PERMISSION_DENIED: one side refuses the other's certificate
 *          MR_FAILED_PRECONDITION: the peer does not speak TLS 1.3
 *          MR_DATA_LOSS: the bytes were altered
 *          After an error mr__tls_stream_finish sends the alert, if there is one. */
mr_code mr__tls_stream_read(mr__tls_stream *s, void *to, size_t most, size_t *n,
                            mr_status *st) MR_NODISCARD;

/* As mr__socket_send; `done` means that the bytes were encrypted. */
void mr__tls_stream_send(mr__tls_stream *s, mr__send *send);
/* Closes the socket after everything queued has been sent. */
void mr__tls_stream_finish(mr__tls_stream *s);
#endif
