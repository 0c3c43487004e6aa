/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_check.h"

#include <string.h>

mr_code mr__arrow_damaged(const char *column, const char *what, mr_status *st)
{
    return column ? mr_fail(st, MR_DATA_LOSS, "column '%.200s': %s", column, what)
                  : mr_fail(st, MR_DATA_LOSS, "damaged metadata: %s", what);
}

/* ---- lengths and offsets ---- */

static int64_t offset_of(const mr__arrow_loaded *x, unsigned width, int64_t i)
{
    int64_t large;
    int32_t small;
    if (width == 8) {
        memcpy(&large, (const char *)x->buffers[1] + 8 * i, 8);
        return large;
    }
    memcpy(&small, (const char *)x->buffers[1] + 4 * i, 4);
    return small;
}

/* n values of `width` bytes, 0: bits, lie in `size` bytes. */
static bool has_room(size_t size, int64_t n, unsigned width)
{
    if (width == 0)
        return (uint64_t)n / 8 + (n % 8 != 0) <= size;
    return (uint64_t)n <= size / width;
}

/* *end: what the last offset is; offsets must not go backwards. */
static mr_code check_offsets(const mr__arrow_field *a, const mr__arrow_loaded *x, int64_t *end,
                             mr_status *st)
{
    *end = 0;
    if (x->length == 0)
        return MR_OK;
    if (x->length == INT64_MAX || !has_room(x->sizes[1], x->length + 1, a->width))
        return mr__arrow_damaged(a->name, "it has fewer offsets than rows", st);
    int64_t before = 0;
    for (int64_t i = 0; i <= x->length; i++) {
        int64_t at = offset_of(x, a->width, i);
        if (at < before)
            return mr__arrow_damaged(a->name, "its offsets go backwards", st);
        before = at;
    }
    *end = before;
    return MR_OK;
}

mr_code mr__arrow_check_validity(const mr__arrow_field *a, const mr__arrow_loaded *x, mr_status *st)
{
    if (x->length < 0)
        return mr__arrow_damaged(a->name, "it has a negative length", st);
    if (x->null_count != 0 && x->sizes[0] && !has_room(x->sizes[0], x->length, 0))
        return mr__arrow_damaged(a->name, "it says of fewer rows than it has whether they are null",
                                 st);
    if (x->null_count > 0 && x->length > 0 && !x->sizes[0])
        return mr__arrow_damaged(a->name, "it does not say which of its rows are null", st);
    return MR_OK;
}

static mr_code check_values(const mr__arrow_field *a, const mr__arrow_loaded *x, mr_status *st)
{
    int64_t end = 0;
    if (!mr__arrow_is_string(a))
        return has_room(x->sizes[1], x->length, a->width)
                   ? MR_OK
                   : mr__arrow_damaged(a->name, "it has fewer values than rows", st);
    MR_TRY(check_offsets(a, x, &end, st));
    return (uint64_t)end <= x->sizes[2]
               ? MR_OK
               : mr__arrow_damaged(a->name, "its strings reach beyond their bytes", st);
}

mr_code mr__arrow_check_way(const mr__arrow_schema *s, mr__arrow_loaded *v,
                            const mr__arrow_way *way, int64_t rows, bool indices, mr_status *st)
{
    int64_t least = rows;
    for (size_t k = 0; k < way->n; k++) {
        const mr__arrow_field *a = &s->v[way->fields[k]];
        mr__arrow_loaded *x = &v[way->fields[k]];
        MR_TRY(mr__arrow_check_validity(a, x, st));
        if (x->length < least)
            return mr__arrow_damaged(a->name,
                                     "it has fewer rows than its batch, or than lists lead to", st);
        x->a.length = x->length;
        x->a.null_count = 0;
        if (indices)
            return has_room(x->sizes[1], x->length, (unsigned)mr_dtype_size(a->index))
                       ? MR_OK
                       : mr__arrow_damaged(a->name, "it has fewer indices than rows", st);
        if (k + 1 == way->n)
            return check_values(a, x, st);
        if (mr__arrow_is_list(a))
            MR_TRY(check_offsets(a, x, &least, st));
        else if (a->kind == MR__ARROW_STRUCT)
            least = x->length;
        else if (__builtin_mul_overflow(x->length, a->size, &least))
            return mr__arrow_damaged(a->name, "it has more values than can be", st);
    }
    return MR_OK;
}

/* ---- nulls ---- */

static bool says_nulls(const mr__arrow_loaded *x)
{
    return x->null_count != 0 && x->sizes[0];
}

bool mr__arrow_is_null(const mr__arrow_loaded *x, int64_t i)
{
    const uint8_t *valid = x->buffers[0];
    return says_nulls(x) && !(valid[i / 8] >> (i % 8) & 1);
}

/* Entry e of field k of the way is null, or has a null within. */
static bool has_null(const mr__arrow_schema *s, const mr__arrow_loaded *v, const mr__arrow_way *way,
                     size_t k, int64_t e)
{
    const mr__arrow_field *a = &s->v[way->fields[k]];
    const mr__arrow_loaded *x = &v[way->fields[k]];
    int64_t from = e, to = e + 1;
    if (mr__arrow_is_null(x, e))
        return true;
    if (k + 1 == way->n)
        return false;
    if (mr__arrow_is_list(a)) {
        from = offset_of(x, a->width, e);
        to = offset_of(x, a->width, e + 1);
    } else if (a->kind == MR__ARROW_FIXED_LIST) {
        from = e * a->size;
        to = from + a->size;
    }
    for (int64_t i = from; i < to; i++)
        if (has_null(s, v, way, k + 1, i))
            return true;
    return false;
}

mr_code mr__arrow_need_nulls(uint32_t **nulls, size_t rows, mr_status *st)
{
    if (!*nulls)
        *nulls = mr_calloc(rows, sizeof **nulls);
    return *nulls ? MR_OK : mr_fail_memory(st, rows * sizeof **nulls, "nulls of an Arrow file");
}

mr_code mr__arrow_mark_nulls(const mr__arrow_schema *s, const mr__arrow_loaded *v,
                             const mr__arrow_way *way, bool alone, size_t rows, uint32_t mark,
                             uint32_t **nulls, mr_status *st)
{
    bool any = false;
    for (size_t k = 0; !any && k < (alone ? 1 : way->n); k++)
        any = says_nulls(&v[way->fields[k]]);
    if (!any || rows == 0)
        return MR_OK;
    MR_TRY(mr__arrow_need_nulls(nulls, rows, st));
    for (size_t r = 0; r < rows; r++)
        if ((*nulls)[r] == 0 && (alone ? mr__arrow_is_null(&v[way->fields[0]], (int64_t)r)
                                       : has_null(s, v, way, 0, (int64_t)r)))
            (*nulls)[r] = mark;
    return MR_OK;
}
