/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_LEARNED_LISTS_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_LEARNED_LISTS_H
/* The files of numbers that `millrace adapt` learns: normalization.json, {"mean": [..],
 * "variance": [..]}, and boundaries.json, {"boundaries": [..]}. Layers and pipeline functions read
 * the same files.
 *
 * thread   any
 * since    0.1 */
#include "../../params/param.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Normalization adds it to a variance before taking the square root. Equals Keras's max(deviation,
 * 1e-7) unless the variance is close to 0. */
#define MR_NORMALIZATION_EPSILON 1e-14F

/* Maximum sizes of a file of numbers and of a vocabulary file, in bytes. */
enum { MR_LEARNED_LIST_MOST = 1 << 28, MR_VOCABULARY_MOST = 1 << 30 };

/* Parses the means and variances. Owned: mr_free(mean->v), mr_free(variance->v); nothing to free
 * after a failure.
 * errors   MR_INVALID_ARGUMENT: malformed JSON, a missing or empty list, an entry that is not a
 *          number, a variance below 0, lists of different lengths */
MR_API mr_code mr_learned_moments(const void *json, size_t size, mr_floats *mean,
                                  mr_floats *variance, mr_status *st) MR_NODISCARD;
/* Parses the boundaries. Owned: mr_free(out->v); nothing to free after a failure.
 * errors   MR_INVALID_ARGUMENT: as above, and those of mr_learned_boundaries_check */
MR_API mr_code mr_learned_boundaries(const void *json, size_t size, mr_floats *out,
                                     mr_status *st) MR_NODISCARD;
/* Checks that boundaries are finite and ascending. errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_learned_boundaries_check(const mr_floats *boundaries, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
