/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_LEARNED_LISTS_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_LEARNED_LISTS_H
/* The numbers that `millrace adapt` learns and writes: normalization.json, {"mean": [..],
 * "variance": [..]}, and boundaries.json, {"boundaries": [..]}. Layers and functions of pipelines
 * read the same files.
 *
 * thread   any
 * since    0.1 */
#include "../../params/param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What normalization adds to a variance before it takes the root: Keras's max(deviation, 1e-7) but
 * where a variance is next to nothing. */
#define MR_NORMALIZATION_EPSILON 1e-14F

/* How many bytes a file of numbers, and one of a vocabulary, may have. */
enum { MR_LEARNED_LIST_MOST = 1 << 28, MR_VOCABULARY_MOST = 1 << 30 };

/* Owned: mr_free(mean->v); nothing is after a failure.
 * errors   MR_INVALID_ARGUMENT: no JSON, a list that is missing or empty, what is no number, a
 *          variance below 0, more of one than of the other */
MR_API mr_code mr_learned_moments(const void *json, size_t size, mr_floats *mean,
                                  mr_floats *variance, mr_status *st) MR_NODISCARD;
/* Owned: mr_free(out->v); nothing is after a failure.
 * errors   MR_INVALID_ARGUMENT: as above, and those of the check */
MR_API mr_code mr_learned_boundaries(const void *json, size_t size, mr_floats *out,
                                     mr_status *st) MR_NODISCARD;
/* Boundaries are finite and rise. errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_learned_boundaries_check(const mr_floats *boundaries, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
