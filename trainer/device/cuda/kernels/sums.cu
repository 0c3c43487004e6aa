/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over many values, in stages: the lanes of a warp add up a fixed part, strided so that
 * neighbours read neighbours, and a later stage adds the parts. */
#include "trainer/device/cuda/kernels/kernel.h"

/* The first value of this lane in part k of `parts`, and the distance to the next. */
#define MR_PART_FIRST(k, lane) ((size_t)(k)*MR_LANES + (lane))
#define MR_PART_STEP(parts)    ((parts)*MR_LANES)

MR_HD void put_part(const mr_k_sum &p, size_t lane, size_t k, double sum)
{
    sum = mr_lanes_sum(sum);
    if (lane > 0)
        return;
    p.out[k] = p.add ? p.out[k] + sum : sum;
    if (k == 0 && p.count != 0)
        p.out[p.parts] += p.count;
}

/* This lane's share of the quads of a part. */
MR_HD double sum_of_quads(const mr_k_sum &p, size_t lane, size_t k, bool aligned)
{
    double sum = 0;
#pragma unroll 4
    for (size_t i = MR_PART_FIRST(k, lane); i < p.n / MR_QUAD; i += MR_PART_STEP(p.parts)) {
        const float *x = (const float *)p.x + i * MR_QUAD;
        quad q;
        if (aligned)
            q = *(const quad *)x;
        else
            for (int c = 0; c < MR_QUAD; c++)
                q.v[c] = x[c];
        sum += ((double)q.v[0] + (double)q.v[1]) + ((double)q.v[2] + (double)q.v[3]);
    }
    return sum;
}

/* Four at a time, always the same four regardless of alignment, so that the same values yield the
 * same bits; the first part also takes the remainder. */
MR_HD void sum_floats_at(const mr_k_sum &p, int64_t at)
{
    size_t lane = (size_t)at % MR_LANES, k = (size_t)at / MR_LANES;
    const float *x = (const float *)p.x;
    double sum = (uintptr_t)x % sizeof(quad) == 0 ? sum_of_quads(p, lane, k, true)
                                                  : sum_of_quads(p, lane, k, false);
    for (size_t i = p.n / MR_QUAD * MR_QUAD + lane; k == 0 && i < p.n; i += MR_LANES)
        sum += (double)x[i];
    put_part(p, lane, k, sum);
}
MR_KERNEL(sum_floats, mr_k_sum, p.parts *MR_LANES)

MR_HD void sum_doubles_at(const mr_k_sum &p, int64_t at)
{
    size_t lane = (size_t)at % MR_LANES, k = (size_t)at / MR_LANES;
    const double *x = (const double *)p.x;
    double sum = 0;
#pragma unroll 4
    for (size_t i = MR_PART_FIRST(k, lane); i < p.n; i += MR_PART_STEP(p.parts))
        sum += x[i];
    put_part(p, lane, k, sum);
}
MR_KERNEL(sum_doubles, mr_k_sum, p.parts *MR_LANES)

MR_HD void sum_penalty_at(const mr_k_penalty &p, int64_t at)
{
    size_t lane = (size_t)at % MR_LANES, k = (size_t)at / MR_LANES;
    double ones = 0, twos = 0;
#pragma unroll 4
    for (size_t i = MR_PART_FIRST(k, lane); i < p.n; i += MR_PART_STEP(p.parts)) {
        double w = (double)p.w[i];
        ones += fabs(w);
        twos += w * w;
    }
    double sum = mr_lanes_sum(p.l1 * ones + p.l2 * twos);
    if (lane == 0)
        p.out[k] = sum;
}
MR_KERNEL(sum_penalty, mr_k_penalty, p.parts *MR_LANES)

/* A thread per column and part: neighbours read neighbouring columns. */
MR_HD void sum_columns_at(const mr_k_columns &p, int64_t i)
{
    int64_t k, j = mr_split(i, p.width, &k);
    double sum = 0;
#pragma unroll 8
    for (size_t r = (size_t)k; r < p.rows; r += p.parts)
        sum += (double)p.x[r * p.width + (size_t)j];
    p.out[i] = (float)sum;
}
MR_KERNEL(sum_columns, mr_k_columns, p.parts *p.width)

MR_HD void sum_column_quads_at(const mr_k_columns &p, int64_t i)
{
    int64_t k, j = mr_split(i, p.width / MR_QUAD, &k) * MR_QUAD;
    double sum[MR_QUAD] = {0, 0, 0, 0};
#pragma unroll 8
    for (size_t r = (size_t)k; r < p.rows; r += p.parts) {
        quad q = *(const quad *)(p.x + r * p.width + (size_t)j);
        for (int c = 0; c < MR_QUAD; c++)
            sum[c] += (double)q.v[c];
    }
    for (int c = 0; c < MR_QUAD; c++)
        p.out[i * MR_QUAD + c] = (float)sum[c];
}
MR_KERNEL(sum_column_quads, mr_k_columns, p.parts *(p.width / MR_QUAD))

/* A warp per column: for a few rows that are parts themselves. */
MR_HD void sum_parts_at(const mr_k_columns &p, int64_t i)
{
    size_t lane = (size_t)i % MR_LANES, j = (size_t)i / MR_LANES;
    double sum = 0;
#pragma unroll 8
    for (size_t r = lane; r < p.rows; r += MR_LANES)
        sum += (double)p.x[r * p.width + j];
    sum = mr_lanes_sum(sum);
    if (lane == 0)
        p.out[j] = (float)sum;
}
MR_KERNEL(sum_parts, mr_k_columns, p.width *MR_LANES)
