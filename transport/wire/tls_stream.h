/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_STREAM_H
#define MR_TRANSPORT_WIRE_TLS_STREAM_H
/* TLS between a connection and its socket:
 *
 *     connection --sends--> | queue --encrypt--> out, out | --> mr__socket
 *                <--read--- | <--decrypt-- in             | <--
 *
 * The session reads and writes memory only, so the loops know nothing of it. At most two buffers of
 * ciphertext wait for the socket; what is queued after them is encrypted when one is free.
 *
 * Embedded in its owner.
 *
 * thread   the loop's */
#include "transport/net/loop.h"
#include "transport/wire/tls_session.h"

typedef struct mr__tls_stream {
    mr__socket *socket;
    mr__tls_session session;
    bool finishes;          /* closes when everything queued is sent */
    mr__send *first, *last; /* not yet encrypted */
    size_t queued_bytes;
    mr__tls_bytes sending; /* encrypted, and with the socket, if is_sending */
    bool is_sending;
    mr__send send;
    struct iovec one;
    mr__timer soon; /* what was queued is encrypted in the next turn */
    mr_status why;  /* a failure to encrypt */
} mr__tls_stream;

/* As mr__tls_session_open. Then the socket's `opened` calls mr__tls_stream_begin. */
mr_code mr__tls_stream_open(mr__tls_stream *s, mr__tls *tls, bool accepts, const char *host,
                            mr__socket *socket, mr_status *st) MR_NODISCARD;
/* The same for a session that is open, which it takes over: there may be bytes to read at once, by
 * mr__tls_stream_read in the socket's `opened`, before any are received. */
void mr__tls_stream_adopt(mr__tls_stream *s, mr__tls_session *session, mr__socket *socket);
/* Its socket has closed: what is queued was not sent. Also for a stream that is {0}. */
void mr__tls_stream_close(mr__tls_stream *s);
/* The side that connects speaks first. errors: as mr__tls_stream_read */
mr_code mr__tls_stream_begin(mr__tls_stream *s, mr_status *st) MR_NODISCARD;

/* As `room` and `received` of the socket. */
void *mr__tls_stream_room(mr__tls_stream *s, size_t *n);
void mr__tls_stream_received(mr__tls_stream *s, size_t n);
/* As mr__tls_session_read. After an error mr__tls_stream_finish sends the alert, if one is due. */
mr_code mr__tls_stream_read(mr__tls_stream *s, void *to, size_t most, size_t *n,
                            mr_status *st) MR_NODISCARD;

/* As mr__socket_send; `done` means that the bytes were encrypted. */
void mr__tls_stream_send(mr__tls_stream *s, mr__send *send);
/* Closes the socket after everything queued has been sent. */
void mr__tls_stream_finish(mr__tls_stream *s);
#endif
