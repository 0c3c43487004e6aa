/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/variable.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

struct mr_variable {
    mr_strategy *s;
    char name[96];
    int rank;
    int64_t shape[MR_MAX_RANK];
    size_t size;
    mr_regularizer regularizer;
    size_t n_copies;
    float **copies; /* one a replica */
};

static mr_code count_values(int rank, const int64_t *shape, size_t *n, mr_status *st)
{
    *n = 1;
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a variable has a rank from 0 to %d, found %d",
                       MR_MAX_RANK, rank);
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(*n, (size_t)shape[i], n) || *n > SIZE_MAX / 8)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "dimension %d of a variable is %" PRId64 ", which cannot be held", i,
                           shape[i]);
    return MR_OK;
}

mr_code mr_variable_new(mr_variable **out, mr_strategy *s, int rank, const int64_t *shape,
                        const mr_variable_opts *opts, mr_status *st)
{
    mr_variable_opts none = {0};
    const mr_variable_opts *o = opts ? opts : &none;
    size_t n;
    MR_TRY(count_values(rank, shape, &n, st));
    mr_variable *v = mr_calloc(1, sizeof *v);
    if (!v)
        return mr_fail_memory(st, sizeof *v, "a variable");
    v->s = s;
    snprintf(v->name, sizeof v->name, "%s", o->name ? o->name : "variable");
    v->rank = rank;
    v->size = n;
    v->regularizer = o->regularizer;
    if (rank > 0)
        memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
    v->n_copies = mr_strategy_num_replicas_in_sync(s);
    v->copies = mr_calloc(v->n_copies, sizeof *v->copies);
    mr_code rc =
        v->copies ? MR_OK : mr_fail_memory(st, v->n_copies * sizeof *v->copies, "a variable");
    for (size_t i = 0; i < v->n_copies && rc == MR_OK; i++) {
        void *p;
        rc = mr_device_alloc(mr_replica_device(mr_strategy_replica(s, i)), MR_MEMORY_DEVICE,
                             n * sizeof(float), &p, st);
        if (rc == MR_OK)
            v->copies[i] = p;
    }
    if (rc != MR_OK) {
        mr_variable_free(v);
        return rc;
    }
    mr_initialize(&o->initializer, o->seed, o->stream, o->fan_in, o->fan_out, v->copies[0], n);
    for (size_t i = 1; i < v->n_copies; i++)
        memcpy(v->copies[i], v->copies[0], n * sizeof(float));
    *out = v;
    return MR_OK;
}

void mr_variable_free(mr_variable *v)
{
    if (!v)
        return;
    for (size_t i = 0; v->copies && i < v->n_copies; i++)
        mr_device_free(mr_replica_device(mr_strategy_replica(v->s, i)), MR_MEMORY_DEVICE,
                       v->copies[i]);
    mr_free(v->copies);
    mr_free(v);
}

const char *mr_variable_name(const mr_variable *v)
{
    return v->name;
}

int mr_variable_rank(const mr_variable *v)
{
    return v->rank;
}

const int64_t *mr_variable_shape(const mr_variable *v)
{
    return v->shape;
}

size_t mr_variable_size(const mr_variable *v)
{
    return v->size;
}

const mr_regularizer *mr_variable_regularizer(const mr_variable *v)
{
    return &v->regularizer;
}

float *mr_variable_copy(mr_variable *v, size_t replica)
{
    return v->copies[replica];
}

void mr_variable_assign(mr_variable *v, const float *values)
{
    for (size_t i = 0; i < v->n_copies; i++)
        memcpy(v->copies[i], values, v->size * sizeof(float));
}

void mr_variable_read(const mr_variable *v, float *out)
{
    memcpy(out, v->copies[0], v->size * sizeof(float));
}
