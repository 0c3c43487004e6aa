/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/example_wire.h"

int mr__next_entry(mr__walker *w, mr__entry *entry)
{
    uint64_t tag;
    size_t n;
    while (w->p == w->end) {
        if (w->outer == w->outer_end)
            return 0;
        const uint8_t *p = mr__varint(w->outer, w->outer_end, &tag);
        if (!p)
            return -1;
        if (tag == 0x0a) {
            if (!(p = mr__length(p, w->outer_end, &n)))
                return -1;
            w->p = p;
            w->end = w->outer = p + n;
        } else if (!(w->outer = mr__skip_field(p, w->outer_end, tag)))
            return -1;
    }
    const uint8_t *p = mr__varint(w->p, w->end, &tag);
    if (!p)
        return -1;
    *entry = (mr__entry){0};
    if (tag != 0x0a) { /* an unknown field: an entry without a key */
        w->p = mr__skip_field(p, w->end, tag);
        return w->p ? 2 : -1;
    }
    if (!(p = mr__length(p, w->end, &n)))
        return -1;
    const uint8_t *e = p + n;
    while (p < e) {
        if (!(p = mr__varint(p, e, &tag)))
            return -1;
        if (tag == 0x0a) {
            if (!(p = mr__length(p, e, &entry->n_key)))
                return -1;
            entry->key = p;
            p += entry->n_key;
        } else if (tag == 0x12) {
            if (!(p = mr__length(p, e, &entry->n_value)))
                return -1;
            entry->value = p;
            p += entry->n_value;
        } else if (!(p = mr__skip_field(p, e, tag)))
            return -1;
    }
    w->p = e;
    return 1;
}

bool mr__find_list(const uint8_t *value, size_t n, mr__list *out)
{
    const uint8_t *p = value, *e = n ? value + n : value;
    uint64_t tag;
    *out = (mr__list){0, p, e};
    while (p < e) {
        const uint8_t *field = p;
        if (!(p = mr__varint(p, e, &tag)))
            return false;
        int kind = (tag & 7) == 2 && tag >> 3 <= 3 ? (int)(tag >> 3) : 0;
        if (kind && kind != out->kind) { /* the last kind that is set wins */
            out->kind = kind;
            out->from = field;
        }
        if (!(p = mr__skip_field(p, e, tag)))
            return false;
    }
    return true;
}

#if defined(__SSE2__)
#include <emmintrin.h>

/* Bit k: byte k of the n at p, at most 64, ends a varint. The 16 bytes before p + n may be read. */
static inline uint64_t ends_of(const uint8_t *p, size_t n)
{
    uint64_t more = 0; /* 16 bytes at a time, the last ones overlapping those before */
    for (size_t k = 0; k < n; k += 16) {
        size_t at = k + 16 <= n || n < 16 ? k : n - 16;
        const uint8_t *from = n < 16 ? p + n - 16 : p + at;
        uint64_t part = (uint64_t)_mm_movemask_epi8(_mm_loadu_si128((const void *)from));
        more |= n < 16 ? part >> (16 - n) : part << at;
    }
    return ~more & (n < 64 ? ((uint64_t)1 << n) - 1 : UINT64_MAX);
}

/* Finds the ends of many varints at once, so that decoding one does not wait for the previous
 * one. */
static bool many_ints(const uint8_t *p, const uint8_t *e, int64_t *to, size_t most, size_t *count)
{
    size_t n = 0;
    for (const uint8_t *base = p; base < e; base += 64) {
        uint64_t ends = ends_of(base, e - base < 64 ? (size_t)(e - base) : 64);
        for (; ends; ends &= ends - 1) {
            const uint8_t *next = base + __builtin_ctzll(ends) + 1;
            size_t size = (size_t)(next - p);
            uint64_t v = 0;
            if (n == most)
                return false;
            if (__builtin_expect(size <= 8, 1)) {
                memcpy(&v, next - 8, 8);
                v = mr__join_groups(v >> (64 - 8 * size) & 0x7f7f7f7f7f7f7f7f);
            } else if (mr__varint_slow(p, next, &v) != next)
                return false;
            to[n++] = (int64_t)v;
            p = next;
        }
    }
    *count = n;
    return p == e;
}
#endif

bool mr__packed_ints(const uint8_t *p, const uint8_t *e, int64_t *to, size_t most, size_t *count)
{
    uint64_t v;
    size_t n = 0;
#if defined(__SSE2__)
    if (e - p >= 16)
        return many_ints(p, e, to, most, count);
#endif
    while (p < e) {
        if (n == most || !(p = mr__varint_any(p, e, &v)))
            return false;
        to[n++] = (int64_t)v;
    }
    *count = n;
    return true;
}

/* Decodes the values of one list message to `to`, if that is not NULL. NULL: malformed. */
static bool list_values(int kind, const uint8_t *p, const uint8_t *e, void *to, size_t *count)
{
    int64_t *ints = to;
    mr_bytes *strings = to;
    uint64_t tag, v;
    size_t n;
    while (p < e) {
        if (!(p = mr__varint(p, e, &tag)))
            return false;
        if (tag == 0x0a) {
            if (!(p = mr__length(p, e, &n)))
                return false;
            const uint8_t *stop = p + n;
            if (kind == MR__BYTES_LIST) {
                if (to)
                    strings[*count] = (mr_bytes){(const char *)p, n};
                ++*count;
            } else if (kind == MR__FLOAT_LIST) {
                if (n % 4)
                    return false;
                if (to && n)
                    memcpy((float *)to + *count, p, n);
                *count += n / 4;
            } else if (to) {
                size_t most = SIZE_MAX / sizeof *ints, got;
                if (!mr__packed_ints(p, stop, ints + *count, most, &got))
                    return false;
                *count += got;
            } else {
                while (p < stop) {
                    if (!(p = mr__varint_any(p, stop, &v)))
                        return false;
                    ++*count;
                }
            }
            p = stop;
        } else if (tag == 0x0d && kind == MR__FLOAT_LIST) {
            if (e - p < 4)
                return false;
            if (to)
                memcpy((float *)to + *count, p, 4);
            ++*count;
            p += 4;
        } else if (tag == 0x08 && kind == MR__INT64_LIST) {
            if (!(p = mr__varint(p, e, &v)))
                return false;
            if (to)
                ints[*count] = (int64_t)v;
            ++*count;
        } else if (!(p = mr__skip_field(p, e, tag)))
            return false;
    }
    return true;
}

static bool feature_values(const mr__list *list, void *to, size_t *count)
{
    const uint8_t *p = list->from, *e = list->end;
    uint64_t tag;
    size_t n;
    *count = 0;
    while (list->kind && p < e) {
        if (!(p = mr__varint(p, e, &tag)))
            return false;
        if (tag == (uint64_t)(list->kind << 3 | 2)) {
            if (!(p = mr__length(p, e, &n)) || !list_values(list->kind, p, p + n, to, count))
                return false;
            p += n;
        } else if (!(p = mr__skip_field(p, e, tag)))
            return false;
    }
    return true;
}

bool mr__count_values(const mr__list *list, size_t *count)
{
    return feature_values(list, NULL, count);
}

bool mr__decode_values(const mr__list *list, void *to, size_t *count)
{
    return feature_values(list, to, count);
}

mr_dtype mr__list_dtype(int kind)
{
    static const mr_dtype dtypes[] = {MR_DATASET, MR_STRING, MR_FLOAT32, MR_INT64};
    return dtypes[kind];
}

mr_code mr_example_visit(const void *record, size_t size, mr_example_visit_fn visit, void *ctx,
                         mr_status *st)
{
    mr__walker w = {.outer = record, .outer_end = size ? (const uint8_t *)record + size : record};
    mr__entry entry;
    mr_code rc = MR_OK;
    void *values = NULL;
    size_t capacity = 0;
    int got;
    while (rc == MR_OK && (got = mr__next_entry(&w, &entry)) != 0) {
        mr__list list;
        size_t n = 0;
        if (got == 2)
            continue;
        if (got < 0 || !mr__find_list(entry.value, entry.n_value, &list) ||
            !mr__count_values(&list, &n)) {
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "could not parse example input: not a tf.train.Example");
            break;
        }
        rc = mr_grow(&values, &capacity, n, sizeof(mr_bytes), SIZE_MAX / sizeof(mr_bytes),
                     "the values of a feature", st);
        if (rc != MR_OK)
            break;
        if (n)
            mr__decode_values(&list, values, &n);
        if (!visit)
            continue;
        rc = visit(ctx,
                   &(mr_example_value){.name = entry.key ? (const char *)entry.key : "",
                                       .name_size = entry.n_key,
                                       .dtype = mr__list_dtype(list.kind),
                                       .values = values,
                                       .n = n},
                   st);
    }
    mr_free(values);
    return rc;
}
