/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ID_MAP_H
#define MR_PIPELINE_MEMORY_ID_MAP_H
/* A map from numbers (ids, addresses) to numbers or pointers. Zeroed memory is an empty map.
 * Private to the project.
 *
 * thread   one at a time per object */
#include "../splitmix.h"
#include "hash_index.h"

typedef struct mr__id_map {
    struct mr__id_entry {
        uint64_t id;
        uintptr_t value;
    } * entries; /* in no order */
    size_t n, capacity;
    mr__hash_index index;
} mr__id_map;

static inline bool mr__id_same(const void *entries, size_t place, const void *id)
{
    return ((const struct mr__id_entry *)entries)[place].id == *(const uint64_t *)id;
}

/* Returns the value of id, for reading or writing until the next put, set or remove; NULL: id is
 * not in the map. */
static inline uintptr_t *mr__id_map_find(const mr__id_map *m, uint64_t id)
{
    size_t at = mr__hash_find(&m->index, mr__splitmix(id), mr__id_same, m->entries, &id);
    return at == MR__NO_PLACE ? NULL : &m->entries[at].value;
}

/* The same for pointers. */
static inline void *mr__id_map_get(const mr__id_map *m, uint64_t id)
{
    const uintptr_t *value = mr__id_map_find(m, id);
    return value ? (void *)*value : NULL;
}

/* errors   MR_RESOURCE_EXHAUSTED: the map is unchanged */
static inline mr_code mr__id_map_put(mr__id_map *m, uint64_t id, uintptr_t value, mr_status *st)
{
    uintptr_t *there = mr__id_map_find(m, id);
    if (!there) {
        MR_TRY(
            MR_GROW(m->entries, m->capacity, m->n + 1, UINT32_MAX / 4, "a table of numbers", st));
        MR_TRY(mr__hash_add(&m->index, mr__splitmix(id), m->n, "a table of numbers", st));
        m->entries[m->n].id = id;
        there = &m->entries[m->n++].value;
    }
    *there = value;
    return MR_OK;
}

static inline mr_code mr__id_map_set(mr__id_map *m, uint64_t id, void *value, mr_status *st)
{
    return mr__id_map_put(m, id, (uintptr_t)value, st);
}

/* Does nothing if id is not in the map. The last entry takes the place of the removed one. */
static inline void mr__id_map_remove(mr__id_map *m, uint64_t id)
{
    size_t at = mr__hash_find(&m->index, mr__splitmix(id), mr__id_same, m->entries, &id);
    if (at == MR__NO_PLACE)
        return;
    mr__hash_remove(&m->index, mr__splitmix(id), at);
    if (at != --m->n) {
        m->entries[at] = m->entries[m->n];
        mr__hash_slot_of(&m->index, mr__splitmix(m->entries[at].id), m->n)->place =
            (uint32_t)at + 1;
    }
}

static inline void mr__id_map_reset(mr__id_map *m)
{
    mr_free(m->entries);
    mr__hash_reset(&m->index);
    *m = (mr__id_map){0};
}
#endif
