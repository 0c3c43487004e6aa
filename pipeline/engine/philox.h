/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_PHILOX_H
#define MR_PIPELINE_ENGINE_PHILOX_H
/* Random words: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * 2011), consumed one word at a time in the order that tf.data's shuffle consumes them. It is a
 * function of (a, b) and the number of words drawn, so a position is three numbers. */
#include <stdint.h>

typedef struct mr__philox {
    uint32_t key[2], counter[4];
    uint32_t words[4]; /* of the current block */
    unsigned left;     /* words of it not used yet */
} mr__philox;

/* Starts the stream Philox(a, b) at its first word. */
void mr__philox_init(mr__philox *p, uint64_t a, uint64_t b);
/* Skips n words. */
void mr__philox_skip(mr__philox *p, uint64_t n);
/* Computes one block of four words from a key and a counter. */
void mr__philox_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);
void mr__philox_refill(mr__philox *p);

static inline uint32_t mr__philox_next(mr__philox *p)
{
    if (p->left == 0)
        mr__philox_refill(p);
    return p->words[4 - p->left--];
}

/* The op's pair for a user's seed: (87654321, seed mod 2^31 - 1), as in tf.data without a global
 * seed. */
void mr__seed_pair(int64_t seed, uint64_t pair[2]);
#endif
