/* SPDX-License-Identifier: Apache-2.0 */
/* Orders the nodes of a graph by a depth-first walk with an explicit stack, since a chain may have
 * any length. */
#include <string.h>

#include "pipeline/graph/node.h"
#include "pipeline/memory/id_map.h"

enum { MAX_NODES = 1 << 24 };

struct frame {
    mr_dataset *ds;
    size_t next; /* the next input to visit */
};

struct walk {
    mr__id_map seen; /* numbers are indices in the order, valid after the node is finished */
    struct frame *stack;
    size_t n_stack, stack_capacity;
    mr__nodes *out;
    size_t nodes_capacity, n_inputs, inputs_capacity;
};

static mr_code enter(struct walk *w, const mr_dataset *ds, mr_status *st)
{
    if (mr__id_map_find(&w->seen, (uintptr_t)ds))
        return MR_OK;
    MR_TRY(mr__id_map_put(&w->seen, (uintptr_t)ds, UINTPTR_MAX, st));
    MR_TRY(
        MR_GROW(w->stack, w->stack_capacity, w->n_stack + 1, MAX_NODES, "a walk over a graph", st));
    w->stack[w->n_stack++] = (struct frame){.ds = (mr_dataset *)(uintptr_t)ds};
    return MR_OK;
}

static mr_code finish(struct walk *w, mr_dataset *ds, mr_status *st)
{
    mr__nodes *out = w->out;
    size_t n = mr_dataset_n_inputs(ds);
    MR_TRY(MR_GROW(out->v, w->nodes_capacity, out->n + 1, MAX_NODES, "a walk over a graph", st));
    MR_TRY(MR_GROW(out->inputs, w->inputs_capacity, w->n_inputs + n, MAX_NODES,
                   "a walk over a graph", st));
    for (size_t i = 0; i < n; i++)
        out->inputs[w->n_inputs++] = *mr__id_map_find(&w->seen, (uintptr_t)mr_dataset_input(ds, i));
    *mr__id_map_find(&w->seen, (uintptr_t)ds) = out->n;
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
    mr__id_map_reset(&w.seen);
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
