/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_CERTIFICATES_H
#define MR_TRANSPORT_WIRE_TLS_CERTIFICATES_H
/* The certificates of a process, from which its connections are made. They are read again when a
 * file changes, also if a symbolic link on its path does; a file that cannot be used leaves the old
 * certificates in place. Connections keep those that they began with.
 *
 * thread   one at a time per object; mr__tls_hang_up any */
#include <stddef.h>
#include <stdint.h>

#include "pipeline/status.h"
#include "transport/wire/tls.h"

typedef struct mr__tls mr__tls;

/* Peers do both, have one certificate for both, and verify each other: without a client_ca those
 * that connect must have a certificate of `ca`. A process without a certificate has no peers by
 * TLS. */
enum { MR__TLS_ACCEPTS = 1, MR__TLS_CONNECTS = 2, MR__TLS_PEERS = 7 };

/* *out = those of opts (NULL: none are set) and the environment, for a process that does what
 * `sides` says; NULL: it does neither by TLS. Owned, mr__tls_free.
 * errors   MR_INVALID_ARGUMENT: an option is missing, or a file cannot be used; the certificate has
 *          expired; the message begins with the option
 *          MR_NOT_FOUND, MR_FAILED_PRECONDITION: no libssl; MR_RESOURCE_EXHAUSTED */
mr_code mr__tls_open(mr__tls **out, const mr_tls_opts *opts, int sides, mr_status *st) MR_NODISCARD;
void mr__tls_free(mr__tls *t); /* NULL: nothing */

/* A copy of o that lives as long as the process; equal options have the same. NULL: out of memory.
 * thread any */
const mr_tls_opts *mr__tls_opts_keep(const mr_tls_opts *o);

/* These may be called for NULL. */
bool mr__tls_accepts(const mr__tls *t);
bool mr__tls_connects(const mr__tls *t);
bool mr__tls_is_mutual(const mr__tls *t); /* accepts only peers that have a certificate */
bool mr__tls_is_of_peers(const mr__tls *t);
int64_t mr__tls_expiry(const mr__tls *t); /* of the certificate, in Unix time; 0: none */

/* *cert, *key = what these files contained when they were read; owned, mr_free. *number changes
 * when they are read again. t accepts.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__tls_texts(const mr__tls *t, char **cert, char **key, unsigned *number,
                      mr_status *st) MR_NODISCARD;
unsigned mr__tls_number(const mr__tls *t);

/* Reads files that have changed, at most once a second, or at once after mr__tls_hang_up. Logs
 * what happened, and seven days ahead that the certificate expires. now_ns: of the monotonic
 * clock. */
void mr__tls_look(mr__tls *t, int64_t now_ns);
/* All are to be read again, changed or not. thread any, and a signal handler */
void mr__tls_hang_up(void);

/* For the connections; borrowed. */
void *mr__tls_context(const mr__tls *t, bool accepts);
const char *mr__tls_name(const mr__tls *t); /* NULL: the host's */

/* text = what a certificate is called: its subject. cert NULL: "". */
void mr__tls_subject(const void *cert, char *text, size_t size);
/* text = the common name of its subject; "": it has none or several, or one with control
 * characters, or that has `size` bytes. */
void mr__tls_common_name(const void *cert, char *text, size_t size);
/* text = the names of hosts that it is for. */
void mr__tls_hosts(const void *cert, char *text, size_t size);
#endif
