/* SPDX-License-Identifier: Apache-2.0 */
/* Identities under construction (mr_block_start) are stored in one buffer, in one of two layouts:
 *
 *     flat     [mr_identity x capacity]                           one per row; offsets NULL
 *     lists    [uint64 offset x (capacity + 1)][mr_identity ...]  any number per row
 *
 * They start flat, become lists at the first row that does not have exactly one, and the lists grow
 * by moving to a larger buffer. Capacities follow from the buffer's size and the position of `ids`
 * in it. */
#include "pipeline/memory/block.h"

#include <assert.h>
#include <string.h>

#define MAX_COLUMNS ((size_t)1 << 20)

void mr_block_clear(mr_block *b)
{
    for (size_t i = 0; i < b->n_columns; i++)
        mr_buffer_unref(b->columns[i].owner);
    b->rows = 0;
    b->n_columns = 0;
    if (b->ids.ids)
        mr_identities_reset(&b->ids);
    if (b->position) {
        mr_buffer_unref(b->position);
        b->position = NULL;
    }
    b->names = NULL;
}

void mr_block_reset(mr_block *b)
{
    mr_block_clear(b);
    mr_free(b->columns);
    *b = (mr_block)MR_BLOCK_EMPTY;
}

void mr_block_move(mr_block *dst, mr_block *src)
{
    assert(dst != src);
    mr_block_clear(dst);
    /* Swap the arrays of columns, so that both blocks can reuse theirs. */
    mr_array *columns = dst->columns;
    size_t capacity = dst->columns_capacity;
    const mr_destination *destination = dst->destination;
    *dst = *src;
    dst->destination = destination;
    *src = (mr_block){
        .columns = columns, .columns_capacity = capacity, .destination = src->destination};
}

/* Clears b and makes room for n columns; the caller sets n_columns. */
static mr_code make_room(mr_block *b, size_t n, mr_status *st)
{
    mr_block_clear(b);
    if (n <= b->columns_capacity)
        return MR_OK;
    return MR_GROW(b->columns, b->columns_capacity, n, MAX_COLUMNS, "the columns of a block", st);
}

mr_code mr_block_prepare(mr_block *b, size_t n_columns, mr_status *st)
{
    MR_TRY(make_room(b, n_columns, st));
    for (size_t i = 0; i < n_columns; i++)
        b->columns[i] = (mr_array){0};
    b->n_columns = n_columns;
    return MR_OK;
}

const mr_array *mr_block_column(const mr_block *b, const char *name)
{
    for (size_t i = 0; b->names && i < b->n_columns; i++) {
        if (strcmp(b->names[i], name) == 0)
            return &b->columns[i];
    }
    return NULL;
}

mr_code mr_block_slice(mr_block *dst, const mr_block *src, size_t from, size_t n, mr_status *st)
{
    assert(dst != src && n <= src->rows && from <= src->rows - n);
    MR_TRY(make_room(dst, src->n_columns, st));
    for (size_t i = 0; i < src->n_columns; i++)
        mr_array_slice(&dst->columns[i], &src->columns[i], from, n);
    dst->n_columns = src->n_columns;
    dst->rows = n;
    dst->names = src->names;
    if (src->ids.ids)
        mr_identities_take(&dst->ids, &src->ids, from, n);
    return MR_OK;
}

bool mr_block_fits(const mr_block *dst, const mr_block *src)
{
    if (dst->n_columns != src->n_columns)
        return false;
    for (size_t i = 0; i < dst->n_columns; i++) {
        if (!mr_array_fits(&dst->columns[i], &src->columns[i]))
            return false;
    }
    return true;
}

mr_code mr_block_start(mr_block *dst, const mr_block *like, size_t capacity, mr_status *st)
{
    assert(dst != like);
    MR_TRY(mr_block_prepare(dst, like->n_columns, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < like->n_columns && rc == MR_OK; i++)
        rc = mr_array_start(&dst->columns[i], &like->columns[i], capacity, st);
    mr_identity *ids;
    if (rc == MR_OK && like->ids.ids)
        rc = mr_identities_alloc(&dst->ids, capacity ? capacity : 1, &ids, st);
    if (rc)
        mr_block_clear(dst);
    else
        dst->names = like->names;
    return rc;
}

static size_t list_begin(const mr_identities *x, size_t row)
{
    return x->offsets ? (size_t)x->offsets[row] : row;
}
static size_t list_size(const mr_identities *x, size_t row)
{
    return x->offsets ? (size_t)(x->offsets[row + 1] - x->offsets[row]) : 1;
}

/* Returns the row capacity of identities under construction; *room: that of their identities. */
static size_t ids_capacity(const mr_identities *x, size_t *room)
{
    const char *start = mr_buffer_data(x->owner), *ids = (const char *)x->ids;
    *room = (mr_buffer_size(x->owner) - (size_t)(ids - start)) / sizeof(mr_identity);
    return x->offsets ? (size_t)(ids - start) / sizeof(uint64_t) - 1 : *room;
}

/* Makes `lists` an empty set of lists for `capacity` rows and `room` identities. */
static mr_code lists_alloc(mr_identities *lists, size_t capacity, size_t room, mr_status *st)
{
    size_t ids, offsets, bytes;
    if (__builtin_mul_overflow(room, sizeof(mr_identity), &ids) ||
        __builtin_mul_overflow(capacity + 1, sizeof(uint64_t), &offsets) ||
        __builtin_add_overflow(ids, offsets, &bytes))
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "%zu identities exceed the address space", room);
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, bytes, st));
    uint64_t *at = mr_buffer_data(b);
    at[0] = 0;
    *lists =
        (mr_identities){.ids = (const mr_identity *)(at + capacity + 1), .offsets = at, .owner = b};
    return MR_OK;
}

/* The arrays of identities allocated in this file, for writing. */
static uint64_t *offsets_of(mr_identities *x)
{
    return (uint64_t *)(uintptr_t)x->offsets;
}
static mr_identity *ids_of(mr_identities *x)
{
    return (mr_identity *)(uintptr_t)x->ids;
}

/* Moves rows [0, rows) of x, in either layout, to new lists with room for `more` identities. */
static mr_code move_to_lists(mr_identities *x, size_t rows, size_t more, mr_status *st)
{
    size_t room, capacity = ids_capacity(x, &room);
    size_t used = list_begin(x, rows);
    mr_identities lists;
    MR_TRY(lists_alloc(&lists, capacity, used + more + used / 2, st));
    memcpy(ids_of(&lists), x->ids, used * sizeof *x->ids);
    for (size_t i = 0; i <= rows; i++)
        offsets_of(&lists)[i] = list_begin(x, i);
    mr_identities_reset(x);
    *x = lists;
    return MR_OK;
}

static inline size_t pick(const uint32_t *index, size_t from, size_t i)
{
    return index ? index[i] : from + i;
}

static mr_code append_lists(mr_identities *dst, size_t rows, const mr_identities *src,
                            const uint32_t *index, size_t from, size_t n, mr_status *st)
{
    size_t more = 0, room;
    for (size_t i = 0; src->ids && i < n; i++)
        more += list_size(src, pick(index, from, i));
    ids_capacity(dst, &room);
    if (!dst->offsets || room < list_begin(dst, rows) + more)
        MR_TRY(move_to_lists(dst, rows, more, st));
    uint64_t *end = offsets_of(dst) + rows;
    for (size_t i = 0; i < n; i++, end++) {
        size_t row = pick(index, from, i), size = src->ids ? list_size(src, row) : 0;
        if (size)
            memcpy(ids_of(dst) + end[0], src->ids + list_begin(src, row), size * sizeof *src->ids);
        end[1] = end[0] + size;
    }
    return MR_OK;
}

/* Appends n rows of src to dst, which mr_block_start made and which has `rows` rows. */
static mr_code append_ids(mr_identities *dst, size_t rows, const mr_identities *src,
                          const uint32_t *index, size_t from, size_t n, mr_status *st)
{
    if (!dst->ids || n == 0)
        return MR_OK;
    if (dst->offsets || src->offsets || !src->ids)
        return append_lists(dst, rows, src, index, from, n, st);
    mr_identity *to = ids_of(dst) + rows;
    for (size_t i = 0; i < n; i++)
        to[i] = src->ids[pick(index, from, i)];
    return MR_OK;
}

static mr_code append(mr_block *dst, const mr_block *src, const uint32_t *index, size_t from,
                      size_t n, mr_status *st)
{
    assert(dst != src && dst->n_columns == src->n_columns);
    mr_code rc = MR_OK;
    for (size_t i = 0; i < dst->n_columns && rc == MR_OK; i++) {
        rc = index ? mr_array_append_rows(&dst->columns[i], &src->columns[i], index, n, st)
                   : mr_array_append(&dst->columns[i], &src->columns[i], from, n, st);
    }
    if (rc == MR_OK)
        rc = append_ids(&dst->ids, dst->rows, &src->ids, index, from, n, st);
    if (rc) { /* undo: all columns keep the rows they had */
        for (size_t i = 0; i < dst->n_columns; i++)
            dst->columns[i].rows = dst->rows;
        return rc;
    }
    dst->rows += n;
    return MR_OK;
}

mr_code mr_block_append(mr_block *dst, const mr_block *src, size_t from, size_t n, mr_status *st)
{
    return append(dst, src, NULL, from, n, st);
}

mr_code mr_block_append_rows(mr_block *dst, const mr_block *src, const uint32_t *index, size_t n,
                             mr_status *st)
{
    return n ? append(dst, src, index, 0, n, st) : MR_OK;
}

size_t mr_block_payload_bytes(const mr_block *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < b->n_columns; i++)
        bytes += mr_array_payload_bytes(&b->columns[i], 0, b->columns[i].rows);
    return bytes;
}

mr_code mr_identities_alloc(mr_identities *dst, size_t rows, mr_identity **ids, mr_status *st)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, sizeof(mr_identity), &bytes))
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "%zu identities exceed the address space", rows);
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, bytes, st));
    *ids = mr_buffer_data(b);
    *dst = (mr_identities){.ids = *ids, .owner = b};
    return MR_OK;
}

void mr_identities_take(mr_identities *dst, const mr_identities *src, size_t from, size_t n)
{
    (void)n;
    *dst = *src;
    if (!src->ids)
        return;
    if (src->offsets)
        dst->offsets += from;
    else
        dst->ids += from;
    if (src->owner)
        mr_buffer_ref(src->owner);
}

mr_code mr_identities_group(mr_identities *dst, const mr_identities *src, size_t rows, size_t n,
                            mr_status *st)
{
    assert(n > 0);
    if (!src->ids) {
        *dst = (mr_identities){0};
        return MR_OK;
    }
    size_t groups = rows / n + (rows % n != 0);
    mr_identities grouped;
    MR_TRY(lists_alloc(&grouped, groups, 0, st));
    mr_code rc = mr_buffer_hold(grouped.owner, src->owner, st);
    if (rc) {
        mr_identities_reset(&grouped);
        return rc;
    }
    for (size_t g = 0; g < groups; g++)
        offsets_of(&grouped)[g] = list_begin(src, g * n);
    offsets_of(&grouped)[groups] = list_begin(src, rows);
    grouped.ids = src->ids;
    *dst = grouped;
    return MR_OK;
}

mr_code mr_identities_ungroup(mr_identities *dst, const mr_identities *src, size_t i, size_t n,
                              mr_status *st)
{
    if (!src->ids) {
        *dst = (mr_identities){0};
        return MR_OK;
    }
    size_t size = list_size(src, i), all;
    if (__builtin_mul_overflow(size, n, &all))
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "%zu lists of identities exceed the address space", n);
    const mr_identity *list = src->ids + list_begin(src, i);
    mr_identities lists;
    mr_identity *ids;
    if (size == 1) {
        MR_TRY(mr_identities_alloc(&lists, n, &ids, st));
        for (size_t r = 0; r < n; r++)
            ids[r] = list[0];
    } else {
        MR_TRY(lists_alloc(&lists, n, all, st));
        for (size_t r = 0; r < n; r++) {
            if (size)
                memcpy(ids_of(&lists) + r * size, list, size * sizeof *list);
            offsets_of(&lists)[r + 1] = (r + 1) * size;
        }
    }
    *dst = lists;
    return MR_OK;
}

mr_code mr_identities_join(mr_identities *dst, const mr_identities *a, const mr_identities *b,
                           size_t rows, mr_status *st)
{
    if (!a->ids || !b->ids) {
        mr_identities_take(dst, a->ids ? a : b, 0, rows);
        return MR_OK;
    }
    size_t all = list_begin(a, rows) - list_begin(a, 0) + list_begin(b, rows) - list_begin(b, 0);
    mr_identities lists;
    MR_TRY(lists_alloc(&lists, rows, all, st));
    mr_identity *to = ids_of(&lists);
    size_t at = 0;
    for (size_t r = 0; r < rows; r++) {
        size_t n_a = list_size(a, r), n_b = list_size(b, r);
        memcpy(to + at, a->ids + list_begin(a, r), n_a * sizeof *to);
        memcpy(to + at + n_a, b->ids + list_begin(b, r), n_b * sizeof *to);
        at += n_a + n_b;
        offsets_of(&lists)[r + 1] = at;
    }
    *dst = lists;
    return MR_OK;
}

void mr_identities_reset(mr_identities *x)
{
    mr_buffer_unref(x->owner);
    *x = (mr_identities){0};
}
