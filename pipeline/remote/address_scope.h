/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_ADDRESS_SCOPE_H
#define MR_PIPELINE_REMOTE_ADDRESS_SCOPE_H
/* Which addresses a worker of a service connects to for its clients. A name below a --root may lead
 * to an address inside the worker's network that its operator did not mean: such addresses must be
 * named by a --root as well.
 *
 * source   RFC 6890 (special-purpose addresses), RFC 6052 and RFC 3056 (IPv4 inside IPv6)
 * thread   any */
#include <stdbool.h>
#include <sys/socket.h>

/* Not loopback, link-local, private, shared, multicast or reserved; an IPv6 address that stands for
 * an IPv4 address is what that is. */
bool mr__address_is_public(const struct sockaddr *a);
/* The host of a URL, of n bytes, is this address: written as a number, or "localhost". */
bool mr__address_is_named(const struct sockaddr *a, const char *host, size_t n);
/* A proxy is set, which connects instead of this process. */
bool mr__proxy_is_set(void);
#endif
