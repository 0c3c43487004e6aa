/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_STRING_HASH_H
#define MR_PIPELINE_FUNCTIONS_STRING_HASH_H
/* The hash of hash() and of lookup's buckets: part of what these functions are, so it never
 * changes. Private to functions/. */
#include <stddef.h>
#include <stdint.h>

/* XXH3 of n bytes, 64 bits, seed 0; the same on every machine. */
uint64_t mr__string_hash(const void *p, size_t n);
#endif
