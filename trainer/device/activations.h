/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_ACTIVATIONS_H
#define MR_TRAINER_ACTIVATIONS_H
/* Activation functions with Keras's names; math.h has the formulas. All of them can be
 * differentiated from their results, so they work in place and nothing else is kept for the
 * backward pass.
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
    mr_math_activation function; /* what the operations call it */
} mr_activation;

/* The type of a parameter that is an activation: field const mr_activation *, by name; none:
 * "linear". */
MR_API extern const mr_param_kind mr_param_activation;

#ifdef __cplusplus
}
#endif
#endif
