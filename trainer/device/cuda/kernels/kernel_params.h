/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_KERNELS_KERNEL_PARAMS_H
#define MR_TRAINER_DEVICE_CUDA_KERNELS_KERNEL_PARAMS_H
/* The kernels by family, and their parameters: shared with the host code that launches them. */
#include "trainer/device/math.h"

#ifdef __CUDACC__
#define MR_HD static __host__ __device__ __forceinline__
#else
#define MR_HD static inline
#endif

enum { MR_CUDA_BLOCK = 256 }; /* threads per block */

/* X(family, kernel, its parameters) */
#define MR_CUDA_KERNELS(X)                                                                         \
    X(elementwise, fill, mr_math_fill)                                                             \
    X(elementwise, combine, mr_math_combine)                                                       \
    X(elementwise, product, mr_math_product)                                                       \
    X(elementwise, place, mr_math_place)                                                           \
    X(elementwise, round_bfloat, mr_math_round_bfloat)                                             \
    X(elementwise, pack_bfloat, mr_k_pack_bfloat)                                                  \
    X(elementwise, cast, mr_math_cast)                                                             \
    X(elementwise, reduce, mr_math_reduce)                                                         \
    X(elementwise, activate, mr_math_activate)                                                     \
    X(elementwise, activate_backward, mr_math_activate_backward)                                   \
    X(elementwise, bias_activate, mr_k_bias_activate)                                              \
    X(elementwise, dropout, mr_math_dropout)                                                       \
    X(elementwise, flag, mr_math_flag)                                                             \
    X(elementwise, penalty_backward, mr_math_penalty_backward)                                     \
    X(sums, sum_floats, mr_k_sum)                                                                  \
    X(sums, sum_doubles, mr_k_sum)                                                                 \
    X(sums, sum_penalty, mr_k_penalty)                                                             \
    X(sums, sum_columns, mr_k_columns)                                                             \
    X(sums, sum_column_quads, mr_k_columns)                                                        \
    X(sums, sum_parts, mr_k_columns)                                                               \
    X(rows, softmax, mr_math_activate)                                                             \
    X(rows, softmax_backward, mr_math_activate_backward)                                           \
    X(rows, loss, mr_k_loss)                                                                       \
    X(rows, loss_fault, mr_k_loss)                                                                 \
    X(rows, metric, mr_k_metric)                                                                   \
    X(rows, curve, mr_math_curve)                                                                  \
    X(ids, gather, mr_k_gather)                                                                    \
    X(ids, id_fault, mr_k_id_fault)                                                                \
    X(ids, gather_backward, mr_math_gather_backward)                                               \
    X(ids, encode, mr_k_encode)                                                                    \
    X(optimizers, sgd, mr_math_sgd)                                                                \
    X(optimizers, adam, mr_math_adam)                                                              \
    X(optimizers, average, mr_math_average)                                                        \
    X(optimizers, rmsprop, mr_math_rmsprop)                                                        \
    X(optimizers, adagrad, mr_math_adagrad)                                                        \
    X(optimizers, decay, mr_math_decay)                                                            \
    X(optimizers, clip, mr_math_clip)                                                              \
    X(images, conv2d, mr_math_conv2d)                                                              \
    X(images, conv2d_backward_data, mr_math_conv2d_backward_data)                                  \
    X(images, conv2d_backward_weights, mr_k_conv2d_weights)                                        \
    X(images, conv2d_narrow, mr_math_conv2d)                                                       \
    X(images, conv2d_narrow_weights, mr_k_conv2d_weights)                                          \
    X(images, kernel_to_filters, mr_k_filters)                                                     \
    X(images, filters_to_kernel, mr_k_filters)                                                     \
    X(images, to_planes, mr_k_planes)                                                              \
    X(images, from_planes, mr_k_planes)                                                            \
    X(images, pad, mr_k_pad)                                                                       \
    X(images, crop, mr_k_pad)                                                                      \
    X(images, pool2d, mr_math_pool2d)                                                              \
    X(images, pool2d_quads, mr_math_pool2d)                                                        \
    X(images, pool2d_backward_apart, mr_math_pool2d_backward)                                      \
    X(images, pool2d_backward_apart_quads, mr_math_pool2d_backward)                                \
    X(images, pool2d_backward, mr_math_pool2d_backward)                                            \
    X(normalization, moments_parts, mr_k_moments)                                                  \
    X(normalization, moments_merge, mr_k_moments)                                                  \
    X(normalization, normalize, mr_math_normalize)                                                 \
    X(normalization, normalize_sums, mr_k_normalize_sums)                                          \
    X(normalization, normalize_backward, mr_k_normalize_backward)                                  \
    X(normalization, share_moments, mr_math_share_moments)                                         \
    X(normalization, joint_moments, mr_math_joint_moments)                                         \
    X(normalization, joint_backward, mr_math_joint_backward)

/* x as bfloat16, rounded to nearest, two per word; if n is odd the last is paired with 0. */
typedef struct mr_k_pack_bfloat {
    size_t n;
    const float *x;
    uint32_t *pairs;
} mr_k_pack_bfloat;

/* y = f(y + bias), y [rows, width], in place; bias NULL: 0. Not softmax. */
typedef struct mr_k_bias_activate {
    mr_math_activation f;
    size_t rows, width;
    const float *bias;
    float *y;
} mr_k_bias_activate;

/* out[k] = the sum of part k of n values, which are distributed over the parts in turn by warps;
 * added to out[k] if `add`. `count` is added to out[parts] (used by metrics) unless it is 0. */
typedef struct mr_k_sum {
    size_t n, parts;
    bool add;
    double count;
    const void *x;
    double *out;
} mr_k_sum;

/* The same for l1 |w| + l2 w^2. */
typedef struct mr_k_penalty {
    size_t n, parts;
    double l1, l2;
    const float *w;
    double *out;
} mr_k_penalty;

/* out[k, j] = the sum of x[k, j], x[k + parts, j], ...: x [rows, width], out [parts, width]. For
 * sum_parts, parts is 1. sum_column_quads processes MR_QUAD columns together. */
typedef struct mr_k_columns {
    size_t rows, width, parts;
    const float *x;
    float *out;
} mr_k_columns;

/* Words of a stream in which losses count bad labels: their number, and the smallest row. Between
 * operations they are 0 and UINT64_MAX. */
typedef struct mr_k_bad {
    unsigned long long count, row;
} mr_k_bad;

/* `losses`, if not NULL, also receives per_example, for the sum. */
typedef struct mr_k_loss {
    mr_math_loss l;
    float *losses;
    mr_k_bad *bad;
} mr_k_loss;

typedef struct mr_k_gather {
    mr_math_gather g;
    mr_k_bad *bad;
} mr_k_gather;

typedef struct mr_k_encode {
    mr_math_encode e;
    mr_k_bad *bad;
} mr_k_encode;

/* Follows either: an example has ids_per_row numbers, and the first example has number
 * first_row. */
typedef struct mr_k_id_fault {
    size_t ids_per_row, classes;
    uint64_t first_row;
    mr_dtype id_dtype;
    const void *ids;
    mr_math_fault *fault;
    mr_k_bad *bad;
} mr_k_id_fault;

/* out[k] = the sum over the rows k, k + parts, ... */
typedef struct mr_k_metric {
    mr_math_metric m;
    size_t parts;
    double *out;
} mr_k_metric;

/* out[k, w] = the part of dkernel[w] from the rows k, k + parts, ... of n * out_h. */
typedef struct mr_k_conv2d_weights {
    mr_math_conv2d_backward_weights c;
    size_t parts;
    float *out;
} mr_k_conv2d_weights;

/* Neighbours that a thread processes together: MR_QUAD filters, channels or columns, which are a
 * multiple of it, aligned to it where they are read and written, and of tensors of fewer than
 * 2^31 values; MR_RUN pixels of a row; MR_TAPS elements of a kernel. The narrow kernels
 * (conv2d_narrow, conv2d_narrow_weights) require groups 1 and at most 32 elements of a kernel,
 * channels included. */
enum { MR_QUAD = 4, MR_RUN = 4, MR_TAPS = 9 };
MR_HD uint32_t mr_runs(size_t out_w)
{
    return ((uint32_t)out_w + MR_RUN - 1) / MR_RUN;
}
MR_HD uint32_t mr_tap_groups(size_t elements)
{
    return ((uint32_t)elements + MR_TAPS - 1) / MR_TAPS;
}

/* Converts a kernel [spatial, C, filters] to cuDNN's filters [filters, C, spatial], and back. */
typedef struct mr_k_filters {
    size_t spatial, channels, filters;
    const float *from;
    float *to;
} mr_k_filters;

/* to_planes: to [n, channels, pixels] = from [n, pixels, channels]; from_planes: back, from [n,
 * channels, pixels]. An index is MR_PLANES channels of a pixel. */
enum { MR_PLANES = 8 };
typedef struct mr_k_planes {
    size_t n, pixels, channels;
    const float *from;
    float *to;
} mr_k_planes;

/* pad: to [n, to_h, to_w, channels] = from [n, from_h, from_w, channels] surrounded by zeros, first
 * row top, first column left. crop: the inverse, copies the inside of from to `to`. */
typedef struct mr_k_pad {
    size_t n, from_h, from_w, to_h, to_w, channels, top, left;
    const float *from;
    float *to;
} mr_k_pad;

/* Counts, means and sums of squared deviations in parts: [n_parts, items] each, where an item is a
 * column (or a row, by_row) of x. */
typedef struct mr_k_moments {
    mr_math_moments m;
    size_t parts;
    float *means, *squares;
} mr_k_moments;

/* For each item and part: sum of dy gamma and of dy gamma xhat (for dx), or by column of dy xhat
 * and dy (dgamma, dbeta). [parts, items] each. */
typedef struct mr_k_normalize_sums {
    mr_math_normalize_backward b;
    bool weighted; /* by gamma */
    bool by_row;   /* items are rows */
    size_t parts;
    float *plain, *scaled;
} mr_k_normalize_sums;

/* From the sums of every item, merged into one part. */
typedef struct mr_k_normalize_backward {
    mr_math_normalize_backward b;
    const float *plain, *scaled;
} mr_k_normalize_backward;
#endif
