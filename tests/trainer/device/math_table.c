/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a device's table against plain loops, at sizes that divide nothing. */
#include "trainer/device/math.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"
#include "trainer/device/random_bits.h"

static mr_status st;

static const size_t lengths[] = {0, 1, 7, 1003, 100003};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

ON_DEVICES(fill_and_combine_are_the_plain_loops)
{
    static const float factors[][2] = {{1, 1}, {2.5f, 0}, {0, 0.5f}, {0.25f, 0.75f}, {0, 0}};
    for (size_t k = 0; k < N_LENGTHS; k++) {
        size_t n = lengths[k];
        float *p = put_floats(b, NULL, n);
        double *want = doubles(n);
        for (size_t i = 0; i < n; i++)
            want[i] = 1.25;
        mr_ok(b->m->fill(b->s, &(mr_math_fill){.n = n, .value = 1.25f, .dst = p}, &st), &st);
        expect(b, p, want, n, 0);
        for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
            float *x = draw(b, n), *y = draw(b, n), a = factors[f][0], c = factors[f][1];
            float *dx = put_floats(b, x, n), *dy = put_floats(b, c == 0 ? NULL : y, n);
            want = doubles(n);
            for (size_t i = 0; i < n; i++)
                want[i] = (double)a * x[i] + (c == 0 ? 0 : (double)c * y[i]);
            mr_math_combine o = {.n = n, .a = a, .b = c, .x = a == 0 ? NULL : dx, .y = dy};
            mr_ok(b->m->combine(b->s, &o, &st), &st);
            expect(b, dy, want, n, 1e-6);
            want = doubles(n);
            for (size_t i = 0; i < n; i++)
                want[i] = ((double)a + c) * x[i];
            o.x = o.y = dx; /* in place */
            mr_ok(b->m->combine(b->s, &o, &st), &st);
            expect(b, dx, want, n, 1e-6);
            free(x);
            free(y);
        }
        drop_blocks(b);
    }
}

ON_DEVICES(product_and_place_are_the_plain_loops)
{
    for (size_t k = 0; k < N_LENGTHS; k++) {
        size_t n = lengths[k], wide = 5, from = 2;
        float *x = draw(b, n), *z = draw(b, n);
        float *dx = put_floats(b, x, n), *dz = put_floats(b, z, n);
        float *dy = put_floats(b, NULL, n * wide);
        double *want = doubles(n * wide);
        for (size_t i = 0; i < n * wide; i++)
            want[i] = -1;
        mr_ok(b->m->fill(b->s, &(mr_math_fill){.n = n * wide, .value = -1, .dst = dy}, &st), &st);
        for (size_t i = 0; i < n; i++) /* rows of 1 and of 3 values into rows of 5 */
            want[i * wide] = x[i];
        for (size_t i = 0; i < n / 3 * 3; i++)
            want[i / 3 * wide + from + i % 3] = x[i];
        mr_math_place one = {n, 1, 1, wide, dx, dy}, three = {n / 3, 3, 3, wide, dx, dy + from};
        mr_ok(b->m->place(b->s, &one, &st), &st);
        mr_ok(b->m->place(b->s, &three, &st), &st);
        expect(b, dy, want, n * wide, 0);
        mr_math_product o = {n, dx, dz, dx};
        mr_ok(b->m->product(b->s, &o, &st), &st);
        want = doubles(n);
        for (size_t i = 0; i < n; i++)
            want[i] = (double)x[i] * z[i];
        expect(b, dx, want, n, 1e-6);
        free(x);
        free(z);
        drop_blocks(b);
    }
}

/* Infinities and tiny numbers too; frees want. */
static void expect_exactly(bench *b, const float *p, double *want, size_t n)
{
    float *got = get(b, p, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (isnan(want[i]) ? !isnan(got[i]) : (double)got[i] != want[i])
            mr_fail_test("value %zu of %zu: got %.9g, want %.9g", i, n, (double)got[i], want[i]);
    free(got);
    free(want);
}

ON_DEVICES(rounding_to_bfloat_is_that_of_dtypes)
{
    static const float special[] = {0,          -0.0f,         1,      -1,         INFINITY,
                                    -INFINITY,  1.00390625f,   1e-40f, -1e-45f,    1.01171875f,
                                    1.0039063f, 3.4028235e38f, NAN,    -1.0039061f};
    for (size_t k = 0; k < N_LENGTHS; k++) {
        size_t n = lengths[k];
        float *x = draw(b, n);
        double *want = doubles(n), *again = doubles(n);
        for (size_t i = 0; i < n && i < sizeof special / sizeof *special; i++)
            x[i] = special[i];
        for (size_t i = 0; i < n; i++)
            want[i] = again[i] = (double)mr_bfloat_to_float(mr_float_to_bfloat(x[i]));
        float *dx = put_floats(b, x, n), *dy = put_floats(b, NULL, n);
        const mr_math_round_bfloat apart = {n, dx, dy}, in_place = {n, dx, dx};
        mr_ok(b->m->round_bfloat(b->s, &apart, &st), &st);
        mr_ok(b->m->round_bfloat(b->s, &in_place, &st), &st);
        expect_exactly(b, dy, want, n);
        expect_exactly(b, dx, again, n);
        free(x);
        drop_blocks(b);
    }
}

/* Value i of a column of numbers of this dtype, and what it is. */
static double number(mr_dtype t, size_t i, void *data)
{
    int64_t v = (int64_t)(i * 37 % 200);
    if (t == MR_INT8 || t == MR_INT16 || t == MR_INT32 || t == MR_INT64)
        v -= 100;
    switch (t) {
    case MR_BOOL:
        return ((uint8_t *)data)[i] = v & 1;
    case MR_INT8:
        return ((int8_t *)data)[i] = (int8_t)v;
    case MR_UINT8:
        return ((uint8_t *)data)[i] = (uint8_t)v;
    case MR_INT16:
        return ((int16_t *)data)[i] = (int16_t)(v * 300);
    case MR_UINT16:
        return ((uint16_t *)data)[i] = (uint16_t)(v * 300);
    case MR_INT32:
        return ((int32_t *)data)[i] = (int32_t)(v * 70001);
    case MR_UINT32:
        return ((uint32_t *)data)[i] = (uint32_t)(v * 70001);
    case MR_INT64:
        return (double)(((int64_t *)data)[i] = v * 5000000001);
    case MR_UINT64:
        return (double)(((uint64_t *)data)[i] = (uint64_t)v * 5000000001u);
    case MR_FLOAT16:
        ((uint16_t *)data)[i] = mr_float_to_half((float)v / 8);
        return (double)v / 8;
    case MR_BFLOAT16:
        ((uint16_t *)data)[i] = mr_float_to_bfloat((float)v);
        return (double)v;
    case MR_FLOAT32:
        return ((float *)data)[i] = (float)v / 3;
    case MR_FLOAT64:
        return (float)(((double *)data)[i] = (double)v / 3);
    default:
        return 0;
    }
}

ON_DEVICES(casts_scale_numbers_of_every_dtype)
{
    for (mr_dtype t = MR_BOOL; t < MR_STRING; t++)
        for (size_t k = 0; k < N_LENGTHS; k++) {
            size_t n = lengths[k];
            void *host = malloc(n * 8 + 8);
            double *want = doubles(n);
            mr_test_context("%s, %zu values", mr_dtype_name(t), n);
            for (size_t i = 0; i < n; i++)
                want[i] = number(t, i, host) * 0.125 - 1;
            void *src = put(b, host, n * mr_dtype_size(t));
            float *dst = put_floats(b, NULL, n);
            mr_ok(b->m->cast(
                      b->s,
                      &(mr_math_cast){
                          .n = n, .from = t, .scale = 0.125f, .offset = -1, .src = src, .dst = dst},
                      &st),
                  &st);
            expect(b, dst, want, n, 1e-6);
            free(host);
            drop_blocks(b);
        }
    mr_code_is(b->m->cast(b->s, &(mr_math_cast){.n = 1, .from = MR_STRING, .scale = 1}, &st),
               MR_UNIMPLEMENTED, &st);
}

ON_DEVICES(sums_are_taken_in_double_and_reduce_adds_in_order)
{
    for (size_t k = 0; k < N_LENGTHS; k++) {
        size_t n = lengths[k];
        float *x[MR_MATH_REDUCE];
        double begin = 7, sum = 0;
        mr_math_reduce o = {.n = n};
        for (size_t i = 0; i < MR_MATH_REDUCE; i++) {
            x[i] = draw(b, n);
            o.in[i] = o.out[i] = put_floats(b, x[i], n);
        }
        double *out = put(b, &begin, sizeof begin);
        for (int add = 0; add < 2; add++) {
            sum = add ? sum : 0;
            for (size_t i = 0; i < n; i++)
                sum += x[0][i];
            mr_math_sum s = {.n = n, .add = add, .x = o.in[0], .out = out};
            mr_ok(b->m->sum(b->s, &s, &st), &st);
            double *got = get(b, out, sizeof *got);
            mr_eq_f64(*got, sum, 1e-9 * (1 + (double)n));
            free(got);
        }
        for (o.n_in = 1; o.n_in <= MR_MATH_REDUCE; o.n_in += 7) { /* one to many, then all to all */
            o.n_out = MR_MATH_REDUCE + 1 - o.n_in + (o.n_in > 1 ? MR_MATH_REDUCE - 1 : 0);
            mr_ok(b->m->reduce(b->s, &o, &st), &st);
            float *want = malloc((n + 1) * sizeof *want);
            for (size_t i = 0; i < n; i++)
                want[i] = x[0][i];
            for (size_t r = 1; r < o.n_in; r++)
                for (size_t i = 0; i < n; i++)
                    want[i] += x[0][i]; /* the first call made all of them equal */
            for (size_t r = 0; r < o.n_out; r++) {
                float *got = get(b, o.out[r], n * sizeof *got);
                mr_eq_mem(got, want, n * sizeof *got);
                free(got);
            }
            free(want);
        }
        for (size_t i = 0; i < MR_MATH_REDUCE; i++)
            free(x[i]);
        drop_blocks(b);
    }
}

static double activation(mr_math_activation f, double x)
{
    switch (f) {
    case MR_ACT_RELU:
        return x < 0 ? 0 : x;
    case MR_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case MR_ACT_TANH:
        return tanh(x);
    case MR_ACT_ELU:
        return x < 0 ? expm1(x) : x;
    case MR_ACT_SELU:
        return 1.05070098 * (x < 0 ? 1.67326324 * expm1(x) : x);
    case MR_ACT_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case MR_ACT_LEAKY_RELU:
        return x < 0 ? 0.2 * x : x;
    case MR_ACT_SOFTPLUS:
        return log1p(exp(x));
    case MR_ACT_SOFTSIGN:
        return x / (1 + fabs(x));
    case MR_ACT_EXPONENTIAL:
        return exp(x);
    default:
        return x;
    }
}

static double slope(mr_math_activation f, double y)
{
    switch (f) {
    case MR_ACT_RELU:
        return y > 0;
    case MR_ACT_SIGMOID:
        return y * (1 - y);
    case MR_ACT_TANH:
        return 1 - y * y;
    case MR_ACT_ELU:
        return y < 0 ? y + 1 : 1;
    case MR_ACT_SELU:
        return y < 0 ? y + 1.05070098 * 1.67326324 : 1.05070098;
    case MR_ACT_RELU6:
        return y > 0 && y < 6;
    case MR_ACT_LEAKY_RELU:
        return y > 0 ? 1 : 0.2;
    case MR_ACT_SOFTPLUS:
        return 1 - exp(-y);
    case MR_ACT_SOFTSIGN:
        return (1 - fabs(y)) * (1 - fabs(y));
    case MR_ACT_EXPONENTIAL:
        return y;
    default:
        return 1;
    }
}

static double *activated(mr_math_activation f, const float *x, size_t rows, size_t width)
{
    double *y = doubles(rows * width);
    for (size_t i = 0; i < rows * width; i++)
        y[i] = f == MR_ACT_SOFTMAX ? exp((double)x[i]) : activation(f, x[i]);
    for (size_t r = 0; f == MR_ACT_SOFTMAX && r < rows; r++) {
        double sum = 0;
        for (size_t j = 0; j < width; j++)
            sum += y[r * width + j];
        for (size_t j = 0; j < width; j++)
            y[r * width + j] /= sum;
    }
    return y;
}

static const size_t shapes[][2] = {{0, 5}, {1, 1}, {3, 7}, {129, 10}, {33, 1001}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

ON_DEVICES(activations_and_their_gradients_are_the_formulas)
{
    for (mr_math_activation f = MR_ACT_LINEAR; f < MR_N_ACTIVATIONS; f++)
        for (size_t k = 0; k < N_SHAPES; k++) {
            size_t rows = shapes[k][0], width = shapes[k][1], n = rows * width;
            float *x = draw(b, n), *dy = draw(b, n);
            for (size_t i = 0; i < n; i += 3)
                x[i] *= 4; /* beyond 6, too */
            mr_test_context("activation %d of %zux%zu", (int)f, rows, width);
            for (int in_place = 0; in_place < 2; in_place++) {
                float *px = put_floats(b, x, n), *py = in_place ? px : put_floats(b, NULL, n);
                mr_math_activate o = {.f = f, .rows = rows, .width = width, .x = px, .y = py};
                mr_ok(b->m->activate(b->s, &o, &st), &st);
                expect(b, py, activated(f, x, rows, width), n, 3e-6);
                float *y = get(b, py, n * sizeof *y), *pd = put_floats(b, dy, n);
                float *pdx = in_place ? pd : put_floats(b, NULL, n);
                double *want = doubles(n);
                for (size_t r = 0; r < rows; r++) {
                    double dot = 0;
                    for (size_t i = r * width; f == MR_ACT_SOFTMAX && i < (r + 1) * width; i++)
                        dot += (double)y[i] * dy[i];
                    for (size_t i = r * width; i < (r + 1) * width; i++)
                        want[i] =
                            f == MR_ACT_SOFTMAX ? y[i] * (dy[i] - dot) : slope(f, y[i]) * dy[i];
                }
                mr_math_activate_backward g = {
                    .f = f, .rows = rows, .width = width, .y = py, .dy = pd, .dx = pdx};
                mr_ok(b->m->activate_backward(b->s, &g, &st), &st);
                expect(b, pdx, want, n, 1e-5);
                free(y);
            }
            free(x);
            free(dy);
            drop_blocks(b);
        }
}

ON_DEVICES(nan_and_infinity_go_through_relu_and_softmax_as_they_are)
{
    float x[3] = {NAN, -1, INFINITY};
    float *p = put_floats(b, x, 3);
    double *want = doubles(3);
    want[0] = NAN, want[2] = INFINITY;
    mr_ok(b->m->activate(
              b->s, &(mr_math_activate){.f = MR_ACT_RELU, .rows = 1, .width = 3, .x = p, .y = p},
              &st),
          &st);
    float *y = get(b, p, sizeof x);
    mr_check(isnan(y[0]) && y[1] == 0 && isinf(y[2]));
    free(want);
    free(y);
}

ON_DEVICES(dropout_draws_by_key_row_and_column_alone)
{
    static const float rates[] = {0, 0.3f, 0.5f, 1};
    for (size_t k = 0; k < N_SHAPES; k++)
        for (size_t q = 0; q < 4; q++) {
            size_t rows = shapes[k][0], width = shapes[k][1], n = rows * width;
            float *x = draw(b, n), rate = rates[q], scale = rate < 1 ? 1 / (1 - rate) : 0;
            mr_math_dropout o = {.rows = rows,
                                 .width = width,
                                 .key = UINT64_C(0x123456789abcdef),
                                 .first_row = 70,
                                 .rate = rate,
                                 .x = put_floats(b, x, n),
                                 .y = put_floats(b, NULL, n)};
            float *want = malloc((n + 1) * sizeof *want);
            for (size_t r = 0; r < rows; r++) {
                uint64_t row = mr__mix_in(o.key, o.first_row + r);
                for (size_t j = 0; j < width; j++)
                    want[r * width + j] =
                        mr__unit_float(mr__mix(row + j)) < rate ? 0 : x[r * width + j] * scale;
            }
            mr_ok(b->m->dropout(b->s, &o, &st), &st);
            float *got = get(b, o.y, n * sizeof *got);
            for (size_t i = 0; i < n; i++)
                mr_eq_f64(got[i], want[i], 0);
            free(got);
            free(want);
            free(x);
            drop_blocks(b);
        }
}

static double *column_sums(const float *x, size_t rows, size_t width)
{
    double *sum = doubles(width);
    for (size_t i = 0; i < rows * width; i++)
        sum[i % width] += x[i];
    return sum;
}

/* c[m, n] = sum over k of a b, by strides. */
static double *product(size_t m, size_t n, size_t k, const float *a, size_t am, size_t ak,
                       const float *c, size_t ck, size_t cn)
{
    double *out = doubles(m * n);
    for (size_t i = 0; i < m; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++)
                out[i * n + j] += (double)a[i * am + l * ak] * c[l * ck + j * cn];
    return out;
}

ON_DEVICES(dense_layers_are_the_plain_products)
{
    static const size_t sizes[][3] = {
        {0, 3, 4}, {1, 1, 1}, {5, 7, 3}, {129, 33, 10}, {17, 301, 65}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int with_bias = 0; with_bias < 3; with_bias++) /* 2: of bfloat16 */
            for (int f = MR_ACT_LINEAR; f < MR_N_ACTIVATIONS; f += k == 2 ? 1 : 4) {
                bool bfloat = with_bias == 2;
                size_t rows = sizes[k][0], in = sizes[k][1], out = sizes[k][2];
                float *x = draw(b, rows * in), *w = draw(b, in * out), *bias = draw(b, out),
                      *dy = draw(b, rows * out);
                for (size_t i = 0; i < in * out; i++)
                    w[i] /= (float)in;
                round_where(bfloat, x, rows * in);
                round_where(bfloat, w, in * out);
                round_where(bfloat, dy, rows * out);
                mr_test_context("%zux%zux%zu, activation %d, %d", rows, in, out, f, with_bias);
                mr_math_dense o = {.rows = rows,
                                   .in = in,
                                   .out = out,
                                   .f = (mr_math_activation)f,
                                   .x = put_floats(b, x, rows * in),
                                   .w = put_floats(b, w, in * out),
                                   .bias = with_bias ? put_floats(b, bias, out) : NULL,
                                   .y = put_floats(b, NULL, rows * out),
                                   .bfloat = bfloat};
                mr_ok(b->m->dense(b->s, &o, &st), &st);
                double *y = product(rows, out, in, x, in, 1, w, out, 1);
                float *before = malloc((rows * out + 1) * sizeof *before);
                for (size_t i = 0; i < rows * out; i++)
                    before[i] = (float)(y[i] + (with_bias ? bias[i % out] : 0));
                expect(b, o.y, activated(o.f, before, rows, out), rows * out, 2e-5);
                float *pdy = put_floats(b, dy, rows * out), *dx = put_floats(b, NULL, rows * in),
                      *dw = put_floats(b, NULL, in * out), *db = put_floats(b, NULL, out);
                mr_math_dense_backward_data d = {rows, in, out, pdy, o.w, dx, bfloat};
                mr_math_dense_backward_weights g = {
                    rows, in, out, o.x, pdy, dw, with_bias ? db : NULL, bfloat};
                mr_ok(b->m->dense_backward_data(b->s, &d, &st), &st);
                mr_ok(b->m->dense_backward_weights(b->s, &g, &st), &st);
                expect(b, dx, product(rows, in, out, dy, out, 1, w, 1, out), rows * in, 2e-5);
                expect(b, dw, product(in, out, rows, x, 1, in, dy, out, 1), in * out, 1e-4);
                if (with_bias)
                    expect(b, db, column_sums(dy, rows, out), out, 2e-5);
                free(before);
                free(y);
                free(x);
                free(w);
                free(bias);
                free(dy);
                drop_blocks(b);
            }
}

/* The loss of one row and its derivatives, in double precision. */
static double loss_of(mr_math_loss_kind kind, const float *x, const float *z, size_t width,
                      double *d)
{
    double loss = 0, sum = 0, w = (double)width, eps = 1e-7f;
    size_t label = (size_t)z[0];
    for (size_t j = 0; j < width; j++) {
        double p = x[j] < 1e-7f ? eps : x[j] > 1 - 1e-7f ? (double)(1 - 1e-7f) : x[j];
        sum += kind == MR_LOSS_SPARSE_LOGITS ? exp((double)x[j]) : p;
    }
    for (size_t j = 0; j < width; j++) {
        double v = x[j], t = z[kind >= MR_LOSS_SPARSE_LOGITS ? 0 : j];
        double p = x[j] < 1e-7f ? eps : x[j] > 1 - 1e-7f ? (double)(1 - 1e-7f) : v;
        bool moved = x[j] < 1e-7f || x[j] > 1 - 1e-7f;
        if (kind == MR_LOSS_MSE) {
            loss += (v - t) * (v - t) / w;
            d[j] = 2 * (v - t) / w;
        } else if (kind == MR_LOSS_BINARY_LOGITS) {
            loss += (log1p(exp(v)) - v * t) / w;
            d[j] = (1 / (1 + exp(-v)) - t) / w;
        } else if (kind == MR_LOSS_BINARY_PROBABILITIES) {
            loss -= (t * log(p) + (1 - t) * log1p(-p)) / w;
            d[j] = moved ? 0 : (p - t) / (p * (1 - p)) / w;
        } else if (kind == MR_LOSS_SPARSE_LOGITS) {
            loss += j == label ? log(sum) - v : 0;
            d[j] = exp(v) / sum - (j == label);
        } else {
            loss += j == label ? log(sum) - log(p) : 0;
            d[j] = moved ? 0 : 1 / sum - (j == label) / p;
        }
    }
    return loss;
}

static void check_loss(bench *b, mr_math_loss_kind kind, size_t n, size_t width, bool weighted)
{
    bool sparse = kind >= MR_LOSS_SPARSE_LOGITS;
    size_t n_labels = sparse ? n : n * width, n_weights = (n + 2) / 3;
    float *x = draw(b, n * width), *z = draw(b, n_labels), *w = draw(b, n_weights);
    int64_t *ints = malloc((n_labels + 1) * sizeof *ints);
    double *per_example = doubles(n), *gradient = doubles(n * width), sum = 0;
    bool probabilities =
        kind == MR_LOSS_BINARY_PROBABILITIES || kind == MR_LOSS_SPARSE_PROBABILITIES;
    for (size_t i = 0; i < n * width && probabilities; i++)
        x[i] = i % 17 == 3 ? (float)(i % 2) : (float)(mr_test_random(&b->seed) % 998 + 1) / 1000;
    for (size_t i = 0; i < n_labels; i++) {
        ints[i] = (int64_t)(mr_test_random(&b->seed) % (sparse ? width : 2));
        z[i] = (float)ints[i];
    }
    for (size_t i = 0; i < n; i++) {
        double v = weighted ? w[i / 3] : 1, *d = gradient + i * width;
        per_example[i] = v * loss_of(kind, x + i * width, z + i * (sparse ? 1 : width), width, d);
        sum += per_example[i];
        for (size_t j = 0; j < width; j++)
            d[j] *= v * 0.25;
    }
    mr_math_fault none = MR_MATH_FAULT_NONE;
    mr_math_loss o = {.kind = kind,
                      .n = n,
                      .width = width,
                      .losses_per_row = 3,
                      .losses_per_weight = 3,
                      .x = put_floats(b, x, n * width),
                      .label_dtype = MR_INT64,
                      .labels = put(b, ints, n_labels * sizeof *ints),
                      .weights = weighted ? put_floats(b, w, n_weights) : NULL,
                      .scale = 0.25f,
                      .per_example = put_floats(b, NULL, n),
                      .gradient = put_floats(b, NULL, n * width),
                      .sum = put(b, NULL, sizeof sum),
                      .fault = put(b, &none, sizeof none)};
    mr_ok(b->m->loss(b->s, &o, &st), &st);
    expect(b, o.per_example, per_example, n, 1e-5);
    expect(b, o.gradient, gradient, n * width, 2e-5);
    double *got = get(b, o.sum, sizeof sum);
    mr_eq_f64(*got, sum, 1e-5 * (1 + (double)n));
    free(got);
    if (!sparse) { /* labels as floats, and only the sum requested */
        o.label_dtype = MR_FLOAT32;
        o.labels = put_floats(b, z, n_labels);
        o.per_example = o.gradient = NULL;
        mr_ok(b->m->loss(b->s, &o, &st), &st);
        got = get(b, o.sum, sizeof sum);
        mr_eq_f64(*got, sum, 1e-5 * (1 + (double)n));
        free(got);
    }
    mr_math_fault *fault = get(b, o.fault, sizeof *fault);
    mr_eq_u64(fault->count, 0);
    mr_eq_u64(fault->row, UINT64_MAX);
    free(fault);
    free(x);
    free(z);
    free(w);
    free(ints);
    drop_blocks(b);
}

ON_DEVICES(losses_and_their_gradients_are_the_formulas)
{
    static const mr_math_loss_kind kinds[] = {MR_LOSS_MSE, MR_LOSS_BINARY_LOGITS,
                                              MR_LOSS_BINARY_PROBABILITIES, MR_LOSS_SPARSE_LOGITS,
                                              MR_LOSS_SPARSE_PROBABILITIES};
    for (size_t t = 0; t < sizeof kinds / sizeof *kinds; t++)
        for (size_t k = 0; k < N_SHAPES; k++)
            for (int weighted = 0; weighted < 2; weighted++) {
                mr_test_context("loss %d of %zux%zu", (int)kinds[t], shapes[k][0], shapes[k][1]);
                check_loss(b, kinds[t], shapes[k][0], shapes[k][1], weighted);
            }
}

ON_DEVICES(labels_out_of_range_are_counted_and_the_first_row_is_kept)
{
    enum { N = 1000, WIDTH = 5 };
    int32_t labels[N];
    mr_math_fault none = MR_MATH_FAULT_NONE, *fault;
    float *x = draw(b, N * WIDTH), flag = 7, *p;
    for (int i = 0; i < N; i++)
        labels[i] = i % WIDTH;
    labels[431] = -3;
    labels[430] = 17;
    labels[999] = WIDTH;
    mr_math_loss o = {.kind = MR_LOSS_SPARSE_LOGITS,
                      .n = N,
                      .width = WIDTH,
                      .losses_per_row = 2,
                      .losses_per_weight = 1,
                      .first_row = 64,
                      .x = put_floats(b, x, N * WIDTH),
                      .label_dtype = MR_INT32,
                      .labels = put(b, labels, sizeof labels),
                      .scale = 1,
                      .per_example = put_floats(b, NULL, N),
                      .gradient = put_floats(b, NULL, N * WIDTH),
                      .fault = put(b, &none, sizeof none)};
    mr_math_flag f = {.fault = o.fault, .flag = put_floats(b, &flag, 1)};
    mr_ok(b->m->flag(b->s, &f, &st), &st);
    p = get(b, f.flag, sizeof *p);
    mr_eq_f64(*p, 0, 0);
    free(p);
    mr_ok(b->m->loss(b->s, &o, &st), &st);
    mr_ok(b->m->flag(b->s, &f, &st), &st);
    fault = get(b, o.fault, sizeof *fault);
    mr_eq_u64(fault->count, 3);
    mr_eq_u64(fault->row, 64 + 215);
    mr_eq_f64(fault->label, 17, 0);
    mr_eq_u64(fault->classes, WIDTH);
    free(fault);
    p = get(b, f.flag, sizeof *p);
    mr_eq_f64(*p, 1, 0);
    free(p);
    p = get(b, o.gradient, N * WIDTH * sizeof *p);
    for (int j = 0; j < WIDTH; j++)
        mr_check(p[430 * WIDTH + j] == 0 && p[429 * WIDTH + j] != 0);
    free(p);
    p = get(b, o.per_example, N * sizeof *p);
    mr_check(p[431] == 0 && p[999] == 0 && p[0] > 0);
    free(p);
    /* The next call with a bad label in a later row changes the count alone. */
    o.first_row = 5000;
    mr_ok(b->m->loss(b->s, &o, &st), &st);
    fault = get(b, o.fault, sizeof *fault);
    mr_eq_u64(fault->count, 6);
    mr_eq_u64(fault->row, 64 + 215);
    free(fault);
    free(x);
}

static double metric_of(mr_math_metric_kind kind, const float *x, const float *z, size_t width)
{
    double sum = 0;
    size_t best = 0, labelled = 0;
    for (size_t j = 0; j < width; j++) {
        double d = (double)x[j] - z[j];
        sum += kind == MR_METRIC_MEAN      ? x[j]
               : kind == MR_METRIC_SQUARED ? d * d
                                           : (x[j] > 0.25f) == (z[j] == 1);
        best = x[j] > x[best] ? j : best;
        labelled = z[j] > z[labelled] ? j : labelled;
    }
    if (kind < MR_METRIC_SPARSE)
        return sum;
    return best == (kind == MR_METRIC_SPARSE ? (size_t)z[0] : labelled);
}

ON_DEVICES(metrics_add_to_their_totals)
{
    for (mr_math_metric_kind kind = MR_METRIC_MEAN; kind <= MR_METRIC_CATEGORICAL; kind++)
        for (size_t k = 0; k < N_SHAPES; k++) {
            size_t n = shapes[k][0], width = shapes[k][1], values = n * width;
            bool sparse = kind == MR_METRIC_SPARSE, rows = kind >= MR_METRIC_SPARSE;
            float *x = draw(b, values), *z = draw(b, values);
            double begin[2] = {3, 5}, want = 3, *got;
            for (size_t i = 0; i < values; i++)
                z[i] = (float)(mr_test_random(&b->seed) % (sparse ? width : 2));
            for (size_t i = 0; i < values; i += 5) /* ties, of which the first counts */
                x[i] = 2;
            for (size_t i = 0; i < n; i++)
                want += metric_of(kind, x + i * width, z + i * (sparse ? 1 : width), width);
            mr_test_context("metric %d of %zux%zu", (int)kind, n, width);
            mr_math_metric o = {.kind = kind,
                                .n = n,
                                .width = width,
                                .threshold = 0.25,
                                .x = put_floats(b, x, values),
                                .label_dtype = MR_FLOAT32,
                                .labels = put_floats(b, z, sparse ? n : values),
                                .total = put(b, begin, sizeof begin)};
            mr_ok(b->m->metric(b->s, &o, &st), &st);
            got = get(b, o.total, sizeof begin);
            mr_eq_f64(got[0], want, 1e-9 * (1 + fabs(want)));
            mr_eq_f64(got[1], 5 + (double)(rows ? n : values), 0);
            free(got);
            free(x);
            free(z);
            drop_blocks(b);
        }
}

ON_DEVICES(penalties_and_their_gradients_are_the_formulas)
{
    static const double factors[][2] = {{0, 0}, {0.5, 0}, {0, 0.25}, {0.5, 0.25}};
    for (size_t k = 0; k < N_LENGTHS; k++)
        for (size_t f = 0; f < 4; f++) {
            size_t n = lengths[k];
            double l1 = factors[f][0], l2 = factors[f][1], begin = 2, want = 2, *got;
            float *w = draw(b, n), *g = draw(b, n), *pg = put_floats(b, g, n);
            double *slopes = doubles(n);
            for (size_t i = 0; i < n; i++) {
                want += l1 * fabs((double)w[i]) + l2 * w[i] * w[i];
                slopes[i] = g[i] + l1 * ((w[i] > 0) - (w[i] < 0)) + l2 * w[i];
            }
            mr_math_penalty o = {.n = n,
                                 .l1 = l1,
                                 .l2 = l2,
                                 .w = put_floats(b, w, n),
                                 .out = put(b, &begin, sizeof begin)};
            mr_math_penalty_backward d = {n, (float)l1, (float)l2, o.w, pg};
            mr_ok(b->m->penalty(b->s, &o, &st), &st);
            mr_ok(b->m->penalty_backward(b->s, &d, &st), &st);
            got = get(b, o.out, sizeof *got);
            mr_eq_f64(*got, want, 1e-9 * want);
            expect(b, pg, slopes, n, 1e-6);
            free(got);
            free(w);
            free(g);
            drop_blocks(b);
        }
}

static float *squares(bench *b, size_t n)
{
    float *x = draw(b, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= x[i];
    return x;
}

ON_DEVICES(updates_are_the_formulas_and_can_be_skipped)
{
    static const float go = 0, stop = 1;
    for (size_t k = 0; k < N_LENGTHS; k++)
        for (int kind = 0; kind < 4; kind++)       /* plain, momentum, nesterov, adam */
            for (int skip = 0; skip < 3; skip++) { /* not asked, 0, 1 */
                size_t n = lengths[k];
                float *g = draw(b, n), *w = draw(b, n), *m = draw(b, n), *v = squares(b, n);
                float *pg = put_floats(b, g, n), *pw = put_floats(b, w, n),
                      *pm = put_floats(b, m, n), *pv = put_floats(b, v, n);
                const float *word = skip ? put_floats(b, skip == 2 ? &stop : &go, 1) : NULL;
                double *ww = doubles(n), *wm = doubles(n), *wv = doubles(n);
                for (size_t i = 0; i < n; i++) {
                    ww[i] = w[i], wm[i] = m[i], wv[i] = v[i];
                    if (skip == 2)
                        continue;
                    if (kind == 3) {
                        wm[i] += (g[i] - wm[i]) * (double)0.1f;
                        wv[i] += ((double)g[i] * g[i] - wv[i]) * (double)0.001f;
                        ww[i] -= wm[i] * (double)0.01f / (sqrt(wv[i]) + (double)1e-7f);
                        continue;
                    }
                    if (kind > 0)
                        wm[i] = (double)0.9f * wm[i] - (double)0.1f * g[i];
                    ww[i] += kind == 0   ? (double)-0.1f * g[i]
                             : kind == 1 ? wm[i]
                                         : (double)0.9f * wm[i] - (double)0.1f * g[i];
                }
                mr_test_context("update %d of %zu values, skip %d", kind, n, skip);
                mr_math_sgd sgd = {.n = n,
                                   .rate = 0.1f,
                                   .momentum = kind ? 0.9f : 0,
                                   .nesterov = kind == 2,
                                   .g = pg,
                                   .w = pw,
                                   .m = kind ? pm : NULL,
                                   .skip = word};
                mr_math_adam adam = {n, 0.01f, 0.1f, 0.001f, 1e-7f, pg, pw, pm, pv, word};
                mr_ok(kind == 3 ? b->m->adam(b->s, &adam, &st) : b->m->sgd(b->s, &sgd, &st), &st);
                expect(b, pw, ww, n, 3e-6);
                expect(b, pm, wm, n, 3e-6);
                expect(b, pv, wv, n, 3e-6);
                free(g);
                free(w);
                free(m);
                free(v);
                drop_blocks(b);
            }
}

ON_DEVICES(running_means_take_the_mean_over_those_that_have_rows)
{
    for (size_t k = 0; k < N_LENGTHS; k++)
        for (size_t t = 0; t < 3; t++) { /* two replicas have rows; none; a step to be left out */
            size_t n = lengths[k];
            float *w = draw(b, n), *sum = draw(b, n), count = t == 1 ? 0 : 2, skip = t == 2;
            double *want = doubles(n);
            for (size_t i = 0; i < n; i++)
                want[i] = t == 0 ? 0.75 * w[i] + 0.25 * (sum[i] / 2.0) : w[i];
            mr_math_average o = {n,
                                 0.75f,
                                 put_floats(b, sum, n),
                                 put(b, &count, sizeof count),
                                 put_floats(b, w, n),
                                 t < 2 ? NULL : put(b, &skip, sizeof skip)};
            mr_ok(b->m->average(b->s, &o, &st), &st);
            expect(b, o.w, want, n, 1e-6);
            free(w);
            free(sum);
            drop_blocks(b);
        }
}
