/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of the buffer of a RAGGED array that this file allocates for `capacity` rows:
 *
 *     [mr_row x capacity][int64 shape x rank x capacity]
 *
 * The buffer has exactly this size, so the capacity follows from it. */
#include "pipeline/memory/array.h"

#include <assert.h>
#include <string.h>

#include "pipeline/memory/object.h"

enum {
    PREFETCH_ROWS = 8,   /* number of rows to look ahead in a gather */
    PREFETCH_BYTES = 512 /* of each row; the hardware prefetcher takes over from there */
};

static size_t shape_values(const int64_t *shape, int rank)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= (size_t)shape[i];
    return n;
}

/* Bytes from one row to the next. */
static size_t row_stride(const mr_array *a)
{
    if (a->storage == MR_RAGGED)
        return sizeof(mr_row);
    return mr_array_row_bytes(a);
}

size_t mr_array_row_values(const mr_array *a)
{
    return shape_values(a->shape, a->rank);
}

size_t mr_array_row_bytes(const mr_array *a)
{
    return shape_values(a->shape, a->rank) * mr_dtype_size(a->dtype);
}

static const mr_row *row_at(const mr_array *a, size_t i)
{
    return (const mr_row *)a->data + i;
}

/* Number of values in a ragged row. */
static inline size_t row_values(const mr_row *r, int rank)
{
    if (!r->splits)
        return shape_values(r->shape, rank);
    return (size_t)r->splits[r->shape[0]] * shape_values(r->shape + 2, rank - 2);
}

static size_t string_bytes(const mr_bytes *v, size_t n)
{
    size_t bytes = 0, others[3] = {0}, i = 0; /* four independent sums */
    for (; n - i >= 4; i += 4) {
        bytes += v[i].size;
        others[0] += v[i + 1].size;
        others[1] += v[i + 2].size;
        others[2] += v[i + 3].size;
    }
    for (; i < n; i++)
        bytes += v[i].size;
    return bytes + others[0] + others[1] + others[2];
}

size_t mr_array_payload_bytes(const mr_array *a, size_t from, size_t n)
{
    if (a->storage == MR_BYTES) {
        size_t values = mr_array_row_values(a);
        return string_bytes((const mr_bytes *)a->data + from * values, n * values);
    }
    if (a->storage != MR_RAGGED)
        return n * mr_array_row_bytes(a);
    size_t bytes = 0, values = 0;
    if (a->dtype == MR_STRING) {
        for (size_t i = from; i < from + n; i++)
            bytes += string_bytes(row_at(a, i)->data, row_values(row_at(a, i), a->rank));
        return bytes;
    }
    if (a->rank == 1) /* a fast path: each op counts every block */
        for (size_t i = from; i < from + n; i++)
            values += (size_t)row_at(a, i)->shape[0];
    else
        for (size_t i = from; i < from + n; i++)
            values += row_values(row_at(a, i), a->rank);
    return values * mr_dtype_size(a->dtype);
}

void *mr_array_at(const mr_array *a, size_t i)
{
    return (char *)a->data + i * mr_array_row_bytes(a);
}

static void set_header(mr_array *a, mr_dtype t, mr_storage storage, int rank, const int64_t *shape)
{
    assert(rank >= 0 && rank <= MR_MAX_RANK && "rank within MR_MAX_RANK");
    *a = (mr_array){.dtype = t, .storage = storage, .rank = (int8_t)rank};
    if (shape && rank)
        memcpy(a->shape, shape, (size_t)rank * sizeof *shape);
}

mr_code mr_array_alloc(mr_array *a, mr_dtype t, int rank, const int64_t *shape, size_t rows,
                       mr_status *st)
{
    size_t bytes = rows;
    bool overflow = __builtin_mul_overflow(bytes, mr_dtype_size(t), &bytes);
    for (int i = 0; i < rank; i++)
        overflow |= shape[i] < 0 || __builtin_mul_overflow(bytes, (size_t)shape[i], &bytes);
    if (overflow)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "an array of %zu rows of this shape exceeds the address space", rows);
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, bytes ? bytes : rows, st)); /* empty rows: see room_of */
    set_header(a, t, t == MR_STRING ? MR_BYTES : MR_DENSE, rank, shape);
    a->rows = rows;
    a->owner = b;
    a->data = mr_buffer_data(b);
    return MR_OK;
}

static size_t ragged_bytes(int rank)
{
    return sizeof(mr_row) + (size_t)rank * sizeof(int64_t);
}

/* Row capacity of an array allocated in this file. A row of 0 bytes takes 1. */
static size_t room_of(const mr_array *a)
{
    size_t one = a->storage == MR_RAGGED ? ragged_bytes(a->rank) : row_stride(a);
    return mr_buffer_size(a->owner) / (one ? one : 1);
}

int64_t *mr_array_shape_slot(const mr_array *a, size_t i)
{
    const mr_row *first = mr_buffer_data(a->owner);
    size_t at = (size_t)(row_at(a, i) - first);
    return (int64_t *)(first + room_of(a)) + at * (size_t)a->rank;
}

/* Allocates a RAGGED array with room for `rows` rows and undefined contents. */
static mr_code ragged_alloc(mr_array *a, mr_dtype t, int rank, size_t rows, mr_status *st)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, ragged_bytes(rank), &bytes))
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "an array of %zu ragged rows exceeds the address space", rows);
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, bytes, st));
    set_header(a, t, MR_RAGGED, rank, NULL);
    a->owner = b;
    a->data = mr_buffer_data(b);
    return MR_OK;
}

mr_code mr_array_alloc_ragged(mr_array *a, mr_dtype t, int rank, size_t rows, mr_status *st)
{
    MR_TRY(ragged_alloc(a, t, rank, rows, st));
    memset(a->data, 0, mr_buffer_size(a->owner));
    a->rows = rows;
    return MR_OK;
}

static void unref_datasets(void *n, void *data)
{
    mr__object **o = data;
    for (size_t i = 0; i < (uintptr_t)n; i++)
        mr__object_unref(o[i]);
}

mr_code mr_array_alloc_datasets(mr_array *a, size_t rows, mr_status *st)
{
    MR_TRY(mr_array_alloc(a, MR_DATASET, 0, NULL, rows, st));
    a->storage = MR_DATASETS;
    memset(a->data, 0, rows * sizeof(mr__object *));
    mr_buffer_on_release(a->owner, unref_datasets, (void *)(uintptr_t)rows);
    return MR_OK;
}

void mr_array_slice(mr_array *dst, const mr_array *src, size_t from, size_t n)
{
    assert(n <= src->rows && from <= src->rows - n && "a slice is within its array");
    *dst = *src;
    dst->rows = n;
    if (from && src->data)
        dst->data = (char *)src->data + from * row_stride(src);
    if (src->owner)
        mr_buffer_ref(src->owner);
}

void mr_array_reset(mr_array *a)
{
    mr_buffer_unref(a->owner);
    *a = (mr_array){0};
}

void mr_array_move(mr_array *dst, mr_array *src)
{
    *dst = *src;
    *src = (mr_array){0};
}

bool mr_array_fits(const mr_array *a, const mr_array *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    if (a->storage == MR_RAGGED || b->storage == MR_RAGGED)
        return true;
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] != b->shape[i])
            return false;
    }
    return true;
}

mr_code mr_array_start(mr_array *dst, const mr_array *like, size_t capacity, mr_status *st)
{
    switch (like->storage) {
    case MR_RAGGED:
        return ragged_alloc(dst, like->dtype, like->rank, capacity, st);
    case MR_DATASETS:
        MR_TRY(mr_array_alloc_datasets(dst, capacity, st));
        break;
    default:
        MR_TRY(mr_array_alloc(dst, like->dtype, like->rank, like->shape, capacity, st));
        break;
    }
    dst->rows = 0;
    return MR_OK;
}

/* Appending. If `index` is NULL, these take rows [from, from + n) of src, else the rows it
 * lists. */

static inline size_t pick(const uint32_t *index, size_t from, size_t i)
{
    return index ? index[i] : from + i;
}

static mr_code append_ragged(mr_array *dst, const mr_array *src, const uint32_t *index, size_t from,
                             size_t n, mr_status *st)
{
    MR_TRY(mr_buffer_hold_all(dst->owner, src->owner, st));
    mr_row *to = (mr_row *)dst->data + dst->rows;
    int64_t *shape = mr_array_shape_slot(dst, dst->rows);
    size_t rank = (size_t)dst->rank;
    for (size_t i = 0; i < n; i++, shape += rank) {
        const mr_row *r = row_at(src, pick(index, from, i));
        for (size_t d = 0; d < rank; d++)
            shape[d] = r->shape[d];
        to[i] = (mr_row){.data = r->data, .shape = shape, .splits = r->splits};
    }
    return MR_OK;
}

/* Appends dense rows as ragged ones: views that share the shape slot of the first. */
static mr_code append_views(mr_array *dst, const mr_array *src, const uint32_t *index, size_t from,
                            size_t n, mr_status *st)
{
    MR_TRY(mr_buffer_hold(dst->owner, src->owner, st));
    if (n == 0)
        return MR_OK;
    mr_row *to = (mr_row *)dst->data + dst->rows;
    int64_t *shape = mr_array_shape_slot(dst, dst->rows);
    memcpy(shape, src->shape, (size_t)src->rank * sizeof *shape);
    size_t bytes = mr_array_row_bytes(src);
    for (size_t i = 0; i < n; i++) {
        const char *data = (const char *)src->data + pick(index, from, i) * bytes;
        to[i] = (mr_row){.data = data, .shape = shape};
    }
    return MR_OK;
}

/* Converts a dense array under construction to a ragged one with the same capacity. */
static mr_code become_ragged(mr_array *a, mr_status *st)
{
    mr_array ragged;
    MR_TRY(ragged_alloc(&ragged, a->dtype, a->rank, room_of(a), st));
    mr_code rc = append_views(&ragged, a, NULL, 0, a->rows, st);
    if (rc) {
        mr_array_reset(&ragged);
        return rc;
    }
    ragged.rows = a->rows;
    mr_array_reset(a);
    *a = ragged;
    return MR_OK;
}

static void append_datasets(mr_array *dst, const mr_array *src, const uint32_t *index, size_t from,
                            size_t n)
{
    mr__object **to = (mr__object **)dst->data + dst->rows;
    mr__object *const *values = src->data;
    for (size_t i = 0; i < n; i++) {
        mr__object *o = values[pick(index, from, i)];
        if (o)
            mr__object_ref(o);
        mr__object_unref(to[i]); /* left over from an append that was undone */
        to[i] = o;
    }
}

/* The size is a constant in each use, so the copy compiles to one or two moves. */
#define GATHER(size)                                                                               \
    do {                                                                                           \
        for (size_t i = 0; i < n; i++)                                                             \
            memcpy(to + i * (size), from + index[i] * (size_t)(size), (size));                     \
    } while (0)

static void gather_rows(char *restrict to, const char *restrict from, const uint32_t *index,
                        size_t n, size_t bytes)
{
    size_t ahead = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
    for (size_t i = 0; i < n; i++) {
        if (i + PREFETCH_ROWS < n) {
            const char *next = from + index[i + PREFETCH_ROWS] * bytes;
            for (size_t at = 0; at < ahead; at += 64)
                __builtin_prefetch(next + at);
        }
        memcpy(to + i * bytes, from + index[i] * bytes, bytes);
    }
}

static void gather(char *restrict to, const char *restrict from, const uint32_t *index, size_t n,
                   size_t bytes)
{
    switch (bytes) {
    case 0:
        break;
    case 1:
        GATHER(1);
        break;
    case 2:
        GATHER(2);
        break;
    case 4:
        GATHER(4);
        break;
    case 8:
        GATHER(8);
        break;
    case 16:
        GATHER(16);
        break;
    default:
        gather_rows(to, from, index, n, bytes);
    }
}

/* src or dst is RAGGED. */
static mr_code append_mixed(mr_array *dst, const mr_array *src, const uint32_t *index, size_t from,
                            size_t n, mr_status *st)
{
    if (dst->storage != MR_RAGGED)
        MR_TRY(become_ragged(dst, st));
    mr_code rc = src->storage == MR_RAGGED ? append_ragged(dst, src, index, from, n, st)
                                           : append_views(dst, src, index, from, n, st);
    if (rc == MR_OK)
        dst->rows += n;
    return rc;
}

static mr_code append(mr_array *dst, const mr_array *src, const uint32_t *index, size_t from,
                      size_t n, mr_status *st)
{
    assert(src->storage != MR_PLACED && "placed rows cannot be copied from the array");
    assert(n <= room_of(dst) - dst->rows && "rows fit the capacity of mr_array_start");
    if (dst->storage == MR_RAGGED || src->storage == MR_RAGGED)
        return append_mixed(dst, src, index, from, n, st);
    if (dst->storage == MR_DATASETS) {
        append_datasets(dst, src, index, from, n);
        dst->rows += n;
        return MR_OK;
    }
    if (dst->storage == MR_BYTES)
        MR_TRY(mr_buffer_hold_all(dst->owner, src->owner, st));
    size_t bytes = mr_array_row_bytes(src);
    char *to = (char *)dst->data + dst->rows * bytes;
    if (index)
        gather(to, src->data, index, n, bytes);
    else if (n && bytes)
        memcpy(to, (const char *)src->data + from * bytes, n * bytes);
    dst->rows += n;
    return MR_OK;
}

mr_code mr_array_append(mr_array *dst, const mr_array *src, size_t from, size_t n, mr_status *st)
{
    assert(n <= src->rows && from <= src->rows - n && "the appended rows exist");
    return append(dst, src, NULL, from, n, st);
}

mr_code mr_array_append_rows(mr_array *dst, const mr_array *src, const uint32_t *index, size_t n,
                             mr_status *st)
{
    return n ? append(dst, src, index, 0, n, st) : MR_OK;
}

mr_code mr_array_to_ragged(mr_array *dst, const mr_array *src, mr_status *st)
{
    if (src->storage == MR_RAGGED) {
        mr_array_slice(dst, src, 0, src->rows);
        return MR_OK;
    }
    mr_array a;
    MR_TRY(ragged_alloc(&a, src->dtype, src->rank, src->rows, st));
    mr_code rc = append_views(&a, src, NULL, 0, src->rows, st);
    if (rc) {
        mr_array_reset(&a);
        return rc;
    }
    a.rows = src->rows;
    *dst = a;
    return MR_OK;
}

/* The first row that prevents a ragged array from becoming dense, or a->rows. */
static size_t find_odd_row(const mr_array *a)
{
    size_t shape_bytes = (size_t)a->rank * sizeof(int64_t);
    for (size_t i = 0; i < a->rows; i++) {
        const mr_row *r = row_at(a, i), *first = row_at(a, 0);
        if (r->splits)
            return i;
        if (shape_bytes && r->shape != first->shape &&
            memcmp(r->shape, first->shape, shape_bytes) != 0)
            return i;
    }
    return a->rows;
}

mr_code mr_array_to_dense(mr_array *dst, const mr_array *src, size_t *bad_row, mr_status *st)
{
    if (src->storage != MR_RAGGED) {
        mr_array_slice(dst, src, 0, src->rows);
        return MR_OK;
    }
    size_t odd = find_odd_row(src);
    if (odd < src->rows) {
        if (bad_row)
            *bad_row = odd;
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected rows of one shape, found that row %zu %s; pad the rows or keep "
                       "them ragged",
                       odd, row_at(src, odd)->splits ? "is itself ragged" : "differs from row 0");
    }
    const int64_t no_rows[MR_MAX_RANK] = {0};
    const int64_t *shape = src->rows ? row_at(src, 0)->shape : no_rows;
    mr_array a;
    MR_TRY(mr_array_alloc(&a, src->dtype, src->rank, shape, src->rows, st));
    mr_code rc = a.storage == MR_BYTES ? mr_buffer_hold_all(a.owner, src->owner, st) : MR_OK;
    if (rc) {
        mr_array_reset(&a);
        return rc;
    }
    size_t bytes = mr_array_row_bytes(&a);
    for (size_t i = 0; bytes && i < src->rows; i++)
        memcpy((char *)a.data + i * bytes, row_at(src, i)->data, bytes);
    *dst = a;
    return MR_OK;
}

void mr_array_group(mr_array *dst, const mr_array *src, size_t n)
{
    assert(src->rank < MR_MAX_RANK && n > 0 && src->rows % n == 0);
    mr_array a;
    mr_array_slice(&a, src, 0, src->rows);
    memmove(a.shape + 1, a.shape, (size_t)src->rank * sizeof *a.shape);
    a.shape[0] = (int64_t)n;
    a.rank++;
    a.rows = src->rows / n;
    *dst = a;
}

/* Wraps a row's values in a read-only buffer that holds `owner`, which keeps them alive. Read-only
 * since other arrays may share the values. */
static mr_code wrap_row(mr_buffer **out, const mr_row *r, size_t bytes, mr_buffer *owner,
                        mr_status *st)
{
    mr_buffer *b;
    MR_TRY(mr_buffer_wrap(&b, (void *)(uintptr_t)r->data, bytes, true, NULL, NULL, st));
    mr_code rc = mr_buffer_hold(b, owner, st);
    if (rc) {
        mr_buffer_unref(b);
        return rc;
    }
    *out = b;
    return MR_OK;
}

static mr_code ungroup_plain_row(mr_array *dst, const mr_array *src, const mr_row *r, mr_status *st)
{
    mr_array a;
    set_header(&a, src->dtype, src->dtype == MR_STRING ? MR_BYTES : MR_DENSE, src->rank - 1,
               r->shape + 1);
    a.rows = (size_t)r->shape[0];
    a.data = (void *)(uintptr_t)r->data;
    MR_TRY(wrap_row(&a.owner, r, a.rows * mr_array_row_bytes(&a), src->owner, st));
    *dst = a;
    return MR_OK;
}

static mr_code ungroup_ragged_row(mr_array *dst, const mr_array *src, const mr_row *r,
                                  mr_status *st)
{
    assert(src->rank >= 2 && "a ragged row has shape [n, -1, inner...]");
    mr_array a;
    size_t n = (size_t)r->shape[0];
    MR_TRY(ragged_alloc(&a, src->dtype, src->rank - 1, n, st));
    mr_code rc = mr_buffer_hold(a.owner, src->owner, st);
    if (rc) {
        mr_array_reset(&a);
        return rc;
    }
    size_t inner_rank = (size_t)src->rank - 2;
    size_t inner = shape_values(r->shape + 2, src->rank - 2) * mr_dtype_size(src->dtype);
    mr_row *to = a.data;
    int64_t *shape = mr_array_shape_slot(&a, 0);
    for (size_t i = 0; i < n; i++, shape += a.rank) {
        shape[0] = r->splits[i + 1] - r->splits[i];
        memcpy(shape + 1, r->shape + 2, inner_rank * sizeof *shape);
        const char *data = (const char *)r->data + (size_t)r->splits[i] * inner;
        to[i] = (mr_row){.data = data, .shape = shape};
    }
    a.rows = n;
    *dst = a;
    return MR_OK;
}

mr_code mr_array_ungroup(mr_array *dst, const mr_array *src, size_t i, mr_status *st)
{
    assert(src->rank >= 1 && i < src->rows);
    if (src->storage == MR_RAGGED) {
        const mr_row *r = row_at(src, i);
        return r->splits ? ungroup_ragged_row(dst, src, r, st) : ungroup_plain_row(dst, src, r, st);
    }
    mr_array a;
    mr_array_slice(&a, src, i, 1);
    a.rows = (size_t)src->shape[0];
    a.rank--;
    memmove(a.shape, src->shape + 1, (size_t)a.rank * sizeof *a.shape);
    *dst = a;
    return MR_OK;
}

/* True if no other row of a RAGGED array has values in [p, p + n). */
static bool row_is_apart(const mr_array *a, size_t row, uintptr_t p, size_t n)
{
    for (size_t i = 0; i < a->rows; i++) {
        uintptr_t other = (uintptr_t)row_at(a, i)->data;
        size_t bytes = row_values(row_at(a, i), a->rank) * mr_dtype_size(a->dtype);
        if (i != row && bytes && other < p + n && p < other + bytes)
            return false;
    }
    return true;
}

bool mr_array_writable(const mr_array *a, size_t row)
{
    bool ragged = a->storage == MR_RAGGED;
    if ((!ragged && a->storage != MR_DENSE) || a->dtype == MR_STRING || a->resident || !a->owner)
        return false;
    const void *p = ragged ? row_at(a, row)->data : a->data;
    size_t n = ragged ? row_values(row_at(a, row), a->rank) * mr_dtype_size(a->dtype)
                      : a->rows * mr_array_row_bytes(a);
    return mr_buffer_is_sole_way(a->owner, p, n) &&
           (!ragged || row_is_apart(a, row, (uintptr_t)p, n));
}

const int64_t *mr_array_row_shape(const mr_array *a, size_t i)
{
    return a->storage == MR_RAGGED ? row_at(a, i)->shape : a->shape;
}
