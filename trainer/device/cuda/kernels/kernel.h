/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_KERNELS_KERNEL_H
#define MR_TRAINER_DEVICE_CUDA_KERNELS_KERNEL_H
/* How a kernel is written: a function NAME_at(p, i) that does the work of index i, without
 * communicating with its neighbours, and
 *
 *     MR_KERNEL(NAME, PARAMS, count)      PARAMS is a struct; count is an expression of p
 *
 * which defines the kernel mr_NAME: a grid-stride loop over 0 <= i < count. Compiled by a C++
 * compiler instead of nvcc, mr_NAME is a plain function of a pointer to PARAMS that loops over all
 * i, so that the same code can be run, and tested, without a GPU.
 *
 * No kernel adds floats atomically: sums are computed in a fixed partition and order, so that the
 * same call yields the same bits. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "trainer/device/cuda/kernels/kernel_params.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define MR_KERNEL(name, params, count)                                                             \
    extern "C" __global__ void __launch_bounds__(MR_CUDA_BLOCK) mr_##name(const params p)          \
    {                                                                                              \
        const int64_t n_ = (int64_t)(count);                                                       \
        const int64_t step_ = (int64_t)gridDim.x * blockDim.x;                                     \
        for (int64_t i_ = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i_ < n_; i_ += step_)    \
            name##_at(p, i_);                                                                      \
    }
#else
#define MR_KERNEL(name, params, count)                                                             \
    extern "C" void mr_##name(const params *p_);                                                   \
    extern "C" void mr_##name(const params *p_)                                                    \
    {                                                                                              \
        const params p = *p_;                                                                      \
        const int64_t n_ = (int64_t)(count);                                                       \
        for (int64_t i_ = 0; i_ < n_; i_++)                                                        \
            name##_at(p, i_);                                                                      \
    }
#endif

/* For rows shared by the lanes of a warp (one lane without a GPU): index i is lane i % MR_LANES of
 * row i / MR_LANES, and count is the number of rows times MR_LANES, so that all lanes of a warp are
 * in the loop or none. Each function returns the result over all lanes to every lane. */
#ifdef __CUDACC__
#define MR_LANES 32
#else
#define MR_LANES 1
#endif

template <typename T> MR_HD T mr_lanes_sum(T v)
{
#ifdef __CUDA_ARCH__
    for (int k = MR_LANES / 2; k > 0; k /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, k);
#endif
    return v;
}

/* NaN is ignored. */
MR_HD float mr_lanes_max(float v)
{
#ifdef __CUDA_ARCH__
    for (int k = MR_LANES / 2; k > 0; k /= 2)
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, k));
#endif
    return v;
}

/* The index of the largest value, the smallest among equals; index SIZE_MAX: the lane has no
 * value. */
MR_HD size_t mr_lanes_first_largest(double v, size_t index)
{
#ifdef __CUDA_ARCH__
    unsigned long long at = index;
    for (int k = MR_LANES / 2; k > 0; k /= 2) {
        double w = __shfl_xor_sync(0xffffffffu, v, k);
        unsigned long long there = __shfl_xor_sync(0xffffffffu, at, k);
        if (there != ~0ull && (at == ~0ull || w > v || (w == v && there < at))) {
            v = w;
            at = there;
        }
    }
    return at;
#else
    (void)v;
    return index;
#endif
}

MR_HD void mr_count_bad(mr_k_bad *bad, unsigned long long row)
{
#ifdef __CUDA_ARCH__
    atomicAdd(&bad->count, 1ull);
    atomicMin(&bad->row, row);
#else
    bad->count++;
    bad->row = row < bad->row ? row : bad->row;
#endif
}

/* Neighbours that are read or written at once, if they are aligned. */
typedef struct alignas(16) quad {
    float v[MR_QUAD];
} quad;

/* i = *row * width + the result. 64-bit division is slow on GPUs and seldom needed. */
MR_HD int64_t mr_split(int64_t i, size_t width, int64_t *row)
{
    if ((((uint64_t)i | width) >> 32) == 0) {
        uint32_t r = (uint32_t)i / (uint32_t)width;
        *row = r;
        return (uint32_t)i - r * (uint32_t)width;
    }
    *row = i / (int64_t)width;
    return i - *row * (int64_t)width;
}

MR_HD float mr_half_as_float(uint16_t h)
{
    /* Both formats fit into float without rounding; a subnormal half becomes a normal float. */
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, m = h & 1023;
    float f;
    if (exponent == 0) {
        f = (float)m * 5.9604644775390625e-8f; /* 2^-24 */
        return sign ? -f : f;
    }
    uint32_t bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | m << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

MR_HD float mr_bfloat_as_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Number i of data of dtype t as T, float or double, rounded once. */
template <typename T> MR_HD T mr_number(mr_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case MR_BOOL:
        return (T)(((const uint8_t *)data)[i] != 0);
    case MR_INT8:
        return (T)((const int8_t *)data)[i];
    case MR_INT16:
        return (T)((const int16_t *)data)[i];
    case MR_INT32:
        return (T)((const int32_t *)data)[i];
    case MR_INT64:
        return (T)((const int64_t *)data)[i];
    case MR_UINT8:
        return (T)((const uint8_t *)data)[i];
    case MR_UINT16:
        return (T)((const uint16_t *)data)[i];
    case MR_UINT32:
        return (T)((const uint32_t *)data)[i];
    case MR_UINT64:
        return (T)((const uint64_t *)data)[i];
    case MR_FLOAT16:
        return (T)mr_half_as_float(((const uint16_t *)data)[i]);
    case MR_BFLOAT16:
        return (T)mr_bfloat_as_float(((const uint16_t *)data)[i]);
    case MR_FLOAT32:
        return (T)((const float *)data)[i];
    case MR_FLOAT64:
        return (T)((const double *)data)[i];
    default:
        return (T)0;
    }
}
#endif
