/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_VARIABLE_H
#define MR_TRAINER_VARIABLE_H
/* Mirrored variables: float32 values with one copy a replica, in its device's memory. All copies
 * start equal, and stay equal bit for bit because every replica makes the same update from the same
 * summed gradients.
 *
 * thread   a copy belongs to its replica during a step, all of them to the caller between steps
 * since    0.1 */
#include "initializer.h"
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_variable mr_variable;

typedef struct mr_variable_opts {
    const char *name;           /* NULL: "variable" */
    mr_initializer initializer; /* zeroed: zeros */
    mr_regularizer regularizer;
    uint64_t seed, stream; /* what random initial values are drawn from */
    size_t fan_in, fan_out;
} mr_variable_opts;

/* Returns owned; s must outlive it. errors MR_RESOURCE_EXHAUSTED, MR_INVALID_ARGUMENT: a bad shape
 */
MR_API mr_code mr_variable_new(mr_variable **out, mr_strategy *s, int rank, const int64_t *shape,
                               const mr_variable_opts *opts, mr_status *st) MR_NODISCARD;
MR_API void mr_variable_free(mr_variable *v); /* NULL: nothing */

/* What it is; borrowed until it is freed. */
MR_API const char *mr_variable_name(const mr_variable *v);
MR_API int mr_variable_rank(const mr_variable *v);
MR_API const int64_t *mr_variable_shape(const mr_variable *v);
MR_API size_t mr_variable_size(const mr_variable *v); /* values */
MR_API const mr_regularizer *mr_variable_regularizer(const mr_variable *v);

/* The copy of replica `replica`, borrowed: writable by that replica's step alone, which must write
 * the same as all others. */
MR_API float *mr_variable_copy(mr_variable *v, size_t replica);
/* Between steps: sets every copy to values[0..size), reads the first into out[0..size). */
MR_API void mr_variable_assign(mr_variable *v, const float *values);
MR_API void mr_variable_read(const mr_variable *v, float *out);

#ifdef __cplusplus
}
#endif
#endif
