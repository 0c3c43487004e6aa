/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_BYTES_H
#define MR_PIPELINE_BYTES_H
/* Little-endian integers of n bytes, 1 to 8, at any address. With a constant n each is one move. An
 * n that varies is a loop, which is faster than a call of memcpy. */
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t mr__load_le(const void *p, size_t n)
{
    uint64_t v = 0;
    if (__builtin_constant_p(n)) {
        memcpy(&v, p, n);
        return le64toh(v);
    }
    for (size_t i = n; i-- > 0;)
        v = v << 8 | ((const uint8_t *)p)[i];
    return v;
}

/* The low n bytes of v. */
static inline void mr__store_le(void *p, uint64_t v, size_t n)
{
    if (__builtin_constant_p(n)) {
        v = htole64(v);
        memcpy(p, &v, n);
    } else
        for (size_t i = 0; i < n; i++, v >>= 8)
            ((uint8_t *)p)[i] = (uint8_t)v;
}
#endif
