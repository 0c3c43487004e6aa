/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/shuffled_order.h"

#include "pipeline/splitmix.h"

enum { MOST_SAMPLES = 4096 };

void mr__shuffled_order_init(mr__shuffled_order *o, const uint64_t pair[2], uint64_t n,
                             uint64_t window)
{
    *o = (mr__shuffled_order){
        .n = n, .window = window, .pair = {pair[0], pair[1]}, .block = UINT64_MAX};
    if (window == 0) {
        mr__permutation_init(&o->numbers, pair, n);
        return;
    }
    uint64_t n_blocks = n ? (n - 1) / window + 1 : 0;
    mr__permutation_init(&o->blocks, pair, n_blocks);
    if (n_blocks == 0)
        return;
    o->short_size = n - (n_blocks - 1) * window;
    o->short_at = mr__permutation_find(&o->blocks, n_blocks - 1) * window;
}

/* The permutation within a block depends on its number. */
static void enter(mr__shuffled_order *o, uint64_t block, uint64_t size)
{
    const uint64_t pair[2] = {o->pair[0] ^ mr__splitmix(block), o->pair[1] ^ mr__splitmix(~block)};
    mr__permutation_init(&o->within, pair, size);
    o->block = block;
}

uint64_t mr__shuffled_order_at(mr__shuffled_order *o, uint64_t place)
{
    if (o->window == 0)
        return mr__permutation_at(&o->numbers, place);
    uint64_t size = o->window, slot, offset;
    if (place < o->short_at) {
        slot = place / size;
        offset = place % size;
    } else if (place < o->short_at + o->short_size) {
        slot = o->short_at / size;
        offset = place - o->short_at;
        size = o->short_size;
    } else {
        uint64_t after = place - o->short_at - o->short_size;
        slot = o->short_at / size + 1 + after / size;
        offset = after % size;
    }
    uint64_t block = mr__permutation_at(&o->blocks, slot);
    if (block != o->block)
        enter(o, block, size);
    return block * o->window + mr__permutation_at(&o->within, offset);
}

double mr__shuffled_order_quality(uint64_t n, uint64_t window)
{
    mr__shuffled_order o;
    if (n < 2)
        return 1;
    mr__shuffled_order_init(&o, (const uint64_t[]){n, window}, n, window);
    uint64_t pairs = n - 1, samples = pairs < MOST_SAMPLES ? pairs : MOST_SAMPLES;
    double sum = 0;
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t place = pairs / samples * i + pairs % samples * i / samples;
        uint64_t a = mr__shuffled_order_at(&o, place), b = mr__shuffled_order_at(&o, place + 1);
        sum += (double)(a > b ? a - b : b - a);
    }
    return sum / (double)samples / (((double)n + 1) / 3);
}
