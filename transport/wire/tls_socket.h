/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_SOCKET_H
#define MR_TRANSPORT_WIRE_TLS_SOCKET_H
/* A TLS session over a nonblocking socket that no loop serves. What was encrypted and not yet
 * accepted by the socket is the session's `out`.
 *
 * thread   one at a time per session */
#include <sys/types.h>

#include "transport/wire/tls_session.h"

/* Sends bytes[*from, n) in the clear, as far as the socket accepts them, and moves *from. 0, or an
 * error number; EAGAIN: some are left. */
int mr__plain_socket_send(int fd, const void *bytes, size_t *from, size_t n);

/* Whether there is something to flush. */
static inline bool mr__tls_socket_owes(const mr__tls_session *s)
{
    return s->out.from < s->out.n;
}
/* Sends as much of it as the socket accepts. 0, or an error number; EAGAIN: some is left. */
int mr__tls_socket_flush(mr__tls_session *s, int fd);
/* Encrypts and sends up to n bytes, but none while something is left from earlier calls. is_open.
 * *err: as above, of what is left then.
 * returns  the number of bytes that were encrypted */
size_t mr__tls_socket_send(mr__tls_session *s, int fd, const void *p, size_t n, int *err);
/* Receives n bytes, or all that have come; *got less than n: the socket has no more for now. The
 * session may then have something to flush.
 * errors   MR_UNAVAILABLE: the peer closed the socket, or what broke it · those of
 *          mr__tls_session_read; *got bytes came before it */
mr_code mr__tls_socket_receive(mr__tls_session *s, int fd, void *to, size_t n, size_t *got,
                               mr_status *st) MR_NODISCARD;
#endif
