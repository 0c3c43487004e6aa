/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/value_set.h"

#include <string.h>

/* ---- keys ---- */

static uint64_t hash_of(const unsigned char *p, size_t n)
{
    uint64_t h = n * 0x9E3779B97F4A7C15u, word;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, p, n);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 29;
}

static size_t whole_size(const mr__value_set *s, const unsigned char *key)
{
    uint64_t size;
    if (s->width)
        return s->width;
    memcpy(&size, key, sizeof size);
    return sizeof size + (size_t)size;
}

static mr_code put(mr__value_set *s, size_t *at, const void *p, size_t n, mr_status *st)
{
    MR_TRY(mr_grow((void **)&s->key, &s->key_capacity, *at + n, 1, SIZE_MAX / 2, "a value", st));
    if (n)
        memcpy(s->key + *at, p, n);
    *at += n;
    return MR_OK;
}

static mr_code put_u64(mr__value_set *s, size_t *at, uint64_t v, mr_status *st)
{
    return put(s, at, &v, sizeof v, st);
}

/* s->key = the key of row `row` of a, of *size bytes. */
static mr_code make_key(mr__value_set *s, const mr_array *a, size_t row, size_t *size,
                        mr_status *st)
{
    const mr_row *r = a->storage == MR_RAGGED ? (const mr_row *)a->data + row : NULL;
    const void *data = r ? r->data : mr_array_at(a, row);
    const int64_t *shape = mr_array_row_shape(a, row);
    size_t n = 1, at = 0;
    if (s->width) {
        MR_TRY(put(s, &at, data, s->width, st));
        *size = at;
        return MR_OK;
    }
    MR_TRY(put_u64(s, &at, 0, st));
    MR_TRY(put_u64(s, &at, (uint64_t)a->rank, st));
    for (int d = 0; d < a->rank; d++) {
        MR_TRY(put_u64(s, &at, (uint64_t)shape[d], st));
        n *= (size_t)shape[d];
    }
    if (a->dtype != MR_STRING)
        MR_TRY(put(s, &at, data, n * mr_dtype_size(a->dtype), st));
    const mr_bytes *strings = a->dtype == MR_STRING ? data : NULL;
    for (size_t i = 0; strings && i < n; i++) {
        MR_TRY(put_u64(s, &at, strings[i].size, st));
        MR_TRY(put(s, &at, strings[i].data, strings[i].size, st));
    }
    uint64_t rest = at - sizeof rest;
    memcpy(s->key, &rest, sizeof rest);
    *size = at;
    return MR_OK;
}

/* ---- the table ---- */

static bool same_key(const void *set, size_t place, const void *key)
{
    const mr__value_set *s = set;
    const mr_bytes *k = key;
    const unsigned char *have = s->bytes + s->at[place];
    return whole_size(s, have) == k->size && memcmp(have, k->data, k->size) == 0;
}

/* Adds a key of `size` bytes, which must not be in s->bytes. */
static mr_code add_key(mr__value_set *s, const unsigned char *key, size_t size, bool *fresh,
                       mr_status *st)
{
    static const char what[] = "a set of values";
    uint64_t hash = hash_of(key, size);
    *fresh = mr__hash_find(&s->index, hash, same_key, s, &(mr_bytes){(const char *)key, size}) ==
             MR__NO_PLACE;
    if (!*fresh)
        return MR_OK;
    MR_TRY(mr_grow((void **)&s->bytes, &s->bytes_capacity, s->n_bytes + size, 1, SIZE_MAX / 2, what,
                   st));
    MR_TRY(MR_GROW(s->at, s->capacity, s->n + 1, SIZE_MAX / 16, what, st));
    MR_TRY(mr__hash_add(&s->index, hash, s->n, what, st));
    memcpy(s->bytes + s->n_bytes, key, size);
    s->at[s->n++] = s->n_bytes;
    s->n_bytes += size;
    return MR_OK;
}

mr_code mr__value_set_add(mr__value_set *s, const mr_array *a, size_t row, bool *fresh,
                          mr_status *st)
{
    size_t size;
    MR_TRY(make_key(s, a, row, &size, st));
    return add_key(s, s->key, size, fresh, st);
}

void mr__value_set_back(mr__value_set *s, size_t mark)
{
    for (; s->n_bytes > mark; s->n_bytes = s->at[s->n]) {
        const unsigned char *last = s->bytes + s->at[--s->n];
        mr__hash_remove(&s->index, hash_of(last, whole_size(s, last)), s->n);
    }
}

void mr__value_set_reset(mr__value_set *s)
{
    mr_free(s->bytes);
    mr_free(s->at);
    mr__hash_reset(&s->index);
    mr_free(s->key);
    *s = (mr__value_set){.width = s->width};
}

/* ---- positions ---- */

mr_code mr__value_set_save(const mr__value_set *s, mr_state_w *w, mr_status *st)
{
    return mr_state_put_bytes(w, s->bytes, s->n_bytes, st);
}

mr_code mr__value_set_restore(mr__value_set *s, mr_state_r *r, mr_status *st)
{
    const void *bytes;
    size_t n, size;
    mr__hash_clear(&s->index);
    s->n = s->n_bytes = 0;
    MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
    for (const unsigned char *at = bytes; n; at += size, n -= size) {
        uint64_t rest;
        bool fresh;
        size = s->width;
        if (!size && n >= sizeof rest) {
            memcpy(&rest, at, sizeof rest);
            size = rest <= n - sizeof rest ? sizeof rest + (size_t)rest : 0;
        }
        if (size == 0 || size > n)
            return mr_state_damaged(st, "a set of values is cut short");
        MR_TRY(add_key(s, at, size, &fresh, st));
        if (!fresh)
            return mr_state_damaged(st, "a set contains a value twice");
    }
    return MR_OK;
}
