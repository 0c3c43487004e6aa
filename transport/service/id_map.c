/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/id_map.h"

#include "pipeline/memory/alloc.h"
#include "pipeline/splitmix.h"

static size_t start_of(const mr__id_map *m, uint64_t id)
{
    return (size_t)mr__splitmix(id) & (m->size - 1);
}

static size_t find(const mr__id_map *m, uint64_t id)
{
    size_t i = start_of(m, id);
    while (m->slots[i].id && m->slots[i].id != id)
        i = (i + 1) & (m->size - 1);
    return i;
}

void *mr__id_map_get(const mr__id_map *m, uint64_t id)
{
    if (!m->size)
        return NULL;
    size_t i = find(m, id);
    return m->slots[i].id ? m->slots[i].value : NULL;
}

static mr_code grow(mr__id_map *m, mr_status *st)
{
    mr__id_map bigger = {.size = m->size ? 2 * m->size : 16};
    bigger.slots = mr_calloc(bigger.size, sizeof *bigger.slots);
    if (!bigger.slots)
        return mr_fail_memory(st, bigger.size * sizeof *bigger.slots, "a table of numbers");
    for (size_t i = 0; i < m->size; i++)
        if (m->slots[i].id)
            bigger.slots[find(&bigger, m->slots[i].id)] = m->slots[i];
    bigger.n = m->n;
    mr_free(m->slots);
    *m = bigger;
    return MR_OK;
}

mr_code mr__id_map_set(mr__id_map *m, uint64_t id, void *value, mr_status *st)
{
    if (2 * (m->n + 1) > m->size)
        MR_TRY(grow(m, st));
    size_t i = find(m, id);
    m->n += !m->slots[i].id;
    m->slots[i].id = id;
    m->slots[i].value = value;
    return MR_OK;
}

/* Inserts the following entries of the same run again, so that no search ends too early. */
void mr__id_map_remove(mr__id_map *m, uint64_t id)
{
    if (!m->size)
        return;
    size_t i = find(m, id);
    if (!m->slots[i].id)
        return;
    m->slots[i].id = 0;
    m->n--;
    for (i = (i + 1) & (m->size - 1); m->slots[i].id; i = (i + 1) & (m->size - 1)) {
        struct mr__id_slot moved = m->slots[i];
        m->slots[i].id = 0;
        m->slots[find(m, moved.id)] = moved;
    }
}

void mr__id_map_reset(mr__id_map *m)
{
    mr_free(m->slots);
    *m = (mr__id_map){0};
}
