/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_ADDRESS_H
#define MR_TRANSPORT_NET_ADDRESS_H
/* Addresses of stream sockets: "host:port", "[v6]:port", or "@name", the abstract name of a unix
 * socket, which is reachable only within the same network namespace. */
#include <stdbool.h>
#include <sys/socket.h>
#include "pipeline/status.h"

typedef struct mr__address {
    struct sockaddr_storage to;
    socklen_t size;
    char text[128]; /* numeric: "127.0.0.1:5050" */
    char host[256]; /* as it was resolved; "": an address from the kernel, a local socket */
} mr__address;

/* Resolves names with the system's resolver, which may take seconds: do not call it in a loop's
 * thread.
 * errors   MR_INVALID_ARGUMENT: not of these forms, an invalid port
 *          MR_NOT_FOUND: no such host; MR_UNAVAILABLE: the name cannot be resolved now */
mr_code mr__address_resolve(const char *text, mr__address *out, mr_status *st) MR_NODISCARD;
/* Checks that text has one of these forms and a port that a peer can connect to (not 0); resolves
 * nothing.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__address_check(const char *text, mr_status *st) MR_NODISCARD;
/* The same for an address to listen on: port 0 means a free one. */
mr_code mr__address_check_form(const char *text, mr_status *st) MR_NODISCARD;
/* *out = an address from the kernel, with its text. */
void mr__address_of(const struct sockaddr *from, socklen_t size, mr__address *out);
/* *fd = a non-blocking socket that listens there; *bound = the address as bound, with the port that
 * replaced port 0.
 * errors   as mr__listen */
mr_code mr__address_listen(const mr__address *at, int *fd, mr__address *bound,
                           mr_status *st) MR_NODISCARD;
/* text = the address at which others reach a listener on `bound`: `bound` itself, or, if that is
 * the wildcard address, the local address of the route to `peer`. Sends no packet.
 * errors   as mr__address_resolve; MR_UNAVAILABLE: no route to peer */
mr_code mr__address_reached(const mr__address *bound, const char *peer, char text[128],
                            mr_status *st) MR_NODISCARD;
/* *out = the abstract name of a new local socket, which cannot be guessed.
 * errors   MR_INTERNAL: no random bytes */
mr_code mr__address_new_local(mr__address *out, mr_status *st) MR_NODISCARD;
/* True if the process at the other end of the local socket fd belongs to this process's user, or to
 * root; *user = its user (-1: unknown). */
bool mr__address_is_own_user(int fd, int64_t *user);
/* True for 127.0.0.0/8, ::1 and unix sockets. */
bool mr__address_is_loopback(const mr__address *a);
#endif
