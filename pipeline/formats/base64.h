/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_BASE64_H
#define MR_PIPELINE_FORMATS_BASE64_H
/* Base64, used for bytes in JSON: {"b64": "..."}.
 *
 * thread   any
 * source   RFC 4648 section 4, padded
 * since    0.1 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the n bytes to text: 4 characters for every 3 bytes or part of them, and no NUL. Returns
 * the number of characters. since 0.2 */
MR_API size_t mr_base64_encode(const void *bytes, size_t n, char *text);
/* Maximum number of bytes that n characters of base64 decode to. */
MR_API size_t mr_base64_room(size_t n);
/* Decodes n characters to `to`, which has room for mr_base64_room(n) bytes, and sets *size. false:
 * not base64. */
MR_API bool mr_base64_decode(const char *text, size_t n, void *to, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
