/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of one replica. Memory: outputs of every layer are kept from forward to backward;
 * gradients between layers go to the slots of model_plan.c; a layer's gradients overwrite. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/collective_impl.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/device/drop.h"
#include "trainer/device/random_bits.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"
#include "trainer/strategy/variable_impl.h"

/* Whether every layer that reads this input takes numbers of any dtype. */
static bool takes_numbers(const mr_model *m, size_t input)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        for (size_t k = 0; k < l->n_inputs && !l->desc->view; k++) {
            size_t maker = mr__maker_of(m, mr__source_of(l, k));
            if (mr__input_made(m, maker) == input && !l->desc->takes_numbers)
                return false;
        }
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        if (mr__input_made(m, mr__maker_of(m, m->outputs[i])) == input)
            return false;
    return true;
}

mr_code mr__model_check_dtype(const mr_model *m, size_t input, mr_dtype t, mr_status *st)
{
    if (t == MR_FLOAT32 || (t < MR_STRING && takes_numbers(m, input)))
        return MR_OK;
    char of[80] = "";
    if (m->n_inputs > 1)
        snprintf(of, sizeof of, " of input %.63s", mr_model_input_name(m, input));
    if (t >= MR_STRING)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "features%s are %s, this model takes numbers; begin the model with lookup() "
                       "or hashing() to turn strings into numbers",
                       of, mr_dtype_name(t));
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "features%s are %s, this model takes float32; convert them in a map of the pipeline, "
        "cast(x, \"float32\")%s, or begin an untrained model with cast() or rescaling(1.0 / 255)",
        of, mr_dtype_name(t), t == MR_UINT8 ? " / 255.0" : "");
}

mr_code mr__model_check_input(const mr_model *m, size_t i, const mr_array *x, mr_status *st)
{
    int rank;
    const int64_t *shape;
    mr_model_input_shape_of(m, i, &rank, &shape);
    MR_TRY(mr__model_check_dtype(m, i, x->dtype, st));
    /* A batch without examples may not know their shape. */
    bool fits =
        x->storage == MR_DENSE && x->rows == 1 && x->rank == rank + 1 &&
        (x->shape[0] == 0 || memcmp(x->shape + 1, shape, (size_t)rank * sizeof *shape) == 0);
    if (fits)
        return MR_OK;
    char want[128], have[128];
    mr__shape_text(rank, shape, want, sizeof want);
    mr__shape_text(x->rank - 1, x->shape + 1, have, sizeof have);
    if (x->rank < 1)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "features are scalars; batch the dataset first, so that they have an axis of "
            "examples");
    if (m->n_inputs > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "input %s of an example has shape %s, but the model was built for %s",
                       mr_model_input_name(m, i), have, want);
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "an example has shape %s, but the model was built for %s; change the data, or the "
        "input of the model",
        have, want);
}

static mr_code check_inputs(const mr_model *m, const mr_array *x, mr_status *st)
{
    if (!m->s)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the model is not built yet; call mr_model_build");
    for (size_t i = 0; i < m->n_inputs; i++) {
        MR_TRY(mr__model_check_input(m, i, &x[i], st));
        if (x[i].shape[0] != x->shape[0])
            return mr_fail(
                st, MR_INVALID_ARGUMENT, "input %s has %" PRId64 " examples, input %s has %" PRId64,
                mr_model_input_name(m, 0), x->shape[0], mr_model_input_name(m, i), x[i].shape[0]);
    }
    return MR_OK;
}

/* In stream order: steps in progress use the old memory. */
static mr_code grow(mr_stream *s, float **p, size_t floats, mr_status *st)
{
    void *memory;
    MR_TRY(mr_stream_alloc(s, floats * sizeof(float), &memory, st));
    mr_stream_release(s, *p);
    *p = memory;
    return MR_OK;
}

/* Grows once in most runs: the first batch is usually the largest. */
static mr_code make_room(mr_model *m, mr_replica *r, size_t rows, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_stream *s = mr_replica_stream(r);
    size_t floats;
    if (p->capacity > 0 && rows <= p->capacity)
        return MR_OK;
    if (rows == 0)
        rows = 1;
    for (size_t i = 0; i <= m->n_layers; i++)
        if (__builtin_mul_overflow(rows, mr__values_made(m, i), &floats) || floats > SIZE_MAX / 8)
            return mr_fail(st, MR_RESOURCE_EXHAUSTED, "a batch of %zu examples is too large", rows);
    p->capacity = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        if (!l->desc->view)
            MR_TRY(grow(s, &p->outputs[i], rows * mr_dims_values(&l->out), st));
        if (l->keep > 0 || l->keep_per_row > 0)
            MR_TRY(grow(s, &p->kept[i], l->keep + rows * l->keep_per_row, st));
    }
    for (size_t k = 0; k < m->n_outputs; k++)
        if (m->logits[k].activation)
            MR_TRY(grow(s, &p->logits[k], rows * mr_dims_values(&m->logits[k].plain.out), st));
    for (size_t i = 0; i < m->n_slots; i++)
        MR_TRY(grow(s, &p->slots[i], rows * m->slot_values[i], st));
    if (m->most_x > 0)
        MR_TRY(grow(s, &p->rounded_x, rows * m->most_x, st));
    p->capacity = rows;
    return MR_OK;
}

static mr_code check_replica(const mr_model *m, const mr_replica *r, mr_status *st)
{
    if (!m->s)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the model is not built");
    if (mr_replica_strategy(r) != m->s)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the replica is of another strategy than the model");
    return MR_OK;
}

/* This replica's state. Discards what a failed step left in it: the replicas may have stopped at
 * different points of that step. Passes of an earlier step that succeeded have their numbers for
 * good, applied or not. */
static mr__model_replica *state_of(const mr_model *m, const mr_replica *r)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    uint64_t failures = mr__strategy_failures(m->s), step = mr__strategy_step(m->s);
    if (p->failures != failures) {
        p->failures = failures;
        if (p->step == mr__strategy_failed_step(m->s))
            p->pending = 0;
        p->ready = p->summing = p->has_gradients = false;
    }
    if (p->step != step) {
        p->step = step;
        p->steps += p->pending;
        p->pending = 0;
    }
    return p;
}

/* The output of layer `at` - 1; 0: the features. */
static const float *result_of(const mr_model *m, const mr__model_replica *p, size_t at)
{
    at = mr__maker_of(m, at);
    size_t input = mr__input_made(m, at);
    return input < m->n_inputs ? p->x[input] : p->outputs[at - 1];
}

static mr_dtype dtype_of(const mr_model *m, const mr__model_replica *p, size_t at)
{
    size_t input = mr__input_made(m, mr__maker_of(m, at));
    return input < m->n_inputs ? p->x_dtype[input] : MR_FLOAT32;
}

/* Its pointers are valid until the next call. */
static mr_layer_pass pass_of(const mr_model *m, mr_replica *r, size_t i, bool training)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr_layer *l = &m->layers[i];
    size_t v = m->first_variable[l->shares > 0 ? l->shares - 1 : i];
    for (size_t k = 0; k < l->n_inputs; k++) {
        p->xs[k] = result_of(m, p, mr__source_of(l, k));
        p->dxs[k] = NULL;
    }
    return (mr_layer_pass){
        .layer = l,
        .replica = r,
        .stream = mr_replica_stream(r),
        .math = mr_replica_math(r),
        .rows = p->rows,
        .training = training,
        .bfloat = m->mixed && l->desc->multiplies,
        .key = mr__mix_in(mr__mix_in(mr__mix_in(1, m->seed), p->steps + p->pending), i),
        .first_row = (uint64_t)p->first_row,
        .w = p->factors + v,
        .dw = l->shares > 0 ? p->shared_grads + m->first_shared[i] : p->grads + v,
        .x = l->n_inputs > 0 ? p->xs[0] : NULL,
        .xs = p->xs,
        .dxs = p->dxs,
        .x_dtype = dtype_of(m, p, l->source),
        .y = p->outputs[i],
        .kept = p->kept[i]};
}

static mr_code round_values(const mr_layer_pass *p, size_t n, const float *x, float *y,
                            mr_status *st)
{
    return p->math->round_bfloat(p->stream, &(mr_math_round_bfloat){n, x, y}, st);
}

/* Mixed precision: a layer that multiplies reads rounded values. */
static mr_code round_input(const mr_model *m, mr_layer_pass *p, mr_status *st)
{
    mr__model_replica *of = &m->replicas[mr_replica_id(p->replica)];
    if (!p->bfloat || p->rows == 0)
        return MR_OK;
    MR_TRY(round_values(p, p->rows * mr_dims_values(&p->layer->in), p->x, of->rounded_x, st));
    p->x = of->xs[0] = of->rounded_x;
    return MR_OK;
}

mr_code mr_layer_round_gradient(const mr_layer_pass *p, mr_status *st)
{
    return p->bfloat ? round_values(p, p->rows * mr_dims_values(&p->layer->out), p->dy, p->dy, st)
                     : MR_OK;
}

static bool is_output(const mr_model *m, size_t layer)
{
    bool is = false;
    for (size_t i = 0; i < m->n_outputs; i++)
        is = is || mr__maker_of(m, m->outputs[i]) == layer + 1;
    return is;
}

/* Rounds its output too, except the model's outputs, which are float32. */
static mr_code round_result(const mr_model *m, const mr_layer_pass *p, size_t layer, mr_status *st)
{
    if (!p->bfloat || p->rows == 0 || is_output(m, layer))
        return MR_OK;
    return round_values(p, p->rows * mr_dims_values(&p->layer->out), p->y, p->y, st);
}

/* Rounds the kernels for this pass. */
static mr_code round_kernels(const mr_model *m, mr_replica *r, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    for (size_t v = 0; v < m->n_variables; v++) {
        const mr_math_round_bfloat o = {mr_variable_size(m->variables[v]), p->weights[v],
                                        p->rounded[v]};
        if (p->rounded[v])
            MR_TRY(mr_replica_math(r)->round_bfloat(mr_replica_stream(r), &o, st));
    }
    return MR_OK;
}

static mr_code give_output(const mr_model *m, const mr__model_replica *p, size_t i, mr_array *y,
                           mr_status *st)
{
    const mr_dims *out = &m->layers[m->outputs[i] - 1].out;
    if (out->rank >= MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the model's output has more than %d axes",
                       MR_MAX_RANK - 1);
    *y = (mr_array){.dtype = MR_FLOAT32,
                    .storage = MR_DENSE,
                    .rank = (int8_t)(out->rank + 1),
                    .rows = 1,
                    .data = (void *)(uintptr_t)result_of(m, p, m->outputs[i])};
    y->shape[0] = (int64_t)p->rows;
    memcpy(y->shape + 1, out->shape, (size_t)out->rank * sizeof *out->shape);
    return MR_OK;
}

/* The first output that a layer makes and that has logits; n_outputs: none. */
static size_t logits_of(const mr_model *m, size_t layer)
{
    size_t k = 0;
    while (k < m->n_outputs &&
           !(m->logits[k].activation && mr__maker_of(m, m->outputs[k]) == layer + 1))
        k++;
    return k;
}

/* rows and width of the values of a layer, for its activation. */
static void activation_sizes(const mr_layer_pass *p, size_t *rows, size_t *width)
{
    const mr_dims *d = &p->layer->out;
    size_t n = p->rows * mr_dims_values(d);
    *width = d->rank > 0 ? (size_t)d->shape[d->rank - 1] : 1;
    *rows = *width > 0 ? n / *width : 0;
}

/* The forward pass of one layer: of one that makes outputs with logits in two parts. */
static mr_code layer_forward(const mr_model *m, mr_layer_pass *pass, size_t layer, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(pass->replica)];
    size_t k = logits_of(m, layer);
    if (k == m->n_outputs)
        return pass->layer->desc->forward(pass, st);
    mr_math_activate a = {.f = m->logits[k].activation->function, .x = p->logits[k], .y = pass->y};
    activation_sizes(pass, &a.rows, &a.width);
    pass->layer = &m->logits[k].plain;
    pass->y = p->logits[k];
    mr_code rc = pass->layer->desc->forward(pass, st);
    pass->layer = &m->layers[layer];
    pass->y = a.y;
    return rc == MR_OK ? pass->math->activate(pass->stream, &a, st) : rc;
}

mr_code mr_model_forward(mr_model *m, mr_replica *r, const mr_array *x, const mr_forward_opts *opts,
                         mr_array *y, mr_status *st)
{
    bool training = opts && opts->training;
    MR_TRY(check_replica(m, r, st));
    MR_TRY(check_inputs(m, x, st));
    mr__model_replica *p = state_of(m, r);
    size_t rows = (size_t)x->shape[0];
    MR_TRY(make_room(m, r, rows, st));
    p->rows = rows;
    p->first_row = opts ? opts->first_row : 0;
    for (size_t i = 0; i < m->n_inputs; i++) {
        p->x[i] = x[i].data;
        p->x_dtype[i] = x[i].dtype;
    }
    p->pending += training;
    p->ready = training;
    memset(p->by_logits, 0, m->n_outputs * sizeof *p->by_logits);
    MR_TRY(round_kernels(m, r, st));
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        mr_layer_pass pass = pass_of(m, r, i, training);
        if (l->desc->view || !(rows > 0 || (l->joins && training)))
            continue;
        MR_TRY(round_input(m, &pass, st));
        MR_TRY(layer_forward(m, &pass, i, st));
        MR_TRY(round_result(m, &pass, i, st));
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        MR_TRY(give_output(m, p, i, &y[i], st));
    return MR_OK;
}

float *mr_model_output_gradient(mr_model *m, const mr_replica *r)
{
    return mr_model_output_gradient_of(m, r, 0);
}

float *mr_model_output_gradient_of(mr_model *m, const mr_replica *r, size_t output)
{
    return m->replicas[mr_replica_id(r)].slots[m->output_slots[output]];
}

bool mr__model_logits(const mr_model *m, const mr_replica *r, size_t output, const char *activation,
                      mr_array *z)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr_activation *f = m->logits[output].activation;
    size_t same = logits_of(m, mr__maker_of(m, m->outputs[output]) - 1);
    mr_code rc = f && activation && strcmp(f->name, activation) == 0
                     ? give_output(m, p, output, z, NULL)
                     : MR_UNIMPLEMENTED;
    if (rc != MR_OK)
        return false;
    z->data = p->logits[same];
    return true;
}

mr_code mr_model_loss(mr_model *m, mr_replica *r, size_t output, const mr_loss *l,
                      const mr_array *labels, const mr_loss_opts *opts, float *per_example,
                      mr_status *st)
{
    mr_array y, z;
    if (!m->s || output >= m->n_outputs)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the model has no output %zu, or is not built",
                       output);
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    MR_TRY(give_output(m, p, output, &y, st));
    bool by_logits = mr__model_logits(m, r, output, mr__loss_probabilities(l), &z);
    float *gradient = p->ready ? p->slots[m->output_slots[output]] : NULL;
    bool apart = by_logits && gradient && m->logits[output].slot != m->output_slots[output];
    if (apart) { /* what other layers and outputs contribute is added to it */
        MR_TRY(mr_stream_set(mr_replica_stream(r), gradient, 0, mr_array_row_bytes(&y), st));
        gradient = p->slots[m->logits[output].slot];
    }
    p->by_logits[output] = by_logits;
    bool from_logits = by_logits || mr__loss_reads_logits(l, mr__model_last_activation(m, output));
    return mr__loss_compute(l, r, labels, by_logits ? &z : &y, from_logits, opts, per_example,
                            gradient, st);
}

mr_code mr_model_regularization_loss(const mr_model *m, mr_replica *r, double *sum, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr_math_table *math = mr_replica_math(r);
    for (size_t v = 0; v < m->n_variables; v++) {
        const mr_regularizer *k = mr_variable_regularizer(m->variables[v]);
        const mr_math_penalty o = {mr_variable_size(m->variables[v]), k->l1, k->l2, p->weights[v],
                                   sum};
        if (k->l1 != 0 || k->l2 != 0)
            MR_TRY(math->penalty(mr_replica_stream(r), &o, st));
    }
    return MR_OK;
}

/* Adds this replica's share of the penalty's derivative. */
static mr_code add_penalty(const mr_model *m, mr_replica *r, size_t v, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr_regularizer *k = mr_variable_regularizer(m->variables[v]);
    double replicas = (double)mr_strategy_num_replicas_in_sync(m->s);
    const mr_math_penalty_backward o = {mr_variable_size(m->variables[v]),
                                        (float)(k->l1 / replicas), (float)(2 * k->l2 / replicas),
                                        p->weights[v], p->grads[v]};
    if (k->l1 == 0 && k->l2 == 0)
        return MR_OK;
    return mr_replica_math(r)->penalty_backward(mr_replica_stream(r), &o, st);
}

mr_code mr__model_finish_sums(mr_model *m, mr_replica *r, mr_status *st)
{
    mr__model_replica *p = state_of(m, r);
    mr_collective *c = mr_strategy_collective(m->s);
    for (size_t b = 0; p->summing && b < m->n_buckets; b++)
        MR_TRY(mr_collective_wait(c, mr_replica_id(r), mr_replica_stream(r), p->tickets[b], st));
    p->summing = false;
    return MR_OK;
}

/* The gradients of a layer's variables are complete: clears them if there were no rows, and adds
 * the penalties. */
static mr_code finish_layer(mr_model *m, mr_replica *r, size_t layer, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    for (size_t v = m->first_variable[layer]; v < m->first_variable[layer + 1]; v++) {
        size_t bytes = mr_variable_size(m->variables[v]) * sizeof(float);
        if (mr_variable_role_of(m->variables[v]) == MR_FIXED)
            continue;
        if (p->rows == 0)
            MR_TRY(mr_stream_set(mr_replica_stream(r), p->grads[v], 0, bytes, st));
        MR_TRY(add_penalty(m, r, v, st));
    }
    return MR_OK;
}

/* Adds to a layer's gradients those of the layers that share its variables. A running mean is
 * updated once for each, in the order of the passes, as if each had been applied separately. */
static mr_code add_shared(const mr_model *m, mr_replica *r, size_t layer, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    size_t from = m->first_variable[layer], before = 0, copies = m->layers[layer].copies;
    for (size_t i = layer + 1; i < m->n_layers && before < copies; i++) {
        if (m->layers[i].shares != layer + 1)
            continue;
        before++;
        for (size_t k = m->first_shared[i]; k < m->first_shared[i + 1]; k++) {
            size_t v = from + k - m->first_shared[i];
            const mr_variable_spec *w = &m->layers[i].wanted[v - from];
            mr_math_combine add = {mr_variable_size(m->variables[v]), 1, 1, p->shared_grads[k],
                                   p->grads[v]};
            if (w->role == MR_FIXED)
                continue;
            if (w->role == MR_AVERAGE) { /* weights m^(copies - j), which sum to 1 */
                float sum = 0;
                for (size_t j = 0; j <= copies; j++)
                    sum += powf(w->momentum, (float)j);
                add.a = powf(w->momentum, (float)(copies - before)) / sum;
                add.b = before > 1 ? 1 : powf(w->momentum, (float)copies) / sum;
            }
            MR_TRY(mr_replica_math(r)->combine(mr_replica_stream(r), &add, st));
        }
    }
    return MR_OK;
}

static float *slot(const mr__model_replica *p, int i)
{
    return i < MR__NO_SLOT ? p->outputs[MR__NO_SLOT - i - 1] : p->slots[i];
}

/* Outputs whose losses left the gradient of the logits: dy becomes that of the logits too, and the
 * pass that of the layer without its activation. */
static mr_code leave_activation_out(const mr_model *m, mr_layer_pass *pass, size_t layer,
                                    mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(pass->replica)];
    mr_math_activate_backward a = {.y = pass->y, .dy = pass->dy, .dx = pass->dy};
    const mr__output *first = NULL;
    for (size_t k = 0; k < m->n_outputs && pass->rows > 0; k++) {
        const mr__output *o = &m->logits[k];
        if (!p->by_logits[k] || mr__maker_of(m, m->outputs[k]) != layer + 1)
            continue;
        bool apart = p->slots[o->slot] != pass->dy;
        if (!first && apart) {
            a.f = o->activation->function;
            activation_sizes(pass, &a.rows, &a.width);
            MR_TRY(pass->math->activate_backward(pass->stream, &a, st));
        }
        const mr_math_combine add = {pass->rows * mr_dims_values(&o->plain.out), 1, 1,
                                     p->slots[o->slot], pass->dy};
        if (apart)
            MR_TRY(pass->math->combine(pass->stream, &add, st));
        first = first ? first : o;
    }
    if (first)
        pass->layer = &first->plain;
    return MR_OK;
}

/* The backward pass of one layer. to_input: all of its inputs need a gradient. */
static mr_code layer_backward(mr_model *m, mr_replica *r, size_t i, bool to_input, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr_layer *l = &m->layers[i];
    const mr__edge *edges = m->edges + m->first_edge[i];
    mr_layer_pass pass = pass_of(m, r, i, true);
    if (l->desc->view || !(m->learns[i + 1] || to_input) || !(p->rows > 0 || l->joins))
        return MR_OK;
    pass.dy = slot(p, m->slot_of[i + 1]);
    for (size_t k = 0; k < l->n_inputs; k++)
        if (to_input || m->learns[edges[k].maker]) /* below the first variables none is needed */
            p->dxs[k] = slot(p, edges[k].to);
    pass.dx = p->dxs[0];
    MR_TRY(leave_activation_out(m, &pass, i, st));
    MR_TRY(round_input(m, &pass, st));
    if (p->rows > 0)
        MR_TRY(mr_layer_round_gradient(&pass, st));
    MR_TRY(pass.layer->desc->backward(&pass, st));
    for (size_t k = 0; k < l->n_inputs && p->rows > 0; k++) {
        if (edges[k].add == MR__NO_SLOT || !p->dxs[k])
            continue;
        const mr_math_combine add = {p->rows * mr__values_made(m, edges[k].maker), 1, 1, p->dxs[k],
                                     p->slots[edges[k].add]};
        MR_TRY(pass.math->combine(pass.stream, &add, st));
    }
    return p->rows > 0 ? add_shared(m, r, i, st) : MR_OK;
}

/* Starts the sums of a bucket if this layer completes it. */
static mr_code start_sums(mr_model *m, mr_replica *r, size_t layer, size_t *bucket, mr_status *st)
{
    mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    const mr__bucket *b = &m->buckets[*bucket];
    if (*bucket == m->n_buckets || b->layer != layer)
        return MR_OK;
    MR_TRY(mr_collective_start(mr_strategy_collective(m->s), mr_replica_id(r), mr_replica_stream(r),
                               p->gradients + b->from, b->n, &p->tickets[*bucket], st));
    ++*bucket;
    return MR_OK;
}

/* Outputs with the same values: adds up their gradients. */
static mr_code add_outputs(const mr_model *m, mr_replica *r, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    for (size_t i = 0; i < m->n_outputs && p->rows > 0; i++) {
        size_t maker = mr__maker_of(m, m->outputs[i]);
        const mr_math_combine add = {p->rows * mr__values_made(m, maker), 1, 1,
                                     p->slots[m->output_slots[i]], p->slots[m->slot_of[maker]]};
        if (m->output_slots[i] != m->slot_of[maker])
            MR_TRY(mr_replica_math(r)->combine(mr_replica_stream(r), &add, st));
    }
    return MR_OK;
}

/* Sets the words before the gradients. */
static mr_code set_words(const mr_model *m, mr_replica *r, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_stream *stream = mr_replica_stream(r);
    const mr_math_flag flag = {mr__replica_fault(r), p->gradients + MR__WORD_FAULT};
    const mr_math_fill has_rows = {1, p->rows > 0, p->gradients + MR__WORD_HAS_ROWS};
    if (m->n_buckets > 0)
        MR_TRY(mr_replica_math(r)->flag(stream, &flag, st));
    if (m->n_averages > 0)
        MR_TRY(mr_replica_math(r)->fill(stream, &has_rows, st));
    return MR_OK;
}

/* Updates one variable, when the sums are available. */
static mr_code update(mr_model *m, mr_replica *r, mr_optimizer *o, size_t v, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_variable *w = m->variables[v];
    const float *skip = p->gradients + MR__WORD_FAULT;
    const mr_math_average mean = {mr_variable_size(w),
                                  m->momenta[v],
                                  p->grads[v],
                                  p->gradients + MR__WORD_HAS_ROWS,
                                  mr_variable_copy(w, mr_replica_id(r)),
                                  skip};
    switch (mr_variable_role_of(w)) {
    case MR_LEARNED:
        return mr__optimizer_update(o, r, w, p->grads[v], skip, st);
    case MR_AVERAGE:
        return mr_replica_math(r)->average(mr_replica_stream(r), &mean, st);
    case MR_FIXED:
        break;
    }
    return MR_OK;
}

/* After a local pass, whose gradients are not summed: sums what the replicas add to running means,
 * and updates these. */
static mr_code update_averages(mr_model *m, mr_replica *r, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    mr_collective *c = mr_strategy_collective(m->s);
    mr_stream *s = mr_replica_stream(r);
    size_t id = mr_replica_id(r);
    bool central = mr__strategy_is_central(m->s);
    uint64_t ticket;
    for (size_t v = 0; v < m->n_learned; v++)
        mr__variable_set_summed(m->learned[v], id, false);
    if (m->n_averages == 0)
        return MR_OK;
    MR_TRY(mr_collective_start(c, id, s, p->gradients, MR__WORD_ORDER, &ticket, st));
    MR_TRY(mr_collective_wait(c, id, s, ticket, st));
    for (size_t v = 0; v < m->n_variables; v++)
        if (mr_variable_role_of(m->variables[v]) == MR_AVERAGE) {
            MR_TRY(mr_collective_start(c, id, s, p->grads[v], mr_variable_size(m->variables[v]),
                                       &ticket, st));
            MR_TRY(mr_collective_wait(c, id, s, ticket, st));
        }
    MR_TRY(mr__collective_commit(c, id, s, st));
    for (size_t v = 0; v < m->n_variables && !(central && id > 0); v++)
        if (mr_variable_role_of(m->variables[v]) == MR_AVERAGE)
            MR_TRY(update(m, r, NULL, v, st));
    return central ? mr__variables_publish(m->variables, m->n_variables, r,
                                           p->gradients + MR__WORD_ORDER, st)
                   : MR_OK;
}

mr_code mr_model_backward_with(mr_model *m, mr_replica *r, const mr_backward_opts *opts,
                               const float **input_gradient, mr_status *st)
{
    size_t bucket = 0;
    MR_TRY(check_replica(m, r, st));
    mr__model_replica *p = state_of(m, r);
    if (!p->ready)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "backward needs a forward pass with training on before it");
    MR_TRY(mr__model_finish_sums(m, r, st)); /* they may read gradients that were not applied */
    p->ready = p->has_gradients = false;
    p->frozen = opts && opts->frozen;
    p->local = opts && opts->local && !p->frozen;
    bool to_input = opts && opts->input_gradient;
    MR_TRY(set_words(m, r, st));
    MR_TRY(add_outputs(m, r, st));
    for (size_t i = m->n_layers; i-- > 0 && (bucket < m->n_buckets || to_input);) {
        MR_TRY(layer_backward(m, r, i, to_input, st));
        if (p->frozen)
            continue;
        MR_TRY(finish_layer(m, r, i, st));
        if (p->local)
            bucket += bucket < m->n_buckets && m->buckets[bucket].layer == i;
        else
            MR_TRY(start_sums(m, r, i, &bucket, st));
    }
    p->summing = !p->frozen && !p->local;
    if (p->local)
        MR_TRY(update_averages(m, r, st));
    p->has_gradients = true;
    for (size_t i = 0; i < m->n_inputs && to_input && input_gradient; i++)
        input_gradient[i] = p->slots[m->slot_of[mr__maker_of(m, m->input_layers[i])]];
    return MR_OK;
}

mr_code mr_model_backward(mr_model *m, mr_replica *r, mr_status *st)
{
    return mr_model_backward_with(m, r, NULL, NULL, st);
}

/* Waits for all sums, and passes all gradients to the optimizer. */
static mr_code measure(mr_model *m, mr_replica *r, mr_status *st)
{
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    MR_TRY(mr__model_finish_sums(m, r, st));
    for (size_t v = 0; v < m->n_variables; v++)
        if (mr_variable_role_of(m->variables[v]) == MR_LEARNED)
            MR_TRY(mr__optimizer_measure(r, mr_variable_size(m->variables[v]), p->grads[v], st));
    return MR_OK;
}

static void take_back(void *model, uint64_t passes)
{
    mr_model *m = model;
    for (size_t r = 0; r < mr_strategy_num_local_replicas(m->s); r++)
        m->replicas[r].steps -= passes;
}

static mr_code check_backward(const mr_model *m, const mr_replica *r, mr_status *st)
{
    MR_TRY(check_replica(m, r, st));
    if (state_of(m, r)->has_gradients)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "there are no gradients: mr_model_backward comes before");
}

mr_code mr_model_apply_gradients(mr_model *m, mr_replica *r, mr_optimizer *o, mr_status *st)
{
    MR_TRY(check_backward(m, r, st));
    mr__model_replica *p = state_of(m, r);
    mr_collective *c = mr_strategy_collective(m->s);
    mr_stream *s = mr_replica_stream(r);
    size_t id = mr_replica_id(r), above = m->n_layers; /* layers from here on are updated */
    bool central = mr__strategy_is_central(m->s);
    if (p->frozen)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the last backward pass was frozen: there is nothing to apply");
    if (p->local)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the last backward pass was local: its gradients are not summed; apply what "
                       "mr_model_local_gradient gives with mr_optimizer_apply_gradients");
    /* After this all replicas have started all their sums, and every copy is updated. */
    MR_TRY(mr__optimizer_prepare(o, r, m->learned, m->n_learned, st));
    MR_TRY(mr__collective_commit(c, id, s, st));
    if (id == 0)
        mr__strategy_on_undo(m->s, take_back, m, p->pending);
    MR_TRY(mr__stream_section_keep(s, st));
    MR_TRY(mr__optimizer_begin(o, r, st));
    if (mr__optimizer_needs_all(o))
        MR_TRY(measure(m, r, st));
    for (size_t b = 0; b < m->n_buckets; b++) {
        size_t layer = m->buckets[b].layer;
        if (p->summing)
            MR_TRY(mr_collective_wait(c, id, s, p->tickets[b], st));
        for (size_t v = m->first_variable[layer];
             v < m->first_variable[above] && !(central && id > 0); v++)
            MR_TRY(update(m, r, o, v, st));
        above = layer;
    }
    if (central)
        MR_TRY(mr__variables_publish(m->variables, m->n_variables, r, p->gradients + MR__WORD_ORDER,
                                     st));
    for (size_t v = 0; v < m->n_learned; v++)
        mr__variable_set_summed(m->learned[v], id, false);
    p->summing = false;
    p->steps += p->pending;
    p->pending = 0;
    return MR_OK;
}

static mr_code check_learned(const mr_model *m, const mr_replica *r, size_t i, mr_status *st)
{
    MR_TRY(check_backward(m, r, st));
    if (i >= m->n_variables)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the model has %zu variables, and no number %zu",
                       m->n_variables, i);
    if (mr_variable_role_of(m->variables[i]) == MR_LEARNED)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s is not learned and has no gradient",
                   mr_variable_name(m->variables[i]));
}

mr_code mr_model_local_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                                mr_status *st)
{
    MR_TRY(check_learned(m, r, i, st));
    const mr__model_replica *p = &m->replicas[mr_replica_id(r)];
    if (!p->local)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the last backward pass was not local (mr_backward_opts.local): its "
                       "gradients are summed in place");
    *gradient = p->grads[i];
    return MR_OK;
}

mr_code mr_model_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                          mr_status *st)
{
    MR_TRY(check_learned(m, r, i, st));
    if (m->replicas[mr_replica_id(r)].frozen || m->replicas[mr_replica_id(r)].local)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the last backward pass was %s: gradients were not summed",
                       m->replicas[mr_replica_id(r)].frozen ? "frozen" : "local");
    MR_TRY(mr__model_finish_sums(m, r, st));
    mr__variable_set_summed(m->variables[i], mr_replica_id(r), true);
    *gradient = m->replicas[mr_replica_id(r)].grads[i];
    return MR_OK;
}
