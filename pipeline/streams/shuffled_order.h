/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SHUFFLED_ORDER_H
#define MR_PIPELINE_STREAMS_SHUFFLED_ORDER_H
/* A random order of the numbers 0..n-1, computed from a pair of words (engine/permutation.h).
 * With a window, blocks of neighbours are permuted among each other, and the numbers within each:
 *
 *     n = 10, window 4     0 1 2 3 | 4 5 6 7 | 8 9
 *                          6 4 7 5 | 9 8 | 1 3 0 2
 *
 * so that what is read in a row is near each other.
 *
 * thread   one at a time per object */
#include <stdint.h>

#include "pipeline/engine/permutation.h"

typedef struct mr__shuffled_order {
    uint64_t n, window; /* window 0: none */
    uint64_t pair[2];
    mr__permutation numbers; /* without a window */
    mr__permutation blocks;  /* with a window, also: */
    uint64_t short_at;       /* place of the first number of the last block, which may be shorter */
    uint64_t short_size;
    uint64_t block; /* the one that `within` permutes; UINT64_MAX: none yet */
    mr__permutation within;
} mr__shuffled_order;

void mr__shuffled_order_init(mr__shuffled_order *o, const uint64_t pair[2], uint64_t n,
                             uint64_t window);
/* The number at a place, which is less than n. */
uint64_t mr__shuffled_order_at(mr__shuffled_order *o, uint64_t place);
/* How well such an order mixes: the mean distance between numbers that follow each other, in parts
 * of that of a random order, (n + 1) / 3. Measured at up to 4096 places; about 1 without a window,
 * near 0 with a small one. */
double mr__shuffled_order_quality(uint64_t n, uint64_t window);
#endif
