/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_table.h"

#include <string.h>

#include "pipeline/bytes.h"

/* ---- reading ---- */

int64_t mr__flat_read(mr__flat *f, size_t at, unsigned size)
{
    if (f->bad || at > f->n || f->n - at < size) {
        f->bad = true;
        return 0;
    }
    uint64_t v = mr__load_le(f->v + at, size);
    if (size == 8)
        return (int64_t)v;
    uint64_t sign = (uint64_t)1 << (8 * size - 1);
    return (int64_t)((v ^ sign) - sign);
}

/* Target of the offset at `at`; 0: invalid. */
static size_t follow(mr__flat *f, size_t at)
{
    size_t offset = (uint32_t)mr__flat_read(f, at, 4);
    if (!f->bad && (offset == 0 || offset > f->n - at))
        f->bad = true;
    return f->bad ? 0 : at + offset;
}

static mr__flat_table table_at(mr__flat *f, size_t at)
{
    static const mr__flat_table none;
    int64_t vtable = (int64_t)at - mr__flat_read(f, at, 4);
    if (f->bad || vtable < 0 || vtable > (int64_t)f->n) {
        f->bad = true;
        return none;
    }
    mr__flat_table t = {.at = at, .vtable = (size_t)vtable};
    t.vtable_size = (uint16_t)mr__flat_read(f, t.vtable, 2);
    if (t.vtable_size < 4 || t.vtable_size > f->n - t.vtable)
        f->bad = true;
    return f->bad ? none : t;
}

mr__flat_table mr__flat_root(mr__flat *f)
{
    size_t at = follow(f, 0);
    return table_at(f, at);
}

/* Position of the field's value; 0: it is not set. */
static size_t field_at(mr__flat *f, const mr__flat_table *t, unsigned field)
{
    size_t entry = 4 + 2 * (size_t)field;
    if (f->bad || t->at == 0 || entry + 2 > t->vtable_size)
        return 0;
    uint16_t offset = (uint16_t)mr__flat_read(f, t->vtable + entry, 2);
    return offset ? t->at + offset : 0;
}

int64_t mr__flat_int(mr__flat *f, const mr__flat_table *t, unsigned field, unsigned size,
                     int64_t otherwise)
{
    size_t at = field_at(f, t, field);
    return at ? mr__flat_read(f, at, size) : otherwise;
}

bool mr__flat_bool(mr__flat *f, const mr__flat_table *t, unsigned field)
{
    return mr__flat_int(f, t, field, 1, 0) != 0;
}

mr__flat_table mr__flat_child(mr__flat *f, const mr__flat_table *t, unsigned field)
{
    static const mr__flat_table none;
    size_t at = field_at(f, t, field);
    return at ? table_at(f, follow(f, at)) : none;
}

mr__flat_vector mr__flat_items(mr__flat *f, const mr__flat_table *t, unsigned field,
                               size_t item_size)
{
    static const mr__flat_vector none;
    size_t at = field_at(f, t, field);
    if (!at)
        return none;
    size_t start = follow(f, at);
    mr__flat_vector v = {.at = start + 4, .n = (uint32_t)mr__flat_read(f, start, 4)};
    if (!f->bad && v.n > (f->n - v.at) / item_size)
        f->bad = true;
    return f->bad ? none : v;
}

mr_bytes mr__flat_string(mr__flat *f, const mr__flat_table *t, unsigned field)
{
    mr__flat_vector v = mr__flat_items(f, t, field, 1);
    return v.at ? (mr_bytes){(const char *)f->v + v.at, v.n} : (mr_bytes){NULL, 0};
}

mr__flat_table mr__flat_table_at(mr__flat *f, const mr__flat_vector *v, size_t i)
{
    return table_at(f, follow(f, v->at + 4 * i));
}

/* ---- writing ---- */

/* Room for n bytes before those written; NULL: out of memory. */
static uint8_t *grow(mr__flat_writer *w, size_t n)
{
    if (!w->bad && w->capacity - w->used < n) {
        size_t capacity = 2 * w->capacity > w->used + n ? 2 * w->capacity : w->used + n + 256;
        uint8_t *v = mr_malloc(capacity);
        if (v) {
            if (w->used)
                memcpy(v + capacity - w->used, w->v + w->capacity - w->used, w->used);
            mr_free(w->v);
            w->v = v;
            w->capacity = capacity;
        } else
            w->bad = true;
    }
    if (w->bad || !w->v) /* nothing is there, and nothing was asked for */
        return NULL;
    w->used += n;
    return w->v + w->capacity - w->used;
}

/* Adds zeros so that after `n` more bytes the front is a multiple of `alignment` from the end. */
static void align(mr__flat_writer *w, size_t n, size_t alignment)
{
    size_t zeros = (alignment - (w->used + n) % alignment) % alignment;
    uint8_t *p = grow(w, zeros);
    if (p)
        memset(p, 0, zeros);
}

static void put(mr__flat_writer *w, uint64_t v, unsigned size)
{
    align(w, size, size);
    uint8_t *p = grow(w, size);
    if (p)
        mr__store_le(p, v, size);
}

void mr__flat_begin_table(mr__flat_writer *w)
{
    memset(w->fields, 0, sizeof w->fields);
    w->table_end = w->used;
}

void mr__flat_put_int(mr__flat_writer *w, unsigned field, unsigned size, int64_t v)
{
    put(w, (uint64_t)v, size);
    w->fields[field] = w->used;
}

void mr__flat_put_place(mr__flat_writer *w, unsigned field, size_t place)
{
    if (place == 0)
        return;
    align(w, 4, 4);
    put(w, w->used + 4 - place, 4);
    w->fields[field] = w->used;
}

size_t mr__flat_end_table(mr__flat_writer *w)
{
    unsigned n = MR__FLAT_FIELDS;
    while (n && w->fields[n - 1] == 0)
        n--;
    put(w, 0, 4); /* the distance to the vtable, which is written next, in front */
    size_t table = w->used, bytes = table - w->table_end;
    for (unsigned i = n; i-- > 0;)
        put(w, w->fields[i] ? table - w->fields[i] : 0, 2);
    put(w, bytes, 2);
    put(w, 4 + 2 * n, 2);
    if (!w->bad)
        mr__store_le(w->v + w->capacity - table, w->used - table, 4);
    return table;
}

size_t mr__flat_put_string(mr__flat_writer *w, const char *s, size_t n)
{
    align(w, n + 1, 4);
    uint8_t *p = grow(w, n + 1);
    if (p) {
        if (n)
            memcpy(p, s, n);
        p[n] = 0;
    }
    put(w, n, 4);
    return w->used;
}

size_t mr__flat_put_structs(mr__flat_writer *w, const void *v, size_t n, size_t size)
{
    align(w, n * size, 8);
    uint8_t *p = grow(w, n * size);
    if (p && n)
        memcpy(p, v, n * size);
    put(w, n, 4);
    return w->used;
}

size_t mr__flat_put_places(mr__flat_writer *w, const size_t *places, size_t n)
{
    align(w, 4 * n, 4);
    for (size_t i = n; i-- > 0;)
        put(w, w->used + 4 - places[i], 4);
    put(w, n, 4);
    return w->used;
}

mr_code mr__flat_finish(mr__flat_writer *w, size_t root, mr_bytes *out, mr_status *st)
{
    align(w, 4, 8);
    put(w, w->used + 4 - root, 4);
    if (w->bad)
        return mr_fail_memory(st, w->used, "metadata of Arrow files");
    *out = (mr_bytes){(const char *)w->v + w->capacity - w->used, w->used};
    return MR_OK;
}

void mr__flat_writer_clear(mr__flat_writer *w)
{
    w->used = 0;
    w->bad = false;
}

void mr__flat_writer_reset(mr__flat_writer *w)
{
    mr_free(w->v);
    *w = (mr__flat_writer){0};
}
