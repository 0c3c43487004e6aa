/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_INPUT_CONTEXT_H
#define MR_SHARD_DISTRIBUTE_INPUT_CONTEXT_H
/* The argument of an input function: the number of input pipelines in the job, which of them to
 * make, and the total number of replicas.
 *
 *     range(100).batch(per_replica_batch_size(16)).shard(num_input_pipelines, input_pipeline_id)
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_input_context {
    int64_t num_input_pipelines;  /* workers; at least 1 */
    int64_t input_pipeline_id;    /* this one, from 0 */
    int64_t num_replicas_in_sync; /* of all workers together; at least 1 */
} mr_input_context;

/* One pipeline for one replica. */
#define MR_INPUT_CONTEXT_ALONE                                                                     \
    {                                                                                              \
        1, 0, 1                                                                                    \
    }

/* errors   MR_INVALID_ARGUMENT: a field out of range */
MR_API mr_code mr_input_context_check(const mr_input_context *c, mr_status *st) MR_NODISCARD;

/* *out = global_batch_size / num_replicas_in_sync.
 * errors   MR_FAILED_PRECONDITION: not divisible; the message has both numbers */
MR_API mr_code mr_input_context_get_per_replica_batch_size(const mr_input_context *c,
                                                           int64_t global_batch_size, int64_t *out,
                                                           mr_status *st) MR_NODISCARD;

/* A context as the names that an input function in text form can use: num_input_pipelines,
 * input_pipeline_id, num_replicas_in_sync and the function per_replica_batch_size(g). env points
 * into the struct itself, which must not move while env is in use. */
typedef struct mr_input_env {
    mr_env env;
    mr_value values[3];
    mr_input_context context;
} mr_input_env;
MR_API void mr_input_env_init(mr_input_env *e, const mr_input_context *c);

#ifdef __cplusplus
}
#endif
#endif
