/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_INITIALIZER_H
#define MR_TRAINER_STRATEGY_INITIALIZER_H
/* Initializers of weights, and penalties on them, with Keras's names and definitions. */
#include "../component.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_initializer_kind {
    MR_INIT_ZEROS,
    MR_INIT_ONES,
    MR_INIT_CONSTANT,       /* a: the value */
    MR_INIT_GLOROT_UNIFORM, /* within sqrt(6 / (fan_in + fan_out)) */
    MR_INIT_GLOROT_NORMAL,  /* deviation sqrt(2 / (fan_in + fan_out)), cut at two deviations */
    MR_INIT_HE_UNIFORM,     /* within sqrt(6 / fan_in) */
    MR_INIT_HE_NORMAL,      /* deviation sqrt(2 / fan_in), cut */
    MR_INIT_LECUN_UNIFORM,  /* within sqrt(3 / fan_in) */
    MR_INIT_LECUN_NORMAL,   /* deviation sqrt(1 / fan_in), cut */
    MR_INIT_RANDOM_UNIFORM, /* between a and b */
    MR_INIT_RANDOM_NORMAL,  /* mean a, deviation b */
    MR_N_INITS
} mr_initializer_kind;

typedef struct mr_initializer {
    mr_initializer_kind kind;
    double a, b;
} mr_initializer;

/* l1 * sum |w| + l2 * sum w^2 is added to the loss. */
typedef struct mr_regularizer {
    double l1, l2;
} mr_regularizer;

/* Fills out[0..n). The values depend only on seed and stream. Only the kinds named after their
 * authors (Glorot, He, LeCun) use the fans. */
MR_API void mr_initialize(const mr_initializer *k, uint64_t seed, uint64_t stream, size_t fan_in,
                          size_t fan_out, float *out, size_t n);

/* Parameter types, for MR_PARAM_OWN: an mr_initializer is given by a name or a call ("zeros",
 * constant(0.5)), an mr_regularizer by none, "l2" or l2(0.01). */
MR_API extern const mr_param_kind mr_param_initializer, mr_param_regularizer;

#ifdef __cplusplus
}
#endif
#endif
