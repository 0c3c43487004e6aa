/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_VARIABLE_H
#define MR_TRAINER_STRATEGY_VARIABLE_H
/* Variables: float32 values with a copy for each replica, in its device's memory. All copies start
 * equal, and stay equal bit for bit because every replica applies the same update from the same
 * summed gradients. Under central_storage there is one copy for all, which replica 0 updates;
 * replicas whose device cannot read it keep a copy, which they refetch when it has changed.
 *
 * thread   a copy belongs to its replica during a step, all of them to the caller between steps
 * since    0.1 */
#include "initializer.h"
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_variable mr_variable;

/* How a variable changes. */
typedef enum mr_variable_role {
    MR_LEARNED, /* by its gradient */
    MR_AVERAGE, /* a running mean of statistics of the replicas' batches */
    MR_FIXED    /* never */
} mr_variable_role;

typedef struct mr_variable_opts {
    const char *name;           /* NULL: "variable" */
    mr_initializer initializer; /* zeroed: zeros */
    mr_regularizer regularizer;
    uint64_t seed, stream; /* seed and stream of random initial values */
    size_t fan_in, fan_out;
    mr_variable_role role;
} mr_variable_opts;

/* Returns owned; s must outlive it.
 * errors   MR_RESOURCE_EXHAUSTED · MR_INVALID_ARGUMENT: a bad shape */
MR_API mr_code mr_variable_new(mr_variable **out, mr_strategy *s, int rank, const int64_t *shape,
                               const mr_variable_opts *opts, mr_status *st) MR_NODISCARD;
MR_API void mr_variable_free(mr_variable *v); /* NULL: nothing */

/* Properties; borrowed until the variable is freed. */
MR_API const char *mr_variable_name(const mr_variable *v);
MR_API int mr_variable_rank(const mr_variable *v);
MR_API const int64_t *mr_variable_shape(const mr_variable *v);
MR_API size_t mr_variable_size(const mr_variable *v); /* values */
MR_API const mr_regularizer *mr_variable_regularizer(const mr_variable *v);
MR_API mr_variable_role mr_variable_role_of(const mr_variable *v);

/* The copy of replica `replica`, in its device's memory, borrowed. Only operations in that
 * replica's steps may write it, and all replicas must write the same. */
MR_API float *mr_variable_copy(mr_variable *v, size_t replica);
/* Between steps: sets every copy to values[0..size), reads the first into out[0..size).
 * errors: the device's */
MR_API mr_code mr_variable_assign(mr_variable *v, const float *values, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_variable_read(const mr_variable *v, float *out, mr_status *st) MR_NODISCARD;

/* Between steps: *out = a line that describes the variable, and a line for each copy with its
 * device and its first values, at most 8. Owned: mr_free.
 *
 *     mirrored variable 'v', float32 [2]
 *       0: cpu:0  [1, 2]
 *       1: cpu:1  [1, 2]
 *
 * errors   the device's */
MR_API mr_code mr_variable_to_text(const mr_variable *v, char **out, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
