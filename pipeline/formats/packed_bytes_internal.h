/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PACKED_BYTES_INTERNAL_H
#define MR_PIPELINE_FORMATS_PACKED_BYTES_INTERNAL_H
/* Bytes in memory, compressed by zstd.
 *
 * thread   any */
#include "pipeline/status.h"

/* *out (owned: mr_free) = `head` bytes for the caller to fill, and then the n bytes, packed.
 * errors   MR_RESOURCE_EXHAUSTED; zstd is not installed */
mr_code mr__pack_bytes(const void *bytes, size_t n, size_t head, unsigned char **out, size_t *size,
                       mr_status *st) MR_NODISCARD;
/* *out (owned: mr_free) = the n bytes that were packed, and room for one more.
 * errors   as before; MR_INVALID_ARGUMENT: damaged, or not n bytes */
mr_code mr__unpack_bytes(const void *packed, size_t size, size_t n, unsigned char **out,
                         mr_status *st) MR_NODISCARD;
#endif
