/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_KERNELS_ACTIVATION_H
#define MR_TRAINER_DEVICE_CUDA_KERNELS_ACTIVATION_H
/* The activations of one value, that is, all but softmax. */
#include "trainer/device/cuda/kernels/kernel.h"

/* f(x). Comparisons are written so that NaN takes the branch of x itself. */
MR_HD float mr_activation(mr_math_activation f, float x)
{
    const float selu = 1.05070098f, alpha = 1.67326324f;
    switch (f) {
    case MR_ACT_RELU:
        return x < 0 ? 0 : x;
    case MR_ACT_SIGMOID: {
        float e = expf(-fabsf(x));
        return x >= 0 ? 1 / (1 + e) : e / (1 + e);
    }
    case MR_ACT_TANH:
        return tanhf(x);
    case MR_ACT_ELU:
        return x < 0 ? expm1f(x) : x;
    case MR_ACT_SELU:
        return selu * (x < 0 ? alpha * expm1f(x) : x);
    case MR_ACT_RELU6:
        return x < 0 ? 0 : x > 6 ? 6 : x;
    case MR_ACT_LEAKY_RELU:
        return x < 0 ? 0.2f * x : x;
    case MR_ACT_SOFTPLUS:
        return (x < 0 ? 0 : x) + log1pf(expf(-fabsf(x)));
    case MR_ACT_SOFTSIGN:
        return x / (1 + fabsf(x));
    case MR_ACT_EXPONENTIAL:
        return expf(x);
    default:
        return x;
    }
}

/* f'(x) in terms of y = f(x). */
MR_HD float mr_activation_slope(mr_math_activation f, float y)
{
    const float selu = 1.05070098f, alpha = 1.67326324f;
    switch (f) {
    case MR_ACT_RELU:
        return y > 0 ? 1.0f : 0.0f;
    case MR_ACT_SIGMOID:
        return y * (1 - y);
    case MR_ACT_TANH:
        return 1 - y * y;
    case MR_ACT_ELU:
        return y < 0 ? y + 1 : 1.0f;
    case MR_ACT_SELU:
        return y < 0 ? y + selu * alpha : selu;
    case MR_ACT_RELU6:
        return y > 0 && y < 6 ? 1.0f : 0.0f;
    case MR_ACT_LEAKY_RELU:
        return y > 0 ? 1.0f : 0.2f;
    case MR_ACT_SOFTPLUS:
        return 1 - expf(-y);
    case MR_ACT_SOFTSIGN:
        return (1 - fabsf(y)) * (1 - fabsf(y));
    case MR_ACT_EXPONENTIAL:
        return y;
    default:
        return 1;
    }
}
#endif
