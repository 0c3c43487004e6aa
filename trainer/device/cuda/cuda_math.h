/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_MATH_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_MATH_H
/* The table of operations: simple operations and sums in cuda_math.c, products in cuda_product.c,
 * convolutions in cuda_convolution.c. */
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/device/math.h"

extern const mr_math_table mr__math_cuda;

mr_code mr__cuda_dense(mr_stream *s, const mr_math_dense *p, mr_status *st);
mr_code mr__cuda_dense_backward_data(mr_stream *s, const mr_math_dense_backward_data *p,
                                     mr_status *st);
mr_code mr__cuda_dense_backward_weights(mr_stream *s, const mr_math_dense_backward_weights *p,
                                        mr_status *st);
mr_code mr__cuda_conv2d(mr_stream *s, const mr_math_conv2d *p, mr_status *st);
mr_code mr__cuda_conv2d_backward_data(mr_stream *s, const mr_math_conv2d_backward_data *p,
                                      mr_status *st);
mr_code mr__cuda_conv2d_backward_weights(mr_stream *s, const mr_math_conv2d_backward_weights *p,
                                         mr_status *st);

/* Frees the plans of products in a device, and of convolutions in a stream. */
void mr__cuda_plans_free(mr__cuda_device *d);
void mr__cuda_convolutions_free(mr__cuda_stream *s);

/* y = f(y + bias) in place; bias NULL: 0. */
mr_code mr__cuda_bias_activate(mr__cuda_stream *s, mr_math_activation f, size_t rows, size_t width,
                               const float *bias, float *y, mr_status *st);
/* out[0..width) = the column sums of x [rows, width], using the stream's scratch memory. */
mr_code mr__cuda_column_sums(mr__cuda_stream *s, size_t rows, size_t width, const float *x,
                             float *out, mr_status *st);
/* The same using room, which has mr__cuda_column_room() floats. */
mr_code mr__cuda_column_sums_in(mr__cuda_stream *s, size_t rows, size_t width, const float *x,
                                float *room, float *out, mr_status *st);
size_t mr__cuda_column_room(size_t rows, size_t width);
/* Whether a kernel may read MR_QUAD floats at once at p. */
bool mr__cuda_is_quad(const void *p);
#endif
