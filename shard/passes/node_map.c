/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/passes/node_map.h"
#include "pipeline/memory/alloc.h"

/* Open addressing; the size is a power of 2. */
static struct mr__node_entry *slot_of(const mr__node_map *m, const mr_dataset *node)
{
    uint64_t h = (uint64_t)(uintptr_t)node * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 32) & (m->size - 1);
    while (m->slots[i].node && m->slots[i].node != node)
        i = (i + 1) & (m->size - 1);
    return &m->slots[i];
}

uintptr_t *mr__node_map_get(const mr__node_map *m, const mr_dataset *node)
{
    struct mr__node_entry *e = m->size ? slot_of(m, node) : NULL;
    return e && e->node ? &e->value : NULL;
}

static mr_code grow(mr__node_map *m, mr_status *st)
{
    mr__node_map bigger = {.size = m->size ? 2 * m->size : 64, .used = m->used};
    bigger.slots = mr_calloc(bigger.size, sizeof *bigger.slots);
    if (!bigger.slots)
        return mr_fail_memory(st, bigger.size * sizeof *bigger.slots, "the nodes of a graph");
    for (size_t i = 0; i < m->size; i++)
        if (m->slots[i].node)
            *slot_of(&bigger, m->slots[i].node) = m->slots[i];
    mr_free(m->slots);
    *m = bigger;
    return MR_OK;
}

mr_code mr__node_map_set(mr__node_map *m, const mr_dataset *node, uintptr_t value, mr_status *st)
{
    if (2 * (m->used + 1) > m->size)
        MR_TRY(grow(m, st));
    struct mr__node_entry *e = slot_of(m, node);
    m->used += !e->node;
    *e = (struct mr__node_entry){node, value};
    return MR_OK;
}

void mr__node_map_reset(mr__node_map *m)
{
    mr_free(m->slots);
    *m = (mr__node_map){0};
}
