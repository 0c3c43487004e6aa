/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_ADDRESS_H
#define MR_TRANSPORT_NET_ADDRESS_H
/* Addresses of stream sockets: "host:port", "[v6]:port", or "@name", the abstract name of a unix
 * socket, which only processes of the same network namespace reach. */
#include <stdbool.h>
#include <sys/socket.h>
#include "pipeline/status.h"

typedef struct mr__address {
    struct sockaddr_storage to;
    socklen_t size;
    char text[128]; /* numeric: "127.0.0.1:5050" */
} mr__address;

/* Names are resolved by the system, which may take seconds: not for a loop's thread.
 * errors   MR_INVALID_ARGUMENT: not of these forms, a port that is none
 *          MR_NOT_FOUND: no such host; MR_UNAVAILABLE: it could not be looked up now */
mr_code mr__address_resolve(const char *text, mr__address *out, mr_status *st) MR_NODISCARD;
/* Whether text has one of these forms and names a port that somebody can be reached at, which 0 is
 * not; nothing is looked up.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__address_check(const char *text, mr_status *st) MR_NODISCARD;
/* The same for an address to listen at: port 0 is a free one. */
mr_code mr__address_check_form(const char *text, mr_status *st) MR_NODISCARD;
/* The address that the kernel gave, with its text. */
void mr__address_of(const struct sockaddr *from, socklen_t size, mr__address *out);
/* *fd = a socket that listens there, non-blocking; *bound as the kernel has it, with the port that
 * port 0 got.
 * errors   as mr__listen */
mr_code mr__address_listen(const mr__address *at, int *fd, mr__address *bound,
                           mr_status *st) MR_NODISCARD;
/* text = where others reach who listens at `bound`: there, or, if that is all addresses, at the one
 * that the way to `peer` begins at; no packet is sent to find it out.
 * errors   as mr__address_resolve; MR_UNAVAILABLE: there is no way to peer */
mr_code mr__address_reached(const mr__address *bound, const char *peer, char text[128],
                            mr_status *st) MR_NODISCARD;
/* true for 127.0.0.0/8, ::1 and unix sockets. */
bool mr__address_is_loopback(const mr__address *a);
#endif
