/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_SERVICE_OPTIONS_H
#define MR_TRANSPORT_SERVICE_SERVICE_OPTIONS_H
/* Options shared by dispatcher, worker and requests. A wrong one fails with MR_INVALID_ARGUMENT and
 * the option's name in the message.
 *
 * thread   any */
#include "transport/wire/handshake.h"

/* Checks the form of an address (NULL: not set); listens: port 0 is allowed. Resolves nothing. */
mr_code mr__option_address(const char *name, const char *text, bool listens,
                           mr_status *st) MR_NODISCARD;
/* *out = the token in the file at path, with certificates, as mr__token_open; owned,
 * mr__token_free. */
mr_code mr__option_token(const char *path, const mr_tls_opts *tls, int sides, mr__token *out,
                         mr_status *st) MR_NODISCARD;
/* The same for the token of a status page. */
mr_code mr__option_page_token(const char *path, mr__token *out, mr_status *st) MR_NODISCARD;
#endif
