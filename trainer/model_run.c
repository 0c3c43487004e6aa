/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of one replica. Memory: outputs of every layer are kept from forward to backward;
 * gradients between layers take turns in two buffers; a layer's gradients overwrite. */
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model_impl.h"
#include "trainer/optimizer_desc.h"
#include "trainer/random_bits.h"
#include "trainer/tensor.h"

static mr_code check_input(const mr_model *m, const mr_array *x, mr_status *st)
{
    const mr__dims *in = &m->layers[0].in;
    if (!m->s)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the model is not built yet; call mr_model_build");
    if (x->dtype != MR_FLOAT32)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "features are %s, the model takes float32; convert them in the pipeline, such "
            "as map((x, y) => (cast(x, \"float32\") / 255.0, y))",
            mr_dtype_name(x->dtype));
    bool fits = x->storage == MR_DENSE && x->rows == 1 && x->rank == in->rank + 1 &&
                memcmp(x->shape + 1, in->shape, (size_t)in->rank * sizeof *in->shape) == 0;
    if (fits)
        return MR_OK;
    char want[128], have[128];
    mr__shape_text(in->rank, in->shape, want, sizeof want);
    mr__shape_text(x->rank - 1, x->shape + 1, have, sizeof have);
    if (x->rank < 1)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "features are scalars; batch the dataset first, so that they have an axis of "
            "examples");
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "an example has shape %s, but the model was built for %s", have, want);
}

static mr_code grow(mr_device *d, float **p, size_t floats, mr_status *st)
{
    void *memory;
    MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, floats * sizeof(float), &memory, st));
    mr_device_free(d, MR_MEMORY_DEVICE, *p);
    *p = memory;
    return MR_OK;
}

/* Once for most runs: the first batch is as large as any. */
static mr_code make_room(mr_model *m, const mr_replica *r, size_t rows, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_device *d = mr_replica_device(r);
    size_t floats;
    if (p->capacity > 0 && rows <= p->capacity)
        return MR_OK;
    if (rows == 0)
        rows = 1;
    if (__builtin_mul_overflow(rows, m->widest, &floats) || floats > SIZE_MAX / 8)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "a batch of %zu examples cannot be held", rows);
    p->capacity = 0;
    for (size_t i = 0; i < m->n_layers; i++)
        if (!m->layers[i].desc->view)
            MR_TRY(grow(d, &p->outputs[i], rows * mr__dims_values(&m->layers[i].out), st));
    MR_TRY(grow(d, &p->flow[0], floats, st));
    MR_TRY(grow(d, &p->flow[1], floats, st));
    p->capacity = rows;
    return MR_OK;
}

/* What layer i takes: the output of the last layer below that is not a view. */
static const float *input_of(const mr_model *m, const mr__model_replica *p, size_t i)
{
    while (i > 0 && m->layers[i - 1].desc->view)
        i--;
    return i > 0 ? p->outputs[i - 1] : p->x;
}

static mr__pass pass_of(const mr_model *m, const mr__model_replica *p, size_t i, bool training)
{
    size_t v = m->first_variable[i];
    return (mr__pass){.layer = &m->layers[i],
                      .rows = p->rows,
                      .training = training,
                      .key = mr__mix_in(mr__mix_in(mr__mix_in(1, m->seed), p->step), i),
                      .first_row = (uint64_t)p->first_row,
                      .w = p->weights + v,
                      .dw = p->grads + v,
                      .x = input_of(m, p, i),
                      .y = p->outputs[i]};
}

mr_code mr_model_forward(mr_model *m, mr_replica *r, const mr_array *x, const mr_forward_opts *opts,
                         mr_array *y, mr_status *st)
{
    bool training = opts && opts->training;
    MR_TRY(check_input(m, x, st));
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    size_t rows = (size_t)x->shape[0];
    MR_TRY(make_room(m, r, rows, st));
    p->rows = rows;
    p->first_row = opts ? opts->first_row : 0;
    p->x = x->data;
    p->step += training;
    p->ready = training;
    for (size_t i = 0; i < m->n_layers && rows > 0; i++) {
        mr__pass pass = pass_of(m, p, i, training);
        if (!m->layers[i].desc->view)
            MR_TRY(m->layers[i].desc->forward(&pass, st));
    }
    const mr__dims *out = &m->layers[m->n_layers - 1].out;
    if (out->rank >= MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the model gives more than %d axes",
                       MR_MAX_RANK - 1);
    *y = (mr_array){.dtype = MR_FLOAT32,
                    .storage = MR_DENSE,
                    .rank = (int8_t)(out->rank + 1),
                    .rows = 1,
                    .data = (void *)(uintptr_t)input_of(m, p, m->n_layers)};
    y->shape[0] = (int64_t)rows;
    memcpy(y->shape + 1, out->shape, (size_t)out->rank * sizeof *out->shape);
    return MR_OK;
}

float *mr_model_output_gradient(mr_model *m, const mr_replica *r)
{
    return m->replicas[mr_replica_id(r)].flow[0];
}

double mr_model_regularization_loss(const mr_model *m, const mr_replica *r)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    double loss = 0;
    for (size_t v = 0; v < m->n_variables; v++) {
        const mr_regularizer *k = mr_variable_regularizer(m->variables[v]);
        const float *w = p->weights[v];
        size_t n = mr_variable_size(m->variables[v]);
        double l1 = 0, l2 = 0;
        for (size_t i = 0; i < n && k->l1 != 0; i++)
            l1 += w[i] < 0 ? -w[i] : w[i];
        for (size_t i = 0; i < n && k->l2 != 0; i++)
            l2 += (double)w[i] * w[i];
        loss += k->l1 * l1 + k->l2 * l2;
    }
    return loss;
}

/* Adds this replica's share of the penalty's derivative. */
static void add_penalty(const mr_model *m, const mr__model_replica *p, size_t v, size_t replicas)
{
    const mr_regularizer *k = mr_variable_regularizer(m->variables[v]);
    const float *w = p->weights[v];
    float *g = p->grads[v];
    size_t n = mr_variable_size(m->variables[v]);
    float l1 = (float)(k->l1 / (double)replicas), l2 = (float)(2 * k->l2 / (double)replicas);
    if (l1 != 0)
        for (size_t i = 0; i < n; i++)
            g[i] += w[i] > 0 ? l1 : w[i] < 0 ? -l1 : 0;
    if (l2 != 0)
        for (size_t i = 0; i < n; i++)
            g[i] += l2 * w[i];
}

static mr_code finish_sums(mr_model *m, mr_replica *r, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_collective *c = mr_strategy_collective(m->s);
    for (size_t b = 0; p->summing && b < m->n_buckets; b++)
        MR_TRY(mr_collective_wait(c, mr_replica_id(r), p->tickets[b], st));
    p->summing = false;
    return MR_OK;
}

mr_code mr_model_backward(mr_model *m, mr_replica *r, mr_status *st)
{
    size_t id = mr_replica_id(r), bucket = 0;
    size_t replicas = mr_strategy_num_replicas_in_sync(m->s);
    mr_collective *c = mr_strategy_collective(m->s);
    mr__model_replica *p = &m->replicas[id];
    if (!p->ready)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "backward needs a forward pass with training on before it");
    p->ready = false;
    p->summing = false; /* a step that failed may have left sums behind */
    float *dy = p->flow[0], *dx = p->flow[1];
    for (size_t i = m->n_layers; i-- > 0 && bucket < m->n_buckets;) {
        const mr__layer *l = &m->layers[i];
        mr__pass pass = pass_of(m, p, i, true);
        pass.dy = dy;
        pass.dx = m->first_variable[i] > 0 ? dx : NULL; /* nobody below the first variables asks */
        if (!l->desc->view && p->rows > 0) {
            MR_TRY(l->desc->backward(&pass, st));
            float *other = dy;
            dy = dx;
            dx = other;
        }
        for (size_t v = m->first_variable[i]; v < m->first_variable[i + 1]; v++) {
            if (p->rows == 0)
                memset(p->grads[v], 0, mr_variable_size(m->variables[v]) * sizeof(float));
            add_penalty(m, p, v, replicas);
        }
        if (m->buckets[bucket].layer == i) {
            const mr__bucket *b = &m->buckets[bucket];
            MR_TRY(
                mr_collective_start(c, id, p->gradients + b->from, b->n, &p->tickets[bucket], st));
            bucket++;
        }
    }
    p->summing = true;
    return MR_OK;
}

mr_code mr_model_apply_gradients(mr_model *m, mr_replica *r, mr_optimizer *o, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_collective *c = mr_strategy_collective(m->s);
    size_t above = m->n_layers; /* layers from here on are updated */
    mr__optimizer_begin(o, r);
    for (size_t b = 0; b < m->n_buckets; b++) {
        size_t layer = m->buckets[b].layer;
        if (p->summing)
            MR_TRY(mr_collective_wait(c, mr_replica_id(r), p->tickets[b], st));
        for (size_t v = m->first_variable[layer]; v < m->first_variable[above]; v++)
            MR_TRY(mr__optimizer_update(o, r, m->variables[v], p->grads[v], st));
        above = layer;
    }
    p->summing = false;
    return MR_OK;
}

mr_code mr_model_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                          mr_status *st)
{
    MR_TRY(finish_sums(m, r, st));
    *gradient = m->replicas[mr_replica_id(r)].grads[i];
    return MR_OK;
}
