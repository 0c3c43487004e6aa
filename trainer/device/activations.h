/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_ACTIVATIONS_H
#define MR_TRAINER_DEVICE_ACTIVATIONS_H
/* Activation functions with Keras's names; math.h has the formulas. The derivative of each is a
 * function of its result, so they work in place and store nothing else for the backward pass.
 *
 *     struct params { const mr_activation *activation; };
 *     MR_PARAM_OWN(struct params, activation, mr_param_activation, .def.s = "linear",
 *                  .doc = ...) */
#include "../component.h"
#include "math.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_activation {
    const char *name;
    mr_math_activation function; /* its number in the table of operations */
} mr_activation;

/* Parameter type for an activation, given by name: the field is a const mr_activation *; default
 * "linear". */
MR_API extern const mr_param_kind mr_param_activation;

#ifdef __cplusplus
}
#endif
#endif
