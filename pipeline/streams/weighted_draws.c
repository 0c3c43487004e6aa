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
    w->input = mr_calloc(n ? n : 1, sizeof *w->input);
    if (!w->up_to || !w->input)
        return mr_fail_memory(st, n * sizeof *w->up_to, "weights");
    for (size_t i = 0; i < n; i++) {
        if (weights && weights[i] == 0)
            continue;
        size_t k = w->n++;
        w->input[k] = i;
        w->up_to[k] = weights ? (double)(float)log((double)(float)weights[i]) : 1.0;
        largest = w->up_to[k] > largest ? w->up_to[k] : largest;
    }
    for (size_t k = 0; k < w->n; k++)
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

static size_t draw(mr__weighted *w)
{
    if (w->n == 1)
        return w->input[0];
    uint32_t word0 = mr__philox_next(&w->words), word1 = mr__philox_next(&w->words);
    w->drawn += 2;
    double at = uniform(word0, word1) * w->up_to[w->n - 1];
    size_t k = 0;
    while (k + 1 < w->n && w->up_to[k] <= at)
        k++;
    return w->input[k];
}

static mr_code refill(mr_iter *it, size_t want, mr_status *st)
{
    mr__weighted_selection *s = it->state;
    int64_t *to;
    MR_TRY(mr__selection_room(&s->selection, want, &to, st));
    for (size_t i = 0; i < want; i++)
        to[i] = (int64_t)draw(&s->draws);
    s->selection.n_numbers += want;
    return MR_OK;
}

mr_code mr__weighted_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr__selection_next(&((mr__weighted_selection *)it->state)->selection, want, refill, out,
                              st);
}

void mr__weighted_reset(mr__weighted *w)
{
    mr_free(w->up_to);
    mr_free(w->input);
    w->up_to = NULL;
    w->input = NULL;
    w->n = 0;
}
