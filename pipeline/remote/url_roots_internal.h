/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_URL_ROOTS_INTERNAL_H
#define MR_PIPELINE_REMOTE_URL_ROOTS_INTERNAL_H
/* The URLs that graphs of other processes may read in this one. A service's worker opens what its
 * clients name, from inside its network and with its credentials: so by default it opens no URL at
 * all, and otherwise those below the prefixes that its operator named, without redirections, and
 * from addresses that are public or that the operator named.
 *
 * thread   any; mr__url_roots_set only before graphs of other processes run */
#include "pipeline/remote/url.h"

/* Replaces the prefixes by those of the n names that are URLs; they are copied.
 * errors   MR_INVALID_ARGUMENT: too many, or one is too long or has no host */
mr_code mr__url_roots_set(const char *const *names, size_t n, mr_status *st) MR_NODISCARD;
/* MR_OK if this thread's graph may read the URL.
 * errors   MR_PERMISSION_DENIED */
mr_code mr__url_roots_check(const char *url, mr_status *st) MR_NODISCARD;
struct sockaddr;
/* A URL below a root may be read from this address: it is public, or a root names it.
 * thread any */
bool mr__url_roots_allow_address(const struct sockaddr *a);
/* Redirections may be followed. */
bool mr__url_roots_are_open(void);
#endif
