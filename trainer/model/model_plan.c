/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns memory to gradients between layers. The plan is for a pass that continues to the inputs;
 * other passes skip what they do not need. */
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"

size_t mr__maker_of(const mr_model *m, size_t at)
{
    while (at > 0 && m->layers[at - 1].desc->view && m->layers[at - 1].input == 0)
        at = m->layers[at - 1].source;
    return at;
}

size_t mr__input_made(const mr_model *m, size_t maker)
{
    if (maker == 0)
        return 0;
    return m->layers[maker - 1].input > 0 ? m->layers[maker - 1].input - 1 : m->n_inputs;
}

size_t mr__values_made(const mr_model *m, size_t maker)
{
    return mr_dims_values(maker > 0 ? &m->layers[maker - 1].out : &m->built_for);
}

size_t mr__source_of(const mr_layer *l, size_t k)
{
    return l->sources ? l->sources[k] : l->source;
}

static const mr_activation linear = {"linear", MR_ACT_LINEAR};

/* State of the planning: which slots are free. */
typedef struct plan {
    mr_model *m;
    bool *taken;
} plan;

static int take_slot(plan *p, size_t values)
{
    size_t i = 0;
    while (i < p->m->n_slots && p->taken[i])
        i++;
    p->m->n_slots += i == p->m->n_slots;
    p->taken[i] = true;
    if (values > p->m->slot_values[i])
        p->m->slot_values[i] = values;
    return (int)i;
}

/* The activation at the end of a layer, if another layer may apply its derivative. */
static mr_math_activation activation_of(const mr_layer *l)
{
    for (const mr_param *p = l->desc->is.params; l->desc->may_be_derived && p->name; p++)
        if (p->type == MR_PT_OWN && p->kind == &mr_param_activation)
            return (*(const mr_activation *const *)((const char *)l->params + p->at))->function;
    return MR_ACT_LINEAR;
}

static size_t readers_of(const mr_model *m, size_t maker)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_layers; i++)
        for (size_t k = 0; k < m->layers[i].n_inputs && !m->layers[i].desc->view; k++)
            n += mr__maker_of(m, mr__source_of(&m->layers[i], k)) == maker;
    for (size_t i = 0; i < m->n_outputs; i++)
        n += mr__maker_of(m, m->outputs[i]) == maker;
    return n;
}

/* A pool after a convolution: the derivative of the activation moves to the smaller side of the
 * pool, and if nothing else needs the convolution's output then, its gradient overwrites it. */
static void join_layers(mr_model *m)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        mr_layer *l = &m->layers[i], *below;
        size_t maker = l->desc->picks ? mr__maker_of(m, l->source) : 0;
        if (maker == 0 || mr__input_made(m, maker) < m->n_inputs || readers_of(m, maker) != 1)
            continue;
        below = &m->layers[maker - 1];
        mr_math_activation f = activation_of(below);
        if (!below->desc->may_be_derived || f == MR_ACT_SOFTMAX)
            continue;
        l->derives = f;
        below->derived = true;
        if (l->in_place)
            m->edges[m->first_edge[i]].to = mr__slot_in_place(maker);
    }
}

static void plan_layer(plan *p, size_t i)
{
    mr_model *m = p->m;
    mr__edge *edges = m->edges + m->first_edge[i];
    for (size_t k = 0; k < m->layers[i].n_inputs; k++) {
        size_t maker = mr__maker_of(m, mr__source_of(&m->layers[i], k));
        int slot =
            edges[k].to < MR__NO_SLOT ? edges[k].to : take_slot(p, mr__values_made(m, maker));
        bool first = m->slot_of[maker] == MR__NO_SLOT;
        edges[k] = (mr__edge){maker, slot, first ? MR__NO_SLOT : m->slot_of[maker]};
        if (first)
            m->slot_of[maker] = slot;
    }
    for (size_t k = 0; k < m->layers[i].n_inputs; k++)
        if (edges[k].add != MR__NO_SLOT)
            p->taken[edges[k].to] = false;
    if (m->slot_of[i + 1] > MR__NO_SLOT)
        p->taken[m->slot_of[i + 1]] = false;
}

/* Losses write to all outputs before the backward pass. Outputs with the same values share a sum,
 * which is computed first. */
static void plan_outputs(plan *p)
{
    mr_model *m = p->m;
    for (size_t i = 0; i < m->n_outputs; i++) {
        size_t maker = mr__maker_of(m, m->outputs[i]);
        m->output_slots[i] = take_slot(p, mr__values_made(m, maker));
        if (m->slot_of[maker] == MR__NO_SLOT)
            m->slot_of[maker] = m->output_slots[i];
    }
    for (size_t i = 0; i < m->n_outputs; i++) {
        size_t maker = mr__maker_of(m, m->outputs[i]);
        if (m->logits[i].activation) /* its own slot stays taken until the layer's pass */
            m->logits[i].slot = readers_of(m, maker) > 1 ? take_slot(p, mr__values_made(m, maker))
                                                         : m->output_slots[i];
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        if (m->output_slots[i] != m->slot_of[mr__maker_of(m, m->outputs[i])])
            p->taken[m->output_slots[i]] = false;
}

/* The layer of an output without its activation, if a cross-entropy can use what that is computed
 * from. */
static mr_code plan_logits(mr_model *m, mr__output *o, size_t output, mr_status *st)
{
    size_t at = m->outputs[output], maker = mr__maker_of(m, at);
    if (maker == 0 || mr__input_made(m, maker) < m->n_inputs)
        return MR_OK;
    const mr_layer *l = &m->layers[maker - 1], *last = &m->layers[at - 1];
    const mr_param *p = mr__layer_activation_param(l);
    const mr_activation *f =
        p ? *(const mr_activation *const *)((const char *)l->params + p->at) : NULL;
    if (!f || (f->function != MR_ACT_SOFTMAX && f->function != MR_ACT_SIGMOID))
        return MR_OK;
    /* A view after a softmax may have other classes on its last axis. */
    if (f->function == MR_ACT_SOFTMAX &&
        (l->out.rank < 1 || last->out.rank < 1 ||
         l->out.shape[l->out.rank - 1] != last->out.shape[last->out.rank - 1]))
        return MR_OK;
    o->params = mr_memdup(l->params, l->desc->is.params_size);
    if (!o->params)
        return mr_fail_memory(st, l->desc->is.params_size, "a layer's parameters");
    *(const mr_activation **)((char *)o->params + p->at) = &linear;
    o->activation = f;
    o->plain = *l;
    o->plain.params = o->params;
    return MR_OK;
}

/* Finds layers with variables in or before them. */
static void find_learning(mr_model *m)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        bool learns = false;
        for (size_t v = 0; v < l->n_wanted; v++)
            learns = learns || l->wanted[v].role != MR_FIXED;
        for (size_t k = 0; k < l->n_inputs && l->input == 0; k++)
            learns = learns || m->learns[mr__source_of(l, k)];
        m->learns[i + 1] = learns;
    }
}

mr_code mr__plan_gradients(mr_model *m, mr_status *st)
{
    size_t n = m->n_layers, n_edges = 0;
    m->first_edge = mr_calloc(n + 1, sizeof *m->first_edge);
    m->slot_of = mr_calloc(n + 1, sizeof *m->slot_of);
    m->learns = mr_calloc(n + 1, sizeof *m->learns);
    for (size_t i = 0; m->first_edge && i < n; i++) {
        m->first_edge[i] = n_edges;
        n_edges += m->layers[i].n_inputs;
        if (m->layers[i].n_inputs > m->most_inputs)
            m->most_inputs = m->layers[i].n_inputs;
    }
    m->edges = mr_calloc(n_edges, sizeof *m->edges);
    size_t most = n_edges + 2 * m->n_outputs;
    m->logits = mr_calloc(m->n_outputs, sizeof *m->logits);
    m->slot_values = mr_calloc(most, sizeof *m->slot_values);
    plan p = {m, mr_calloc(most, sizeof *p.taken)};
    mr_code rc = m->first_edge && m->slot_of && m->learns && m->edges && m->slot_values &&
                         m->logits && p.taken
                     ? MR_OK
                     : mr_fail_memory(st, n_edges * sizeof *m->edges, "the gradients of a model");
    for (size_t i = 0; i < m->n_outputs && rc == MR_OK; i++)
        rc = plan_logits(m, &m->logits[i], i, st);
    if (rc != MR_OK) {
        mr_free(p.taken);
        return rc;
    }
    m->first_edge[n] = n_edges;
    for (size_t i = 0; i <= n; i++)
        m->slot_of[i] = MR__NO_SLOT;
    join_layers(m);
    plan_outputs(&p);
    for (size_t i = n; i-- > 0;)
        if (!m->layers[i].desc->view && m->slot_of[i + 1] != MR__NO_SLOT)
            plan_layer(&p, i);
    find_learning(m);
    mr_free(p.taken);
    return MR_OK;
}
