/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_VARINT_H
#define MR_PIPELINE_VARINT_H
/* Varints (LEB128): 7 bits a byte, the low ones first; the top bit says that more follow. Zigzag
 * maps small negative numbers to small ones: 0, -1, 1, -2 are 0, 1, 2, 3.
 *
 * source   protobuf.dev/programming-guides/encoding */
#include <stddef.h>
#include <stdint.h>

enum { MR__VARINT_MOST = 10 /* bytes of 64 bits */ };

/* Reads one varint before e; returns what follows it. NULL: cut short, or longer than 10 bytes. */
static inline const uint8_t *mr__varint_slow(const uint8_t *p, const uint8_t *e, uint64_t *v)
{
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 70 && p < e; shift += 7) {
        uint8_t b = *p++;
        x |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *v = x;
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *mr__varint(const uint8_t *p, const uint8_t *e, uint64_t *v)
{
    if (p < e && *p < 0x80) {
        *v = *p;
        return p + 1;
    }
    if (e - p >= 2 && p[1] < 0x80) {
        *v = (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        return p + 2;
    }
    return mr__varint_slow(p, e, v);
}

/* Writes v; returns what follows it. */
static inline uint8_t *mr__varint_put(uint8_t *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}

static inline uint64_t mr__zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static inline int64_t mr__unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}
#endif
