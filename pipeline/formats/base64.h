/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_BASE64_H
#define MR_PIPELINE_FORMATS_BASE64_H
/* Base64: bytes in JSON, {"b64": "..."}.
 *
 * thread   any
 * source   RFC 4648 section 4, padded
 * since    0.1 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes that n characters of base64 stand for. */
MR_API size_t mr_base64_room(size_t n);
/* Writes the *size bytes that n characters stand for to `to`, which has room for them. false: it is
 * not base64. */
MR_API bool mr_base64_decode(const char *text, size_t n, void *to, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
