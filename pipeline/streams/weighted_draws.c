/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/weighted_draws.h"

#include <math.h>
#include <string.h>

#include "pipeline/memory/alloc.h"

/* The sums are computed from the weights' logarithms, as in TensorFlow. */
mr_code mr__weighted_open(mr__weighted *w, const double *weights, size_t n, mr_status *st)
{
    double largest = -INFINITY, sum = 0;
    w->up_to = mr_calloc(n ? n : 1, sizeof *w->up_to);
    if (!w->up_to)
        return mr_fail_memory(st, n * sizeof *w->up_to, "weights");
    w->n = n;
    for (size_t k = 0; k < n; k++) {
        float weight = weights ? (float)weights[k] : 1;
        w->up_to[k] = weights ? (double)(float)log((double)weight) : 1.0;
        largest = w->up_to[k] > largest ? w->up_to[k] : largest;
    }
    for (size_t k = 0; k < n; k++)
        w->up_to[k] = sum += exp(w->up_to[k] - largest);
    return MR_OK;
}

void mr__weighted_start(mr__weighted *w, uint64_t drawn)
{
    mr__philox_init(&w->words, w->pair[0], w->pair[1]);
    mr__philox_skip(&w->words, drawn);
    w->drawn = drawn;
}

/* A number 0 <= u < 1 from two words, which are scrambled first: they seed a separate generator. */
static double uniform(uint32_t word0, uint32_t word1)
{
    static const uint32_t key[2] = {0x3EC8F720u, 0x02461E29u};
    uint32_t scrambled[4], x[4];
    mr__philox_block(key, (const uint32_t[4]){word0, 0, word1, 0}, scrambled);
    mr__philox_block(scrambled, (const uint32_t[4]){0, 0, scrambled[2], scrambled[3]}, x);
    uint64_t bits = UINT64_C(1023) << 52 | (uint64_t)(x[0] & 0xFFFFF) << 32 | x[1];
    double u;
    memcpy(&u, &bits, sizeof u);
    return u - 1;
}

size_t mr__weighted_draw(mr__weighted *w)
{
    if (w->n == 1)
        return 0;
    uint32_t word0 = mr__philox_next(&w->words), word1 = mr__philox_next(&w->words);
    w->drawn += 2;
    double at = uniform(word0, word1) * w->up_to[w->n - 1];
    size_t k = 0;
    while (k + 1 < w->n && w->up_to[k] <= at)
        k++;
    return k;
}

void mr__weighted_reset(mr__weighted *w)
{
    mr_free(w->up_to);
    w->up_to = NULL;
}
