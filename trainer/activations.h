/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_ACTIVATIONS_H
#define MR_TRAINER_ACTIVATIONS_H
/* Activation functions with Keras's names. All of them can be differentiated from what they gave,
 * so they work in place and nothing else is kept for the backward pass. */
#include <stddef.h>

typedef struct mr__activation {
    const char *name;
    /* x[rows, width] in place. NULL: identity. */
    void (*forward)(float *x, size_t rows, size_t width);
    /* dy in place: the derivative by the input, y being what forward gave. */
    void (*backward)(const float *y, float *dy, size_t rows, size_t width);
} mr__activation;

/* NULL: there is none. */
const mr__activation *mr__activation_find(const char *name, size_t n);
/* "linear, relu, ..." */
void mr__activation_list(char *buf, size_t size);
#endif
