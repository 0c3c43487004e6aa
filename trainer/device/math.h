/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_MATH_H
#define MR_TRAINER_DEVICE_MATH_H
/* The numeric operations of a kind of device, which layers, losses, metrics and optimizers are
 * built on. Each kind has one table of them. Every operation obeys these rules:
 *
 * order      An operation is submitted to a stream and runs in stream order. The call returns at
 *            once and never waits for a device; its argument struct may be reused immediately.
 * pointers   Point to memory of the stream's device (in `reduce`, to memory that it can reach) and
 *            are at least as aligned as the values. NULL is allowed only where stated. Operands do
 *            not overlap unless the comment says that they may be the same.
 * layout     Row major and dense. Images are [n, height, width, channels].
 * types      float32 unless another type is stated; accumulators and results of sums are float64.
 *            Values inside an operation may be rounded as float32 code is, fused or not, in any
 *            order of summation, and denormal numbers may be flushed to 0; NaN and infinity follow
 *            the formula.
 * bits       The same call with the same values on the same kind of device returns the same bits
 *            each time, so there are no atomic sums of floats. Otherwise replicas that hold the
 *            same bits would diverge.
 * writing    "Overwrites" ignores the previous contents, NaN included. "Adds to" reads them and
 *            writes the sum.
 * empty      Sizes may be 0 (rows of an empty slice): overwriting sums write 0, every other
 *            operation has no effect, and pointers to no values may be NULL.
 * errors     The caller guarantees that sizes are right. A back end rejects unsupported calls with
 *            MR_UNIMPLEMENTED, naming them, and fails with MR_RESOURCE_EXHAUSTED if memory runs
 *            out. After an error nothing was submitted.
 * scratch    A back end allocates scratch memory in stream order and may cache plans by shape.
 *
 * thread   one at a time per stream
 * since    0.1 */
#include "../../pipeline/memory/dtype.h"
#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = f(x). The derivative of each is a function of its result: d is f'(x) in terms of y. */
typedef enum mr_math_activation {
    MR_ACT_LINEAR,      /* x                                           d = 1 */
    MR_ACT_RELU,        /* x < 0 ? 0 : x                               d = y > 0 */
    MR_ACT_SIGMOID,     /* 1 / (1 + exp(-x)), without overflow         d = y (1 - y) */
    MR_ACT_TANH,        /*                                             d = 1 - y^2 */
    MR_ACT_SOFTMAX,     /* along a row, of x - max(x)                  dx = y (dy - sum(y dy)) */
    MR_ACT_ELU,         /* x < 0 ? expm1(x) : x                        d = y < 0 ? y + 1 : 1 */
    MR_ACT_SELU,        /* S (x < 0 ? A expm1(x) : x)                  d = y < 0 ? y + S A : S
                           with S = 1.05070098f, A = 1.67326324f */
    MR_ACT_RELU6,       /* x < 0 ? 0 : x > 6 ? 6 : x                   d = y > 0 && y < 6 */
    MR_ACT_LEAKY_RELU,  /* x < 0 ? 0.2 x : x                           d = y > 0 ? 1 : 0.2 */
    MR_ACT_SOFTPLUS,    /* max(x, 0) + log1p(exp(-|x|))                d = 1 - exp(-y) */
    MR_ACT_SOFTSIGN,    /* x / (1 + |x|)                               d = (1 - |y|)^2 */
    MR_ACT_EXPONENTIAL, /* exp(x)                                      d = y */
    MR_N_ACTIVATIONS
} mr_math_activation;

/* ---- plain arithmetic */

/* dst[0..n) = value. */
typedef struct mr_math_fill {
    size_t n;
    float value;
    float *dst;
} mr_math_fill;

/* y = a x + b y, each of n values. b 0: overwrites y. a 0: x is not read and may be NULL. x may be
 * y. (Addition is 1, 1; scaling a, 0; a running mean 1 - m, m.) */
typedef struct mr_math_combine {
    size_t n;
    float a, b;
    const float *x;
    float *y;
} mr_math_combine;

/* y = x z, each of n values. y may be x or z. */
typedef struct mr_math_product {
    size_t n;
    const float *x, *z;
    float *y;
} mr_math_product;

/* y = x, each of n values rounded to the nearest bfloat16, ties to even. y may be x. */
typedef struct mr_math_round_bfloat {
    size_t n;
    const float *x;
    float *y;
} mr_math_round_bfloat;

/* Copies rows between buffers of different strides: y[i * y_stride + j] = x[i * x_stride + j] for
 * all i < rows, j < width. */
typedef struct mr_math_place {
    size_t rows, width, x_stride, y_stride;
    const float *x;
    float *y;
} mr_math_place;

/* dst[i] = (float)src[i] * scale + offset, from n numbers of dtype `from` (bools are 0 and 1; not
 * strings). dst may be src where `from` is float32. */
typedef struct mr_math_cast {
    size_t n;
    mr_dtype from;
    float scale, offset;
    const void *src;
    float *dst;
} mr_math_cast;

/* *out = sum of x[0..n), overwritten, or added to if `add`. */
typedef struct mr_math_sum {
    size_t n;
    bool add;
    const float *x;
    double *out;
} mr_math_sum;

/* out[k][i] = in[0][i] + in[1][i] + ..., in this order, for every k: the sum over devices. An out
 * may be one of the ins. n_in and n_out are at least 1. */
enum { MR_MATH_REDUCE = 8 };
typedef struct mr_math_reduce {
    size_t n, n_in, n_out;
    const float *in[MR_MATH_REDUCE];
    float *out[MR_MATH_REDUCE];
} mr_math_reduce;

/* ---- activations, dropout */

/* y = f(x), x and y [rows, width]; y may be x. */
typedef struct mr_math_activate {
    mr_math_activation f;
    size_t rows, width;
    const float *x;
    float *y;
} mr_math_activate;

/* dx = derivative of sum(dy * f(x)) with respect to x, from y = f(x). Overwrites dx, which may be
 * dy. */
typedef struct mr_math_activate_backward {
    mr_math_activation f;
    size_t rows, width;
    const float *y, *dy;
    float *dx;
} mr_math_activate_backward;

/* y[r, j] = unit(mix(mix_in(key, first_row + r) + j)) < rate ? 0 : x[r, j] * scale, where scale =
 * rate < 1 ? 1 / (1 - rate) : 0 in float32, and mix, mix_in and unit are those of random_bits.h:
 * the choice of dropped values is exact to the bit. The same call on dy is the backward pass. y may
 * be x. */
typedef struct mr_math_dropout {
    size_t rows, width;
    uint64_t key, first_row;
    float rate;
    const float *x;
    float *y;
} mr_math_dropout;

/* ---- dense layers
 *
 * bfloat, here and for convolutions: bfloat16 represents all values of the two factors exactly, so
 * that bfloat16 units may multiply them. Sums are float32; results of convolutions may be rounded
 * to bfloat16. */

/* y = f(x w + bias): x [rows, in], w [in, out], bias [out] or NULL, y [rows, out]. Overwrites. */
typedef struct mr_math_dense {
    size_t rows, in, out;
    mr_math_activation f;
    const float *x, *w, *bias;
    float *y;
    bool bfloat;
} mr_math_dense;

/* dx = dy w^T, overwritten; dy is the gradient of x w + bias, before the activation. */
typedef struct mr_math_dense_backward_data {
    size_t rows, in, out;
    const float *dy, *w;
    float *dx;
    bool bfloat;
} mr_math_dense_backward_data;

/* dw = x^T dy; dbias = column sums of dy, or NULL. Overwrites. */
typedef struct mr_math_dense_backward_weights {
    size_t rows, in, out;
    const float *x, *dy;
    float *dw, *dbias;
    bool bfloat;
} mr_math_dense_backward_weights;

/* ---- convolutions and pools */

/* y[b, i, j, o] = sum over (u, v, c) of
 *     x[b, i stride_h + u dilation_h - pad_top, j stride_w + v dilation_w - pad_left, g C + c]
 *     * kernel[u, v, c, o]
 * where reads outside the image are 0, C = channels / groups, and g = o / (filters / groups):
 *   x [n, height, width, channels]   kernel [kernel_h, kernel_w, C, filters]
 *   y [n, out_h, out_w, filters]
 * out_h and out_w determine the padding below and at the right. groups = channels is a depthwise
 * convolution. groups divides channels and filters; strides and dilations are at least 1. */
typedef struct mr_math_conv2d_shape {
    size_t n, height, width, channels, filters, groups;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
    size_t out_h, out_w;
} mr_math_conv2d_shape;

/* y = f(convolution + bias), bias [filters] or NULL; softmax is over the filters. Overwrites. */
typedef struct mr_math_conv2d {
    mr_math_conv2d_shape s;
    mr_math_activation f;
    const float *x, *kernel, *bias;
    float *y;
    bool bfloat;
} mr_math_conv2d;

/* Overwrites dx. */
typedef struct mr_math_conv2d_backward_data {
    mr_math_conv2d_shape s;
    const float *dy, *kernel;
    float *dx;
    bool bfloat;
} mr_math_conv2d_backward_data;

/* Overwrites dkernel, and dbias (the sum of dy over n, out_h and out_w) unless it is NULL. */
typedef struct mr_math_conv2d_backward_weights {
    mr_math_conv2d_shape s;
    const float *x, *dy;
    float *dkernel, *dbias;
    bool bfloat;
} mr_math_conv2d_backward_weights;

/* y[b, i, j, c] = the largest value, or the mean, of x[b, i stride_h - pad_top + u, j stride_w -
 * pad_left + v, c] over the (u, v) of the window that are inside the image; neither counts padding.
 * Every window has at least one value. NaN counts as the largest value. */
typedef struct mr_math_pool2d_shape {
    bool average;
    size_t n, height, width, channels;
    size_t pool_h, pool_w, stride_h, stride_w, pad_top, pad_left;
    size_t out_h, out_w;
} mr_math_pool2d_shape;

/* Overwrites y. */
typedef struct mr_math_pool2d {
    mr_math_pool2d_shape s;
    const float *x;
    float *y;
} mr_math_pool2d;

/* Overwrites dx. Among equal largest values the first of the window in row-major order receives the
 * gradient. For largest values dx may be x if every value of an image is in exactly one window. y
 * is the result of pool2d for x. */
typedef struct mr_math_pool2d_backward {
    mr_math_pool2d_shape s;
    const float *x, *y, *dy;
    float *dx;
} mr_math_pool2d_backward;

/* ---- normalization */

/* Moments of x [rows, width]. by_row false: of every column over the rows (batch normalization;
 * width is the number of channels): mean and variance [width]. by_row true: of every row over its
 * columns (layer normalization): mean and variance [rows]. variance is the mean of (x - mean)^2.
 * Overwrites both; without values they are 0. */
typedef struct mr_math_moments {
    bool by_row;
    size_t rows, width;
    const float *x;
    float *mean, *variance;
} mr_math_moments;

/* y = (x - mean) / sqrt(variance + epsilon) * gamma + beta; mean and variance are results of
 * moments, gamma and beta [width], or NULL: 1 and 0. y may be x. */
typedef struct mr_math_normalize {
    bool by_row;
    size_t rows, width;
    float epsilon;
    const float *x, *mean, *variance, *gamma, *beta;
    float *y;
} mr_math_normalize;

/* Gradients through normalize and its moments, which must be those of x itself. Overwrites dx,
 * dgamma and dbeta [width]; each of the three may be NULL. dx may be dy. */
typedef struct mr_math_normalize_backward {
    bool by_row;
    size_t rows, width;
    float epsilon;
    const float *x, *mean, *variance, *gamma, *dy;
    float *dx, *dgamma, *dbeta;
} mr_math_normalize_backward;

/* Moments over several devices: each writes its part of 2 width + 1 sums, these are summed, and
 * joint_moments computes the moments of all rows from them. `shift` [width] is the same on all
 * devices; accuracy is best near the mean.
 *     sums[j] = rows (mean[j] - shift[j])
 *     sums[width + j] = rows (variance[j] + (mean[j] - shift[j])^2)
 *     sums[2 width] = rows
 * mean and variance are results of moments by column. Overwrites. */
typedef struct mr_math_share_moments {
    size_t rows, width;
    const float *mean, *variance, *shift;
    float *sums;
} mr_math_share_moments;

/* Overwrites mean and variance [width], which is at least 0; without rows they are shift and 0. */
typedef struct mr_math_joint_moments {
    size_t width;
    const float *sums, *shift;
    float *mean, *variance;
} mr_math_joint_moments;

/* dx of normalize_backward by column for joint moments: dgamma and dbeta are the sums over the rows
 * of all devices, and *n is the number of these rows (the last of the sums above). Overwrites dx,
 * which may be dy. */
typedef struct mr_math_joint_backward {
    size_t rows, width;
    float epsilon;
    const float *x, *mean, *variance, *gamma, *dy, *dgamma, *dbeta, *n;
    float *dx;
} mr_math_joint_backward;

/* ---- class numbers among the features */

/* Labels or class numbers out of range: a record in device memory that the host checks later. It
 * starts as MR_MATH_FAULT_NONE. */
typedef struct mr_math_fault {
    uint64_t count;      /* bad labels so far */
    uint64_t is_feature; /* 1: the fields below describe a number among the features */
    uint64_t row;        /* smallest row number that has one; UINT64_MAX: none */
    double label;        /* the first bad one found in that row */
    uint64_t classes;    /* number of classes */
} mr_math_fault;
#define MR_MATH_FAULT_NONE ((mr_math_fault){.row = UINT64_MAX})

/* y[i, ...] = table[ids[i], ...]: n numbers of any dtype, table [classes, width], y [n, width]. An
 * id outside 0..classes-1 yields zeros and is counted in *fault as row first_row + i /
 * ids_per_row. */
typedef struct mr_math_gather {
    size_t n, width, classes, ids_per_row;
    uint64_t first_row;
    mr_dtype id_dtype;
    const void *ids;
    const float *table;
    float *y;
    mr_math_fault *fault;
} mr_math_gather;

/* dtable[c, ...] = the sum of dy[i, ...] over the i with ids[i] == c, overwritten. */
typedef struct mr_math_gather_backward {
    size_t n, width, classes;
    mr_dtype id_dtype;
    const void *ids;
    const float *dy;
    float *dtable;
} mr_math_gather_backward;

/* y[r, c] = how often c is among ids[r, ...], or with `once` whether it is: ids [rows,
 * ids_per_row], y [rows, classes]. Numbers out of range are handled as in gather, where r is row r
 * / per_row of the examples. Overwrites. */
typedef struct mr_math_encode {
    bool once;
    size_t rows, ids_per_row, classes, per_row;
    uint64_t first_row;
    mr_dtype id_dtype;
    const void *ids;
    float *y;
    mr_math_fault *fault;
} mr_math_encode;

/* ---- losses, penalties, metrics */

typedef enum mr_math_loss_kind {
    /* Mean over the width of (x - z)^2;  d = 2 (x - z) / width */
    MR_LOSS_MSE,
    /* Mean over the width of max(x, 0) - x z + log1p(exp(-|x|));  d = (sigmoid(x) - z) / width */
    MR_LOSS_BINARY_LOGITS,
    /* Mean over the width of -(z log p + (1 - z) log1p(-p)), p = x kept within [1e-7f, 1 - 1e-7f];
     * d = p == x ? (p - z) / (p (1 - p)) / width : 0 */
    MR_LOSS_BINARY_PROBABILITIES,
    /* Mean over the width of |x - z|;  d = sign(x - z) / width, 0 where they are equal */
    MR_LOSS_MAE,
    /* Mean over the width of e = x - z: |e| <= delta ? e^2 / 2 : delta |e| - delta^2 / 2;
     * d = e kept within [-delta, delta] / width */
    MR_LOSS_HUBER,
    /* Sum over the width of q log(q / p), p = x and q = z kept within [1e-7f, 1];
     * d = p == x ? -q / p : 0 */
    MR_LOSS_KL_DIVERGENCE,
    /* -sum of z log(softmax(x));  d = softmax(x) sum z - z */
    MR_LOSS_CATEGORICAL_LOGITS,
    /* q = x / sum x, p = q kept within [1e-7f, 1 - 1e-7f]: -sum of z log p;
     * with g = p == q ? -z / p : 0:  d = (g - sum(g q)) / sum x */
    MR_LOSS_CATEGORICAL_PROBABILITIES,
    /* log(sum exp(x - max)) + max - x[z];  d = exp(x - max) / sum - (j == z) */
    MR_LOSS_SPARSE_LOGITS,
    /* p = x kept within [1e-7f, 1 - 1e-7f]: log(sum p) - log(p[z]);
     * d = p == x ? 1 / sum - (j == z) / p : 0 */
    MR_LOSS_SPARSE_PROBABILITIES
} mr_math_loss_kind;

/* n losses over `width` predictions x each, with labels z: [n, width], or for the sparse kinds [n],
 * of any dtype of numbers, bool included. The binary and categorical kinds replace z by z (1 -
 * smoothing) + smoothing / k, where k is 2 for the binary ones and the width for the others.
 *   per_example[i] = weight * loss, NULL: not computed
 *   gradient[i, j] = scale * weight * d, NULL: not computed; may not be x
 *   *sum = sum of per_example (float64), overwritten; NULL: not computed
 * weight is weights[i / losses_per_weight], or 1 if weights is NULL.
 * A label of the sparse kinds outside 0..width-1 has a loss and gradients of 0 and is counted in
 * *fault (never NULL for them) as row first_row + i / losses_per_row. */
typedef struct mr_math_loss {
    mr_math_loss_kind kind;
    size_t n, width, losses_per_row, losses_per_weight;
    const float *x;
    mr_dtype label_dtype;
    const void *labels;
    const float *weights;
    float scale, delta, smoothing;
    uint64_t first_row;
    float *per_example, *gradient;
    double *sum;
    mr_math_fault *fault;
} mr_math_loss;

/* *flag = fault->count > 0 ? 1 : 0: summed over the replicas, it informs all of them. */
typedef struct mr_math_flag {
    const mr_math_fault *fault;
    float *flag;
} mr_math_flag;

/* Adds l1 * sum |w| + l2 * sum w^2 to *out (float64). */
typedef struct mr_math_penalty {
    size_t n;
    double l1, l2;
    const float *w;
    double *out;
} mr_math_penalty;

/* g += l1 * sign(w) + l2 * w, sign(0) = 0. */
typedef struct mr_math_penalty_backward {
    size_t n;
    float l1, l2;
    const float *w;
    float *g;
} mr_math_penalty_backward;

typedef enum mr_math_metric_kind {
    MR_METRIC_MEAN,    /* x[i, j] */
    MR_METRIC_SQUARED, /* (x[i, j] - z[i, j])^2, in float64 */
    MR_METRIC_BINARY,  /* (x[i, j] > threshold) == z[i, j] */
    MR_METRIC_SPARSE,  /* j of the first largest x[i, j] == z[i] */
    /* j of the first largest x[i, j] == j of the first largest z[i, j] */
    MR_METRIC_CATEGORICAL,
    MR_METRIC_TOP_K, /* fewer than k of x[i, ...] are larger than x[i, z[i]] */
    /* The same, z[i] being j of the first largest z[i, j] */
    MR_METRIC_TOP_K_CATEGORICAL,
    MR_METRIC_TRUE_POSITIVE,      /* x[i, j] > threshold and z[i, j] != 0 */
    MR_METRIC_PREDICTED_POSITIVE, /* x[i, j] > threshold */
    MR_METRIC_POSITIVE,           /* z[i, j] != 0 */
    MR_METRIC_ONE                 /* 1 */
} mr_math_metric_kind;

/* total[0] += the sum of the above, total[1] += their number (n * width, or n for the kinds that
 * compare rows), both float64; with sum_only total[0] alone. With weights, value k of these counts
 * weights[k / values_per_weight] times in both. x [n, width], labels z of any dtype of
 * numbers, [n, width] or, for MR_METRIC_SPARSE and MR_METRIC_TOP_K, [n]; compared as float64. A
 * label that is not a class is never in the top k. The first largest: the search begins with
 * element 0 and moves on when a later one is larger, so it never moves to a NaN. */
typedef struct mr_math_metric {
    mr_math_metric_kind kind;
    bool sum_only;
    size_t n, width, k;
    double threshold;
    const float *x;
    mr_dtype label_dtype;
    const void *labels; /* NULL for MR_METRIC_MEAN and MR_METRIC_ONE */
    double *total;
    const float *weights; /* NULL: all 1 */
    size_t values_per_weight;
} mr_math_metric;

/* counts[t] += number of p > threshold t whose label is not 0; counts[thresholds + t] += number of
 * those whose label is 0, each p k counted weights[k / values_per_weight] times: the basis of
 * curves. Threshold t is (float)(t / (thresholds - 1)), the
 * first and the last of them 1e-7 below 0 and above 1. p is x, or sigmoid(x) if `logits`.
 * thresholds is at least 2. */
typedef struct mr_math_curve {
    size_t n, thresholds;
    bool logits;
    const float *x;
    mr_dtype label_dtype;
    const void *labels;
    double *counts;
    const float *weights; /* NULL: all 1 */
    size_t values_per_weight;
} mr_math_curve;

/* ---- optimizers. If skip is not NULL and *skip is not 0 when the operation runs, nothing is
 * changed: a failed step changes no replica. */

/* momentum 0 (m NULL):  w -= rate * g
 * else:                 m = momentum * m - rate * g;  w += m, or with nesterov
 *                       w += momentum * m - rate * g */
typedef struct mr_math_sgd {
    size_t n;
    float rate, momentum;
    bool nesterov;
    const float *g;
    float *w, *m;
    const float *skip;
} mr_math_sgd;

/* m += (g - m) * keep_1;  v += (g^2 - v) * keep_2;  w -= m * rate / (sqrt(v) + epsilon)
 * where keep is 1 - beta and rate includes the bias correction of the iteration. */
typedef struct mr_math_adam {
    size_t n;
    float rate, keep_1, keep_2, epsilon;
    const float *g;
    float *w, *m, *v;
    const float *skip;
} mr_math_adam;

/* w += (1 - momentum) * (sum / *count - w), if *count is not 0: a running mean over the
 * contributions of `count` replicas. */
typedef struct mr_math_average {
    size_t n;
    float momentum;
    const float *sum, *count;
    float *w;
    const float *skip;
} mr_math_average;

/* Weight decay before an update: w *= factor. */
typedef struct mr_math_decay {
    size_t n;
    float factor;
    float *w;
    const float *skip;
} mr_math_decay;

/* If value > 0, g is clipped to [-value, value]; if norm > 0, it is multiplied by norm / max(norm,
 * sqrt(*squares)). Changes g alone, so it has no skip. squares may be NULL if norm is 0. */
typedef struct mr_math_clip {
    size_t n;
    float value, norm;
    const double *squares;
    float *g;
} mr_math_clip;

/* v += (g^2 - v) * keep;  u = v, or with a (centered) a += (g - a) * keep and u = v - a^2;
 * step = rate * g / sqrt(u + epsilon);  w -= step, or with m: m = momentum * m + step;  w -= m
 * where keep is 1 - rho. a and m may be NULL. */
typedef struct mr_math_rmsprop {
    size_t n;
    float rate, keep, momentum, epsilon;
    const float *g;
    float *w, *v, *a, *m;
    const float *skip;
} mr_math_rmsprop;

/* v += g^2;  w -= rate * g / sqrt(v + epsilon) */
typedef struct mr_math_adagrad {
    size_t n;
    float rate, epsilon;
    const float *g;
    float *w, *v;
    const float *skip;
} mr_math_adagrad;

/* The table. A back end fills every slot. */
struct mr_math_table {
    uint32_t size; /* sizeof(mr_math_table) */
#define MR_MATH_OP(name) mr_code (*name)(mr_stream * s, const mr_math_##name *p, mr_status *st)
    MR_MATH_OP(fill);
    MR_MATH_OP(combine);
    MR_MATH_OP(cast);
    MR_MATH_OP(sum);
    MR_MATH_OP(reduce);
    MR_MATH_OP(activate);
    MR_MATH_OP(activate_backward);
    MR_MATH_OP(dropout);
    MR_MATH_OP(dense);
    MR_MATH_OP(dense_backward_data);
    MR_MATH_OP(dense_backward_weights);
    MR_MATH_OP(conv2d);
    MR_MATH_OP(conv2d_backward_data);
    MR_MATH_OP(conv2d_backward_weights);
    MR_MATH_OP(pool2d);
    MR_MATH_OP(pool2d_backward);
    MR_MATH_OP(moments);
    MR_MATH_OP(normalize);
    MR_MATH_OP(normalize_backward);
    MR_MATH_OP(share_moments);
    MR_MATH_OP(joint_moments);
    MR_MATH_OP(joint_backward);
    MR_MATH_OP(gather);
    MR_MATH_OP(gather_backward);
    MR_MATH_OP(encode);
    MR_MATH_OP(loss);
    MR_MATH_OP(flag);
    MR_MATH_OP(penalty);
    MR_MATH_OP(penalty_backward);
    MR_MATH_OP(metric);
    MR_MATH_OP(curve);
    MR_MATH_OP(sgd);
    MR_MATH_OP(adam);
    MR_MATH_OP(rmsprop);
    MR_MATH_OP(adagrad);
    MR_MATH_OP(decay);
    MR_MATH_OP(clip);
    MR_MATH_OP(average);
    MR_MATH_OP(product);
    MR_MATH_OP(place);
    MR_MATH_OP(round_bfloat);
#undef MR_MATH_OP
};

#ifdef __cplusplus
}
#endif
#endif
