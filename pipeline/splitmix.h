/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SPLITMIX_H
#define MR_PIPELINE_SPLITMIX_H
/* splitmix64 (Steele, Lea, Flood 2014): well-distributed seeds, keys and integer hashes; not safe
 * against an adversary. */
#include <stdint.h>

#define MR__GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The finalizer, a bijection. Applied to key + n * MR__GOLDEN for n = 1, 2, ... it generates the
 * splitmix64 sequence. */
static inline uint64_t mr__splitmix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
#endif
