/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of metrics. */
#include <math.h>
#include <string.h>
#include "trainer/device/cpu/operations.h"
#include "trainer/device/tensor.h"

static size_t largest(mr_dtype t, const void *data, size_t from, size_t width)
{
    size_t best = 0;
    double most = mr__value_as_double(t, data, from);
    for (size_t j = 1; j < width; j++) {
        double v = mr__value_as_double(t, data, from + j);
        if (v > most) {
            most = v;
            best = j;
        }
    }
    return best;
}

static double label(const mr_math_metric *p, size_t i)
{
    return mr__value_as_double(p->label_dtype, p->labels, i);
}

static double metric_value(const mr_math_metric *p, size_t i)
{
    switch (p->kind) {
    case MR_METRIC_MEAN:
        return p->x[i];
    case MR_METRIC_SQUARED:
        return (p->x[i] - label(p, i)) * (p->x[i] - label(p, i));
    case MR_METRIC_TRUE_POSITIVE:
        return p->x[i] > p->threshold && label(p, i) != 0;
    case MR_METRIC_PREDICTED_POSITIVE:
        return p->x[i] > p->threshold;
    case MR_METRIC_POSITIVE:
        return label(p, i) != 0;
    case MR_METRIC_ONE:
        return 1;
    default:
        return (double)(p->x[i] > p->threshold) == label(p, i);
    }
}

static bool is_in_top_k(const mr_math_metric *p, size_t i, double class)
{
    const float *x = p->x + i * p->width;
    size_t above = 0;
    if (!(class >= 0 && class < (double)p->width))
        return false;
    for (size_t j = 0; j < p->width; j++)
        above += x[j] > x[(size_t) class];
    return above < p->k;
}

static bool metric_hit(const mr_math_metric *p, size_t i)
{
    bool sparse = p->kind == MR_METRIC_SPARSE || p->kind == MR_METRIC_TOP_K;
    double class =
        sparse ? label(p, i) : (double)largest(p->label_dtype, p->labels, i * p->width, p->width);
    if (p->kind == MR_METRIC_TOP_K || p->kind == MR_METRIC_TOP_K_CATEGORICAL)
        return is_in_top_k(p, i, class);
    return (double)largest(MR_FLOAT32, p->x, i * p->width, p->width) == class;
}

static bool compares_rows(mr_math_metric_kind k)
{
    return k >= MR_METRIC_SPARSE && k <= MR_METRIC_TOP_K_CATEGORICAL;
}

static void run_metric(void *args)
{
    const mr_math_metric *p = args;
    bool by_row = compares_rows(p->kind);
    size_t n = by_row ? p->width > 0 ? p->n : 0 : p->n * p->width;
    double total = 0, count = p->weights ? 0 : (double)n;
    for (size_t i = 0; i < n; i++) {
        double weight = p->weights ? (double)p->weights[i / p->values_per_weight] : 1;
        double v = by_row ? metric_hit(p, i) : metric_value(p, i);
        total += p->weights ? weight * v : v;
        count += p->weights ? weight : 0;
    }
    p->total[0] += total;
    if (!p->sum_only)
        p->total[1] += count;
}

static float threshold(const mr_math_curve *p, size_t t)
{
    return t == 0                   ? -1e-7f
           : t + 1 == p->thresholds ? 1 + 1e-7f
                                    : (float)((double)t / (double)(p->thresholds - 1));
}

/* The number of thresholds below a value, searched from its expected position. */
static size_t thresholds_below(const mr_math_curve *p, float x)
{
    double guess = x * (double)(p->thresholds - 1);
    size_t t = !(guess > 0) ? 0 : guess >= (double)p->thresholds ? p->thresholds : (size_t)guess;
    while (t > 0 && !(x > threshold(p, t - 1)))
        t--;
    while (t < p->thresholds && x > threshold(p, t))
        t++;
    return t;
}

static void run_curve(void *args)
{
    const mr_math_curve *p = args;
    for (size_t i = 0; i < p->n; i++) {
        float x = p->logits ? 1 / (1 + expf(-p->x[i])) : p->x[i];
        bool positive = mr__value_as_double(p->label_dtype, p->labels, i) != 0;
        double *counts = p->counts + (positive ? 0 : p->thresholds);
        double weight = p->weights ? (double)p->weights[i / p->values_per_weight] : 1;
        for (size_t t = thresholds_below(p, x); t > 0; t--)
            counts[t - 1] += weight;
    }
}

MR__CPU_SUBMIT(metric)
MR__CPU_SUBMIT(curve)
