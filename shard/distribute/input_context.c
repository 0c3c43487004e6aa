/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/distribute/input_context.h"

#include <inttypes.h>
#include <string.h>

mr_code mr_input_context_check(const mr_input_context *c, mr_status *st)
{
    if (c->num_input_pipelines < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_input_pipelines must be at least 1, not %" PRId64,
                       c->num_input_pipelines);
    if (c->input_pipeline_id < 0 || c->input_pipeline_id >= c->num_input_pipelines)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "input_pipeline_id must be 0 to %" PRId64 ", not %" PRId64,
                       c->num_input_pipelines - 1, c->input_pipeline_id);
    if (c->num_replicas_in_sync < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "num_replicas_in_sync must be at least 1, not %" PRId64,
                       c->num_replicas_in_sync);
    return MR_OK;
}

mr_code mr_input_context_get_per_replica_batch_size(const mr_input_context *c,
                                                    int64_t global_batch_size, int64_t *out,
                                                    mr_status *st)
{
    if (global_batch_size % c->num_replicas_in_sync != 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the global batch size %" PRId64 " is not divisible by the %" PRId64
                       " replicas in sync; choose a multiple of %" PRId64,
                       global_batch_size, c->num_replicas_in_sync, c->num_replicas_in_sync);
    *out = global_batch_size / c->num_replicas_in_sync;
    return MR_OK;
}

static mr_code call(void *ctx, const char *name, const mr_value *args, size_t n_args, mr_value *out,
                    mr_status *st)
{
    const mr_input_context *c = ctx;
    if (strcmp(name, "per_replica_batch_size") != 0)
        return MR_NOT_FOUND;
    if (n_args != 1 || args[0].kind != MR_V_INT)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "per_replica_batch_size takes one integer, the global batch size");
    int64_t size = 0;
    MR_TRY(mr_input_context_get_per_replica_batch_size(c, args[0].i, &size, st));
    *out = (mr_value){.kind = MR_V_INT, .i = size};
    return MR_OK;
}

void mr_input_env_init(mr_input_env *e, const mr_input_context *c)
{
    static const char *const names[] = {"num_input_pipelines", "input_pipeline_id",
                                        "num_replicas_in_sync"};
    e->context = *c;
    e->values[0] = (mr_value){.kind = MR_V_INT, .i = c->num_input_pipelines};
    e->values[1] = (mr_value){.kind = MR_V_INT, .i = c->input_pipeline_id};
    e->values[2] = (mr_value){.kind = MR_V_INT, .i = c->num_replicas_in_sync};
    e->env = (mr_env){names, e->values, 3, call, &e->context};
}
