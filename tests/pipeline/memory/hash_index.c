/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/hash_index.h"

#include "pipeline/memory/id_map.h"
#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static bool same(const void *keys, size_t place, const void *key)
{
    return ((const uint64_t *)keys)[place] == *(const uint64_t *)key;
}

static size_t find(const mr__hash_index *x, uint64_t hash, const uint64_t *keys, uint64_t key)
{
    return mr__hash_find(x, hash, same, keys, &key);
}

MR_TEST(an_empty_index_finds_nothing)
{
    mr_status st;
    mr__hash_index x = {0};
    uint64_t keys[1] = {7};
    mr_eq_u64(find(&x, 1, keys, 7), MR__NO_PLACE);
    mr__hash_clear(&x);
    mr_ok(mr__hash_add(&x, 1, 0, "keys", &st), &st);
    mr_eq_u64(find(&x, 1, keys, 7), 0);
    mr_eq_u64(find(&x, 1, keys, 8), MR__NO_PLACE); /* the same hash, another key */
    mr_eq_u64(find(&x, 2, keys, 7), MR__NO_PLACE);
    mr__hash_clear(&x);
    mr_eq_u64(find(&x, 1, keys, 7), MR__NO_PLACE);
    mr__hash_reset(&x);
    mr__hash_reset(&x);
}

/* Hashes that collide, wrap around the end of the table, and spread. */
static uint64_t hash_of(uint64_t key, int kind)
{
    return kind == 0 ? 5 : kind == 1 ? UINT32_MAX - key % 3 : mr__splitmix(key);
}

MR_TEST(keys_are_found_whatever_was_removed)
{
    enum { KEYS = 300 };
    for (int kind = 0; kind < 3; kind++) {
        mr_status st;
        mr__hash_index x = {0};
        uint64_t keys[KEYS], random = 3;
        bool there[KEYS] = {false};
        size_t n = 0;
        for (size_t i = 0; i < KEYS; i++)
            keys[i] = i * 11;
        for (int step = 0; step < 6000; step++) {
            size_t i = mr_test_random(&random) % KEYS;
            if (there[i])
                mr__hash_remove(&x, hash_of(keys[i], kind), i);
            else
                mr_ok(mr__hash_add(&x, hash_of(keys[i], kind), i, "keys", &st), &st);
            there[i] = !there[i];
            n = there[i] ? n + 1 : n - 1;
            mr_eq_u64(x.n, n);
            for (size_t k = step % 50 ? i : 0; k < (step % 50 ? i + 1 : KEYS); k++)
                mr_eq_u64(find(&x, hash_of(keys[k], kind), keys, keys[k]),
                          there[k] ? k : MR__NO_PLACE);
        }
        mr_check(2 * x.n <= x.mask + 1);
        mr__hash_reset(&x);
    }
}

MR_TEST(what_was_reserved_is_added_without_memory)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr__hash_index x = {0};
        mr_code rc = mr__hash_reserve(&x, 1000, "keys", &st);
        for (size_t i = 0; rc == MR_OK && i < 1000; i++)
            mr_ok(mr__hash_add(&x, i, i, "keys", &st), &st);
        mr_fault_expect(rc, &st);
        mr__hash_reset(&x);
    }
    mr_status st;
    mr__hash_index x = {0};
    mr_code_is(mr__hash_reserve(&x, UINT32_MAX, "keys", &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_check(!x.slots);
}

/* ---- maps ---- */

MR_TEST(a_map_is_as_a_list_of_pairs)
{
    enum { IDS = 64 };
    mr_status st;
    mr__id_map m = {0};
    uintptr_t values[IDS] = {0}; /* 0: none */
    uint64_t random = 1;
    size_t n = 0;
    mr__id_map_remove(&m, 3);
    for (int step = 0; step < 20000; step++) {
        uint64_t id = mr_test_random(&random) % IDS; /* 0 is an id as any other */
        if (mr_test_random(&random) % 3) {
            n += !values[id];
            values[id] = mr_test_random(&random) | 1;
            mr_ok(mr__id_map_put(&m, id << 40, values[id], &st), &st);
        } else {
            n -= values[id] != 0;
            values[id] = 0;
            mr__id_map_remove(&m, id << 40);
        }
        mr_eq_u64(m.n, n);
        id = mr_test_random(&random) % IDS;
        const uintptr_t *found = mr__id_map_find(&m, id << 40);
        mr_eq_u64(found ? *found : 0, values[id]);
    }
    for (uint64_t id = 0; id < IDS; id++)
        mr_eq_u64((uintptr_t)mr__id_map_get(&m, id << 40), values[id]);
    mr__id_map_reset(&m);
    mr_check(!mr__id_map_get(&m, 0));
}

MR_TEST(a_map_without_memory_is_as_it_was)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr__id_map m = {0};
        mr_code rc = MR_OK;
        uint64_t id = 0;
        for (; rc == MR_OK && id < 100; id++)
            rc = mr__id_map_put(&m, id, id, &st);
        mr_fault_expect(rc, &st);
        mr_eq_u64(m.n, rc == MR_OK ? id : id - 1);
        for (uint64_t k = 0; k < m.n; k++)
            mr_eq_u64(*mr__id_map_find(&m, k), k);
        mr__id_map_reset(&m);
    }
}
