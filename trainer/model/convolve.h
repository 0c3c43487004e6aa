/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_CONVOLVE_H
#define MR_TRAINER_MODEL_CONVOLVE_H
/* Shared by the convolutional layers. */
#include "trainer/model/onnx.h"
#include "trainer/model/window2d.h"

typedef struct mr__convolution {
    mr__window2d_params windows;
    size_t filters, groups;
    mr_math_activation f;
    bool use_bias;
} mr__convolution;

/* Checks the windows; sets l->out, the shape of wanted[0], whose other fields the layer sets, and
 * wanted[1], the bias. */
mr_code mr__convolve_build(mr_layer *l, const mr__convolution *c, mr_status *st) MR_NODISCARD;
/* The passes: the layer's variables are the kernel and, if use_bias, the bias. */
mr_code mr__convolve(const mr_layer_pass *p, const mr__convolution *c, mr_status *st) MR_NODISCARD;
mr_code mr__convolve_backward(const mr_layer_pass *p, const mr__convolution *c,
                              mr_status *st) MR_NODISCARD;
mr_code mr__convolve_onnx(const mr_layer *l, const mr__convolution *c, mr_onnx *g,
                          mr_status *st) MR_NODISCARD;
#endif
