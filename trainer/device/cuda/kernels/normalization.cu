/* SPDX-License-Identifier: Apache-2.0 */
/* Moments by column or row, normalization and its gradients. An item is a column or a row that has
 * a mean; it is summed in parts that are then merged. */
#include "trainer/device/cuda/kernels/kernel.h"

/* The item and part of index i, chosen so that neighbouring threads read neighbouring values. */
MR_HD void item_of(int64_t i, bool by_row, size_t width, size_t parts, int64_t *item,
                   int64_t *part)
{
    if (by_row)
        *part = mr_split(i, parts, item);
    else
        *item = mr_split(i, width, part);
}

/* Value k of an item. */
MR_HD size_t value_at(bool by_row, size_t width, int64_t item, size_t k)
{
    return by_row ? (size_t)item * width + k : k * width + (size_t)item;
}

/* Deviations are relative to the part's first value, so that a large mean does not hide a small
 * variance. */
MR_HD void moments_parts_at(const mr_k_moments &p, int64_t i)
{
    const mr_math_moments &m = p.m;
    size_t items = m.by_row ? m.rows : m.width, n = m.by_row ? m.width : m.rows, count = 0;
    int64_t item, part;
    double sum = 0, squares = 0;
    item_of(i, m.by_row, m.width, p.parts, &item, &part);
    double first = (size_t)part < n ? (double)m.x[value_at(m.by_row, m.width, item, (size_t)part)] : 0;
#pragma unroll 4
    for (size_t k = (size_t)part; k < n; k += p.parts, count++) {
        double d = (double)m.x[value_at(m.by_row, m.width, item, k)] - first;
        sum += d;
        squares += d * d;
    }
    double mean = count > 0 ? sum / (double)count : 0;
    p.means[(size_t)part * items + (size_t)item] = (float)(first + mean);
    p.squares[(size_t)part * items + (size_t)item] = (float)(squares - sum * mean);
}
MR_KERNEL(moments_parts, mr_k_moments, p.parts *(p.m.by_row ? p.m.rows : p.m.width))

/* The union of two sets with means a and b has squares(a) + squares(b) + (a - b)^2 * n(a) n(b) /
 * (n(a) + n(b)) (Chan, Golub and LeVeque 1979). */
typedef struct moments {
    double count, mean, squares;
} moments;

MR_HD void merge(moments *a, const moments &b)
{
    double n = a->count + b.count, d = b.mean - a->mean;
    if (b.count == 0)
        return;
    a->squares += b.squares + d * d * a->count * b.count / n;
    a->mean += d * b.count / n;
    a->count = n;
}

MR_HD void moments_merge_at(const mr_k_moments &p, int64_t i)
{
    const mr_math_moments &m = p.m;
    size_t items = m.by_row ? m.rows : m.width, n = m.by_row ? m.width : m.rows;
    size_t lane = (size_t)i % MR_LANES, item = (size_t)i / MR_LANES;
    moments all = {0, 0, 0};
    for (size_t k = lane; k < p.parts; k += MR_LANES) {
        moments part = {(double)((n + p.parts - 1 - k) / p.parts), (double)p.means[k * items + item],
                        (double)p.squares[k * items + item]};
        merge(&all, part);
    }
#ifdef __CUDA_ARCH__
    for (int k = MR_LANES / 2; k > 0; k /= 2) {
        moments other = {__shfl_xor_sync(0xffffffffu, all.count, k),
                         __shfl_xor_sync(0xffffffffu, all.mean, k),
                         __shfl_xor_sync(0xffffffffu, all.squares, k)};
        merge(&all, other);
    }
#endif
    if (lane > 0)
        return;
    m.mean[item] = (float)all.mean;
    m.variance[item] = all.count > 0 ? (float)(all.squares / all.count) : 0;
}
MR_KERNEL(moments_merge, mr_k_moments, (p.m.by_row ? p.m.rows : p.m.width) * MR_LANES)

MR_HD void normalize_at(const mr_math_normalize &p, int64_t i)
{
    int64_t row, j = mr_split(i, p.width, &row), item = p.by_row ? row : j;
    float y = (p.x[i] - p.mean[item]) / sqrtf(p.variance[item] + p.epsilon);
    y *= p.gamma ? p.gamma[j] : 1;
    p.y[i] = p.beta ? y + p.beta[j] : y;
}
MR_KERNEL(normalize, mr_math_normalize, p.rows *p.width)

/* Normalized value i of x, before gamma and beta. */
MR_HD float normal(const mr_math_normalize_backward &b, size_t i, int64_t item)
{
    return (b.x[i] - b.mean[item]) / sqrtf(b.variance[item] + b.epsilon);
}

MR_HD void normalize_sums_at(const mr_k_normalize_sums &p, int64_t i)
{
    const mr_math_normalize_backward &b = p.b;
    size_t items = p.by_row ? b.rows : b.width, n = p.by_row ? b.width : b.rows;
    int64_t item, part;
    double plain = 0, scaled = 0;
    item_of(i, p.by_row, b.width, p.parts, &item, &part);
    for (size_t k = (size_t)part; k < n; k += p.parts) {
        size_t at = value_at(p.by_row, b.width, item, k);
        int64_t row = p.by_row ? item : (int64_t)k, j = p.by_row ? (int64_t)k : item;
        float dy = b.dy[at] * (p.weighted && b.gamma ? b.gamma[j] : 1);
        plain += (double)dy;
        scaled += (double)(dy * normal(b, at, b.by_row ? row : j));
    }
    p.plain[(size_t)part * items + (size_t)item] = (float)plain;
    p.scaled[(size_t)part * items + (size_t)item] = (float)scaled;
}
MR_KERNEL(normalize_sums, mr_k_normalize_sums, p.parts *(p.by_row ? p.b.rows : p.b.width))

MR_HD void normalize_backward_at(const mr_k_normalize_backward &p, int64_t i)
{
    const mr_math_normalize_backward &b = p.b;
    int64_t row, j = mr_split(i, b.width, &row), item = b.by_row ? row : j;
    float n = (float)(b.by_row ? b.width : b.rows), gamma = b.gamma ? b.gamma[j] : 1;
    /* The sums of columns exclude gamma, which is constant within a column. */
    float dy = b.by_row ? b.dy[i] * gamma : b.dy[i], outer = b.by_row ? 1 : gamma;
    float x = normal(b, (size_t)i, item);
    b.dx[i] = outer / sqrtf(b.variance[item] + b.epsilon) *
              (dy - p.plain[item] / n - x * p.scaled[item] / n);
}
MR_KERNEL(normalize_backward, mr_k_normalize_backward, p.b.rows *p.b.width)

MR_HD void share_moments_at(const mr_math_share_moments &p, int64_t i)
{
    float rows = (float)p.rows;
    if ((size_t)i == p.width) {
        p.sums[2 * p.width] = rows;
        return;
    }
    float d = p.mean[i] - p.shift[i];
    p.sums[i] = rows * d;
    p.sums[p.width + (size_t)i] = rows * (p.variance[i] + d * d);
}
MR_KERNEL(share_moments, mr_math_share_moments, p.width + 1)

MR_HD void joint_moments_at(const mr_math_joint_moments &p, int64_t i)
{
    float rows = p.sums[2 * p.width] > 0 ? p.sums[2 * p.width] : 1;
    float d = p.sums[i] / rows, variance = p.sums[p.width + (size_t)i] / rows - d * d;
    p.mean[i] = p.shift[i] + d;
    p.variance[i] = variance < 0 ? 0 : variance;
}
MR_KERNEL(joint_moments, mr_math_joint_moments, p.width)

MR_HD void joint_backward_at(const mr_math_joint_backward &p, int64_t i)
{
    int64_t row, j = mr_split(i, p.width, &row);
    float n = *p.n > 0 ? *p.n : 1, inv = 1 / sqrtf(p.variance[j] + p.epsilon);
    float h = (p.x[i] - p.mean[j]) * inv, gamma = p.gamma ? p.gamma[j] : 1;
    p.dx[i] = (p.dy[i] - p.dbeta[j] / n - h * p.dgamma[j] / n) * gamma * inv;
}
MR_KERNEL(joint_backward, mr_math_joint_backward, p.rows *p.width)
