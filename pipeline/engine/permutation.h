/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_PERMUTATION_H
#define MR_PIPELINE_ENGINE_PERMUTATION_H
/* A random permutation of the numbers 0..n-1, computed from a pair of words without a table, so its
 * state is the pair. Uses a Feistel network over the next even number of bits, at least MIN_BITS,
 * and applies it until the result is less than n.
 *
 * source   Black and Rogaway, "Ciphers with arbitrary finite domains", 2002 (cycle walking) */
#include <stdint.h>

enum { MR__PERMUTATION_ROUNDS = 6 };

typedef struct mr__permutation {
    uint64_t n, mask;
    unsigned half; /* bits of each half */
    uint64_t keys[MR__PERMUTATION_ROUNDS];
} mr__permutation;

void mr__permutation_init(mr__permutation *p, const uint64_t pair[2], uint64_t n);
/* The i-th number, i < n. */
uint64_t mr__permutation_at(const mr__permutation *p, uint64_t i);
/* The inverse: the i whose number is `number`, which is less than n. */
uint64_t mr__permutation_find(const mr__permutation *p, uint64_t number);
#endif
