/* SPDX-License-Identifier: Apache-2.0 */
/* Losses with their gradients. */
#include <math.h>
#include <string.h>
#include "trainer/device/cpu/operations.h"
#include "trainer/device/tensor.h"

enum { CHUNK = 256 };
#define EPSILON 1e-7f

static float clip(float x)
{
    return x < EPSILON ? EPSILON : x > 1 - EPSILON ? 1 - EPSILON : x;
}

static float squared(float x, float z, float *slope)
{
    float d = x - z;
    *slope = 2 * d;
    return d * d;
}

static float of_logit(float x, float z, float *slope)
{
    float e = expf(-fabsf(x)), p = x >= 0 ? 1 / (1 + e) : e / (1 + e);
    *slope = p - z;
    return (x > 0 ? x : 0) - x * z + log1pf(e);
}

static float of_probability(float x, float z, float *slope)
{
    float p = clip(x);
    /* Where p was clipped, it no longer depends on x. */
    *slope = p == x ? (p - z) / (p * (1 - p)) : 0;
    return -(z * logf(p) + (1 - z) * log1pf(-p));
}

static float absolute(float x, float z, float *slope)
{
    *slope = x > z ? 1 : x < z ? -1 : x - z; /* that is 0, or NaN */
    return fabsf(x - z);
}

static float huber(float x, float z, float delta, float *slope)
{
    float e = x - z;
    *slope = e > delta ? delta : e < -delta ? -delta : e;
    return fabsf(e) <= delta ? e * e / 2 : delta * fabsf(e) - delta * delta / 2;
}

static float divergence(float x, float z, float *slope)
{
    float p = x < EPSILON ? EPSILON : x > 1 ? 1 : x, q = z < EPSILON ? EPSILON : z > 1 ? 1 : z;
    *slope = p == x ? -q / p : 0;
    return q * logf(q / p);
}

static float of_one(const mr_math_loss *p, float x, float z, float *slope)
{
    switch (p->kind) {
    case MR_LOSS_MSE:
        return squared(x, z, slope);
    case MR_LOSS_BINARY_LOGITS:
        return of_logit(x, z, slope);
    case MR_LOSS_MAE:
        return absolute(x, z, slope);
    case MR_LOSS_HUBER:
        return huber(x, z, p->delta, slope);
    case MR_LOSS_KL_DIVERGENCE:
        return divergence(x, z, slope);
    default:
        return of_probability(x, z, slope);
    }
}

/* out[0..n) = values from..from+n of labels. */
static void labels_to_float(mr_dtype t, const void *labels, size_t from, size_t n, float *out)
{
    if (t == MR_FLOAT32) {
        memcpy(out, (const float *)labels + from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)mr__value_as_double(t, labels, from + i);
}

/* Labels from..from+n, smoothed. */
static void read_labels(const mr_math_loss *p, size_t from, size_t n, float *out)
{
    bool binary = p->kind == MR_LOSS_BINARY_LOGITS || p->kind == MR_LOSS_BINARY_PROBABILITIES;
    float share = p->smoothing / (binary ? 2 : (float)p->width);
    labels_to_float(p->label_dtype, p->labels, from, n, out);
    for (size_t i = 0;
         i < n && (binary || p->kind >= MR_LOSS_CATEGORICAL_LOGITS) && p->smoothing != 0; i++)
        out[i] = out[i] * (1 - p->smoothing) + share;
}

/* The mean (for a divergence: the sum) over the width of a function of one prediction and one
 * label. */
static float dense_loss(const mr_math_loss *p, size_t i, float weight)
{
    float labels[CHUNK], sum = 0;
    float mean = p->kind == MR_LOSS_KL_DIVERGENCE ? 1 : 1 / (float)p->width;
    const float *x = p->x + i * p->width;
    for (size_t from = 0; from < p->width; from += CHUNK) {
        size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
        read_labels(p, i * p->width + from, n, labels);
        for (size_t j = 0; j < n; j++) {
            float slope, v = x[from + j];
            sum += of_one(p, v, labels[j], &slope);
            if (p->gradient)
                p->gradient[i * p->width + from + j] = slope * mean * p->scale * weight;
        }
    }
    return sum * mean;
}

static float of_logits(const float *x, size_t width, size_t label, float scale, float *gradient)
{
    float most = -INFINITY, sum = 0;
    for (size_t j = 0; j < width; j++)
        most = x[j] > most ? x[j] : most;
    for (size_t j = 0; j < width; j++)
        sum += expf(x[j] - most);
    for (size_t j = 0; gradient && j < width; j++)
        gradient[j] = (expf(x[j] - most) / sum - (j == label)) * scale;
    return logf(sum) + most - x[label];
}

static float of_probabilities(const float *x, size_t width, size_t label, float scale,
                              float *gradient)
{
    float sum = 0;
    for (size_t j = 0; j < width; j++)
        sum += clip(x[j]);
    for (size_t j = 0; gradient && j < width; j++) {
        float p = clip(x[j]);
        gradient[j] = p == x[j] ? (1 / sum - (j == label) / p) * scale : 0;
    }
    return logf(sum) - logf(clip(x[label]));
}

/* sum z log(softmax(x)), computed from sums over the row: the labels are read twice. */
static float categorical_logits(const mr_math_loss *p, size_t i, float scale)
{
    const float *x = p->x + i * p->width;
    float labels[CHUNK], most = -INFINITY, sum = 0, all = 0, product = 0;
    for (size_t j = 0; j < p->width; j++)
        most = x[j] > most ? x[j] : most;
    for (size_t j = 0; j < p->width; j++)
        sum += expf(x[j] - most);
    for (size_t from = 0; from < p->width; from += CHUNK) {
        size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
        read_labels(p, i * p->width + from, n, labels);
        for (size_t j = 0; j < n; j++) {
            all += labels[j];
            product += labels[j] * (x[from + j] - most);
        }
    }
    for (size_t from = 0; p->gradient && from < p->width; from += CHUNK) {
        size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
        float *g = p->gradient + i * p->width + from;
        read_labels(p, i * p->width + from, n, labels);
        for (size_t j = 0; j < n; j++)
            g[j] = (expf(x[from + j] - most) / sum * all - labels[j]) * scale;
    }
    return all * logf(sum) - product;
}

static float categorical_probabilities(const mr_math_loss *p, size_t i, float scale)
{
    const float *x = p->x + i * p->width;
    float labels[CHUNK], sum = 0, loss = 0, product = 0;
    for (size_t j = 0; j < p->width; j++)
        sum += x[j];
    for (int pass = 0; pass < (p->gradient ? 2 : 1); pass++)
        for (size_t from = 0; from < p->width; from += CHUNK) {
            size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
            read_labels(p, i * p->width + from, n, labels);
            for (size_t j = 0; j < n; j++) {
                float q = x[from + j] / sum, kept = clip(q), g = kept == q ? -labels[j] / kept : 0;
                if (pass == 0) {
                    loss -= labels[j] * logf(kept);
                    product += g * q;
                } else
                    p->gradient[i * p->width + from + j] = (g - product) / sum * scale;
            }
        }
    return loss;
}

static void count_fault(const mr_math_loss *p, size_t i, double label)
{
    mr_math_fault *f = p->fault;
    uint64_t row = p->first_row + i / p->losses_per_row;
    f->count++;
    f->classes = p->width;
    if (row < f->row) {
        f->row = row;
        f->label = label;
        f->is_feature = 0;
    }
}

static float sparse_loss(const mr_math_loss *p, size_t i, float weight)
{
    double v = mr__value_as_double(p->label_dtype, p->labels, i);
    float *g = p->gradient ? p->gradient + i * p->width : NULL;
    const float *x = p->x + i * p->width;
    if (!(v >= 0 && v < (double)p->width)) {
        count_fault(p, i, v);
        if (g)
            memset(g, 0, p->width * sizeof *g);
        return 0;
    }
    return p->kind == MR_LOSS_SPARSE_LOGITS
               ? of_logits(x, p->width, (size_t)v, p->scale * weight, g)
               : of_probabilities(x, p->width, (size_t)v, p->scale * weight, g);
}

static float one_loss(const mr_math_loss *p, size_t i, float weight)
{
    switch (p->kind) {
    case MR_LOSS_SPARSE_LOGITS:
    case MR_LOSS_SPARSE_PROBABILITIES:
        return sparse_loss(p, i, weight);
    case MR_LOSS_CATEGORICAL_LOGITS:
        return categorical_logits(p, i, p->scale * weight);
    case MR_LOSS_CATEGORICAL_PROBABILITIES:
        return categorical_probabilities(p, i, p->scale * weight);
    default:
        return dense_loss(p, i, weight);
    }
}

static void run_loss(void *args)
{
    const mr_math_loss *p = args;
    double sum = 0;
    for (size_t i = 0; i < p->n; i++) {
        float weight = p->weights ? p->weights[i / p->losses_per_weight] : 1;
        float loss = one_loss(p, i, weight) * weight;
        if (p->per_example)
            p->per_example[i] = loss;
        sum += loss;
    }
    if (p->sum)
        *p->sum = sum;
}

static void run_flag(void *args)
{
    const mr_math_flag *p = args;
    *p->flag = p->fault->count > 0 ? 1 : 0;
}

MR__CPU_SUBMIT(loss)
MR__CPU_SUBMIT(flag)
