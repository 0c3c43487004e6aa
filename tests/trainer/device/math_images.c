/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, pools and normalizations of a device's table against plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"

static mr_status st;

typedef mr_math_conv2d_shape conv;

static const conv convolutions[] = {
    /* n height width channels filters groups, kernel, strides, dilations, padding, out */
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1},
    {2, 7, 5, 3, 4, 1, 3, 3, 1, 1, 1, 1, 0, 0, 5, 3},   /* valid */
    {3, 7, 5, 3, 4, 1, 3, 3, 1, 1, 1, 1, 1, 1, 7, 5},   /* same */
    {2, 9, 8, 5, 7, 1, 2, 3, 2, 2, 1, 1, 0, 1, 5, 4},   /* same, with strides: more after */
    {2, 11, 13, 2, 6, 1, 3, 2, 1, 2, 2, 3, 1, 0, 9, 5}, /* dilated */
    {2, 8, 9, 6, 6, 6, 3, 3, 1, 1, 1, 1, 1, 1, 8, 9},   /* depthwise */
    {1, 7, 7, 4, 12, 4, 3, 3, 2, 2, 1, 1, 0, 0, 3, 3},  /* depthwise with a multiplier */
    {2, 6, 6, 8, 4, 2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6},   /* two groups */
    {2, 28, 28, 1, 32, 1, 3, 3, 1, 1, 1, 1, 1, 1, 28, 28},
    {19, 8, 8, 8, 256, 4, 3, 3, 1, 1, 1, 1, 1, 1, 8, 8}, /* a few at once, and a rest */
    {2, 6, 7, 8, 16, 1, 3, 3, 1, 1, 1, 1, 1, 1, 6, 7},   /* channels in eights, which GPUs' */
    {3, 9, 8, 16, 8, 1, 2, 3, 2, 2, 1, 1, 0, 1, 5, 4},   /* units for bfloat16 want */
    {1, 7, 6, 16, 32, 2, 3, 2, 1, 1, 2, 1, 2, 0, 7, 5},
    {2, 11, 13, 2, 8, 1, 3, 2, 1, 2, 2, 3, 1, 0, 9, 5},    /* few terms: dilated; strides; */
    {3, 9, 11, 1, 4, 1, 5, 5, 2, 3, 1, 1, 0, 0, 3, 3},     /* more rows of the result than */
    {20, 22, 4, 3, 256, 1, 3, 3, 1, 1, 1, 1, 0, 0, 20, 2}, /* parts; many rows of the bias */
    {11, 30, 30, 1, 4, 1, 3, 3, 1, 1, 1, 1, 1, 1, 30, 30},
    {2, 9, 8, 2, 5, 1, 1, 1, 2, 2, 1, 1, 0, 0, 5, 4}, /* windows of one, with strides */
    {3, 7, 6, 12, 16, 1, 1, 1, 3, 1, 1, 1, 0, 0, 3, 6},
    {0, 5, 5, 3, 4, 1, 3, 3, 1, 1, 1, 1, 1, 1, 5, 5},
};
enum { N_CONVOLUTIONS = sizeof convolutions / sizeof *convolutions };

/* Calls fn for every product of the convolution: positions in x, kernel and y. */
static void each_product(const conv *s, void (*fn)(void *ctx, size_t x, size_t k, size_t y),
                         void *ctx)
{
    size_t share = s->channels / s->groups, per_group = s->filters / s->groups;
    for (size_t b = 0; b < s->n; b++)
        for (size_t i = 0; i < s->out_h; i++)
            for (size_t j = 0; j < s->out_w; j++)
                for (size_t o = 0; o < s->filters; o++)
                    for (size_t u = 0; u < s->kernel_h; u++)
                        for (size_t v = 0; v < s->kernel_w; v++)
                            for (size_t c = 0; c < share; c++) {
                                size_t r = i * s->stride_h + u * s->dilation_h,
                                       q = j * s->stride_w + v * s->dilation_w;
                                if (r < s->pad_top || q < s->pad_left ||
                                    r - s->pad_top >= s->height || q - s->pad_left >= s->width)
                                    continue;
                                r = ((b * s->height + r - s->pad_top) * s->width + q -
                                     s->pad_left) *
                                        s->channels +
                                    o / per_group * share + c;
                                fn(ctx, r, ((u * s->kernel_w + v) * share + c) * s->filters + o,
                                   ((b * s->out_h + i) * s->out_w + j) * s->filters + o);
                            }
}

typedef struct loops {
    const float *x, *k, *dy;
    double *y, *dx, *dk;
} loops;

static void add_product(void *ctx, size_t x, size_t k, size_t y)
{
    loops *l = ctx;
    l->y[y] += (double)l->x[x] * l->k[k];
    l->dx[x] += (double)l->dy[y] * l->k[k];
    l->dk[k] += (double)l->dy[y] * l->x[x];
}

/* GPUs' units for bfloat16 round what they give to it. */
static double tolerance_of(const bench *b, bool bfloat, double otherwise)
{
    return bfloat && strcmp(mr_device_kind(b->d), "cpu") != 0 ? 1.0 / 256 : otherwise;
}

/* The double of cuDNN has units for all that they may be asked for. */
static bool has_units(const bench *b, const conv *s)
{
    mr_device_properties p;
    mr_device_describe(b->d, &p);
    return strcmp(p.model, "double") == 0 && s->channels / s->groups % 8 == 0 &&
           s->filters / s->groups % 8 == 0;
}

static void expect_bfloats(bench *b, const float *p, size_t n)
{
    float *got = get(b, p, n * sizeof *got), *rounded = get(b, p, n * sizeof *got);
    round_where(true, rounded, n);
    mr_eq_mem(got, rounded, n * sizeof *got);
    free(got);
    free(rounded);
}

static void check_convolutions(bench *b, const conv *shapes, size_t n)
{
    for (size_t t = 0; t < 3 * n; t++) {
        const conv *s = &shapes[t % n];
        bool with_bias = t < n, bfloat = t >= 2 * n;
        size_t images = s->n * s->height * s->width * s->channels,
               kernel = s->kernel_h * s->kernel_w * (s->channels / s->groups) * s->filters,
               result = s->n * s->out_h * s->out_w * s->filters;
        float *x = draw(b, images), *k = draw(b, kernel), *bias = draw(b, s->filters),
              *dy = draw(b, result);
        round_where(bfloat, x, images);
        round_where(bfloat, k, kernel);
        round_where(bfloat, dy, result);
        loops l = {x, k, dy, doubles(result), doubles(images), doubles(kernel)};
        double *db = doubles(s->filters);
        each_product(s, add_product, &l);
        for (size_t i = 0; i < result; i++) {
            l.y[i] += with_bias ? bias[i % s->filters] : 0;
            l.y[i] = l.y[i] < 0 && with_bias ? 0 : l.y[i];
            db[i % s->filters] += dy[i];
        }
        mr_test_context("convolution %zu", t);
        mr_math_conv2d f = {.s = *s,
                            .f = with_bias ? MR_ACT_RELU : MR_ACT_LINEAR,
                            .x = put_floats(b, x, images),
                            .kernel = put_floats(b, k, kernel),
                            .bias = with_bias ? put_floats(b, bias, s->filters) : NULL,
                            .y = put_floats(b, NULL, result),
                            .bfloat = bfloat};
        mr_math_conv2d_backward_data d = {*s, put_floats(b, dy, result), f.kernel,
                                          put_floats(b, NULL, images), bfloat};
        mr_math_conv2d_backward_weights w = {*s,
                                             f.x,
                                             d.dy,
                                             put_floats(b, NULL, kernel),
                                             with_bias ? put_floats(b, NULL, s->filters) : NULL,
                                             bfloat};
        for (int twice = 0; twice < 2; twice++) { /* the second time with plans that are there */
            mr_ok(b->m->conv2d(b->s, &f, &st), &st);
            mr_ok(b->m->conv2d_backward_data(b->s, &d, &st), &st);
            mr_ok(b->m->conv2d_backward_weights(b->s, &w, &st), &st);
        }
        /* The error of a convolution by FFT is one of the largest numbers, not of this one. */
        expect(b, f.y, l.y, result, tolerance_of(b, bfloat, 5e-5));
        expect(b, d.dx, l.dx, images, tolerance_of(b, bfloat, 5e-5));
        expect(b, w.dkernel, l.dk, kernel, tolerance_of(b, bfloat, 1e-4));
        if (bfloat && has_units(b, s)) {
            expect_bfloats(b, f.y, result);
            expect_bfloats(b, d.dx, images);
            expect_bfloats(b, w.dkernel, kernel);
        }
        if (with_bias)
            expect(b, w.dbias, db, s->filters, 1e-4);
        else
            free(db);
        free(x);
        free(k);
        free(bias);
        free(dy);
        drop_blocks(b);
    }
}

ON_DEVICES(convolutions_and_their_gradients_are_the_plain_loops)
{
    check_convolutions(b, convolutions, N_CONVOLUTIONS);
}

/* Fewer channels than oneDNN's kernels take at once: some spoil memory. */
ON_DEVICES(strided_windows_of_one_are_the_plain_loops)
{
    static const size_t channels[] = {1, 2, 3, 5, 7, 9, 15, 17};
    conv shapes[5 * 8];
    for (size_t i = 0; i < 5 * 8; i++)
        shapes[i] = (conv){i / 8 + 1, 4, 4, channels[i % 8], 3, 1, 1, 1, 2, 2, 1, 1, 0, 0, 2, 2};
    check_convolutions(b, shapes, 5 * 8);
}

ON_DEVICES(convolutions_of_large_kernels_are_the_plain_loops)
{
    static const conv shapes[] = {
        {2, 1, 40, 1, 4, 1, 1, 32, 1, 1, 1, 1, 0, 15, 1,
         40}, /* a kernel of one row; of one column; */
        {2, 40, 1, 1, 4, 1, 32, 1, 1, 1, 1, 1, 15, 0, 40,
         1}, /* larger than the image; all at once */
        {2, 2, 3, 1, 8, 1, 5, 5, 1, 1, 1, 1, 2, 2, 2, 3},
        {2, 9, 10, 3, 4, 1, 3, 3, 2, 3, 2, 2, 3, 3, 6, 4},
    };
    check_convolutions(b, shapes, sizeof shapes / sizeof *shapes);
}

/* What is added up is the same each time, so that what rounding loses adds up too. */
ON_DEVICES(gradients_of_long_rows_do_not_lose_what_is_small)
{
    static const conv rows[] = {{1, 1, 300003, 1, 4, 1, 1, 3, 1, 1, 1, 1, 0, 0, 1, 300001},
                                {192, 1, 1027, 1, 4, 1, 1, 3, 1, 2, 1, 1, 0, 0, 1, 513}};
    for (size_t t = 0; t < 2; t++) {
        const conv *s = &rows[t];
        size_t images = s->n * s->width, result = s->n * s->out_w * s->filters;
        float *x = malloc(images * sizeof *x), *dy = malloc(result * sizeof *dy);
        double *want = doubles(12);
        for (size_t i = 0; i < images; i++)
            x[i] = 1;
        for (size_t i = 0; i < result; i++)
            dy[i] = 0.1f;
        for (size_t i = 0; i < 12; i++)
            want[i] = (double)0.1f * (double)(s->n * s->out_w);
        mr_math_conv2d_backward_weights w = {*s,
                                             put_floats(b, x, images),
                                             put_floats(b, dy, result),
                                             put_floats(b, NULL, 12),
                                             NULL,
                                             false};
        mr_test_context("rows of %zu", s->out_w);
        mr_ok(b->m->conv2d_backward_weights(b->s, &w, &st), &st);
        /* oneDNN adds a whole row up in float32. */
        bool cpu = strcmp(mr_device_kind(b->d), "cpu") == 0;
        expect(b, w.dkernel, want, 12, cpu ? 1e-2 : 3e-4);
        free(x);
        free(dy);
        drop_blocks(b);
    }
}

ON_DEVICES(more_shapes_than_plans_are_kept_still_give_the_same)
{
    for (size_t turn = 0; turn < 2; turn++)
        for (size_t n = 1; n <= 70; n++) {
            conv s = {n, 3, 3, 1, 1, 1, 3, 3, 1, 1, 1, 1, 0, 0, 1, 1};
            float *x = draw(b, n * 9), *k = draw(b, 9);
            double *want = doubles(n);
            for (size_t i = 0; i < n * 9; i++)
                want[i / 9] += (double)x[i] * k[i % 9];
            mr_math_conv2d f = {.s = s,
                                .x = put_floats(b, x, n * 9),
                                .kernel = put_floats(b, k, 9),
                                .y = put_floats(b, NULL, n)};
            mr_ok(b->m->conv2d(b->s, &f, &st), &st);
            expect(b, f.y, want, n, 1e-5);
            free(x);
            free(k);
            drop_blocks(b);
        }
}

typedef mr_math_pool2d_shape pool;

static const pool pools[] = {
    /* average n height width channels, pool, strides, padding, out */
    {false, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1},   {false, 2, 6, 8, 3, 2, 2, 2, 2, 0, 0, 3, 4},
    {false, 2, 7, 5, 5, 3, 2, 2, 1, 1, 0, 4, 5},   {false, 3, 7, 7, 17, 3, 3, 1, 1, 1, 1, 7, 7},
    {true, 2, 6, 8, 3, 2, 2, 2, 2, 0, 0, 3, 4},    {true, 2, 7, 5, 5, 3, 2, 2, 1, 1, 0, 4, 5},
    {true, 3, 7, 9, 11, 7, 9, 1, 1, 0, 0, 1, 1},   {true, 0, 4, 4, 2, 2, 2, 2, 2, 0, 0, 2, 2},
    {false, 2, 6, 8, 4, 2, 2, 2, 2, 0, 0, 3, 4},   /* ties in a row */
    {false, 2, 4, 5, 3, 2, 2, 2, 2, 0, 0, 2, 2},   /* a column in no window */
    {false, 1, 3, 6, 300, 3, 3, 3, 3, 0, 0, 1, 2}, /* more channels than are taken at once */
    {false, 1, 5, 5, 300, 3, 2, 1, 1, 0, 0, 3, 4}, /* channels in fours: */
    {true, 2, 6, 8, 4, 2, 2, 2, 2, 0, 0, 3, 4},    {true, 2, 7, 5, 8, 3, 2, 2, 1, 1, 0, 4, 5},
    {false, 2, 5, 7, 8, 2, 2, 2, 2, 1, 1, 3, 4},   {true, 2, 5, 7, 8, 2, 2, 2, 2, 1, 1, 3, 4},
};

/* One window: the result, and dy shared out over dx. */
static double pool_window(const pool *s, const float *x, size_t at, size_t i, size_t j, double dy,
                          double *dx)
{
    double most = 0, sum = 0, n = 0;
    size_t best = 0, seen[256];
    for (size_t u = 0; u < s->pool_h; u++)
        for (size_t v = 0; v < s->pool_w; v++) {
            size_t r = i * s->stride_h + u, q = j * s->stride_w + v;
            if (r < s->pad_top || q < s->pad_left || r - s->pad_top >= s->height ||
                q - s->pad_left >= s->width)
                continue;
            size_t p = at + ((r - s->pad_top) * s->width + q - s->pad_left) * s->channels;
            if (n == 0 || x[p] > most) {
                most = x[p];
                best = p;
            }
            sum += x[p];
            seen[(size_t)n++] = p;
        }
    for (size_t k = 0; s->average && k < (size_t)n; k++)
        dx[seen[k]] += dy / n;
    if (!s->average)
        dx[best] += dy;
    return s->average ? sum / n : most;
}

ON_DEVICES(pools_and_their_gradients_are_the_plain_loops)
{
    for (size_t t = 0; t < sizeof pools / sizeof *pools; t++) {
        const pool *s = &pools[t];
        size_t image = s->height * s->width * s->channels, images = s->n * image;
        size_t plane = s->out_h * s->out_w * s->channels, result = s->n * plane;
        float *x = draw(b, images), *dy = draw(b, result);
        double *y = doubles(result), *dx = doubles(images);
        for (size_t i = 0; i < images; i += 2)
            x[i] = rintf(x[i]); /* ties */
        for (size_t i = 0; i < result; i++) {
            size_t c = i % s->channels, at = i % plane / s->channels;
            y[i] =
                pool_window(s, x, i / plane * image + c, at / s->out_w, at % s->out_w, dy[i], dx);
        }
        mr_test_context("pool %zu", t);
        mr_math_pool2d f = {*s, put_floats(b, x, images), put_floats(b, NULL, result)};
        mr_math_pool2d_backward g = {*s, f.x, f.y, put_floats(b, dy, result),
                                     put_floats(b, NULL, images)};
        mr_ok(b->m->pool2d(b->s, &f, &st), &st);
        mr_ok(b->m->pool2d_backward(b->s, &g, &st), &st);
        expect(b, f.y, y, result, 1e-5);
        expect(b, g.dx, dx, images, 1e-5);
        free(x);
        free(dy);
        drop_blocks(b);
    }
}

ON_DEVICES(pools_take_nan_for_the_largest_and_infinity_as_it_is)
{
    enum { CHANNELS = 8 };
    const pool s = {false, 1, 2, 4, CHANNELS, 2, 2, 2, 2, 0, 0, 1, 2};
    float x[2 * 4 * CHANNELS], dy[2 * CHANNELS];
    for (size_t i = 0; i < 2 * CHANNELS; i++)
        dy[i] = (float)(i + 1);
    double *y = doubles(2 * CHANNELS), *dx = doubles(2 * 4 * CHANNELS);
    for (size_t c = 0; c < CHANNELS; c++) {
        float first[4] = {1, 2, NAN, 3}, second[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
        size_t best = c % 4; /* where the NaN is, and the only number */
        first[2] = first[best], first[best] = NAN;
        second[best] = c % 3 == 0 ? -7 : -INFINITY;
        for (size_t k = 0; k < 4; k++) {
            x[(k / 2 * 4 + k % 2) * CHANNELS + c] = first[k];
            x[(k / 2 * 4 + 2 + k % 2) * CHANNELS + c] = second[k];
        }
        size_t other = c % 3 == 0 ? best : 0;
        y[c] = NAN, y[CHANNELS + c] = second[other];
        dx[(best / 2 * 4 + best % 2) * CHANNELS + c] = dy[c];
        dx[(other / 2 * 4 + 2 + other % 2) * CHANNELS + c] = dy[CHANNELS + c];
    }
    mr_math_pool2d f = {s, put_floats(b, x, 2 * 4 * CHANNELS), put_floats(b, NULL, 2 * CHANNELS)};
    mr_math_pool2d_backward g = {s, f.x, f.y, put_floats(b, dy, 2 * CHANNELS),
                                 put_floats(b, NULL, 2 * 4 * CHANNELS)};
    mr_ok(b->m->pool2d(b->s, &f, &st), &st);
    mr_ok(b->m->pool2d_backward(b->s, &g, &st), &st);
    float *got = get(b, f.y, 2 * CHANNELS * sizeof *got);
    for (size_t i = 0; i < 2 * CHANNELS; i++)
        mr_check(isnan(y[i]) ? isnan(got[i]) : (double)got[i] == y[i]);
    free(got);
    free(y);
    expect(b, g.dx, dx, 2 * 4 * CHANNELS, 0);
    drop_blocks(b);
}

typedef struct norm {
    bool by_row;
    size_t rows, width;
    const float *x, *gamma, *beta, *dy;
    double *mean, *variance, *y, *dx, *dgamma, *dbeta;
} norm;

/* One group of values that share their moments. */
static void normalize_group(norm *n, size_t k, double epsilon)
{
    size_t count = n->by_row ? n->width : n->rows, step = n->by_row ? 1 : n->width;
    size_t first = n->by_row ? k * n->width : k;
    double e_sum = 0, eh_sum = 0, c = (double)count;
    for (size_t i = 0; i < count; i++)
        n->mean[k] += n->x[first + i * step] / c;
    for (size_t i = 0; i < count; i++)
        n->variance[k] += pow(n->x[first + i * step] - n->mean[k], 2) / c;
    double deviation = sqrt(n->variance[k] + epsilon);
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i * step, j = at % n->width;
        double h = (n->x[at] - n->mean[k]) / deviation, e = n->dy[at] * (double)n->gamma[j];
        n->y[at] = h * n->gamma[j] + n->beta[j];
        n->dgamma[j] += n->dy[at] * h;
        n->dbeta[j] += n->dy[at];
        e_sum += e / c;
        eh_sum += e * h / c;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i * step;
        double h = (n->x[at] - n->mean[k]) / deviation;
        double e = n->dy[at] * (double)n->gamma[at % n->width];
        n->dx[at] = (e - e_sum - h * eh_sum) / deviation;
    }
}

ON_DEVICES(normalization_and_its_gradients_are_the_formulas)
{
    static const size_t sizes[][2] = {{0, 5}, {1, 3}, {7, 1}, {37, 70}, {513, 3}, {5, 1001}};
    for (size_t t = 0; t < 4 * sizeof sizes / sizeof *sizes; t++) {
        bool by_row = t % 2, plain = t / 2 % 2;
        size_t rows = sizes[t / 4][0], width = sizes[t / 4][1], values = rows * width;
        size_t groups = by_row ? rows : width;
        float *x = draw(b, values), *gamma = draw(b, width), *beta = draw(b, width),
              *dy = draw(b, values);
        for (size_t j = 0; plain && j < width; j++)
            gamma[j] = 1, beta[j] = 0;
        norm n = {by_row,
                  rows,
                  width,
                  x,
                  gamma,
                  beta,
                  dy,
                  doubles(groups),
                  doubles(groups),
                  doubles(values),
                  doubles(values),
                  doubles(width),
                  doubles(width)};
        for (size_t k = 0; k < groups && rows > 0; k++)
            normalize_group(&n, k, 0.001f);
        mr_test_context("%zux%zu, %s", rows, width, by_row ? "by row" : "by column");
        float *px = put_floats(b, x, values), *pdy = put_floats(b, dy, values);
        mr_math_moments m = {
            by_row, rows, width, px, put_floats(b, NULL, groups), put_floats(b, NULL, groups)};
        mr_math_normalize f = {.by_row = by_row,
                               .rows = rows,
                               .width = width,
                               .epsilon = 0.001f,
                               .x = px,
                               .mean = m.mean,
                               .variance = m.variance,
                               .gamma = plain ? NULL : put_floats(b, gamma, width),
                               .beta = plain ? NULL : put_floats(b, beta, width),
                               .y = put_floats(b, NULL, values)};
        mr_math_normalize_backward g = {.by_row = by_row,
                                        .rows = rows,
                                        .width = width,
                                        .epsilon = 0.001f,
                                        .x = px,
                                        .mean = m.mean,
                                        .variance = m.variance,
                                        .gamma = f.gamma,
                                        .dy = pdy,
                                        .dx = t % 3 ? pdy : put_floats(b, NULL, values),
                                        .dgamma = put_floats(b, NULL, width),
                                        .dbeta = put_floats(b, NULL, width)};
        mr_ok(b->m->moments(b->s, &m, &st), &st);
        mr_ok(b->m->normalize(b->s, &f, &st), &st);
        mr_ok(b->m->normalize_backward(b->s, &g, &st), &st);
        expect(b, m.mean, n.mean, groups, 1e-5);
        expect(b, m.variance, n.variance, groups, 1e-5);
        expect(b, f.y, n.y, values, 1e-4);
        expect(b, g.dx, n.dx, values, 2e-3);
        expect(b, g.dgamma, n.dgamma, width, 1e-4);
        expect(b, g.dbeta, n.dbeta, width, 1e-4);
        free(x);
        free(gamma);
        free(beta);
        free(dy);
        drop_blocks(b);
    }
}

/* Rows on two devices, or all on one of them: the moments and dx are those of all rows on one. */
ON_DEVICES(joint_moments_are_those_of_all_rows)
{
    static const size_t splits[][3] = {{5, 4, 3}, {9, 0, 5}, {1, 6, 70}, {0, 0, 2}, {200, 313, 1}};
    for (size_t t = 0; t < sizeof splits / sizeof *splits; t++) {
        size_t width = splits[t][2], rows = splits[t][0] + splits[t][1], values = rows * width;
        float *x = draw(b, values), *dy = draw(b, values), *shift = draw(b, width),
              *gamma = draw(b, width);
        mr_test_context("%zu and %zu rows of %zu", splits[t][0], splits[t][1], width);
        for (size_t i = 0; i < values; i++)
            x[i] += 30; /* far from 0, near the shift */
        for (size_t j = 0; j < width; j++)
            shift[j] += 30;
        float *px = put_floats(b, x, values), *pdy = put_floats(b, dy, values);
        float *pshift = put_floats(b, shift, width), *pgamma = put_floats(b, gamma, width);
        float *sums = put_floats(b, NULL, 2 * width + 1),
              *total = put_floats(b, NULL, 2 * width + 1);
        float *mean = put_floats(b, NULL, width), *variance = put_floats(b, NULL, width);
        float *want_mean = put_floats(b, NULL, width), *want_variance = put_floats(b, NULL, width);
        mr_ok(b->m->fill(b->s, &(mr_math_fill){2 * width + 1, 0, total}, &st), &st);
        for (size_t part = 0, from = 0; part < 2; from += splits[t][part++]) {
            size_t n = splits[t][part];
            const mr_math_moments m = {false, n, width, px + from * width, mean, variance};
            const mr_math_share_moments s = {n, width, mean, variance, pshift, sums};
            const mr_math_combine add = {2 * width + 1, 1, 1, sums, total};
            mr_ok(b->m->moments(b->s, &m, &st), &st);
            mr_ok(b->m->share_moments(b->s, &s, &st), &st);
            mr_ok(b->m->combine(b->s, &add, &st), &st);
        }
        const mr_math_joint_moments joint = {width, total, pshift, mean, variance};
        const mr_math_moments all = {false, rows, width, px, want_mean, want_variance};
        mr_ok(b->m->joint_moments(b->s, &joint, &st), &st);
        mr_ok(b->m->moments(b->s, &all, &st), &st);
        double *wm = doubles(width), *wv = doubles(width), *wdx = doubles(values);
        float *hm = get(b, want_mean, width * sizeof *hm), *hv = get(b, want_variance, width * 4);
        for (size_t j = 0; j < width; j++) {
            wm[j] = rows ? hm[j] : shift[j];
            wv[j] = hv[j];
        }
        mr_math_normalize_backward g = {.rows = rows,
                                        .width = width,
                                        .epsilon = 0.01f,
                                        .x = px,
                                        .mean = want_mean,
                                        .variance = want_variance,
                                        .gamma = pgamma,
                                        .dy = pdy,
                                        .dx = put_floats(b, NULL, values),
                                        .dgamma = put_floats(b, NULL, width),
                                        .dbeta = put_floats(b, NULL, width)};
        mr_ok(b->m->normalize_backward(b->s, &g, &st), &st);
        float *hdx = get(b, g.dx, values * sizeof *hdx);
        for (size_t i = 0; i < values; i++)
            wdx[i] = hdx[i];
        mr_math_joint_backward j = {.rows = rows,
                                    .width = width,
                                    .epsilon = 0.01f,
                                    .x = px,
                                    .mean = mean,
                                    .variance = variance,
                                    .gamma = pgamma,
                                    .dy = pdy,
                                    .dgamma = g.dgamma,
                                    .dbeta = g.dbeta,
                                    .n = total + 2 * width,
                                    .dx = pdy};
        mr_ok(b->m->joint_backward(b->s, &j, &st), &st);
        expect(b, pdy, wdx, values, 2e-3);
        expect(b, mean, wm, width, 1e-5);
        expect(b, variance, wv, width, 1e-4);
        free(x);
        free(dy);
        free(shift);
        free(gamma);
        free(hm);
        free(hv);
        free(hdx);
        drop_blocks(b);
    }
}
