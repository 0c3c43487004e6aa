/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/graph_walk.h"
#include "pipeline/memory/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct frame {
    mr_dataset *node;
    size_t next; /* input to go to next */
    size_t preorder;
} frame;

typedef struct entry {
    const mr_dataset *old; /* NULL: free */
    mr_dataset *now;       /* owned */
} entry;

struct mr__walk {
    frame *stack;
    size_t depth, capacity, visited;
    entry *map; /* open addressing; its size is a power of 2 */
    size_t map_size, map_used;
};

static entry *slot_of(const mr__walk *w, const mr_dataset *node)
{
    uint64_t h = (uint64_t)(uintptr_t)node * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & (w->map_size - 1);
    while (w->map[i].old && w->map[i].old != node)
        i = (i + 1) & (w->map_size - 1);
    return &w->map[i];
}

static mr_code remember(mr__walk *w, const mr_dataset *old, mr_dataset *now, mr_status *st)
{
    if (2 * (w->map_used + 1) > w->map_size) {
        entry *before = w->map;
        size_t n = w->map_size, size = n ? 2 * n : 64;
        entry *map = mr_calloc(size, sizeof *map);
        if (!map)
            return mr_fail_memory(st, size * sizeof *map, "the nodes of a graph");
        w->map = map;
        w->map_size = size;
        for (size_t i = 0; i < n; i++)
            if (before[i].old)
                *slot_of(w, before[i].old) = before[i];
        mr_free(before);
    }
    *slot_of(w, old) = (entry){old, now};
    w->map_used++;
    return MR_OK;
}

static mr_code push(mr__walk *w, mr_dataset *node, mr_status *st)
{
    MR_TRY(mr_grow((void **)&w->stack, &w->capacity, w->depth + 1, sizeof *w->stack, SIZE_MAX / 64,
                   "the depth of a graph", st));
    w->stack[w->depth++] = (frame){node, 0, w->visited++};
    return MR_OK;
}

/* *out = node over what its inputs became: node itself where they stayed. */
static mr_code over_new_inputs(mr__walk *w, mr_dataset *node, mr_dataset **out, mr_status *st)
{
    size_t n = mr_dataset_n_inputs(node);
    bool changed = false;
    for (size_t i = 0; i < n && !changed; i++) {
        const mr_dataset *in = mr_dataset_input(node, i);
        changed = slot_of(w, in)->now != in;
    }
    if (!changed) {
        *out = mr_dataset_ref(node);
        return MR_OK;
    }
    mr_dataset **inputs = mr_calloc(n, sizeof(mr_dataset *));
    if (!inputs)
        return mr_fail_memory(st, n * sizeof(mr_dataset *), "the inputs of a node");
    for (size_t i = 0; i < n; i++)
        inputs[i] = mr_dataset_ref(slot_of(w, mr_dataset_input(node, i))->now);
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
        rc = remember(w, node, now, st);
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
        if (!w.map_size || !slot_of(&w, in)->old)
            rc = push(&w, in, st);
    }
    if (rc == MR_OK)
        *out = mr_dataset_ref(slot_of(&w, ds)->now);
    for (size_t i = 0; i < w.map_size; i++)
        if (w.map[i].old)
            mr_dataset_unref(w.map[i].now);
    mr_free(w.map);
    mr_free(w.stack);
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
    for (size_t i = 0; i < w->depth; i++) {
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
