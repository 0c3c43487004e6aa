/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees a model's variables, buckets and per-replica state. */
#include "trainer/model/model.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"
#include "trainer/strategy/strategy_impl.h"
#include "trainer/device/tensor.h"

enum { DEFAULT_BUCKET_BYTES = 64 << 10, LINE_FLOATS = 16, MAX_VALUES = 1 << 28 };

/* In stream order: the latest submitted work may still be running. */
static void free_replica(mr_model *m, size_t r)
{
    mr__model_replica *p = &m->replicas[r];
    mr_replica *of = mr_strategy_replica(m->s, r);
    mr_stream *s = mr_replica_stream(of);
    /* Sums of a pass that was not applied may still read its gradients; failed ones do not. */
    mr_code rc = mr__model_finish_sums(m, of, NULL);
    (void)rc;
    for (size_t i = 0; p->outputs && p->kept && i < m->n_layers; i++) {
        mr_stream_release(s, p->outputs[i]);
        mr_stream_release(s, p->kept[i]);
    }
    for (size_t i = 0; p->slots && i < m->n_slots; i++)
        mr_stream_release(s, p->slots[i]);
    for (size_t k = 0; p->logits && k < m->n_outputs; k++)
        mr_stream_release(s, p->logits[k]);
    for (size_t v = 0; p->rounded && v < m->n_variables; v++)
        mr_stream_release(s, p->rounded[v]);
    mr_stream_release(s, p->rounded_x);
    mr_stream_release(s, p->gradients);
    mr_stream_release(s, p->shared);
    mr_free(p->outputs);
    mr_free(p->slots);
    mr_free(p->xs);
    mr_free(p->dxs);
    mr_free(p->shared_grads);
    mr_free(p->kept);
    mr_free(p->weights);
    mr_free(p->rounded);
    mr_free(p->factors);
    mr_free(p->grads);
    mr_free(p->tickets);
    mr_free(p->logits);
    mr_free(p->by_logits);
}

/* Frees everything that build created. */
static void unbuild(mr_model *m)
{
    size_t n = m->replicas ? mr_strategy_num_local_replicas(m->s) : 0;
    for (size_t r = 0; r < n; r++)
        free_replica(m, r);
    for (size_t i = 0; m->variables && i < m->n_variables; i++)
        mr_variable_free(m->variables[i]);
    mr_free(m->replicas);
    mr_free(m->variables);
    mr_free(m->first_variable);
    mr_free(m->gradient_at);
    mr_free(m->summed_before);
    mr_free(m->learned);
    mr_free(m->momenta);
    mr_free(m->buckets);
    mr_free(m->learns);
    mr_free(m->slot_values);
    mr_free(m->slot_of);
    mr_free(m->edges);
    mr_free(m->first_edge);
    mr_free(m->first_shared);
    for (size_t k = 0; m->logits && k < m->n_outputs; k++)
        mr_free(m->logits[k].params);
    mr_free(m->logits);
    m->logits = NULL;
    m->learns = NULL;
    m->slot_of = NULL;
    m->edges = NULL;
    m->slot_values = m->first_edge = m->first_shared = NULL;
    m->n_slots = m->n_shared = m->most_inputs = m->most_x = 0;
    m->mixed = false;
    m->replicas = NULL;
    m->variables = NULL;
    m->first_variable = m->gradient_at = m->summed_before = NULL;
    m->learned = NULL;
    m->momenta = NULL;
    m->buckets = NULL;
    m->n_variables = m->n_buckets = m->n_gradients = m->n_learned = m->n_averages = 0;
    m->s = NULL;
}

void mr_model_free(mr_model *m)
{
    if (!m)
        return;
    unbuild(m);
    for (size_t i = 0; i < m->n_layers; i++)
        mr__layer_clear(&m->layers[i]);
    for (size_t i = 0; i < m->n_outputs; i++)
        mr_free(m->output_names[i]);
    mr_free(m->layers);
    mr_free(m->text);
    mr_free(m);
}

const char *mr_model_text(const mr_model *m)
{
    return m->text;
}

size_t mr_dims_values(const mr_dims *d)
{
    size_t n = 1;
    for (int i = 0; i < d->rank; i++)
        n *= (size_t)d->shape[i];
    return n;
}

bool mr_model_is_mixed(const mr_model *m)
{
    return m->mixed;
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
    const mr_dims *d = m->s ? &m->built_for : &m->input;
    *rank = d->rank;
    *shape = d->shape;
}

void mr_model_output_shape(const mr_model *m, int *rank, const int64_t **shape)
{
    mr_model_output_shape_of(m, 0, rank, shape);
}

size_t mr_model_n_outputs(const mr_model *m)
{
    return m->n_outputs;
}

const char *mr_model_output_name(const mr_model *m, size_t i)
{
    return m->output_names[i] ? m->output_names[i] : "output";
}

size_t mr__model_find_output(const mr_model *m, const char *name)
{
    size_t i = 0;
    while (i < m->n_outputs && strcmp(mr_model_output_name(m, i), name) != 0)
        i++;
    return i;
}

void mr__model_output_names(const mr_model *m, char *out, size_t size)
{
    *out = '\0';
    for (size_t i = 0, at = 0; i < m->n_outputs && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", i ? ", " : "",
                               mr_model_output_name(m, i));
}

void mr_model_output_shape_of(const mr_model *m, size_t i, int *rank, const int64_t **shape)
{
    const mr_layer *last = &m->layers[m->outputs[i] - 1];
    *rank = m->s ? last->out.rank : -1;
    *shape = last->out.shape;
}

size_t mr_model_n_inputs(const mr_model *m)
{
    return m->n_inputs;
}

const char *mr_model_input_name(const mr_model *m, size_t i)
{
    return m->input_layers[i] > 0 ? m->layers[m->input_layers[i] - 1].name : "input";
}

void mr_model_input_shape_of(const mr_model *m, size_t i, int *rank, const int64_t **shape)
{
    if (m->input_layers[i] == 0) {
        mr_model_input_shape(m, rank, shape);
        return;
    }
    *rank = m->layers[m->input_layers[i] - 1].out.rank;
    *shape = m->layers[m->input_layers[i] - 1].out.shape;
}

size_t mr_model_n_variables(const mr_model *m)
{
    return m->n_variables;
}

mr_variable *mr_model_variable(const mr_model *m, size_t i)
{
    return m->variables[i];
}

static mr_code check_size(const mr_dims *d, const char *what, size_t *values, mr_status *st)
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

static bool same_shape(const mr_dims *a, const mr_dims *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* A layer that shares another's variables must request the same ones. */
static mr_code check_shared(mr_model *m, const mr_layer *l, mr_status *st)
{
    const mr_layer *first = &m->layers[l->shares - 1];
    for (size_t v = 0; v < l->n_wanted; v++) {
        const mr_variable_spec *w = &l->wanted[v], *of = &first->wanted[v];
        char here[128], there[128];
        size_t n = 1;
        for (int i = 0; i < w->rank; i++)
            n *= (size_t)w->shape[i];
        m->n_shared += n;
        if (l->n_wanted == first->n_wanted && w->rank == of->rank &&
            memcmp(w->shape, of->shape, (size_t)w->rank * sizeof *w->shape) == 0)
            continue;
        mr__shape_text(l->in.rank, l->in.shape, here, sizeof here);
        mr__shape_text(first->in.rank, first->in.shape, there, sizeof there);
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "%s is shared: its %s was made for an input of shape %s and does not fit one "
            "of shape %s",
            l->name, w->name, there, here);
    }
    return MR_OK;
}

static mr_code build_layer(mr_model *m, mr_layer *l, const mr_dims *in, mr_status *st)
{
    size_t values;
    mr_dims *ins = (mr_dims *)(uintptr_t)l->ins;
    l->in = *in;
    for (size_t k = 0; ins && k < l->n_inputs; k++)
        ins[k] = l->sources[k] > 0 ? m->layers[l->sources[k] - 1].out : m->built_for;
    l->n_wanted = l->keep = l->keep_per_row = 0;
    l->joins = false;
    if (l->desc->build)
        MR_TRY(l->desc->build(l, st));
    else
        l->out = l->in;
    MR_TRY(check_size(&l->out, l->desc->is.name, &values, st));
    if (l->shares > 0)
        return check_shared(m, l, st);
    m->n_variables += l->n_wanted;
    return MR_OK;
}

/* Before a residual's sum: builds its projection, now that the chain's output shape is known. */
static mr_code fit_residual(mr_model *m, const mr_layer *sum, const mr_dims *made, mr_status *st)
{
    const mr_dims *in = &m->layers[sum->begin].out;
    mr_layer *next = &m->layers[sum->begin + 1];
    if (next->desc == &mr__residual_projection) {
        mr__residual_set_target(next, made);
        return build_layer(m, next, in, st);
    }
    if (same_shape(in, made))
        return MR_OK;
    char from[128], to[128];
    mr__shape_text(in->rank, in->shape, from, sizeof from);
    mr__shape_text(made->rank, made->shape, to, sizeof to);
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "%s: its layers output %s for an input of %s, which cannot be added; use projection=true",
        sum->name, to, from);
}

/* Propagates shapes through the layers; counts the variables. */
static mr_code infer_shapes(mr_model *m, const mr_dims *input, mr_status *st)
{
    size_t values;
    MR_TRY(check_size(input, "input", &values, st));
    m->n_variables = m->n_shared = 0;
    for (size_t i = 0; i < m->n_layers; i++) {
        mr_layer *l = &m->layers[i];
        const mr_dims *in = l->source > 0 ? &m->layers[l->source - 1].out : input;
        if (l->desc == &mr__residual_projection)
            continue;       /* built with the sum */
        if (l->input > 0) { /* its shape is known */
            MR_TRY(check_size(&l->out, l->name, &values, st));
            continue;
        }
        if (l->desc == &mr__layer_residual)
            MR_TRY(fit_residual(m, l, in, st));
        MR_TRY(build_layer(m, l, in, st));
    }
    return MR_OK;
}

static mr_code assign_values(mr_variable *v, const mr_variable_spec *w, mr_status *st)
{
    size_t n = mr_variable_size(v);
    float *values = mr_malloc(n * sizeof *values);
    if (!values)
        return mr_fail_memory(st, n * sizeof *values, "the first values of a variable");
    for (size_t i = 0; i < n; i++)
        values[i] = (float)w->values[w->n_values > 1 ? i : 0];
    mr_code rc = mr_variable_assign(v, values, st);
    mr_free(values);
    return rc;
}

static mr_code make_variable(mr_model *m, const mr_layer *l, const mr_variable_spec *w, size_t v,
                             mr_status *st)
{
    char name[96];
    snprintf(name, sizeof name, "%s/%s", l->name, w->name);
    mr_variable_opts o = {.name = name,
                          .initializer = w->initializer,
                          .regularizer = w->regularizer,
                          .seed = m->seed,
                          .stream = v,
                          .fan_in = w->fan_in,
                          .fan_out = w->fan_out,
                          .role = w->role};
    MR_TRY(mr_variable_new(&m->variables[v], m->s, w->rank, w->shape, &o, st));
    if (w->values)
        MR_TRY(assign_values(m->variables[v], w, st));
    /* If shared, it is updated once for each layer that uses it. */
    m->momenta[v] = powf(w->momentum, (float)(l->copies + 1));
    m->n_averages += w->role == MR_AVERAGE;
    if (w->role == MR_LEARNED)
        m->learned[m->n_learned++] = m->variables[v];
    return MR_OK;
}

size_t mr_model_n_layers(const mr_model *m)
{
    return m->n_layers;
}

void mr_model_layer(const mr_model *m, size_t i, mr_layer_info *out)
{
    const mr_layer *l = &m->layers[i];
    *out = (mr_layer_info){.type = l->desc->is.name, .rank = l->out.rank};
    snprintf(out->name, sizeof out->name, "%s", l->name);
    memcpy(out->shape, l->out.shape, sizeof out->shape);
    if (!m->s)
        return;
    out->first_variable = m->first_variable[i];
    out->n_variables = m->first_variable[i + 1] - m->first_variable[i];
    for (size_t v = 0; v < out->n_variables; v++)
        out->parameters += mr_variable_size(m->variables[out->first_variable + v]);
}

static mr_code make_variables(mr_model *m, mr_status *st)
{
    size_t v = 0, summed = 0, shared = 0;
    m->variables = mr_calloc(m->n_variables, sizeof *m->variables);
    m->learned = mr_calloc(m->n_variables, sizeof(mr_variable *));
    m->momenta = mr_calloc(m->n_variables, sizeof *m->momenta);
    m->gradient_at = mr_calloc(m->n_variables, sizeof *m->gradient_at);
    m->first_variable = mr_calloc(m->n_layers + 1, sizeof *m->first_variable);
    m->summed_before = mr_calloc(m->n_layers + 1, sizeof *m->summed_before);
    m->first_shared = mr_calloc(m->n_layers + 1, sizeof *m->first_shared);
    m->buckets = mr_calloc(m->n_layers, sizeof *m->buckets);
    if (!m->variables || !m->learned || !m->momenta || !m->gradient_at || !m->first_variable ||
        !m->summed_before || !m->first_shared || !m->buckets)
        return mr_fail_memory(st, m->n_variables * sizeof *m->variables, "a model's variables");
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        m->first_variable[i] = v;
        m->summed_before[i] = summed;
        m->first_shared[i] = shared;
        shared += l->shares > 0 ? l->n_wanted : 0;
        for (size_t k = 0; k < l->n_wanted && l->shares == 0; k++, v++) {
            MR_TRY(make_variable(m, l, &l->wanted[k], v, st));
            summed += l->wanted[k].role != MR_FIXED;
        }
    }
    m->first_variable[m->n_layers] = v;
    m->summed_before[m->n_layers] = summed;
    m->first_shared[m->n_layers] = shared;
    return MR_OK;
}

/* Places gradients in the order of the backward pass, and divides them into buckets. */
static void plan_buckets(mr_model *m, size_t bucket_floats)
{
    size_t at = LINE_FLOATS, from = 0; /* a cache line for the words before the gradients */
    for (size_t i = m->n_layers; i-- > 0;) {
        for (size_t v = m->first_variable[i]; v < m->first_variable[i + 1]; v++) {
            if (mr_variable_role_of(m->variables[v]) == MR_FIXED)
                continue;
            m->gradient_at[v] = at;
            size_t n = mr_variable_size(m->variables[v]);
            at += (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
        }
        bool last = m->summed_before[i] == 0;
        if (at > from + (from == 0 ? LINE_FLOATS : 0) && (at - from >= bucket_floats || last)) {
            m->buckets[m->n_buckets++] = (mr__bucket){from, at - from, i};
            from = at;
        }
    }
    m->n_gradients = at;
}

/* Allocates the gradients of layers that share variables. */
static mr_code make_shared(mr_model *m, mr__model_replica *p, mr_device *d, mr_status *st)
{
    void *memory;
    size_t at = 0, n = m->first_shared[m->n_layers];
    p->shared_grads = mr_calloc(n, sizeof *p->shared_grads);
    if (!p->shared_grads)
        return mr_fail_memory(st, n * sizeof *p->shared_grads, "a model's replica");
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, m->n_shared * sizeof(float), &memory, st));
    p->shared = memory;
    for (size_t i = 0; i < m->n_layers; i++)
        for (size_t k = m->first_shared[i]; k < m->first_shared[i + 1]; k++) {
            size_t v = m->first_variable[m->layers[i].shares - 1] + k - m->first_shared[i];
            if (mr_variable_role_of(m->variables[v]) != MR_FIXED)
                p->shared_grads[k] = p->shared + at;
            at += mr_variable_size(m->variables[v]);
        }
    return MR_OK;
}

/* Allocates rounded kernels. */
static mr_code make_rounded(mr_model *m, mr__model_replica *p, mr_device *d, mr_status *st)
{
    void *memory;
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        size_t v = m->first_variable[i], values = mr_dims_values(&l->in);
        if (!l->desc->multiplies)
            continue;
        m->most_x = values > m->most_x ? values : m->most_x;
        if (l->shares > 0)
            continue;
        size_t bytes = mr_variable_size(m->variables[v]) * sizeof(float);
        MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, bytes, &memory, st));
        p->rounded[v] = memory;
        p->factors[v] = memory;
    }
    return MR_OK;
}

static mr_code make_replica(mr_model *m, size_t r, mr_status *st)
{
    mr__model_replica *p = &m->replicas[r];
    mr_device *d = mr_replica_device(mr_strategy_replica(m->s, r));
    void *memory;
    p->outputs = mr_calloc(m->n_layers, sizeof *p->outputs);
    p->kept = mr_calloc(m->n_layers, sizeof *p->kept);
    p->slots = mr_calloc(m->n_slots, sizeof *p->slots);
    p->xs = mr_calloc(m->most_inputs, sizeof *p->xs);
    p->dxs = mr_calloc(m->most_inputs, sizeof *p->dxs);
    p->weights = mr_calloc(m->n_variables, sizeof *p->weights);
    p->rounded = mr_calloc(m->n_variables, sizeof *p->rounded);
    p->factors = mr_calloc(m->n_variables, sizeof *p->factors);
    p->grads = mr_calloc(m->n_variables, sizeof *p->grads);
    p->tickets = mr_calloc(m->n_buckets, sizeof *p->tickets);
    p->logits = mr_calloc(m->n_outputs, sizeof *p->logits);
    p->by_logits = mr_calloc(m->n_outputs, sizeof *p->by_logits);
    if (!p->outputs || !p->slots || !p->xs || !p->dxs || !p->kept || !p->weights || !p->rounded ||
        !p->factors || !p->grads || !p->tickets || !p->logits || !p->by_logits)
        return mr_fail_memory(st, m->n_variables * sizeof *p->weights, "a model's replica");
    MR_TRY(mr_device_alloc(d, MR_MEMORY_DEVICE, m->n_gradients * sizeof(float), &memory, st));
    p->gradients = memory;
    MR_TRY(make_shared(m, p, d, st));
    /* The gaps between variables are summed too, and must be numbers. */
    mr_stream *stream = mr_replica_stream(mr_strategy_replica(m->s, r));
    MR_TRY(mr_stream_set(stream, p->gradients, 0, m->n_gradients * sizeof(float), st));
    for (size_t v = 0; v < m->n_variables; v++) {
        p->weights[v] = p->factors[v] = mr_variable_copy(m->variables[v], r);
        if (m->gradient_at[v] > 0)
            p->grads[v] = p->gradients + m->gradient_at[v];
    }
    return m->mixed ? make_rounded(m, p, d, st) : MR_OK;
}

static mr_code build_all(mr_model *m, const mr_dims *input, size_t bucket_bytes, mr_status *st)
{
    size_t n = mr_strategy_num_local_replicas(m->s);
    MR_TRY(infer_shapes(m, input, st));
    MR_TRY(mr__plan_gradients(m, st));
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
    if (!s)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the strategy is NULL");
    if (rank < 0 || rank > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "an example has a rank from 0 to %d, found %d",
                       MR_MAX_RANK, rank);
    mr_dims input = {.rank = rank};
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
    MR_TRY(mr__strategy_ready(s, st));
    m->s = s;
    m->serial = mr__next_serial();
    m->built_for = input;
    m->seed = opts ? opts->seed : 0;
    m->mixed = opts && opts->mixed_precision;
    mr_code rc = build_all(m, &input, opts ? opts->bucket_bytes : 0, st);
    if (rc != MR_OK)
        unbuild(m);
    return rc;
}

const mr_param *mr__layer_activation_param(const mr_layer *l)
{
    for (const mr_param *p = l->desc->is.params; p && p->name; p++)
        if (p->type == MR_PT_OWN && p->kind == &mr_param_activation)
            return p;
    return NULL;
}

const mr_activation *mr__model_last_activation(const mr_model *m, size_t output)
{
    for (size_t at = m->outputs[output]; at > 0; at = m->layers[at - 1].source) {
        const mr_layer *l = &m->layers[at - 1];
        const mr_param *p = mr__layer_activation_param(l);
        if (p)
            return *(const mr_activation *const *)((const char *)l->params + p->at);
        if (!l->desc->view)
            return NULL;
    }
    return NULL;
}

uint64_t mr__model_steps(const mr_model *m)
{
    const mr__model_replica *p = &m->replicas[0];
    bool failed =
        p->failures != mr__strategy_failures(m->s) && p->step == mr__strategy_failed_step(m->s);
    return p->steps + (failed ? 0 : p->pending);
}

void mr__model_set_steps(mr_model *m, uint64_t steps)
{
    for (size_t r = 0; r < mr_strategy_num_local_replicas(m->s); r++) {
        m->replicas[r].steps = steps;
        m->replicas[r].pending = 0;
    }
}

uint64_t mr__model_seed(const mr_model *m)
{
    return m->seed;
}
