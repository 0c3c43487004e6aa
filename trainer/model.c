/* SPDX-License-Identifier: Apache-2.0 */
/* Making a model's variables, buckets and per-replica state, and letting them go. */
#include "trainer/model.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model_impl.h"
#include "trainer/tensor.h"

enum { DEFAULT_BUCKET_BYTES = 64 << 10, LINE_FLOATS = 16, MAX_VALUES = 1 << 28 };

static void free_replica(mr_model *m, size_t r)
{
    mr__model_replica *p = &m->replicas[r];
    mr_device *d = mr_replica_device(mr_strategy_replica(m->s, r));
    for (size_t i = 0; p->outputs && i < m->n_layers; i++)
        mr_device_free(d, MR_MEMORY_DEVICE, p->outputs[i]);
    mr_device_free(d, MR_MEMORY_DEVICE, p->flow[0]);
    mr_device_free(d, MR_MEMORY_DEVICE, p->flow[1]);
    mr_device_free(d, MR_MEMORY_DEVICE, p->gradients);
    mr_free(p->outputs);
    mr_free(p->weights);
    mr_free(p->grads);
    mr_free(p->tickets);
}

/* Everything that build made. */
static void unbuild(mr_model *m)
{
    size_t n = m->replicas ? mr_strategy_num_replicas_in_sync(m->s) : 0;
    for (size_t r = 0; r < n; r++)
        free_replica(m, r);
    for (size_t i = 0; m->variables && i < m->n_variables; i++)
        mr_variable_free(m->variables[i]);
    mr_free(m->replicas);
    mr_free(m->variables);
    mr_free(m->first_variable);
    mr_free(m->gradient_at);
    mr_free(m->buckets);
    m->replicas = NULL;
    m->variables = NULL;
    m->first_variable = m->gradient_at = NULL;
    m->buckets = NULL;
    m->n_variables = m->n_buckets = m->n_gradients = 0;
    m->s = NULL;
}

void mr_model_free(mr_model *m)
{
    if (!m)
        return;
    unbuild(m);
    for (size_t i = 0; i < m->n_layers; i++)
        mr_free(m->layers[i].params);
    mr_free(m->layers);
    mr_free(m);
}

bool mr_model_is_built(const mr_model *m)
{
    return m->s != NULL;
}

mr_strategy *mr_model_strategy(const mr_model *m)
{
    return m->s;
}

void mr_model_input_shape(const mr_model *m, int *rank, const int64_t **shape)
{
    *rank = m->input.rank;
    *shape = m->input.shape;
}

void mr_model_output_shape(const mr_model *m, int *rank, const int64_t **shape)
{
    const mr__layer *last = &m->layers[m->n_layers - 1];
    *rank = m->s ? last->out.rank : -1;
    *shape = last->out.shape;
}

size_t mr_model_n_variables(const mr_model *m)
{
    return m->n_variables;
}

mr_variable *mr_model_variable(const mr_model *m, size_t i)
{
    return m->variables[i];
}

static mr_code check_size(const mr__dims *d, const char *what, size_t *values, mr_status *st)
{
    *values = 1;
    for (int i = 0; i < d->rank; i++)
        if (d->shape[i] < 0 || __builtin_mul_overflow(*values, (size_t)d->shape[i], values) ||
            *values > MAX_VALUES)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s: an example has more than %d values, which is too many", what,
                           MAX_VALUES);
    return MR_OK;
}

/* Walks the shapes through the layers; counts the variables. */
static mr_code infer_shapes(mr_model *m, const mr__dims *input, mr_status *st)
{
    mr__dims at = *input;
    size_t values;
    MR_TRY(check_size(&at, "input", &m->widest, st));
    m->n_variables = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        mr__layer *l = &m->layers[i];
        l->in = at;
        l->n_wanted = 0;
        MR_TRY(l->desc->build(l, st));
        at = l->out;
        MR_TRY(check_size(&at, l->desc->name, &values, st));
        m->widest = values > m->widest ? values : m->widest;
        m->n_variables += l->n_wanted;
    }
    return MR_OK;
}

static mr_code make_variables(mr_model *m, mr_status *st)
{
    size_t v = 0;
    m->variables = mr_calloc(m->n_variables, sizeof *m->variables);
    m->gradient_at = mr_calloc(m->n_variables, sizeof *m->gradient_at);
    m->first_variable = mr_calloc(m->n_layers + 1, sizeof *m->first_variable);
    m->buckets = mr_calloc(m->n_layers, sizeof *m->buckets);
    if (!m->variables || !m->gradient_at || !m->first_variable || !m->buckets)
        return mr_fail_memory(st, m->n_variables * sizeof *m->variables, "a model's variables");
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr__layer *l = &m->layers[i];
        m->first_variable[i] = v;
        for (size_t k = 0; k < l->n_wanted; k++, v++) {
            const mr__variable_spec *w = &l->wanted[k];
            char name[96];
            snprintf(name, sizeof name, "%s_%zu/%s", l->desc->name, i, w->name);
            mr_variable_opts o = {.name = name,
                                  .initializer = w->initializer,
                                  .regularizer = w->regularizer,
                                  .seed = m->seed,
                                  .stream = v,
                                  .fan_in = w->fan_in,
                                  .fan_out = w->fan_out};
            MR_TRY(mr_variable_new(&m->variables[v], m->s, w->rank, w->shape, &o, st));
        }
    }
    m->first_variable[m->n_layers] = v;
    return MR_OK;
}

/* Lays gradients out in the order of the backward pass, and cuts them into buckets. */
static void plan_buckets(mr_model *m, size_t bucket_floats)
{
    size_t at = 0, from = 0;
    for (size_t i = m->n_layers; i-- > 0;) {
        for (size_t v = m->first_variable[i]; v < m->first_variable[i + 1]; v++) {
            m->gradient_at[v] = at;
            size_t n = mr_variable_size(m->variables[v]);
            at += (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
        }
        bool last = m->first_variable[i] == 0;
        if (at > from && (at - from >= bucket_floats || last)) {
            m->buckets[m->n_buckets++] = (mr__bucket){from, at - from, i};
            from = at;
        }
    }
    m->n_gradients = at;
}

static mr_code make_replica(mr_model *m, size_t r, mr_status *st)
{
    mr__model_replica *p = &m->replicas[r];
    mr_device *d = mr_replica_device(mr_strategy_replica(m->s, r));
    void *memory;
    p->outputs = mr_calloc(m->n_layers, sizeof *p->outputs);
    p->weights = mr_calloc(m->n_variables, sizeof *p->weights);
    p->grads = mr_calloc(m->n_variables, sizeof *p->grads);
    p->tickets = mr_calloc(m->n_buckets, sizeof *p->tickets);
    if (!p->outputs || !p->weights || !p->grads || !p->tickets)
        return mr_fail_memory(st, m->n_variables * sizeof *p->weights, "a model's replica");
    MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, m->n_gradients * sizeof(float), &memory, st));
    p->gradients = memory;
    /* The gaps between variables are summed too; let them be numbers. */
    memset(p->gradients, 0, m->n_gradients * sizeof(float));
    for (size_t v = 0; v < m->n_variables; v++) {
        p->weights[v] = mr_variable_copy(m->variables[v], r);
        p->grads[v] = p->gradients + m->gradient_at[v];
    }
    return MR_OK;
}

static mr_code build_all(mr_model *m, const mr__dims *input, size_t bucket_bytes, mr_status *st)
{
    size_t n = mr_strategy_num_replicas_in_sync(m->s);
    MR_TRY(infer_shapes(m, input, st));
    MR_TRY(make_variables(m, st));
    plan_buckets(m, (bucket_bytes ? bucket_bytes : DEFAULT_BUCKET_BYTES) / sizeof(float));
    m->replicas = mr_calloc(n, sizeof *m->replicas);
    if (!m->replicas)
        return mr_fail_memory(st, n * sizeof *m->replicas, "a model's replicas");
    for (size_t r = 0; r < n; r++)
        MR_TRY(make_replica(m, r, st));
    return MR_OK;
}

mr_code mr_model_build(mr_model *m, mr_strategy *s, int rank, const int64_t *shape,
                       const mr_model_opts *opts, mr_status *st)
{
    if (m->s)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the model is built already");
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "an example has a rank from 0 to %d, found %d",
                       MR_MAX_RANK, rank);
    mr__dims input = {.rank = rank};
    if (rank > 0)
        memcpy(input.shape, shape, (size_t)rank * sizeof *shape);
    bool same = m->input.rank == rank &&
                memcmp(m->input.shape, input.shape, (size_t)rank * sizeof *shape) == 0;
    if (m->input.rank >= 0 && !same) {
        char want[128], have[128];
        mr__shape_text(m->input.rank, m->input.shape, want, sizeof want);
        mr__shape_text(rank, input.shape, have, sizeof have);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model's input has shape %s, but an example of the data has %s; change "
                       "one, or leave input() out",
                       want, have);
    }
    m->s = s;
    m->seed = opts ? opts->seed : 0;
    mr_code rc = build_all(m, &input, opts ? opts->bucket_bytes : 0, st);
    if (rc != MR_OK)
        unbuild(m);
    return rc;
}

const mr__activation *mr__model_last_activation(const mr_model *m)
{
    for (size_t i = m->n_layers; i-- > 0;) {
        const mr__layer *l = &m->layers[i];
        for (const mr__arg *a = l->desc->args; a->name; a++)
            if (a->type == MR__ACTIVATION)
                return *(const mr__activation *const *)((const char *)l->params + a->at);
        if (!l->desc->view)
            return NULL;
    }
    return NULL;
}
