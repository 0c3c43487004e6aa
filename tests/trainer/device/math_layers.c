/* SPDX-License-Identifier: Apache-2.0 */
/* Layers one at a time: results against plain loops, gradients against finite differences, at odd
 * sizes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/layer_rig.h"

static mr_status st;

/* Where TensorFlow puts windows along an axis: how many, and how far before the image. */
static int64_t windows(int64_t in, int64_t size, int64_t stride, int64_t dilation, bool same,
                       int64_t *before)
{
    int64_t reach = (size - 1) * dilation + 1, out = same ? (in + stride - 1) / stride : 0;
    int64_t pad = same ? (out - 1) * stride + reach - in : 0;
    *before = pad > 0 ? pad / 2 : 0;
    return same ? out : (in - reach) / stride + 1;
}

typedef struct images {
    int64_t h, w, c;                /* of an image */
    int64_t filters, groups;        /* per_channel: groups are the channels */
    int64_t kh, kw, sh, sw, dh, dw; /* kernel, strides, dilation */
    bool same;
} images;

/* Calls fn for every value of x that a window has: the window at (i, j) of image b. */
static void each_value(const images *s, size_t b, int64_t i, int64_t j,
                       void (*fn)(void *ctx, size_t x, size_t k), void *ctx)
{
    int64_t top, left;
    windows(s->h, s->kh, s->sh, s->dh, s->same, &top);
    windows(s->w, s->kw, s->sw, s->dw, s->same, &left);
    for (int64_t u = 0; u < s->kh; u++)
        for (int64_t v = 0; v < s->kw; v++) {
            int64_t r = i * s->sh + u * s->dh - top, q = j * s->sw + v * s->dw - left;
            if (r >= 0 && r < s->h && q >= 0 && q < s->w)
                fn(ctx, (size_t)((((int64_t)b * s->h + r) * s->w + q) * s->c),
                   (size_t)(u * s->kw + v));
        }
}

typedef struct product {
    const images *s;
    const float *x, *k;
    int64_t o;
    double sum;
} product;

static void add_products(void *ctx, size_t x, size_t k)
{
    product *p = ctx;
    int64_t share = p->s->c / p->s->groups, g = p->o / (p->s->filters / p->s->groups);
    for (int64_t c = 0; c < share; c++)
        p->sum += (double)p->x[x + (size_t)(g * share + c)] *
                  p->k[(k * (size_t)share + (size_t)c) * (size_t)p->s->filters + (size_t)p->o];
}

/* What a convolution followed by tanh gives. */
static void check_convolution(const rig *r, const images *s)
{
    int64_t unused, out_h = windows(s->h, s->kh, s->sh, s->dh, s->same, &unused);
    int64_t out_w = windows(s->w, s->kw, s->sw, s->dw, s->same, &unused);
    mr_eq_i64(r->l->out.shape[0], out_h);
    mr_eq_i64(r->l->out.shape[1], out_w);
    mr_eq_i64(r->l->out.shape[2], s->filters);
    size_t at = 0;
    for (size_t b = 0; b < r->rows; b++)
        for (int64_t i = 0; i < out_h; i++)
            for (int64_t j = 0; j < out_w; j++)
                for (int64_t o = 0; o < s->filters; o++, at++) {
                    product p = {.s = s, .x = r->x, .k = r->w[0], .o = o};
                    each_value(s, b, i, j, add_products, &p);
                    double bias = r->l->n_wanted > 1 ? r->w[1][o] : 0;
                    mr_eq_f64(r->y[at], tanh(p.sum + bias), 1e-5);
                }
}

ON_DEVICES(convolutions_place_windows_as_keras_does)
{
    static const struct {
        const char *text;
        images s;
    } cases[] = {
        {"conv2d(4, 3, activation=\"tanh\")", {7, 5, 3, 4, 1, 3, 3, 1, 1, 1, 1, false}},
        {"conv2d(5, [3, 2], strides=2, padding=\"same\", activation=\"tanh\")",
         {9, 8, 2, 5, 1, 3, 2, 2, 2, 1, 1, true}},
        {"conv2d(filters=2, kernel_size=4, strides=[1, 3], padding=\"same\", use_bias=false, "
         "activation=\"tanh\")",
         {6, 7, 1, 2, 1, 4, 4, 1, 3, 1, 1, true}},
        {"conv2d(3, 3, dilation_rate=[2, 3], activation=\"tanh\")",
         {9, 11, 2, 3, 1, 3, 3, 1, 1, 2, 3, false}},
        {"conv2d(6, 3, padding=\"same\", groups=2, activation=\"tanh\")",
         {5, 5, 4, 6, 2, 3, 3, 1, 1, 1, 1, true}},
        {"depthwise_conv2d(3, padding=\"same\", activation=\"tanh\")",
         {5, 7, 3, 3, 3, 3, 3, 1, 1, 1, 1, true}},
        {"depthwise_conv2d([2, 3], strides=2, depth_multiplier=2, activation=\"tanh\")",
         {7, 7, 3, 6, 3, 2, 3, 2, 2, 1, 1, false}},
        {"conv2d(1, 1, activation=\"tanh\")", {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, false}},
    };
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++)
        for (size_t rows = 1; rows <= 3; rows += 2) {
            const images *s = &cases[t].s;
            rig r = rig_open(b, cases[t].text, 3, (int64_t[]){s->h, s->w, s->c}, rows);
            for (size_t v = 0; v < r.l->n_wanted; v++) /* within what tanh tells apart */
                for (size_t i = 0; i < r.size[v]; i++)
                    r.w[v][i] *= 0.2f;
            rig_check_gradients(&r, 1e-2, 2e-3);
            rig_run(&r, false);
            check_convolution(&r, s);
            rig_close(&r);
        }
}

typedef struct values {
    const float *x;
    int64_t c;
    double most, sum;
    size_t n;
} values;

static void see_value(void *ctx, size_t x, size_t k)
{
    values *v = ctx;
    double value = v->x[x + (size_t)v->c];
    (void)k;
    v->most = v->n == 0 || value > v->most ? value : v->most;
    v->sum += value;
    v->n++;
}

ON_DEVICES(pools_place_windows_as_keras_does)
{
    static const struct {
        const char *text;
        bool average;
        images s;
    } cases[] = {
        {"max_pool()", false, {7, 5, 3, 3, 1, 2, 2, 2, 2, 1, 1, false}},
        {"max_pool(3, strides=2, padding=\"same\")",
         false,
         {8, 7, 2, 2, 1, 3, 3, 2, 2, 1, 1, true}},
        {"max_pool([1, 3], strides=[2, 1])", false, {5, 6, 1, 1, 1, 1, 3, 2, 1, 1, 1, false}},
        {"average_pool(2)", true, {6, 7, 3, 3, 1, 2, 2, 2, 2, 1, 1, false}},
        {"average_pool(3, strides=1, padding=\"same\")",
         true,
         {5, 4, 2, 2, 1, 3, 3, 1, 1, 1, 1, true}},
        {"global_average_pool()", true, {5, 3, 4, 4, 1, 5, 3, 1, 1, 1, 1, false}},
        {"global_average_pool(keepdims=true)", true, {1, 9, 2, 2, 1, 1, 9, 1, 1, 1, 1, false}},
    };
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++)
        for (size_t rows = 1; rows <= 3; rows += 2) {
            const images *s = &cases[t].s;
            rig r = rig_open(b, cases[t].text, 3, (int64_t[]){s->h, s->w, s->c}, rows);
            for (size_t i = 0; i < rows * r.in; i++) /* none twice: the largest is one */
                r.x[i] = (float)(i * 7919 % 10007) / 2000;
            rig_check_gradients(&r, cases[t].average ? 1e-2 : 1e-4, 5e-3);
            rig_run(&r, false);
            int64_t unused, out_h = windows(s->h, s->kh, s->sh, 1, s->same, &unused);
            int64_t out_w = windows(s->w, s->kw, s->sw, 1, s->same, &unused);
            mr_eq_u64(r.out, (uint64_t)(out_h * out_w * s->c));
            mr_eq_i64(r.l->out.rank, strcmp(cases[t].text, "global_average_pool()") ? 3 : 1);
            size_t at = 0;
            for (size_t n = 0; n < rows; n++)
                for (int64_t i = 0; i < out_h; i++)
                    for (int64_t j = 0; j < out_w; j++)
                        for (int64_t c = 0; c < s->c; c++, at++) {
                            values v = {.x = r.x, .c = c};
                            each_value(s, n, i, j, see_value, &v);
                            mr_eq_f64(r.y[at], cases[t].average ? v.sum / (double)v.n : v.most,
                                      1e-5);
                        }
            rig_close(&r);
        }
}

ON_DEVICES(rescaling_and_normalization_are_the_formulas)
{
    rig r = rig_open(b, "rescaling(0.5, offset=-1.0)", 2, (int64_t[]){3, 5}, 3);
    rig_check_gradients(&r, 1e-2, 1e-3);
    for (size_t i = 0; i < 45; i++)
        mr_eq_f64(r.y[i], 0.5 * (double)r.x[i] - 1, 2e-2);
    rig_close(&r);
    r = rig_open(b, "cast()", 1, (int64_t[]){5}, 3);
    rig_check_gradients(&r, 1e-2, 1e-3);
    rig_close(&r);
    static const double mean[] = {0.5, -1, 2}, variance[] = {4, 0.25, 1};
    for (int one = 0; one < 2; one++) {
        r = rig_open(b,
                     one ? "normalization([0.5], [4.0])"
                         : "normalization(mean=[0.5, -1.0, 2.0], variance=[4.0, 0.25, 1.0])",
                     2, (int64_t[]){2, 3}, 3);
        mr_eq_u64(r.l->n_wanted, 2);
        for (size_t v = 0; v < 2; v++) /* the rig sets variables, which a model would from these */
            for (size_t j = 0; j < 3; j++)
                r.w[v][j] = (float)r.l->wanted[v].values[r.l->wanted[v].n_values > 1 ? j : 0];
        rig_check_gradients(&r, 1e-2, 1e-3);
        rig_run(&r, false);
        for (size_t i = 0; i < 18; i++)
            mr_eq_f64(r.y[i], (r.x[i] - mean[one ? 0 : i % 3]) / sqrt(variance[one ? 0 : i % 3]),
                      1e-5);
        rig_close(&r);
    }
}

/* A 2x3 kernel over a 3x4 image with zeros around, every second column: what Keras gives. */
ON_DEVICES(a_convolution_has_known_values)
{
    static const float kernel[] = {1, 2, 3, 4, 5, 6};
    static const double want[] = {106, 79, 190, 127, 62, 35};
    rig r = rig_open(b, "conv2d(1, [2, 3], strides=[1, 2], padding=\"same\")", 3,
                     (int64_t[]){3, 4, 1}, 1);
    for (int i = 0; i < 12; i++)
        r.x[i] = (float)(i + 1);
    memcpy(r.w[0], kernel, sizeof kernel);
    r.w[1][0] = 0;
    rig_run(&r, false);
    mr_eq_u64(r.out, 6);
    for (int i = 0; i < 6; i++)
        mr_eq_f64(r.y[i], want[i], 1e-4);
    rig_close(&r);
}

static mr_code build_of(const char *text, int rank, const int64_t *shape, mr_model **m)
{
    mr_strategy *s = NULL;
    mr_ok(mr_model_parse(m, text, &st), &st);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    mr_status why;
    mr_code rc = mr_model_build(*m, s, rank, shape, NULL, &why);
    mr_model_free(*m);
    mr_strategy_free(s);
    st = why;
    return rc;
}

MR_TEST(images_that_do_not_fit_are_refused_when_built)
{
    static const struct {
        const char *text, *says;
        int rank;
        int64_t shape[3];
    } cases[] = {
        {"conv2d(4, 3)", "[height, width, channels]", 2, {28, 28}},
        {"conv2d(4, 3)", "windows of 3x3 do not fit into images of 2x5", 3, {2, 5, 1}},
        {"conv2d(4, 2, dilation_rate=3)", "windows of 4x4", 3, {3, 3, 1}},
        {"conv2d(4, [3, 3, 3])", "two, for height and width", 3, {5, 5, 1}},
        {"conv2d(4, 3, groups=3)", "3 groups do not divide", 3, {5, 5, 3}},
        {"depthwise_conv2d(3)", "[height, width, channels]", 1, {28}},
        {"max_pool(6)", "do not fit", 3, {5, 5, 1}},
        {"average_pool(2)", "[height, width, channels]", 1, {28}},
        {"global_average_pool()", "[height, width, channels]", 1, {28}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code_is(build_of(cases[i].text, cases[i].rank, cases[i].shape, &m), MR_INVALID_ARGUMENT,
                   &st);
        mr_has_str(st.message, cases[i].says);
    }
}
