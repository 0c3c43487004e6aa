/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a graph's nodes, by a depth-first walk with a stack of its own: a chain may have any
 * length. */
#include "pipeline/graph/node.h"

#include <string.h>

enum { MAX_NODES = 1 << 24 };

struct slot {
    const mr_dataset *ds;
    size_t index; /* in the order; valid once the node is finished */
};

struct frame {
    mr_dataset *ds;
    size_t next; /* its input to visit next */
};

struct walk {
    struct slot *slots;
    size_t n_slots, used;
    struct frame *stack;
    size_t n_stack, stack_capacity;
    mr__nodes *out;
    size_t nodes_capacity, n_inputs, inputs_capacity;
};

static struct slot *slot_of(const struct walk *w, const mr_dataset *ds)
{
    size_t i = (size_t)(((uintptr_t)ds >> 4) * 0x9e3779b97f4a7c15u) & (w->n_slots - 1);
    while (w->slots[i].ds && w->slots[i].ds != ds)
        i = (i + 1) & (w->n_slots - 1);
    return &w->slots[i];
}

static mr_code grow_slots(struct walk *w, mr_status *st)
{
    struct walk bigger = {.n_slots = w->n_slots ? 2 * w->n_slots : 32};
    bigger.slots = mr_calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots)
        return mr_fail_memory(st, bigger.n_slots * sizeof *bigger.slots, "a walk over a graph");
    for (size_t i = 0; i < w->n_slots; i++)
        if (w->slots[i].ds)
            *slot_of(&bigger, w->slots[i].ds) = w->slots[i];
    mr_free(w->slots);
    w->slots = bigger.slots;
    w->n_slots = bigger.n_slots;
    return MR_OK;
}

static mr_code enter(struct walk *w, const mr_dataset *ds, mr_status *st)
{
    if (2 * w->used >= w->n_slots)
        MR_TRY(grow_slots(w, st));
    struct slot *s = slot_of(w, ds);
    if (s->ds)
        return MR_OK;
    s->ds = ds;
    w->used++;
    MR_TRY(mr_grow((void **)&w->stack, &w->stack_capacity, w->n_stack + 1, sizeof *w->stack,
                   MAX_NODES, "a walk over a graph", st));
    w->stack[w->n_stack++] = (struct frame){.ds = (mr_dataset *)(uintptr_t)ds};
    return MR_OK;
}

static mr_code finish(struct walk *w, mr_dataset *ds, mr_status *st)
{
    mr__nodes *out = w->out;
    size_t n = mr_dataset_n_inputs(ds);
    MR_TRY(mr_grow((void **)&out->v, &w->nodes_capacity, out->n + 1, sizeof(mr_dataset *),
                   MAX_NODES, "a walk over a graph", st));
    MR_TRY(mr_grow((void **)&out->inputs, &w->inputs_capacity, w->n_inputs + n, sizeof *out->inputs,
                   MAX_NODES, "a walk over a graph", st));
    for (size_t i = 0; i < n; i++)
        out->inputs[w->n_inputs++] = slot_of(w, mr_dataset_input(ds, i))->index;
    slot_of(w, ds)->index = out->n;
    out->v[out->n++] = ds;
    return MR_OK;
}

static mr_code run(struct walk *w, const mr_dataset *ds, mr_status *st)
{
    MR_TRY(enter(w, ds, st));
    while (w->n_stack) {
        struct frame *f = &w->stack[w->n_stack - 1];
        if (f->next < mr_dataset_n_inputs(f->ds)) {
            MR_TRY(enter(w, mr_dataset_input(f->ds, f->next++), st));
            continue;
        }
        MR_TRY(finish(w, f->ds, st));
        w->n_stack--;
    }
    return MR_OK;
}

mr_code mr__nodes_of(const mr_dataset *ds, mr__nodes *out, mr_status *st)
{
    mr__nodes nodes = {0};
    struct walk w = {.out = &nodes};
    mr_code rc = run(&w, ds, st);
    mr_free(w.slots);
    mr_free(w.stack);
    if (rc == MR_OK)
        *out = nodes;
    else
        mr__nodes_reset(&nodes);
    return rc;
}

void mr__nodes_reset(mr__nodes *nodes)
{
    mr_free(nodes->v);
    mr_free(nodes->inputs);
    *nodes = (mr__nodes){0};
}
