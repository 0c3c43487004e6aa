/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_INITIALIZER_H
#define MR_TRAINER_STRATEGY_INITIALIZER_H
/* Initializers of weights, and penalties on weights, with Keras's names and definitions.
 *
 * thread   any
 * since    0.1 */
#include "../component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Deviations are standard deviations. A truncated normal is cut at two deviations of the normal
 * distribution, and scaled so that its own deviation, after cutting, is the one stated. */
typedef enum mr_initializer_kind {
    MR_INIT_ZEROS,
    MR_INIT_ONES,
    MR_INIT_CONSTANT,       /* a: the value */
    MR_INIT_GLOROT_UNIFORM, /* uniform in [-l, l), l = sqrt(6 / (fan_in + fan_out)) */
    MR_INIT_GLOROT_NORMAL,  /* truncated normal, deviation sqrt(2 / (fan_in + fan_out)) */
    MR_INIT_HE_UNIFORM,     /* uniform in [-l, l), l = sqrt(6 / fan_in) */
    MR_INIT_HE_NORMAL,      /* truncated normal, deviation sqrt(2 / fan_in) */
    MR_INIT_LECUN_UNIFORM,  /* uniform in [-l, l), l = sqrt(3 / fan_in) */
    MR_INIT_LECUN_NORMAL,   /* truncated normal, deviation sqrt(1 / fan_in) */
    MR_INIT_RANDOM_UNIFORM, /* uniform in [a, b) */
    MR_INIT_RANDOM_NORMAL,  /* normal, mean a, deviation b */
    MR_N_INITS
} mr_initializer_kind;

typedef struct mr_initializer {
    mr_initializer_kind kind;
    double a, b; /* see the kind; else unused */
} mr_initializer;

/* l1 * sum |w| + l2 * sum w^2 is added to the loss. */
typedef struct mr_regularizer {
    double l1, l2;
} mr_regularizer;

/* Fills out[0..n) with values that depend only on k, seed, stream and the fans, which are the
 * numbers of inputs and outputs of a unit. Only the Glorot, He and LeCun kinds use the fans. */
MR_API void mr_initialize(const mr_initializer *k, uint64_t seed, uint64_t stream, size_t fan_in,
                          size_t fan_out, float *out, size_t n);

/* Types of parameters, for MR_PARAM_OWN. In text, an mr_initializer is a name or a call ("zeros",
 * constant(0.5)); an mr_regularizer may also be none ("l2", l2(0.01), none). */
MR_API extern const mr_param_kind mr_param_initializer, mr_param_regularizer;

#ifdef __cplusplus
}
#endif
#endif
