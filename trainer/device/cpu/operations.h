/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CPU_OPERATIONS_H
#define MR_TRAINER_DEVICE_CPU_OPERATIONS_H
/* The operations of the CPU's table, one function each, as specified in math.h. A file contains
 * those of one family: kernels, which run in the stream's thread, and the functions that submit
 * them. */
/* Products and sums are not fused, so the bits equal those of the plain loop. */
#include "pipeline/system/clones.h"
#include "trainer/device/cpu/stream_cpu.h"

#define MR__CPU_DECLARE(name)                                                                      \
    mr_code mr__cpu_##name(mr_stream *s, const mr_math_##name *p, mr_status *st)

/* Defines the operation `name`; its kernel is static void run_name(void *args). */
#define MR__CPU_SUBMIT(name)                                                                       \
    mr_code mr__cpu_##name(mr_stream *s, const mr_math_##name *p, mr_status *st)                   \
    {                                                                                              \
        return mr__cpu_launch(s, run_##name, p, sizeof *p, st);                                    \
    }

MR__CPU_DECLARE(fill);
MR__CPU_DECLARE(combine);
MR__CPU_DECLARE(product);
MR__CPU_DECLARE(place);
MR__CPU_DECLARE(round_bfloat);
MR__CPU_DECLARE(cast);
MR__CPU_DECLARE(sum);
MR__CPU_DECLARE(reduce);
MR__CPU_DECLARE(activate);
MR__CPU_DECLARE(activate_backward);
MR__CPU_DECLARE(dropout);
MR__CPU_DECLARE(dense);
MR__CPU_DECLARE(dense_backward_data);
MR__CPU_DECLARE(dense_backward_weights);
MR__CPU_DECLARE(conv2d);
MR__CPU_DECLARE(conv2d_backward_data);
MR__CPU_DECLARE(conv2d_backward_weights);
MR__CPU_DECLARE(pool2d);
MR__CPU_DECLARE(pool2d_backward);
MR__CPU_DECLARE(moments);
MR__CPU_DECLARE(normalize);
MR__CPU_DECLARE(normalize_backward);
MR__CPU_DECLARE(share_moments);
MR__CPU_DECLARE(joint_moments);
MR__CPU_DECLARE(joint_backward);
MR__CPU_DECLARE(gather);
MR__CPU_DECLARE(gather_backward);
MR__CPU_DECLARE(encode);
MR__CPU_DECLARE(loss);
MR__CPU_DECLARE(flag);
MR__CPU_DECLARE(penalty);
MR__CPU_DECLARE(penalty_backward);
MR__CPU_DECLARE(metric);
MR__CPU_DECLARE(curve);
MR__CPU_DECLARE(sgd);
MR__CPU_DECLARE(adam);
MR__CPU_DECLARE(rmsprop);
MR__CPU_DECLARE(adagrad);
MR__CPU_DECLARE(decay);
MR__CPU_DECLARE(clip);
MR__CPU_DECLARE(average);

/* Whether the CPU has instructions that multiply bfloat16, which conv2d then uses. */
bool mr__cpu_multiplies_bfloat(void);
/* Dense layers with these instructions: the operations of the table without bias and activation
 * gradients, for matrices that are not empty. */
mr_code mr__cpu_dense_bfloat(mr_stream *s, const mr_math_dense *p, mr_status *st);
mr_code mr__cpu_dense_bfloat_backward_data(mr_stream *s, const mr_math_dense_backward_data *p,
                                           mr_status *st);
mr_code mr__cpu_dense_bfloat_backward_weights(mr_stream *s, const mr_math_dense_backward_weights *p,
                                              mr_status *st);

/* Shared by kernels. In place: y = f(y). */
void mr__cpu_apply(mr_math_activation f, float *y, size_t rows, size_t width);
/* out[0..width) = sums over the rows of x, overwritten. */
void mr__cpu_column_sums(size_t rows, size_t width, const float *x, float *out);
#endif
