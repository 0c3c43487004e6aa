/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on whole rows: softmax, losses, metrics. The lanes of a warp share a row. */
#include "trainer/device/cuda/kernels/kernel.h"

/* This lane's share of a row of n values: lane, lane + MR_LANES, ... */
#define MR_EACH(j, n) for (size_t j = lane; j < (n); j += MR_LANES)

MR_HD float largest(const float *x, size_t n, size_t lane)
{
    float most = -INFINITY;
    MR_EACH(j, n)
        most = x[j] > most ? x[j] : most;
    return mr_lanes_max(most);
}

/* The sum so far is that of exp(x - the largest so far), so x is read twice and y written once;
 * several values are read together, so that their loads overlap. */
MR_HD void softmax_at(const mr_math_activate &p, int64_t i)
{
    enum { TOGETHER = 8 };
    size_t lane = (size_t)i % MR_LANES, r = (size_t)i / MR_LANES;
    const float *x = p.x + r * p.width;
    float *y = p.y + r * p.width, most = -INFINITY, sum = 0;
    for (size_t j = lane; j < p.width; j += TOGETHER * MR_LANES) {
        float v[TOGETHER], top = most;
        for (size_t k = 0; k < TOGETHER; k++)
            v[k] = j + k * MR_LANES < p.width ? x[j + k * MR_LANES] : -INFINITY;
        for (int k = 0; k < TOGETHER; k++)
            top = v[k] > top ? v[k] : top;
        if (top > most)
            sum *= expf(most - top);
        most = top;
        float from = most == -INFINITY ? 0 : most; /* the sum over only -inf (or nothing) is 0 */
        for (int k = 0; k < TOGETHER; k++)
            sum += expf(v[k] - from);
    }
    float top = mr_lanes_max(most);
    sum = mr_lanes_sum(sum * expf(most - top));
#pragma unroll 4
    MR_EACH(j, p.width)
        y[j] = expf(x[j] - top) / sum;
}
MR_KERNEL(softmax, mr_math_activate, p.rows *MR_LANES)

MR_HD void softmax_backward_at(const mr_math_activate_backward &p, int64_t i)
{
    size_t lane = (size_t)i % MR_LANES, r = (size_t)i / MR_LANES;
    const float *y = p.y + r * p.width, *dy = p.dy + r * p.width;
    float *dx = p.dx + r * p.width, dot = 0;
    MR_EACH(j, p.width)
        dot += y[j] * dy[j];
    dot = mr_lanes_sum(dot);
    MR_EACH(j, p.width)
        dx[j] = y[j] * (dy[j] - dot);
}
MR_KERNEL(softmax_backward, mr_math_activate_backward, p.rows *MR_LANES)

/* Probabilities are clipped to this distance from 0 and 1. */
MR_HD float clip(float x)
{
    const float epsilon = 1e-7f;
    return x < epsilon ? epsilon : x > 1 - epsilon ? 1 - epsilon : x;
}

/* The loss of one value x with the label z, and its derivative, without the mean. */
MR_HD float dense_loss(const mr_math_loss &l, float x, float z, float *slope)
{
    float d = x - z;
    if (l.kind == MR_LOSS_MSE) {
        *slope = 2 * d;
        return d * d;
    }
    if (l.kind == MR_LOSS_MAE) {
        *slope = d > 0 ? 1 : d < 0 ? -1 : d; /* 0 or NaN */
        return fabsf(d);
    }
    if (l.kind == MR_LOSS_HUBER) {
        *slope = d > l.delta ? l.delta : d < -l.delta ? -l.delta : d;
        return fabsf(d) <= l.delta ? d * d / 2 : l.delta * fabsf(d) - l.delta * l.delta / 2;
    }
    if (l.kind == MR_LOSS_KL_DIVERGENCE) {
        const float least = 1e-7f;
        float p = x < least ? least : x > 1 ? 1 : x, q = z < least ? least : z > 1 ? 1 : z;
        *slope = p == x ? -q / p : 0;
        return q * logf(q / p);
    }
    if (l.kind == MR_LOSS_BINARY_LOGITS) {
        float e = expf(-fabsf(x)), p = x >= 0 ? 1 / (1 + e) : e / (1 + e);
        *slope = p - z;
        return (x < 0 ? 0 : x) - x * z + log1pf(e);
    }
    float p = clip(x);
    /* Where p was clipped, it no longer depends on x. */
    *slope = p == x ? (p - z) / (p * (1 - p)) : 0;
    return -(z * logf(p) + (1 - z) * log1pf(-p));
}

/* Label i, smoothed. */
MR_HD float label_of(const mr_math_loss &l, size_t i)
{
    float z = mr_number<float>(l.label_dtype, l.labels, (int64_t)i);
    bool binary = l.kind == MR_LOSS_BINARY_LOGITS || l.kind == MR_LOSS_BINARY_PROBABILITIES;
    if (l.smoothing == 0 || !(binary || l.kind >= MR_LOSS_CATEGORICAL_LOGITS))
        return z;
    return z * (1 - l.smoothing) + l.smoothing / (binary ? 2 : (float)l.width);
}

MR_HD float dense_losses(const mr_math_loss &l, size_t i, float weight, size_t lane)
{
    const float *x = l.x + i * l.width;
    float *g = l.gradient ? l.gradient + i * l.width : NULL;
    float sum = 0, mean = l.kind == MR_LOSS_KL_DIVERGENCE ? 1 : 1 / (float)l.width;
    MR_EACH(j, l.width) {
        float slope;
        sum += dense_loss(l, x[j], label_of(l, i * l.width + j), &slope);
        if (g)
            g[j] = slope * mean * l.scale * weight;
    }
    return mr_lanes_sum(sum) * mean;
}

MR_HD float categorical_logits(const mr_math_loss &l, size_t i, float scale, size_t lane)
{
    const float *x = l.x + i * l.width;
    float *g = l.gradient ? l.gradient + i * l.width : NULL;
    float most = largest(x, l.width, lane), sum = 0, all = 0, product = 0;
    MR_EACH(j, l.width) {
        float z = label_of(l, i * l.width + j);
        sum += expf(x[j] - most);
        all += z;
        product += z * (x[j] - most);
    }
    sum = mr_lanes_sum(sum);
    all = mr_lanes_sum(all);
    product = mr_lanes_sum(product);
    for (size_t j = lane; g && j < l.width; j += MR_LANES)
        g[j] = (expf(x[j] - most) / sum * all - label_of(l, i * l.width + j)) * scale;
    return all * logf(sum) - product;
}

MR_HD float categorical_probabilities(const mr_math_loss &l, size_t i, float scale, size_t lane)
{
    const float *x = l.x + i * l.width;
    float *g = l.gradient ? l.gradient + i * l.width : NULL, sum = 0, loss = 0, product = 0;
    MR_EACH(j, l.width)
        sum += x[j];
    sum = mr_lanes_sum(sum);
    MR_EACH(j, l.width) {
        float q = x[j] / sum, kept = clip(q), z = label_of(l, i * l.width + j);
        loss -= z * logf(kept);
        product += kept == q ? -z / kept * q : 0;
    }
    loss = mr_lanes_sum(loss);
    product = mr_lanes_sum(product);
    for (size_t j = lane; g && j < l.width; j += MR_LANES) {
        float q = x[j] / sum, kept = clip(q);
        float slope = kept == q ? -label_of(l, i * l.width + j) / kept : 0;
        g[j] = (slope - product) / sum * scale;
    }
    return loss;
}

MR_HD bool class_of(const mr_math_loss &l, int64_t i, size_t *z)
{
    double v = mr_number<double>(l.label_dtype, l.labels, i);
    if (!(v >= 0 && v < (double)l.width))
        return false;
    *z = (size_t)v;
    return true;
}

MR_HD float sparse_loss(const mr_math_loss &l, size_t i, size_t z, float scale, size_t lane)
{
    const float *x = l.x + i * l.width;
    float *g = l.gradient ? l.gradient + i * l.width : NULL, sum = 0;
    if (l.kind == MR_LOSS_SPARSE_LOGITS) {
        float most = largest(x, l.width, lane);
        MR_EACH(j, l.width)
            sum += expf(x[j] - most);
        sum = mr_lanes_sum(sum);
        for (size_t j = lane; g && j < l.width; j += MR_LANES)
            g[j] = (expf(x[j] - most) / sum - (j == z ? 1.0f : 0.0f)) * scale;
        return logf(sum) + most - x[z];
    }
    MR_EACH(j, l.width)
        sum += clip(x[j]);
    sum = mr_lanes_sum(sum);
    for (size_t j = lane; g && j < l.width; j += MR_LANES) {
        float p = clip(x[j]);
        g[j] = p == x[j] ? (1 / sum - (j == z ? 1.0f : 0.0f) / p) * scale : 0;
    }
    return logf(sum) - logf(clip(x[z]));
}

MR_HD void loss_at(const mr_k_loss &p, int64_t at)
{
    const mr_math_loss &l = p.l;
    size_t lane = (size_t)at % MR_LANES, i = (size_t)at / MR_LANES, z = 0;
    float weight = l.weights ? l.weights[i / l.losses_per_weight] : 1, loss = 0;
    if (l.kind == MR_LOSS_CATEGORICAL_LOGITS)
        loss = categorical_logits(l, i, l.scale * weight, lane);
    else if (l.kind == MR_LOSS_CATEGORICAL_PROBABILITIES)
        loss = categorical_probabilities(l, i, l.scale * weight, lane);
    else if (l.kind < MR_LOSS_SPARSE_LOGITS)
        loss = dense_losses(l, i, weight, lane);
    else if (class_of(l, (int64_t)i, &z)) /* all lanes of a row take the same branch */
        loss = sparse_loss(l, i, z, l.scale * weight, lane);
    else {
        for (size_t j = lane; l.gradient && j < l.width; j += MR_LANES)
            l.gradient[i * l.width + j] = 0;
        if (lane == 0)
            mr_count_bad(p.bad, l.first_row + i / l.losses_per_row);
    }
    if (l.per_example && lane == 0)
        l.per_example[i] = weight * loss;
    if (p.losses && lane == 0)
        p.losses[i] = weight * loss;
}
MR_KERNEL(loss, mr_k_loss, p.l.n *MR_LANES)

/* After the losses: adds the counts to the fault, and resets the words. */
MR_HD void loss_fault_at(const mr_k_loss &p, int64_t)
{
    mr_math_fault *fault = p.l.fault;
    if (p.bad->count == 0)
        return;
    fault->count += p.bad->count;
    if (p.bad->row < fault->row) {
        size_t i = (size_t)(p.bad->row - p.l.first_row) * p.l.losses_per_row, z;
        while (class_of(p.l, (int64_t)i, &z))
            i++;
        fault->row = p.bad->row;
        fault->label = mr_number<double>(p.l.label_dtype, p.l.labels, (int64_t)i);
        fault->classes = p.l.width;
        fault->is_feature = 0;
    }
    p.bad->count = 0;
    p.bad->row = UINT64_MAX;
}
MR_KERNEL(loss_fault, mr_k_loss, 1)

/* Index of the first of n values that no later one exceeds; never moves to a NaN. */
MR_HD size_t first_largest(mr_dtype t, const void *data, size_t from, size_t n, size_t lane)
{
    double first = mr_number<double>(t, data, (int64_t)from), most = 0;
    size_t best = SIZE_MAX;
    if (first != first)
        return 0;
    MR_EACH(j, n) {
        double v = mr_number<double>(t, data, (int64_t)(from + j));
        if (v == v && (best == SIZE_MAX || v > most)) {
            most = v;
            best = j;
        }
    }
    return mr_lanes_first_largest(most, best);
}

/* Whether fewer than k values of a row exceed its value z: the same for all lanes. */
MR_HD bool in_top_k(const mr_math_metric &m, size_t i, size_t lane)
{
    size_t at = i * m.width;
    double z = m.kind == MR_METRIC_TOP_K
                   ? mr_number<double>(m.label_dtype, m.labels, (int64_t)i)
                   : (double)first_largest(m.label_dtype, m.labels, at, m.width, lane);
    float above = 0; /* exact: rows are shorter than 2^24 */
    if (!(z >= 0 && z < (double)m.width))
        return false;
    MR_EACH(j, m.width)
        above += m.x[at + j] > m.x[at + (size_t)z] ? 1.0f : 0.0f;
    return mr_lanes_sum(above) < (float)m.k;
}

/* The weight of value k. */
MR_HD double weight_of(const float *weights, size_t values_per_weight, size_t k)
{
    return weights ? (double)weights[k / values_per_weight] : 1;
}

/* This lane's share of the metric of row i. */
MR_HD double metric_of_row(const mr_math_metric &m, size_t i, size_t lane)
{
    size_t at = i * m.width;
    if (m.kind == MR_METRIC_TOP_K || m.kind == MR_METRIC_TOP_K_CATEGORICAL)
        return in_top_k(m, i, lane) && lane == 0 ? weight_of(m.weights, m.values_per_weight, i) : 0;
    if (m.kind == MR_METRIC_SPARSE || m.kind == MR_METRIC_CATEGORICAL) {
        size_t best = first_largest(MR_FLOAT32, m.x, at, m.width, lane);
        bool right = m.kind == MR_METRIC_SPARSE
                         ? (double)best == mr_number<double>(m.label_dtype, m.labels, (int64_t)i)
                         : best == first_largest(m.label_dtype, m.labels, at, m.width, lane);
        return right && lane == 0 ? weight_of(m.weights, m.values_per_weight, i) : 0;
    }
    double sum = 0;
    MR_EACH(j, m.width) {
        double w = weight_of(m.weights, m.values_per_weight, at + j);
        if (m.kind == MR_METRIC_ONE) {
            sum += w;
            continue;
        }
        double x = (double)m.x[at + j];
        if (m.kind == MR_METRIC_MEAN) {
            sum += w * x;
            continue;
        }
        if (m.kind == MR_METRIC_PREDICTED_POSITIVE) {
            sum += x > m.threshold ? w : 0;
            continue;
        }
        double z = mr_number<double>(m.label_dtype, m.labels, (int64_t)(at + j));
        if (m.kind == MR_METRIC_SQUARED)
            sum += w * ((x - z) * (x - z));
        else if (m.kind == MR_METRIC_POSITIVE)
            sum += z != 0 ? w : 0;
        else if (m.kind == MR_METRIC_TRUE_POSITIVE)
            sum += z != 0 && x > m.threshold ? w : 0;
        else
            sum += (x > m.threshold ? 1.0 : 0.0) == z ? w : 0;
    }
    return sum;
}

MR_HD void metric_at(const mr_k_metric &p, int64_t at)
{
    size_t lane = (size_t)at % MR_LANES, k = (size_t)at / MR_LANES;
    double sum = 0;
    for (size_t i = k; i < p.m.n; i += p.parts)
        sum += metric_of_row(p.m, i, lane);
    sum = mr_lanes_sum(sum);
    if (lane == 0)
        p.out[k] = sum;
}
MR_KERNEL(metric, mr_k_metric, p.parts *MR_LANES)

/* A thread per counter, which iterates over all values: batches are small, and their order is
 * fixed. */
MR_HD void curve_at(const mr_math_curve &p, int64_t i)
{
    size_t t = (size_t)i % p.thresholds;
    bool wants = (size_t)i < p.thresholds;
    float least = t == 0                   ? -1e-7f
                  : t + 1 == p.thresholds ? 1 + 1e-7f
                                          : (float)((double)t / (double)(p.thresholds - 1));
    double count = 0;
    for (size_t k = 0; k < p.n; k++) {
        float x = p.logits ? 1 / (1 + expf(-p.x[k])) : p.x[k];
        bool positive = mr_number<double>(p.label_dtype, p.labels, (int64_t)k) != 0;
        count += x > least && positive == wants ? weight_of(p.weights, p.values_per_weight, k) : 0;
    }
    p.counts[i] += count;
}
MR_KERNEL(curve, mr_math_curve, 2 * p.thresholds)
