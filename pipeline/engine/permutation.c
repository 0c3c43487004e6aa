/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/permutation.h"

#include "pipeline/engine/philox.h"
#include "pipeline/splitmix.h"

enum { MIN_BITS = 10 }; /* over a smaller domain a network generates too few of the permutations */

void mr__permutation_init(mr__permutation *p, const uint64_t pair[2], uint64_t n)
{
    mr__philox words;
    unsigned bits = MIN_BITS;
    while (bits < 64 && n > (uint64_t)1 << bits)
        bits += 2;
    p->n = n;
    p->half = bits / 2;
    p->mask = ((uint64_t)1 << p->half) - 1;
    mr__philox_init(&words, pair[0], pair[1]);
    for (int i = 0; i < MR__PERMUTATION_ROUNDS; i++) {
        uint64_t low = mr__philox_next(&words);
        p->keys[i] = low | (uint64_t)mr__philox_next(&words) << 32;
    }
}

uint64_t mr__permutation_at(const mr__permutation *p, uint64_t i)
{
    do {
        uint64_t left = i >> p->half, right = i & p->mask;
        for (int k = 0; k < MR__PERMUTATION_ROUNDS; k++) {
            uint64_t next = left ^ (mr__splitmix(right + p->keys[k]) & p->mask);
            left = right;
            right = next;
        }
        i = left << p->half | right;
    } while (i >= p->n);
    return i;
}

uint64_t mr__permutation_find(const mr__permutation *p, uint64_t number)
{
    do {
        uint64_t left = number >> p->half, right = number & p->mask;
        for (int k = MR__PERMUTATION_ROUNDS; k-- > 0;) {
            uint64_t before = right ^ (mr__splitmix(left + p->keys[k]) & p->mask);
            right = left;
            left = before;
        }
        number = left << p->half | right;
    } while (number >= p->n);
    return number;
}
