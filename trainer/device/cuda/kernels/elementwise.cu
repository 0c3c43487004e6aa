/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operations. */
#include "trainer/device/cuda/kernels/activation.h"
#include "trainer/device/cuda/kernels/kernel.h"
#include "trainer/device/random_bits.h"

MR_HD void fill_at(const mr_math_fill &p, int64_t i)
{
    p.dst[i] = p.value;
}
MR_KERNEL(fill, mr_math_fill, p.n)

MR_HD void combine_at(const mr_math_combine &p, int64_t i)
{
    float x = p.a != 0 ? p.a * p.x[i] : 0;
    p.y[i] = p.b != 0 ? x + p.b * p.y[i] : x;
}
MR_KERNEL(combine, mr_math_combine, p.n)

MR_HD void product_at(const mr_math_product &p, int64_t i)
{
    p.y[i] = p.x[i] * p.z[i];
}
MR_KERNEL(product, mr_math_product, p.n)

MR_HD void place_at(const mr_math_place &p, int64_t i)
{
    size_t row = (size_t)i / p.width, column = (size_t)i % p.width;
    p.y[row * p.y_stride + column] = p.x[row * p.x_stride + column];
}
MR_KERNEL(place, mr_math_place, p.rows * p.width)

/* v rounded to the nearest bfloat16, as the upper half of its bits. */
MR_HD uint32_t bfloat_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
    return ((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : nearest) & 0xffff0000;
}

MR_HD void round_bfloat_at(const mr_math_round_bfloat &p, int64_t i)
{
    uint32_t bits = bfloat_bits(p.x[i]);
    memcpy(&p.y[i], &bits, sizeof bits);
}
MR_KERNEL(round_bfloat, mr_math_round_bfloat, p.n)

MR_HD void pack_bfloat_at(const mr_k_pack_bfloat &p, int64_t i)
{
    uint32_t second = 2 * i + 1 < (int64_t)p.n ? bfloat_bits(p.x[2 * i + 1]) : 0;
    p.pairs[i] = bfloat_bits(p.x[2 * i]) >> 16 | second;
}
MR_KERNEL(pack_bfloat, mr_k_pack_bfloat, (p.n + 1) / 2)

MR_HD void cast_at(const mr_math_cast &p, int64_t i)
{
    p.dst[i] = mr_number<float>(p.from, p.src, i) * p.scale + p.offset;
}
MR_KERNEL(cast, mr_math_cast, p.n)

MR_HD void reduce_at(const mr_math_reduce &p, int64_t i)
{
    float sum = p.in[0][i];
    for (size_t k = 1; k < p.n_in; k++)
        sum += p.in[k][i];
    for (size_t k = 0; k < p.n_out; k++)
        p.out[k][i] = sum;
}
MR_KERNEL(reduce, mr_math_reduce, p.n)

MR_HD void activate_at(const mr_math_activate &p, int64_t i)
{
    p.y[i] = mr_activation(p.f, p.x[i]);
}
MR_KERNEL(activate, mr_math_activate, p.rows * p.width)

MR_HD void activate_backward_at(const mr_math_activate_backward &p, int64_t i)
{
    p.dx[i] = p.dy[i] * mr_activation_slope(p.f, p.y[i]);
}
MR_KERNEL(activate_backward, mr_math_activate_backward, p.rows * p.width)

MR_HD void bias_activate_at(const mr_k_bias_activate &p, int64_t i)
{
    int64_t row;
    float y = p.y[i];
    if (p.bias)
        y += p.bias[mr_split(i, p.width, &row)];
    p.y[i] = mr_activation(p.f, y);
}
MR_KERNEL(bias_activate, mr_k_bias_activate, p.rows * p.width)

MR_HD void dropout_at(const mr_math_dropout &p, int64_t i)
{
    int64_t row, j = mr_split(i, p.width, &row);
    uint64_t bits = mr__mix(mr__mix_in(p.key, p.first_row + (uint64_t)row) + (uint64_t)j);
    float scale = p.rate < 1 ? 1 / (1 - p.rate) : 0;
    p.y[i] = mr__unit_float(bits) < p.rate ? 0 : p.x[i] * scale;
}
MR_KERNEL(dropout, mr_math_dropout, p.rows * p.width)

MR_HD void flag_at(const mr_math_flag &p, int64_t i)
{
    p.flag[i] = p.fault->count > 0 ? 1 : 0;
}
MR_KERNEL(flag, mr_math_flag, 1)

MR_HD void penalty_backward_at(const mr_math_penalty_backward &p, int64_t i)
{
    float w = p.w[i], sign = w > 0 ? 1.0f : w < 0 ? -1.0f : 0.0f;
    p.g[i] += p.l1 * sign + p.l2 * w;
}
MR_KERNEL(penalty_backward, mr_math_penalty_backward, p.n)
