/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TOKEN_FILE_H
#define MR_TRANSPORT_WIRE_TOKEN_FILE_H
/* By what connections show whom to trust: the token's file, and certificates.
 *
 * thread   any */
#include "transport/wire/handshake.h"

enum { MR__MOST_TOKEN = 4096, MR__MOST_TOKEN_FILE = 1 << 20, MR__MOST_TOKENS = 1024 };

/* *out = the token in the file at path (NULL: the file that MILLRACE_TOKEN_FILE names; if that is
 * unset: no token), without trailing white space; owned, mr__token_free.
 * errors   MR_INVALID_ARGUMENT: empty or too long, or a file of several; the system's error for the
 *          file; the message has its name */
mr_code mr__token_read(const char *path, mr__token *out, mr_status *st) MR_NODISCARD;
/* The same; a file whose first line is "# names" has several tokens, each on a line NAME TOKEN. A
 * name may have several. The side that connects uses the first token. Other lines with a # at the
 * beginning are comments.
 * errors   MR_INVALID_ARGUMENT also: another kind of line; a token of two names; no token;
 *          more than MR__MOST_TOKEN_FILE bytes, or MR__MOST_TOKENS tokens */
mr_code mr__token_read_names(const char *path, mr__token *out, mr_status *st) MR_NODISCARD;
/* The same, with the certificates of mr__tls_open. */
mr_code mr__token_open(const char *path, const mr_tls_opts *tls, int sides, mr__token *out,
                       mr_status *st) MR_NODISCARD;
/* The file of the token of the processes of a job: `given`, or that of MILLRACE_CLUSTER_TOKEN_FILE;
 * NULL: none. */
const char *mr__cluster_token_file(const char *given);
/* The token in it, with the certificates of these processes (MR__TLS_PEERS). errors as above */
mr_code mr__cluster_token_open(const char *given, const mr_tls_opts *tls, mr__token *out,
                               mr_status *st) MR_NODISCARD;
/* A daemon that other hosts reach at `address` needs certificates, unless it is `insecure`, which
 * is logged.
 * errors   MR_INVALID_ARGUMENT */
mr_code mr__check_secure(const char *address, const mr__token *t, bool insecure,
                         mr_status *st) MR_NODISCARD;
/* Also frees the certificates: no connection may be left. */
void mr__token_free(mr__token *t);
#endif
