/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, sums of columns and softmax of a device's table: of values wherever they lie, of many
 * columns, and of infinite ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"

static mr_status st;

/* Values of which a sum in another order has other bits. */
static float *uneven(bench *b, size_t n)
{
    float *x = draw(b, n);
    for (size_t i = 0; i < n; i += 3)
        x[i] *= 1e12f;
    return x;
}

ON_DEVICES(sums_have_the_same_bits_wherever_the_values_lie)
{
    enum { ROWS = 8209, WIDTH = 4, N = ROWS * WIDTH + 3 };
    float *x = uneven(b, N), first[WIDTH];
    double sum = 0;
    for (size_t k = 0; k < 4; k++) {
        float *room = malloc((N + k) * sizeof *room);
        memset(room, 0, k * sizeof *room);
        memcpy(room + k, x, N * sizeof *x);
        float *p = put_floats(b, room, N + k) + k, *ones = put_floats(b, x, ROWS);
        double *out = put(b, NULL, sizeof *out);
        mr_math_sum s = {.n = N, .x = p, .out = out};
        mr_math_dense_backward_weights g = {
            ROWS, 1, WIDTH, ones, p, put_floats(b, NULL, WIDTH), put_floats(b, NULL, WIDTH), false};
        mr_ok(b->m->sum(b->s, &s, &st), &st);
        mr_ok(b->m->dense_backward_weights(b->s, &g, &st), &st);
        double *got = get(b, out, sizeof *got);
        float *columns = get(b, g.dbias, sizeof first);
        if (k == 0) {
            sum = *got;
            memcpy(first, columns, sizeof first);
        }
        mr_test_context("%zu values after where they are aligned", k);
        mr_eq_mem(got, &sum, sizeof sum);
        mr_eq_mem(columns, first, sizeof first);
        free(got);
        free(columns);
        free(room);
        drop_blocks(b);
    }
    free(x);
}

ON_DEVICES(sums_of_columns_are_those_of_few_and_of_many)
{
    static const size_t sizes[][2] = {{0, 4},    {1, 8},       {15, 4},     {16, 4},
                                      {16, 5},   {1003, 4},    {511, 60},   {8193, 4},
                                      {9001, 3}, {17, 131075}, {17, 262148}};
    for (size_t t = 0; t < sizeof sizes / sizeof *sizes; t++) {
        size_t rows = sizes[t][0], width = sizes[t][1];
        float *x = draw(b, rows), *dy = draw(b, rows * width);
        double *want = doubles(width), *weights = doubles(width);
        for (size_t i = 0; i < rows * width; i++) {
            want[i % width] += dy[i];
            weights[i % width] += (double)x[i / width] * dy[i];
        }
        mr_math_dense_backward_weights g = {rows,
                                            1,
                                            width,
                                            put_floats(b, x, rows),
                                            put_floats(b, dy, rows * width),
                                            put_floats(b, NULL, width),
                                            put_floats(b, NULL, width),
                                            false};
        mr_test_context("%zu rows of %zu", rows, width);
        mr_ok(b->m->dense_backward_weights(b->s, &g, &st), &st);
        expect(b, g.dbias, want, width, 2e-5);
        expect(b, g.dw, weights, width, 1e-4);
        free(x);
        free(dy);
        drop_blocks(b);
    }
}

/* Masked logits: the classes that are -inf have the probability 0, and the others theirs. */
ON_DEVICES(softmax_takes_minus_infinity_as_nothing)
{
    static const size_t widths[] = {2, 7, 32, 33, 300, 513};
    for (size_t t = 0; t < sizeof widths / sizeof *widths; t++)
        for (size_t kept = 0; kept < 4; kept++) {
            size_t width = widths[t], only = kept * (width - 1) / 3;
            float *x = draw(b, width);
            double *want = doubles(width), sum = 0;
            for (size_t i = 0; i < width; i++)
                x[i] = i == only || (i > only && i % 5 == 1) ? x[i] : -INFINITY;
            for (size_t i = 0; i < width; i++)
                sum += want[i] = exp((double)x[i]);
            for (size_t i = 0; i < width; i++)
                want[i] /= sum;
            float *p = put_floats(b, x, width);
            mr_math_activate o = {.f = MR_ACT_SOFTMAX, .rows = 1, .width = width, .x = p, .y = p};
            mr_test_context("%zu classes from %zu on", width, only);
            mr_ok(b->m->activate(b->s, &o, &st), &st);
            expect(b, p, want, width, 1e-6);
            free(x);
            drop_blocks(b);
        }
    float x[3] = {1, NAN, -INFINITY}, *p = put_floats(b, x, 3);
    double *want = doubles(3);
    want[0] = want[1] = want[2] = NAN;
    mr_math_activate o = {.f = MR_ACT_SOFTMAX, .rows = 1, .width = 3, .x = p, .y = p};
    mr_ok(b->m->activate(b->s, &o, &st), &st);
    expect(b, p, want, 3, 0);
    drop_blocks(b);
}
