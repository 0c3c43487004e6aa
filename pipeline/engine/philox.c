/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/philox.h"

#include <string.h>

void mr__philox_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)0xD2511F53u * c0, q = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(q >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)q;
        c3 = (uint32_t)p;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void add_blocks(mr__philox *p, uint64_t n)
{
    uint64_t low = (uint64_t)p->counter[1] << 32 | p->counter[0];
    uint64_t high = (uint64_t)p->counter[3] << 32 | p->counter[2];
    high += __builtin_add_overflow(low, n, &low);
    p->counter[0] = (uint32_t)low;
    p->counter[1] = (uint32_t)(low >> 32);
    p->counter[2] = (uint32_t)high;
    p->counter[3] = (uint32_t)(high >> 32);
}

void mr__philox_init(mr__philox *p, uint64_t a, uint64_t b)
{
    memset(p, 0, sizeof *p);
    p->key[0] = (uint32_t)a;
    p->key[1] = (uint32_t)(a >> 32);
    p->counter[2] = (uint32_t)b;
    p->counter[3] = (uint32_t)(b >> 32);
}

void mr__philox_refill(mr__philox *p)
{
    mr__philox_block(p->key, p->counter, p->words);
    add_blocks(p, 1);
    p->left = 4;
}

void mr__philox_skip(mr__philox *p, uint64_t n)
{
    if (n <= p->left) {
        p->left -= (unsigned)n;
        return;
    }
    n -= p->left;
    p->left = 0;
    add_blocks(p, n / 4);
    for (n %= 4; n; n--)
        mr__philox_next(p);
}

void mr__seed_pair(int64_t seed, uint64_t pair[2])
{
    const int64_t modulus = INT32_MAX;
    int64_t rest = seed % modulus;
    pair[0] = 87654321;
    pair[1] = (uint64_t)(rest < 0 ? rest + modulus : rest);
}
