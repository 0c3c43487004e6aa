/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FNV_H
#define MR_PIPELINE_FNV_H
/* FNV-1a, 64 bits (Fowler, Noll, Vo): for names and fingerprints; not safe against an adversary. */
#include <stddef.h>
#include <stdint.h>

#define MR__FNV_BASIS UINT64_C(14695981039346656037)

/* Extends hash h, initially MR__FNV_BASIS, by n bytes. */
static inline uint64_t mr__fnv1a(uint64_t h, const void *p, size_t n)
{
    const unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    return h;
}
#endif
