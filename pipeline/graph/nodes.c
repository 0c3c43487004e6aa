/* SPDX-License-Identifier: Apache-2.0 */
/* Orders the nodes of a graph by a depth-first walk with an explicit stack, since a chain may have
 * any length. */
#include <string.h>

#include "pipeline/graph/node.h"

enum { MAX_NODES = 1 << 24 };

/* ---- numbering ---- */

struct mr__numbered *mr__numbering_find(const mr__numbering *t, const mr_dataset *ds)
{
    if (!t->n_slots)
        return NULL;
    size_t i = (size_t)(((uintptr_t)ds >> 4) * 0x9e3779b97f4a7c15u) & (t->n_slots - 1);
    while (t->slots[i].ds && t->slots[i].ds != ds)
        i = (i + 1) & (t->n_slots - 1);
    return &t->slots[i];
}

static mr_code grow(mr__numbering *t, mr_status *st)
{
    mr__numbering bigger = {.n_slots = t->n_slots ? 2 * t->n_slots : 32, .used = t->used};
    bigger.slots = mr_calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots)
        return mr_fail_memory(st, bigger.n_slots * sizeof *bigger.slots, "a walk over a graph");
    for (size_t i = 0; i < t->n_slots; i++)
        if (t->slots[i].ds)
            *mr__numbering_find(&bigger, t->slots[i].ds) = t->slots[i];
    mr_free(t->slots);
    *t = bigger;
    return MR_OK;
}

mr_code mr__numbering_set(mr__numbering *t, const mr_dataset *ds, size_t number, mr_status *st)
{
    if (2 * t->used >= t->n_slots)
        MR_TRY(grow(t, st));
    struct mr__numbered *slot = mr__numbering_find(t, ds);
    t->used += !slot->ds;
    *slot = (struct mr__numbered){.ds = ds, .number = number};
    return MR_OK;
}

void mr__numbering_reset(mr__numbering *t)
{
    mr_free(t->slots);
    *t = (mr__numbering){0};
}

/* ---- order ---- */

struct frame {
    mr_dataset *ds;
    size_t next; /* the next input to visit */
};

struct walk {
    mr__numbering seen; /* numbers are indices in the order, valid after the node is finished */
    struct frame *stack;
    size_t n_stack, stack_capacity;
    mr__nodes *out;
    size_t nodes_capacity, n_inputs, inputs_capacity;
};

static mr_code enter(struct walk *w, const mr_dataset *ds, mr_status *st)
{
    const struct mr__numbered *seen = mr__numbering_find(&w->seen, ds);
    if (seen && seen->ds)
        return MR_OK;
    MR_TRY(mr__numbering_set(&w->seen, ds, SIZE_MAX, st));
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
        out->inputs[w->n_inputs++] = mr__numbering_find(&w->seen, mr_dataset_input(ds, i))->number;
    mr__numbering_find(&w->seen, ds)->number = out->n;
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
    mr__numbering_reset(&w.seen);
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
