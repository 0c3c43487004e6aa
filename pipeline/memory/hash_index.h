/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_HASH_INDEX_H
#define MR_PIPELINE_MEMORY_HASH_INDEX_H
/* A hash index over an array of keys that the caller owns: open addressing with linear probing, at
 * most half full. A slot holds the place of a key in the array and 32 bits of its hash, so a lookup
 * compares few keys that differ, and growing does not read the keys. Zeroed memory is an empty
 * index. Everything is inline, so that comparisons are inlined too. Private to the project.
 *
 *     keys   [0] "a"  [1] "b"  [2] "c"
 *     slots  ---- h(b),1+1  ----  ----  h(c),2+1  h(a),0+1  ----  ----
 *
 * thread   one at a time per object */
#include <string.h>

#include "alloc.h"

typedef struct mr__hash_index {
    struct mr__hash_slot {
        uint32_t hash, place; /* place: plus 1; 0: the slot is free */
    } * slots;
    size_t mask, n; /* mask: one less than the number of slots */
} mr__hash_index;

#define MR__NO_PLACE SIZE_MAX

/* Is keys[place] this key? */
typedef bool mr__hash_same(const void *keys, size_t place, const void *key);

static inline uint32_t mr__hash_fold(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

/* The place of the key with this hash, or MR__NO_PLACE. */
static inline __attribute__((always_inline)) size_t mr__hash_find(const mr__hash_index *x,
                                                                  uint64_t hash,
                                                                  mr__hash_same *same,
                                                                  const void *keys, const void *key)
{
    uint32_t h = mr__hash_fold(hash);
    if (!x->n)
        return MR__NO_PLACE;
    for (size_t i = h & x->mask; x->slots[i].place; i = (i + 1) & x->mask)
        if (x->slots[i].hash == h && same(keys, x->slots[i].place - 1, key))
            return x->slots[i].place - 1;
    return MR__NO_PLACE;
}

static inline void mr__hash_put(const mr__hash_index *x, uint32_t h, uint32_t place)
{
    size_t i = h & x->mask;
    while (x->slots[i].place)
        i = (i + 1) & x->mask;
    x->slots[i] = (struct mr__hash_slot){h, place};
}

/* Makes room for n keys, so that adding up to that many cannot fail.
 * errors   MR_RESOURCE_EXHAUSTED: the index is unchanged */
static inline mr_code mr__hash_reserve(mr__hash_index *x, size_t n, const char *what, mr_status *st)
{
    size_t had = x->slots ? x->mask + 1 : 0, size = had ? had : 16;
    if (n >= UINT32_MAX / 2)
        return mr_fail_memory(st, n, what);
    while (size < 2 * n)
        size *= 2;
    if (size == had)
        return MR_OK;
    mr__hash_index larger = {mr_calloc(size, sizeof *x->slots), size - 1, x->n};
    if (!larger.slots)
        return mr_fail_memory(st, size * sizeof *x->slots, what);
    for (size_t i = 0; i < had; i++)
        if (x->slots[i].place)
            mr__hash_put(&larger, x->slots[i].hash, x->slots[i].place);
    mr_free(x->slots);
    *x = larger;
    return MR_OK;
}

/* Adds the key at `place`, which is not in the index.
 * errors   MR_RESOURCE_EXHAUSTED: the index is unchanged */
static inline mr_code mr__hash_add(mr__hash_index *x, uint64_t hash, size_t place, const char *what,
                                   mr_status *st)
{
    MR_TRY(mr__hash_reserve(x, x->n + 1, what, st));
    mr__hash_put(x, mr__hash_fold(hash), (uint32_t)place + 1);
    x->n++;
    return MR_OK;
}

/* The slot of the key at `place`, which is in the index. */
static inline struct mr__hash_slot *mr__hash_slot_of(const mr__hash_index *x, uint64_t hash,
                                                     size_t place)
{
    size_t i = mr__hash_fold(hash) & x->mask;
    while (x->slots[i].place != (uint32_t)place + 1)
        i = (i + 1) & x->mask;
    return &x->slots[i];
}

/* Removes the key at `place`, which is in the index. Later slots of the same run move up, so that
 * no search ends too early. */
static inline void mr__hash_remove(mr__hash_index *x, uint64_t hash, size_t place)
{
    size_t free = (size_t)(mr__hash_slot_of(x, hash, place) - x->slots);
    for (size_t i = (free + 1) & x->mask; x->slots[i].place; i = (i + 1) & x->mask)
        if (((i - x->slots[i].hash) & x->mask) >= ((i - free) & x->mask)) {
            x->slots[free] = x->slots[i];
            free = i;
        }
    x->slots[free].place = 0;
    x->n--;
}

/* Removes all keys; keeps the memory. */
static inline void mr__hash_clear(mr__hash_index *x)
{
    if (x->n)
        memset(x->slots, 0, (x->mask + 1) * sizeof *x->slots);
    x->n = 0;
}

static inline void mr__hash_reset(mr__hash_index *x)
{
    mr_free(x->slots);
    *x = (mr__hash_index){0};
}
#endif
