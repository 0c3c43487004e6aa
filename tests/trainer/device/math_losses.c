/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of whole rows and the updates of the further optimizers, against their formulas in double
 * precision; gradients against differences of those. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"

static mr_status st;

static double within(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static double huber(double e, double delta)
{
    return fabs(e) <= delta ? e * e / 2 : delta * fabs(e) - delta * delta / 2;
}

/* The loss of one row; labels are smoothed already. */
static double loss_of(mr_math_loss_kind kind, double delta, const double *x, const double *z,
                      size_t width)
{
    const double eps = 1e-7f;
    double loss = 0, sum = 0, exps = 0, w = (double)width;
    for (size_t j = 0; j < width; j++) {
        sum += x[j];
        exps += exp(x[j]);
    }
    for (size_t j = 0; j < width; j++) {
        double e = x[j] - z[j], p = within(x[j], eps, 1 - eps), q = within(x[j], eps, 1);
        switch (kind) {
        case MR_LOSS_MAE:
            loss += fabs(e) / w;
            break;
        case MR_LOSS_HUBER:
            loss += huber(e, delta) / w;
            break;
        case MR_LOSS_KL_DIVERGENCE:
            loss += within(z[j], eps, 1) * log(within(z[j], eps, 1) / q);
            break;
        case MR_LOSS_CATEGORICAL_LOGITS:
            loss -= z[j] * (x[j] - log(exps));
            break;
        case MR_LOSS_CATEGORICAL_PROBABILITIES:
            loss -= z[j] * log(within(x[j] / sum, eps, 1 - eps));
            break;
        case MR_LOSS_BINARY_LOGITS:
            loss += (log1p(exp(x[j])) - x[j] * z[j]) / w;
            break;
        default:
            loss -= (z[j] * log(p) + (1 - z[j]) * log1p(-p)) / w;
        }
    }
    return loss;
}

static double slope_of(mr_math_loss_kind kind, double delta, double *x, const double *z,
                       size_t width, size_t j)
{
    double was = x[j], h = 1e-5;
    x[j] = was + h;
    double up = loss_of(kind, delta, x, z, width);
    x[j] = was - h;
    double down = loss_of(kind, delta, x, z, width);
    x[j] = was;
    return (up - down) / (2 * h);
}

static const struct {
    mr_math_loss_kind kind;
    bool probabilities;
    float smoothing, delta;
} kinds[] = {{MR_LOSS_MAE, false, 0, 0},
             {MR_LOSS_HUBER, false, 0, 1},
             {MR_LOSS_HUBER, false, 0, 0.3f},
             {MR_LOSS_KL_DIVERGENCE, true, 0, 0},
             {MR_LOSS_CATEGORICAL_LOGITS, false, 0, 0},
             {MR_LOSS_CATEGORICAL_LOGITS, false, 0.1f, 0},
             {MR_LOSS_CATEGORICAL_PROBABILITIES, true, 0, 0},
             {MR_LOSS_CATEGORICAL_PROBABILITIES, true, 0.25f, 0},
             {MR_LOSS_BINARY_LOGITS, false, 0.2f, 0},
             {MR_LOSS_BINARY_PROBABILITIES, true, 0.2f, 0}};

static void check_kind(bench *b, size_t t, size_t n, size_t width, bool weighted)
{
    mr_math_loss_kind kind = kinds[t].kind;
    double smoothing = kinds[t].smoothing, delta = kinds[t].delta, sum = 0;
    bool binary = kind == MR_LOSS_BINARY_LOGITS || kind == MR_LOSS_BINARY_PROBABILITIES;
    float *x = draw(b, n * width), *z = draw(b, n * width), *w = draw(b, n);
    double *per_example = doubles(n), *gradient = doubles(n * width);
    double *wide = doubles(width), *labels = doubles(width);
    for (size_t i = 0; i < n * width; i++) {
        x[i] = kinds[t].probabilities ? (float)(mr_test_random(&b->seed) % 900 + 50) / 1000
                                      : x[i] + 0.0123f; /* at no kink */
        z[i] = fabsf(z[i]) / 2;
    }
    for (size_t i = 0; i < n; i++) {
        double v = weighted ? w[i] : 1;
        for (size_t j = 0; j < width; j++) {
            wide[j] = x[i * width + j];
            labels[j] =
                z[i * width + j] * (1 - smoothing) + smoothing / (binary ? 2 : (double)width);
        }
        per_example[i] = v * loss_of(kind, delta, wide, labels, width);
        sum += per_example[i];
        for (size_t j = 0; j < width; j++)
            gradient[i * width + j] = 0.5 * v * slope_of(kind, delta, wide, labels, width, j);
    }
    mr_math_fault none = MR_MATH_FAULT_NONE;
    mr_math_loss o = {.kind = kind,
                      .n = n,
                      .width = width,
                      .losses_per_row = 1,
                      .losses_per_weight = 1,
                      .x = put_floats(b, x, n * width),
                      .label_dtype = MR_FLOAT32,
                      .labels = put_floats(b, z, n * width),
                      .weights = weighted ? put_floats(b, w, n) : NULL,
                      .scale = 0.5f,
                      .delta = kinds[t].delta,
                      .smoothing = kinds[t].smoothing,
                      .per_example = put_floats(b, NULL, n),
                      .gradient = put_floats(b, NULL, n * width),
                      .sum = put(b, NULL, sizeof sum),
                      .fault = put(b, &none, sizeof none)};
    mr_ok(b->m->loss(b->s, &o, &st), &st);
    expect(b, o.per_example, per_example, n, 2e-5);
    expect(b, o.gradient, gradient, n * width, 1e-4);
    double *got = get(b, o.sum, sizeof sum);
    mr_eq_f64(*got, sum, 2e-5 * (1 + (double)n * (double)width));
    free(got);
    free(x);
    free(z);
    free(w);
    free(wide);
    free(labels);
    drop_blocks(b);
}

ON_DEVICES(losses_of_rows_and_their_gradients_are_the_formulas)
{
    static const size_t shapes[][2] = {{0, 3}, {1, 1}, {5, 7}, {33, 2}, {3, 601}};
    for (size_t t = 0; t < sizeof kinds / sizeof *kinds; t++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int weighted = 0; weighted < 2; weighted++) {
                mr_test_context("loss %zu of %zux%zu", t, shapes[k][0], shapes[k][1]);
                check_kind(b, t, shapes[k][0], shapes[k][1], weighted);
            }
}

static const size_t lengths[] = {0, 1, 7, 1003};

static float *squares(bench *b, size_t n)
{
    float *x = draw(b, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= x[i];
    return x;
}

/* rmsprop plain, with momentum, centered, with both; adagrad. */
ON_DEVICES(rmsprop_and_adagrad_are_the_formulas_and_can_be_skipped)
{
    for (size_t t = 0; t < 4 * 5 * 2; t++) {
        size_t n = lengths[t % 4];
        int kind = (int)(t / 4 % 5);
        bool skip = t >= 20;
        float *g = draw(b, n), *w = draw(b, n), *v = squares(b, n), *a = draw(b, n),
              *m = draw(b, n), word = skip;
        double *ww = doubles(n), *wv = doubles(n), *wa = doubles(n), *wm = doubles(n);
        for (size_t i = 0; i < n; i++) {
            a[i] *= 0.1f; /* a mean is smaller than what its squares say */
            v[i] += 1;
            ww[i] = w[i], wv[i] = v[i], wa[i] = a[i], wm[i] = m[i];
            if (skip)
                continue;
            if (kind == 4) {
                wv[i] += (double)g[i] * g[i];
                ww[i] -= 0.1 * g[i] / sqrt(wv[i] + 1e-3);
                continue;
            }
            wv[i] += ((double)g[i] * g[i] - wv[i]) * 0.1;
            double u = wv[i], step;
            if (kind & 2) {
                wa[i] += (g[i] - wa[i]) * 0.1;
                u -= wa[i] * wa[i];
            }
            step = 0.1 * g[i] / sqrt(u + 1e-3);
            if (kind & 1)
                step = wm[i] = 0.9 * wm[i] + step;
            ww[i] -= step;
        }
        mr_test_context("update %d of %zu values", kind, n);
        mr_math_rmsprop r = {.n = n,
                             .rate = 0.1f,
                             .keep = 0.1f,
                             .momentum = 0.9f,
                             .epsilon = 1e-3f,
                             .g = put_floats(b, g, n),
                             .w = put_floats(b, w, n),
                             .v = put_floats(b, v, n),
                             .skip = t % 3 || skip ? put_floats(b, &word, 1) : NULL};
        float *pa = put_floats(b, a, n), *pm = put_floats(b, m, n);
        r.a = kind & 2 ? pa : NULL;
        r.m = kind & 1 ? pm : NULL;
        mr_math_adagrad d = {n, 0.1f, 1e-3f, r.g, r.w, r.v, r.skip};
        mr_ok(kind == 4 ? b->m->adagrad(b->s, &d, &st) : b->m->rmsprop(b->s, &r, &st), &st);
        expect(b, r.w, ww, n, 1e-5);
        expect(b, r.v, wv, n, 1e-5);
        expect(b, pa, wa, n, 1e-5);
        expect(b, pm, wm, n, 1e-5);
        free(g);
        free(w);
        free(v);
        free(a);
        free(m);
        drop_blocks(b);
    }
}

ON_DEVICES(decay_and_clip_are_the_formulas)
{
    for (size_t t = 0; t < 4 * 4; t++) {
        size_t n = lengths[t % 4];
        float *x = draw(b, n), word = t / 4 == 3;
        double *want = doubles(n), all = 0, factor = 1, *clipped = doubles(n);
        for (size_t i = 0; i < n; i++)
            all += (double)x[i] * x[i];
        double most = t / 4 % 2 ? 0.5 * sqrt(all) : 2 * sqrt(all) + 1, value = t / 4 > 1 ? 0.7 : 0;
        factor = most < sqrt(all) ? most / sqrt(all) : 1;
        for (size_t i = 0; i < n; i++) {
            want[i] = word != 0 ? x[i] : 0.75 * x[i];
            clipped[i] = (value > 0 ? within(x[i], -value, value) : x[i]) * factor;
        }
        mr_test_context("case %zu of %zu values", t / 4, n);
        mr_math_decay d = {n, 0.75f, put_floats(b, x, n), put_floats(b, &word, 1)};
        mr_math_clip c = {n, (float)value, (float)most, put(b, &all, sizeof all),
                          put_floats(b, x, n)};
        mr_ok(b->m->decay(b->s, &d, &st), &st);
        mr_ok(b->m->clip(b->s, &c, &st), &st);
        expect(b, d.w, want, n, 1e-6);
        expect(b, c.g, clipped, n, 1e-5);
        free(x);
        drop_blocks(b);
    }
}

ON_DEVICES(metrics_of_ranks_and_of_yes_and_no_are_the_counts)
{
    static const size_t shapes[][2] = {{0, 3}, {1, 1}, {5, 7}, {33, 2}, {3, 601}};
    static const mr_math_metric_kind counted[] = {MR_METRIC_TOP_K, MR_METRIC_TOP_K_CATEGORICAL,
                                                  MR_METRIC_TRUE_POSITIVE,
                                                  MR_METRIC_PREDICTED_POSITIVE, MR_METRIC_POSITIVE};
    for (size_t t = 0; t < 5 * 5 * 2; t++) {
        size_t n = shapes[t % 5][0], width = shapes[t % 5][1], hits = 0, of = 0;
        mr_math_metric_kind kind = counted[t / 5 % 5];
        bool sparse = kind == MR_METRIC_TOP_K, sum_only = t >= 25;
        float *x = draw(b, n * width);
        int32_t *z = calloc(n * width + 1, sizeof *z);
        double begin[2] = {3, 5}, *got;
        for (size_t i = 0; i < n * width; i++)
            z[i] = (int32_t)(mr_test_random(&b->seed) % (sparse ? width + 1 : 2));
        for (size_t i = 0; i < n; i++) {
            size_t class = sparse ? (size_t)z[i] : 0, above = 0;
            for (size_t j = 0; j < width; j++) {
                bool positive = z[i * width + j] != 0, predicted = x[i * width + j] > 0.25f;
                of += kind == MR_METRIC_TRUE_POSITIVE        ? positive && predicted
                      : kind == MR_METRIC_PREDICTED_POSITIVE ? predicted
                                                             : positive;
                if (!sparse && z[i * width + j] > z[i * width + class])
                    class = j;
            }
            for (size_t j = 0; j < width && class < width; j++)
                above += x[i * width + j] > x[i * width + class];
            hits += class < width && above < 3;
        }
        mr_test_context("metric %d of %zux%zu", (int)kind, n, width);
        bool rows = t / 5 % 5 < 2;
        mr_math_metric o = {.kind = kind,
                            .sum_only = sum_only,
                            .n = n,
                            .width = width,
                            .k = 3,
                            .threshold = 0.25,
                            .x = put_floats(b, x, n * width),
                            .label_dtype = MR_INT32,
                            .labels = put(b, z, n * width * sizeof *z),
                            .total = put(b, begin, sizeof begin)};
        mr_ok(b->m->metric(b->s, &o, &st), &st);
        got = get(b, o.total, sizeof begin);
        mr_eq_f64(got[0], 3 + (double)(rows ? hits : of), 0);
        mr_eq_f64(got[1], 5 + (sum_only ? 0 : (double)(rows ? n : n * width)), 0);
        free(got);
        free(x);
        free(z);
        drop_blocks(b);
    }
}

ON_DEVICES(curves_count_what_is_above_each_threshold)
{
    for (size_t t = 0; t < 4 * 3 * 2; t++) {
        size_t n = lengths[t % 4], k = (size_t[]){2, 5, 200}[t / 4 % 3];
        bool logits = t >= 12;
        float *x = draw(b, n);
        double *want = doubles(2 * k), *got;
        bool *z = calloc(n + 1, 1);
        for (size_t i = 0; i < n; i++) {
            /* Numbers at thresholds among them, and some beyond 0 and 1. */
            x[i] = logits ? x[i] : (float)((double)(mr_test_random(&b->seed) % 212) / 199 - 0.03);
            z[i] = mr_test_random(&b->seed) % 3 == 0;
            float p = logits ? 1 / (1 + expf(-x[i])) : x[i];
            for (size_t j = 0; j < k; j++) {
                float least = j == 0       ? -1e-7f
                              : j + 1 == k ? 1 + 1e-7f
                                           : (float)((double)j / (double)(k - 1));
                want[z[i] ? j : k + j] += p > least;
            }
        }
        for (size_t j = 0; j < 2 * k; j++)
            want[j] += 7;
        double *begin = doubles(2 * k);
        for (size_t j = 0; j < 2 * k; j++)
            begin[j] = 7;
        mr_test_context("%zu values, %zu thresholds", n, k);
        mr_math_curve o = {.n = n,
                           .thresholds = k,
                           .logits = logits,
                           .x = put_floats(b, x, n),
                           .label_dtype = MR_BOOL,
                           .labels = put(b, z, n),
                           .counts = put(b, begin, 2 * k * sizeof *begin)};
        mr_ok(b->m->curve(b->s, &o, &st), &st);
        got = get(b, o.counts, 2 * k * sizeof *got);
        for (size_t j = 0; j < 2 * k; j++)
            mr_eq_f64(got[j], want[j], logits ? 1 : 0); /* sigmoids may differ in their last bit */
        free(got);
        free(want);
        free(begin);
        free(x);
        free(z);
        drop_blocks(b);
    }
}

/* A weight of 3 is three such rows. */
ON_DEVICES(weights_count_what_they_weigh)
{
    static const size_t shapes[][2] = {{0, 3}, {1, 1}, {5, 7}, {33, 2}};
    for (size_t t = 0; t < 4 * (MR_METRIC_ONE + 1); t++) {
        size_t n = shapes[t % 4][0], width = shapes[t % 4][1], values = n * width;
        mr_math_metric_kind kind = (mr_math_metric_kind)(t / 4);
        bool rows = kind >= MR_METRIC_SPARSE && kind <= MR_METRIC_TOP_K_CATEGORICAL;
        bool sparse = kind == MR_METRIC_SPARSE || kind == MR_METRIC_TOP_K;
        float *x = draw(b, values), *w = draw(b, n);
        int32_t *z = calloc(values + 1, sizeof *z);
        double begin[2] = {3, 5}, want[2] = {3, 5}, none[2] = {0, 0}, *got;
        for (size_t i = 0; i < values; i++)
            z[i] = (int32_t)(mr_test_random(&b->seed) % (sparse ? width : 2));
        for (size_t i = 0; i < n; i++)
            w[i] = (float)(mr_test_random(&b->seed) % 4) / 2;
        const float *on_x = put_floats(b, x, values);
        const int32_t *on_z = put(b, z, values * sizeof *z);
        mr_math_metric o = {
            .kind = kind, .width = width, .k = 2, .threshold = 0.25, .label_dtype = MR_INT32};
        for (size_t i = 0; i < n; i++) {
            o.n = 1;
            o.x = on_x + i * width;
            o.labels = on_z + i * (sparse ? 1 : width);
            o.total = put(b, none, sizeof none);
            mr_ok(b->m->metric(b->s, &o, &st), &st);
            got = get(b, o.total, sizeof none);
            want[0] += (double)w[i] * got[0];
            want[1] += (double)w[i] * got[1];
            free(got);
        }
        o.n = n;
        o.x = on_x;
        o.labels = on_z;
        o.weights = put_floats(b, w, n);
        o.values_per_weight = rows ? 1 : width;
        for (int sum_only = 0; sum_only < 2; sum_only++) {
            o.total = put(b, begin, sizeof begin);
            o.sum_only = sum_only;
            mr_test_context("metric %d of %zux%zu", (int)kind, n, width);
            mr_ok(b->m->metric(b->s, &o, &st), &st);
            got = get(b, o.total, sizeof begin);
            mr_eq_f64(got[0], want[0], 1e-9 * (1 + fabs(want[0])));
            mr_eq_f64(got[1], sum_only ? 5 : want[1], 1e-9);
            free(got);
        }
        free(x);
        free(w);
        free(z);
        drop_blocks(b);
    }
}

ON_DEVICES(weights_count_in_curves)
{
    enum { N = 37, K = 5 };
    float *x = draw(b, N), *w = draw(b, N / 2 + 1);
    bool z[N];
    double want[2 * K] = {0}, zero[2 * K] = {0}, *got;
    for (size_t i = 0; i < N; i++) {
        x[i] = fabsf(x[i]);
        z[i] = mr_test_random(&b->seed) % 2 == 0;
        w[i / 2] = (float)(i % 5) / 2;
    }
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < K; j++) {
            float least = j == 0       ? -1e-7f
                          : j + 1 == K ? 1 + 1e-7f
                                       : (float)((double)j / (double)(K - 1));
            want[z[i] ? j : K + j] += x[i] > least ? (double)w[i / 2] : 0;
        }
    mr_math_curve o = {.n = N,
                       .thresholds = K,
                       .x = put_floats(b, x, N),
                       .label_dtype = MR_BOOL,
                       .labels = put(b, z, sizeof z),
                       .counts = put(b, zero, sizeof zero),
                       .weights = put_floats(b, w, N / 2 + 1),
                       .values_per_weight = 2};
    mr_ok(b->m->curve(b->s, &o, &st), &st);
    got = get(b, o.counts, sizeof want);
    for (size_t j = 0; j < 2 * K; j++)
        mr_eq_f64(got[j], want[j], 1e-12);
    free(got);
    free(x);
    free(w);
    drop_blocks(b);
}
