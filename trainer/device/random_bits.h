/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_RANDOM_BITS_H
#define MR_TRAINER_DEVICE_RANDOM_BITS_H
/* Random bits as a function of a counter: the value drawn for a weight or a row depends only on
 * which one it is, not on who draws it or when. */
#include <stdint.h>

/* GPU kernels draw the same bits. */
#ifdef __CUDACC__
#define MR__DRAW static __host__ __device__ inline
#else
#define MR__DRAW static inline
#endif

/* A bijection of 64 bits in which every input bit reaches every output bit. */
MR__DRAW uint64_t mr__mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

/* A key derived from (key, x). */
MR__DRAW uint64_t mr__mix_in(uint64_t key, uint64_t x)
{
    return mr__mix(key ^ mr__mix(x + UINT64_C(0x9e3779b97f4a7c15)));
}

/* In [0, 1), with 24 bits. */
MR__DRAW float mr__unit_float(uint64_t bits)
{
    return (float)(bits >> 40) * 0x1p-24f;
}
#endif
