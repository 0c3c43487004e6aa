/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_CONSTANT_DIVISOR_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_CONSTANT_DIVISOR_H
/* Division of many integers by one: a multiplication and shifts, which vectorise, instead of a
 * division. A power of two takes a shift alone. Private to functions/.
 *
 * source   Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994,
 *          figure 4.1
 * thread   any */
#include <stdint.h>

#include "pipeline/system/clones.h"

/* A divisor d > 0 of W bits (32 or 64): with l = ceil(log2 d), the quotient of x is
 * (h + (x - h) / 2) >> (l - 1) for h = x * multiplier >> W; x >> l if d is a power of two. */
typedef struct mr__divisor {
    uint64_t multiplier;
    int log2; /* l */
} mr__divisor;

__extension__ typedef unsigned __int128 mr__u128;

static inline mr__divisor mr__divisor_of(uint64_t d, int bits)
{
    int log2 = d == 1 ? 0 : 64 - __builtin_clzll(d - 1);
    mr__u128 more = ((mr__u128)1 << log2) - d; /* 0 for a power of two */
    return (mr__divisor){(uint64_t)((more << bits) / d) + 1, log2};
}

static inline uint32_t mr__high_32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Of products of 32 bits, which every vector unit has. */
static inline uint64_t mr__high_64(uint64_t a, uint64_t b)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t low = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (low >> 32);
}

/* Defines NAME(x, d, floors, z, n): z = x // d, or x % d, for values of type T (unsigned: U), in
 * arithmetic of BITS (32 or 64) bits. d is not 0. The quotient of a negative x by D = |d| is
 * ~(~x / D); that by a negative d is the one by D rounded up, and negative. */
#define MR__BY_CONSTANT(NAME, T, U, BITS)                                                          \
    MR__CLONES static void NAME##_shift(const T *restrict x, int log2, T *restrict z, size_t n)    \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = (T)(x[i] >> log2);                                                              \
    }                                                                                              \
    MR__CLONES static void NAME##_multiply(const T *restrict x, uint##BITS##_t m, int shift,       \
                                           T *restrict z, size_t n)                                \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            U sign = (U)(0 - (U)(x[i] < 0)); /* all ones or zero */                                \
            uint##BITS##_t v = (U)((U)x[i] ^ sign), h = mr__high_##BITS(v, m);                     \
            z[i] = (T)((U)(((v - h) / 2 + h) >> shift) ^ sign);                                    \
        }                                                                                          \
    }                                                                                              \
    /* quotients of x by D to those by -D */                                                       \
    MR__CLONES static void NAME##_negate(const T *restrict x, U D, T *restrict z, size_t n)        \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = (T)(0 - ((U)z[i] + (U)((U)x[i] != (U)((U)z[i] * D))));                          \
    }                                                                                              \
    /* quotients to remainders: `add` is d if d is negative, else 0 */                             \
    MR__CLONES static void NAME##_rest(const T *restrict x, U D, U add, T *restrict z, size_t n)   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            U rest = (U)((U)x[i] - (U)((U)z[i] * D));                                              \
            z[i] = (T)(rest + (rest ? add : 0));                                                   \
        }                                                                                          \
    }                                                                                              \
    MR__CLONES static void NAME##_mask(const T *restrict x, U mask, U add, T *restrict z,          \
                                       size_t n)                                                   \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            U rest = (U)x[i] & mask;                                                               \
            z[i] = (T)(rest + (rest ? add : 0));                                                   \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const T *x, T d, bool remainder, T *z, size_t n)                              \
    {                                                                                              \
        enum { TILE = 1024 }; /* the second pass reads the first one's results from L1 */          \
        bool negative = d < 0;                                                                     \
        U D = negative ? (U)(0 - (U)d) : (U)d, add = negative ? (U)d : 0;                          \
        bool power = !(D & (U)(D - 1));                                                            \
        mr__divisor by = mr__divisor_of(D, BITS);                                                  \
        if (remainder && power) {                                                                  \
            NAME##_mask(x, (U)(D - 1), add, z, n);                                                 \
            return;                                                                                \
        }                                                                                          \
        for (size_t m; n; n -= m, x += m, z += m) {                                                \
            m = n < TILE ? n : TILE;                                                               \
            if (power)                                                                             \
                NAME##_shift(x, by.log2, z, m);                                                    \
            else                                                                                   \
                NAME##_multiply(x, (uint##BITS##_t)by.multiplier, by.log2 - 1, z, m);              \
            if (remainder)                                                                         \
                NAME##_rest(x, D, add, z, m);                                                      \
            else if (negative)                                                                     \
                NAME##_negate(x, D, z, m);                                                         \
        }                                                                                          \
    }
#endif
