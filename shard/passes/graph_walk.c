/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/passes/graph_walk.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/memory/id_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct frame {
    mr_dataset *node;
    size_t next; /* the next input to visit */
    size_t preorder;
} frame;

struct mr__walk {
    frame *stack;
    size_t depth, capacity, visited;
    mr__id_map made; /* the replacement of each finished node: an owned dataset */
};

/* The replacement of node; NULL: it is not finished. */
static mr_dataset *made_of(const mr__walk *w, const mr_dataset *node)
{
    const uintptr_t *made = mr__id_map_find(&w->made, (uintptr_t)node);
    return made ? (mr_dataset *)*made : NULL;
}

static mr_code push(mr__walk *w, mr_dataset *node, mr_status *st)
{
    MR_TRY(MR_GROW(w->stack, w->capacity, w->depth + 1, SIZE_MAX / 64, "the depth of a graph", st));
    w->stack[w->depth++] = (frame){node, 0, w->visited++};
    return MR_OK;
}

/* *out = node over the replacements of its inputs; node itself if they are unchanged. */
static mr_code over_new_inputs(mr__walk *w, mr_dataset *node, mr_dataset **out, mr_status *st)
{
    size_t n = mr_dataset_n_inputs(node);
    bool changed = false;
    for (size_t i = 0; i < n && !changed; i++) {
        const mr_dataset *in = mr_dataset_input(node, i);
        changed = made_of(w, in) != in;
    }
    if (!changed) {
        *out = mr_dataset_ref(node);
        return MR_OK;
    }
    mr_dataset **inputs = mr_calloc(n, sizeof(mr_dataset *));
    if (!inputs)
        return mr_fail_memory(st, n * sizeof(mr_dataset *), "the inputs of a node");
    for (size_t i = 0; i < n; i++)
        inputs[i] = mr_dataset_ref(made_of(w, mr_dataset_input(node, i)));
    *out = mr_dataset_with_inputs(node, inputs, n);
    mr_free(inputs);
    return mr_dataset_check(*out, st);
}

static mr_code leave(mr__walk *w, mr__walk_fn fn, void *ctx, mr_status *st)
{
    mr_dataset *node = w->stack[w->depth - 1].node, *now = NULL;
    mr_code rc = over_new_inputs(w, node, &now, st);
    if (rc == MR_OK) {
        now = fn(ctx, node, now, w);
        rc = mr_dataset_check(now, st);
    }
    if (rc == MR_OK)
        rc = mr__id_map_put(&w->made, (uintptr_t)node, (uintptr_t)now, st);
    if (rc != MR_OK)
        mr_dataset_unref(now);
    else
        w->depth--;
    return rc;
}

mr_code mr__walk_graph(mr_dataset *ds, mr__walk_fn fn, void *ctx, mr_dataset **out, mr_status *st)
{
    mr__walk w = {0};
    mr_code rc = push(&w, ds, st);
    while (rc == MR_OK && w.depth) {
        frame *f = &w.stack[w.depth - 1];
        if (f->next == mr_dataset_n_inputs(f->node)) {
            rc = leave(&w, fn, ctx, st);
            continue;
        }
        mr_dataset *in = mr_dataset_input(f->node, f->next++);
        if (!made_of(&w, in))
            rc = push(&w, in, st);
    }
    if (rc == MR_OK)
        *out = mr_dataset_ref(made_of(&w, ds));
    for (size_t i = 0; i < w.made.n; i++)
        mr_dataset_unref((mr_dataset *)w.made.entries[i].value);
    mr__id_map_reset(&w.made);
    mr_free(w.stack);
    return rc;
}

typedef struct visit {
    mr__visit_fn fn;
    void *ctx;
    mr_status status;
} visit;

static mr_dataset *visit_node(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    visit *v = ctx;
    if (v->fn(v->ctx, old, w, &v->status) == MR_OK)
        return now;
    mr_dataset_unref(now);
    return mr_dataset_fail(&v->status);
}

mr_code mr__visit_graph(mr_dataset *ds, mr__visit_fn fn, void *ctx, mr_status *st)
{
    visit v = {.fn = fn, .ctx = ctx};
    mr_dataset *same = NULL;
    mr_code rc = mr__walk_graph(ds, visit_node, &v, &same, st);
    mr_dataset_unref(same);
    return rc;
}

void mr__path_append(char *path, size_t size, int64_t input, const char *op)
{
    size_t n = strlen(path);
    if (n && input >= 0)
        snprintf(path + n, size - n, "[%" PRId64 "]/%s", input, op);
    else
        snprintf(path + n, size - n, "%s%s", n ? "/" : "", op);
}

void mr__walk_path(const mr__walk *w, char *buf, size_t size)
{
    buf[0] = 0;
    /* A path that fills the buffer is cut: a graph may be far deeper. */
    for (size_t i = 0; i < w->depth && strlen(buf) + 1 < size; i++) {
        const frame *above = i ? &w->stack[i - 1] : NULL;
        bool several = above && mr_dataset_n_inputs(above->node) > 1;
        mr__path_append(buf, size, several ? (int64_t)above->next - 1 : -1,
                        mr_dataset_op(w->stack[i].node)->name);
    }
}

size_t mr__walk_preorder(const mr__walk *w)
{
    return w->stack[w->depth - 1].preorder;
}
