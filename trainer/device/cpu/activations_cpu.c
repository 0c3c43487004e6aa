/* SPDX-License-Identifier: Apache-2.0 */
/* Activations and dropout. */
#include <math.h>
#include <string.h>
#include "trainer/device/cpu/operations.h"
#include "trainer/device/random_bits.h"

/* y = f(x) in place, and dy *= d, with d given in terms of y, for functions of one value. */
#define ELEMENTWISE(name, f, d)                                                                    \
    MR__CLONES static void name##_forward(float *x_, size_t rows, size_t width)                    \
    {                                                                                              \
        for (size_t i = 0; i < rows * width; i++) {                                                \
            float x = x_[i];                                                                       \
            x_[i] = (f);                                                                           \
        }                                                                                          \
    }                                                                                              \
    MR__CLONES static void name##_backward(const float *y_, float *dy, size_t rows, size_t width)  \
    {                                                                                              \
        for (size_t i = 0; i < rows * width; i++) {                                                \
            float y = y_[i];                                                                       \
            dy[i] *= (d);                                                                          \
        }                                                                                          \
    }

#define SELU_SCALE 1.05070098f
#define SELU_ALPHA 1.67326324f

/* NaN stays NaN: comparisons are written so that it takes the branch of x itself. */
ELEMENTWISE(relu, x<0 ? 0 : x, y> 0 ? 1.0f : 0.0f)
ELEMENTWISE(relu6, x<0 ? 0 : x> 6 ? 6 : x, y > 0 && y < 6 ? 1.0f : 0.0f)
ELEMENTWISE(leaky_relu, x<0 ? 0.2f * x : x, y> 0 ? 1.0f : 0.2f)
ELEMENTWISE(sigmoid, x >= 0 ? 1 / (1 + expf(-x)) : expf(x) / (1 + expf(x)), y *(1 - y))
ELEMENTWISE(tanh, tanhf(x), 1 - y * y)
ELEMENTWISE(elu, x < 0 ? expm1f(x) : x, y < 0 ? y + 1 : 1.0f)
ELEMENTWISE(selu, SELU_SCALE *(x < 0 ? SELU_ALPHA * expm1f(x) : x),
            y < 0 ? y + SELU_SCALE * SELU_ALPHA : SELU_SCALE)
ELEMENTWISE(softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))), 1 - expf(-y))
ELEMENTWISE(softsign, x / (1 + fabsf(x)), (1 - fabsf(y)) * (1 - fabsf(y)))
ELEMENTWISE(exponential, expf(x), y)

static void softmax_forward(float *x, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++, x += width) {
        float most = -INFINITY, sum = 0;
        for (size_t i = 0; i < width; i++)
            most = x[i] > most ? x[i] : most;
        for (size_t i = 0; i < width; i++)
            sum += x[i] = expf(x[i] - most);
        for (size_t i = 0; i < width; i++)
            x[i] /= sum;
    }
}

static void softmax_backward(const float *y, float *dy, size_t rows, size_t width)
{
    for (size_t r = 0; r < rows; r++, y += width, dy += width) {
        float dot = 0;
        for (size_t i = 0; i < width; i++)
            dot += y[i] * dy[i];
        for (size_t i = 0; i < width; i++)
            dy[i] = y[i] * (dy[i] - dot);
    }
}

static const struct {
    void (*forward)(float *x, size_t rows, size_t width);
    void (*backward)(const float *y, float *dy, size_t rows, size_t width);
} functions[MR_N_ACTIVATIONS] = {
    [MR_ACT_RELU] = {relu_forward, relu_backward},
    [MR_ACT_SIGMOID] = {sigmoid_forward, sigmoid_backward},
    [MR_ACT_TANH] = {tanh_forward, tanh_backward},
    [MR_ACT_SOFTMAX] = {softmax_forward, softmax_backward},
    [MR_ACT_ELU] = {elu_forward, elu_backward},
    [MR_ACT_SELU] = {selu_forward, selu_backward},
    [MR_ACT_RELU6] = {relu6_forward, relu6_backward},
    [MR_ACT_LEAKY_RELU] = {leaky_relu_forward, leaky_relu_backward},
    [MR_ACT_SOFTPLUS] = {softplus_forward, softplus_backward},
    [MR_ACT_SOFTSIGN] = {softsign_forward, softsign_backward},
    [MR_ACT_EXPONENTIAL] = {exponential_forward, exponential_backward},
};

void mr__cpu_apply(mr_math_activation f, float *y, size_t rows, size_t width)
{
    if (functions[f].forward && rows * width > 0)
        functions[f].forward(y, rows, width);
}

static void copy(size_t n, const float *from, float *to)
{
    if (n > 0 && to != from)
        memcpy(to, from, n * sizeof *to);
}

static void run_activate(void *args)
{
    const mr_math_activate *p = args;
    copy(p->rows * p->width, p->x, p->y);
    mr__cpu_apply(p->f, p->y, p->rows, p->width);
}

static void run_activate_backward(void *args)
{
    const mr_math_activate_backward *p = args;
    copy(p->rows * p->width, p->dy, p->dx);
    if (functions[p->f].backward && p->rows * p->width > 0)
        functions[p->f].backward(p->y, p->dx, p->rows, p->width);
}

/* Whether value j of global row i is dropped is a function of (key, i, j): the mask is the same on
 * any number of replicas, and the backward pass draws it again instead of storing it. */
MR__CLONES static void drop_row(uint64_t row, float rate, float scale, size_t width, const float *x,
                                float *y)
{
    for (size_t j = 0; j < width; j++)
        y[j] = mr__unit_float(mr__mix(row + j)) < rate ? 0 : x[j] * scale;
}

static void run_dropout(void *args)
{
    const mr_math_dropout *p = args;
    float scale = p->rate < 1 ? 1 / (1 - p->rate) : 0;
    for (size_t r = 0; r < p->rows; r++)
        drop_row(mr__mix_in(p->key, p->first_row + r), p->rate, scale, p->width,
                 p->x + r * p->width, p->y + r * p->width);
}

MR__CPU_SUBMIT(activate)
MR__CPU_SUBMIT(activate_backward)
MR__CPU_SUBMIT(dropout)
