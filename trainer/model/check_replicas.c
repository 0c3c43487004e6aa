/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/check_replicas.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/fnv.h"
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"
#include "trainer/strategy/strategy_impl.h"

enum { AT_ONCE = MR__MAX_VALUES / 2 /* variables whose hashes fit in one message */ };

static mr_code differ(const mr_variable *v, size_t a, size_t b, int64_t step, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS,
                   "after step %" PRId64
                   " the variable %s of replica %zu differs from that of replica %zu",
                   step, mr_variable_name(v), b, a);
}

/* The error for two processes that differ before the first step. */
static mr_code begins_otherwise(mr_strategy *s, const mr_variable *v, size_t w, mr_status *st)
{
    const mr__world *world = mr__strategy_world(s);
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "the variable %s starts with other values on rank %zu (%s) than on rank 0 (%s); "
                   "all processes must start with the same weights",
                   mr_variable_name(v), w, mr__world_address(world, (uint32_t)w),
                   mr__world_address(world, 0));
}

/* *h = the hash, after checking that all replicas of this process agree. */
static mr_code hash_local(mr_strategy *s, mr_variable *v, float *values, uint64_t *h, int64_t step,
                          mr_status *st)
{
    size_t bytes = mr_variable_size(v) * sizeof *values, first = mr_strategy_first_replica_id(s);
    for (size_t r = 0; r < mr_strategy_num_local_replicas(s); r++) {
        MR_TRY(
            mr__replica_read(mr_strategy_replica(s, r), values, mr_variable_copy(v, r), bytes, st));
        uint64_t own = mr__fnv1a(MR__FNV_BASIS, values, bytes);
        if (r > 0 && own != *h)
            return differ(v, first, first + r, step, st);
        *h = own;
    }
    return MR_OK;
}

/* Exchanges halves of hashes, which a double represents exactly. */
static mr_code compare_workers(mr_strategy *s, mr_variable *const *variables, const double *halves,
                               size_t n, double *all, int64_t step, mr_status *st)
{
    size_t replicas = mr_strategy_num_local_replicas(s);
    MR_TRY(mr__world_exchange(mr__strategy_world(s), MR__CHANNEL_RESULTS, halves, (uint32_t)(2 * n),
                              all, st));
    for (size_t i = 0; i < n; i++)
        for (size_t w = 1; w < mr_strategy_num_workers(s); w++)
            if (memcmp(all + 2 * i, all + 2 * (w * n + i), 2 * sizeof *all) != 0)
                return step > 0 ? differ(variables[i], 0, w * replicas, step, st)
                                : begins_otherwise(s, variables[i], w, st);
    return MR_OK;
}

mr_code mr__check_replicas(mr_model *m, int64_t step, mr_status *st)
{
    mr_strategy *s = m->s;
    size_t workers = mr_strategy_num_workers(s), largest = 0;
    double halves[2 * AT_ONCE];
    for (size_t i = 0; i < m->n_variables; i++)
        if (mr_variable_size(m->variables[i]) > largest)
            largest = mr_variable_size(m->variables[i]);
    float *values = mr_malloc(largest * sizeof *values);
    double *all = mr_calloc(workers, sizeof halves);
    mr_code rc = MR_OK;
    if (!values || !all)
        rc = mr_fail_memory(st, largest * sizeof *values, "a check of the replicas");
    for (size_t from = 0; from < m->n_variables && rc == MR_OK; from += AT_ONCE) {
        size_t n = m->n_variables - from < AT_ONCE ? m->n_variables - from : AT_ONCE;
        for (size_t i = 0; i < n && rc == MR_OK; i++) {
            uint64_t h = 0;
            rc = hash_local(s, m->variables[from + i], values, &h, step, st);
            halves[2 * i] = (double)(h >> 32);
            halves[2 * i + 1] = (double)(h & 0xffffffffu);
        }
        if (rc == MR_OK && workers > 1)
            rc = compare_workers(s, m->variables + from, halves, n, all, step, st);
    }
    mr_free(values);
    mr_free(all);
    return rc;
}
