/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TOKEN_FILE_H
#define MR_TRANSPORT_WIRE_TOKEN_FILE_H
/* The token's file.
 *
 * thread   any */
#include "transport/wire/handshake.h"

enum { MR__MOST_TOKEN = 4096 };

/* *out = the token in the file at path (NULL: the file that MILLRACE_TOKEN_FILE names; if that is
 * unset: no token), without trailing white space; owned, mr__token_free.
 * errors   MR_INVALID_ARGUMENT: empty or too long; the system's error for the file; the message
 *          has its name */
mr_code mr__token_read(const char *path, mr__token *out, mr_status *st) MR_NODISCARD;
void mr__token_free(mr__token *t);
#endif
