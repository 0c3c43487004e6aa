/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/activations.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* y = f(x), and dx = dy * d, with d given in terms of y, for functions of one value. */
#define ELEMENTWISE(name, f, d)                                                                    \
    static void name##_forward(float *x_, size_t rows, size_t width)                               \
    {                                                                                              \
        for (size_t i = 0; i < rows * width; i++) {                                                \
            float x = x_[i];                                                                       \
            x_[i] = (f);                                                                           \
        }                                                                                          \
    }                                                                                              \
    static void name##_backward(const float *y_, float *dy, size_t rows, size_t width)             \
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

static const mr__activation activations[] = {
    {.name = "linear"},
    {"relu", relu_forward, relu_backward},
    {"sigmoid", sigmoid_forward, sigmoid_backward},
    {"tanh", tanh_forward, tanh_backward},
    {"softmax", softmax_forward, softmax_backward},
    {"elu", elu_forward, elu_backward},
    {"selu", selu_forward, selu_backward},
    {"relu6", relu6_forward, relu6_backward},
    {"leaky_relu", leaky_relu_forward, leaky_relu_backward},
    {"softplus", softplus_forward, softplus_backward},
    {"softsign", softsign_forward, softsign_backward},
    {"exponential", exponential_forward, exponential_backward},
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

const mr__activation *mr__activation_find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (strlen(activations[i].name) == n && memcmp(activations[i].name, name, n) == 0)
            return &activations[i];
    return NULL;
}

void mr__activation_list(char *buf, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < N_ACTIVATIONS && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i ? ", " : "", activations[i].name);
}
