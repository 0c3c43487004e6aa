/* SPDX-License-Identifier: Apache-2.0 */
/* An Arrow array of lists is a chain that ends in its values:
 *
 *     list      offsets [0 2 3]       rows   [0, 2) [2, 3)    of the lists below
 *       list    offsets [0 1 4 6]            [0, 1) [1, 4) [4, 6)
 *         int64 values  [a b c d e f]
 *
 * walk() descends the chain and finds the values that the rows use. A row then has the address of
 * its values and, with two levels of lists, the offsets of its inner lists, starting from 0. Deeper
 * lists are axes: those of a row must have equal lengths. If a level is a struct, the chain
 * continues with one of its fields. */
#include "pipeline/memory/arrow_import.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---- */

static mr_code fail_type(const struct ArrowSchema *s, const char *why, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "field '%s' of Arrow type '%s' cannot be a column: %s",
                   s->name ? s->name : "", s->format ? s->format : "", why);
}

/* The dtype of values that Arrow stores as columns do; false if it does not. */
static bool plain_dtype(const char *f, mr_dtype *out)
{
    static const struct known {
        const char *format; /* for some time types, a prefix */
        mr_dtype dtype;
    } all[] = {{"c", MR_INT8},    {"C", MR_UINT8},   {"s", MR_INT16},   {"S", MR_UINT16},
               {"i", MR_INT32},   {"I", MR_UINT32},  {"l", MR_INT64},   {"L", MR_UINT64},
               {"e", MR_FLOAT16}, {"f", MR_FLOAT32}, {"g", MR_FLOAT64}, {"tdD", MR_INT32},
               {"tdm", MR_INT64}, {"tts", MR_INT32}, {"ttm", MR_INT32}, {"ttu", MR_INT64},
               {"ttn", MR_INT64}, {"ts", MR_INT64},  {"tD", MR_INT64},  {"tiM", MR_INT32}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n = strlen(all[i].format);
        if (n == 2 ? strncmp(f, all[i].format, 2) == 0 : strcmp(f, all[i].format) == 0) {
            *out = all[i].dtype;
            return true;
        }
    }
    return false;
}

static bool is_view(const char *f)
{
    return f[0] == 'v' && (f[1] == 'u' || f[1] == 'z') && !f[2];
}

static bool is_binary(const char *f)
{
    return (strchr("zZuU", f[0]) && f[0] && !f[1]) || strncmp(f, "w:", 2) == 0 || is_view(f);
}

/* The number after the first two characters of a format; -1 if missing. */
static int64_t number_of(const char *f)
{
    char *end;
    long long n = strtoll(f + 2, &end, 10);
    return end == f + 2 || *end || n < 0 ? -1 : n;
}

static bool is_list(const char *f)
{
    return strcmp(f, "+l") == 0 || strcmp(f, "+L") == 0 || strncmp(f, "+w:", 3) == 0;
}

static bool is_fixed_list(const char *f)
{
    return f[1] == 'w';
}

bool mr__arrow_is_struct(const struct ArrowSchema *s)
{
    return s->format && strcmp(s->format, "+s") == 0 && !s->dictionary;
}

bool mr__arrow_is_list_of(const struct ArrowSchema *s)
{
    return s->format && (is_list(s->format) || strcmp(s->format, "+m") == 0) && !s->dictionary &&
           s->n_children == 1;
}

/* The number of the child to which the way continues from s. */
static int64_t next_child(const struct ArrowSchema *s, const int64_t **way)
{
    return mr__arrow_is_struct(s) ? *(*way)++ : 0;
}

static bool descends(const struct ArrowSchema *s, const int64_t *way)
{
    return way ? mr__arrow_is_struct(s) || mr__arrow_is_list_of(s)
               : s->format && is_list(s->format) && !s->dictionary;
}

mr_code mr__arrow_type_of(const struct ArrowSchema *schema, const int64_t *way, mr__arrow_type *out,
                          mr_status *st)
{
    mr__arrow_type t = {0};
    const struct ArrowSchema *s = schema;
    for (; descends(s, way); s = s->children[next_child(s, &way)]) {
        if (way && mr__arrow_is_struct(s))
            continue;
        if (t.rank == MR_MAX_RANK || s->n_children != 1)
            return fail_type(schema, "it has too many axes", st);
        bool fixed = is_fixed_list(s->format);
        int64_t n = fixed ? number_of(s->format + 1) : -1;
        if (fixed && n < 0)
            return fail_type(schema, "its fixed-size list has no size", st);
        t.varies = t.varies || !fixed;
        t.ragged = t.ragged || (!fixed && t.rank == 1);
        t.shape[t.rank++] = n;
    }
    if (s->dictionary) {
        mr__arrow_type inner;
        mr_dtype index;
        if (t.rank)
            return fail_type(schema, "it has lists of dictionary values; decode them first", st);
        if (!plain_dtype(s->format, &index) || !mr_dtype_is_integer(index))
            return fail_type(schema, "its dictionary indices are not integers", st);
        MR_TRY(mr__arrow_type_of(s->dictionary, NULL, &inner, st));
        *out = inner;
        return MR_OK;
    }
    if (s->format && s->format[0] == 'b' && !s->format[1])
        t.dtype = MR_BOOL;
    else if (s->format && is_binary(s->format))
        t.dtype = MR_STRING;
    else if (!s->format || !plain_dtype(s->format, &t.dtype))
        return fail_type(schema,
                         s->format && strcmp(s->format, "+s") == 0
                             ? "it is a struct"
                             : "expected numbers, bools, strings, and lists of them; cast it first",
                         st);
    *out = t;
    return MR_OK;
}

/* ---- nulls ---- */

/* The validity bitmap of an array; NULL: no entry is null. */
static const uint8_t *validity(const struct ArrowArray *a)
{
    return a->null_count && a->n_buffers ? a->buffers[0] : NULL;
}

static bool is_null(const uint8_t *valid, int64_t i)
{
    return !(valid[i / 8] >> (i % 8) & 1);
}

void mr__arrow_mark_nulls(const struct ArrowArray *array, int64_t from, int64_t n, uint8_t *flaws)
{
    const uint8_t *valid = validity(array);
    for (int64_t i = 0; i < n && valid; i++)
        if (is_null(valid, from + array->offset + i))
            flaws[i] = MR__ARROW_ROW_NULL;
}

/* ---- lists ---- */

/* A level of lists: its entries [first, first + n) are used, with the array's offset included. */
typedef struct level {
    bool fixed, large;
    int64_t size; /* fixed */
    const void *offsets;
    int64_t first, n;
} level;

typedef struct walked {
    const char *name; /* of the column; may be NULL */
    level levels[MR_MAX_RANK];
    int n_levels;
    const struct ArrowArray *values;
    const struct ArrowSchema *schema; /* of the values */
    int64_t first, n;                 /* range of values used, as in a level */
    uint8_t *flaws;                   /* see mr__arrow_column */
} walked;

/* Start of entry i of the level (i = 0 is `first`) among the entries of the level below. */
static int64_t begin_of(const level *l, int64_t i)
{
    if (l->fixed)
        return (l->first + i) * l->size;
    if (l->n == 0)
        return 0;
    int64_t large; /* copied, since offsets may be unaligned */
    int32_t small;
    if (l->large) {
        memcpy(&large, (const char *)l->offsets + (size_t)(l->first + i) * sizeof large,
               sizeof large);
        return large;
    }
    memcpy(&small, (const char *)l->offsets + (size_t)(l->first + i) * sizeof small, sizeof small);
    return small;
}

/* The same, relative to the start of entry 0. */
static int64_t start_of(const level *l, int64_t i)
{
    return begin_of(l, i) - begin_of(l, 0);
}

/* The entry of a level that contains entry i of the level below. */
static int64_t parent_of(const level *l, int64_t i)
{
    int64_t low = 0, high = l->n - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (start_of(l, middle) <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Entries [from, from + n) of a, which are those of the level that is reached, may be null. */
static mr_code mark_or_refuse(const walked *w, const struct ArrowArray *a, int64_t from, int64_t n,
                              mr_status *st)
{
    const uint8_t *valid = validity(a);
    for (int64_t i = 0; i < n && valid; i++) {
        if (!is_null(valid, from + a->offset + i))
            continue;
        int64_t row = i;
        for (int k = w->n_levels - 1; k >= 0; k--)
            row = parent_of(&w->levels[k], row);
        if (!w->flaws)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "field '%s' has a null %s entry %" PRId64
                           ", which columns cannot hold; fill or drop nulls first",
                           w->name ? w->name : "", w->n_levels ? "within the lists of" : "at", row);
        if (!w->flaws[row])
            w->flaws[row] = w->n_levels ? MR__ARROW_ROW_WITHIN : MR__ARROW_ROW_NULL;
    }
    return MR_OK;
}

/* Descends from a struct to its field; *from becomes the index of the first entry there. */
static mr_code enter_struct(const walked *w, const struct ArrowArray *a,
                            const struct ArrowSchema *s, int64_t child, int64_t *from, int64_t n,
                            mr_status *st)
{
    MR_TRY(mark_or_refuse(w, a, *from, n, st));
    if (child >= a->n_children || a->n_children != s->n_children)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "field '%s': expected %" PRId64 " fields, found %" PRId64,
                       s->name ? s->name : "", s->n_children, a->n_children);
    const struct ArrowArray *below = a->children[child];
    *from += a->offset;
    if (below->offset < 0 || *from > below->length - n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "field '%s' has fewer entries than its struct",
                       s->children[child]->name ? s->children[child]->name : "");
    return MR_OK;
}

static mr_code walk(walked *w, const struct ArrowArray *a, int64_t from, int64_t n,
                    const struct ArrowSchema *s, const int64_t *way, mr_status *st)
{
    int64_t child;
    for (; descends(s, way); a = a->children[child], s = s->children[child]) {
        bool record = way && mr__arrow_is_struct(s);
        child = record ? *way++ : 0;
        if (record) {
            MR_TRY(enter_struct(w, a, s, child, &from, n, st));
            continue;
        }
        MR_TRY(mark_or_refuse(w, a, from, n, st));
        level *l = &w->levels[w->n_levels++];
        *l = (level){.fixed = is_fixed_list(s->format),
                     .large = s->format[1] == 'L',
                     .first = from + a->offset,
                     .n = n};
        if (l->fixed)
            l->size = number_of(s->format + 1);
        else if (n)
            l->offsets = a->buffers[1];
        for (int64_t i = 0; i < n && !l->fixed; i++)
            if (begin_of(l, i) < 0 || begin_of(l, i + 1) < begin_of(l, i))
                return mr_fail(st, MR_INVALID_ARGUMENT,
                               "field '%s': the offsets of entry %" PRId64 " decrease",
                               s->name ? s->name : "", i);
        from = begin_of(l, 0);
        n = start_of(l, n);
        const struct ArrowArray *values = a->children[0];
        if (values->offset < 0 || n < 0 || from > values->length - n)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "field '%s': its lists extend past the end of their values",
                           s->name ? s->name : "");
    }
    w->values = a;
    w->schema = s;
    w->first = from + a->offset;
    w->n = n;
    return mark_or_refuse(w, a, from, n, st);
}

/* ---- values ---- */

/* Makes the values [first, first + n) rows of rank 0. */
static mr_code plain_values(mr_array *out, const walked *w, mr_buffer *keeper, mr_status *st)
{
    size_t size = mr_dtype_size(out->dtype), n = (size_t)w->n;
    const char *data = n ? (const char *)w->values->buffers[1] + (size_t)w->first * size : NULL;
    out->rows = n;
    if ((uintptr_t)data % size == 0) {
        out->data = (void *)(uintptr_t)data;
        out->owner = mr_buffer_ref(keeper);
        return MR_OK;
    }
    MR_TRY(mr_array_alloc(out, out->dtype, 0, NULL, n, st));
    memcpy(out->data, data, n * size);
    return MR_OK;
}

static mr_code bool_values(mr_array *out, const walked *w, mr_status *st)
{
    MR_TRY(mr_array_alloc(out, MR_BOOL, 0, NULL, (size_t)w->n, st));
    const uint8_t *bits = w->n ? w->values->buffers[1] : NULL;
    for (int64_t i = 0; i < w->n; i++)
        ((bool *)out->data)[i] = bits[(w->first + i) / 8] >> ((w->first + i) % 8) & 1;
    return MR_OK;
}

/* Entry i of an array of string views:
 *
 *     size <= 12   size 4, bytes 12
 *     larger       size 4, the first bytes 4, buffer 4, offset in it 4
 *
 * buffers: validity, views, those of larger strings, and the sizes of these. */
static mr_code string_at_view(mr_bytes *out, const walked *w, int64_t i, mr_status *st)
{
    enum { VIEW = 16, INLINE = 12, FIRST = 2 };
    const struct ArrowArray *a = w->values;
    const char *view = (const char *)a->buffers[1] + (w->first + i) * VIEW;
    int64_t n = a->n_buffers - FIRST - 1;
    const int64_t *sizes = n > 0 ? a->buffers[FIRST + n] : NULL;
    int32_t size, at[2] = {0};
    memcpy(&size, view, sizeof size);
    *out = (mr_bytes){size ? view + 4 : NULL, (size_t)size};
    if (size >= 0 && size <= INLINE)
        return MR_OK;
    memcpy(at, view + 8, sizeof at);
    if (size < 0 || at[0] < 0 || at[0] >= n || at[1] < 0 || at[1] > sizes[at[0]] - size)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "field '%s': the view of entry %" PRId64 " extends past its buffer",
                       w->schema->name ? w->schema->name : "", i);
    out->data = (const char *)a->buffers[FIRST + at[0]] + at[1];
    return MR_OK;
}

static mr_code viewed_values(mr_array *out, const walked *w, mr_buffer *keeper, mr_status *st)
{
    const uint8_t *valid = validity(w->values);
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, (size_t)w->n, st));
    mr_code rc = mr_buffer_hold(out->owner, keeper, st);
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++) {
        mr_bytes *s = (mr_bytes *)out->data + i;
        if (valid && is_null(valid, w->first + i))
            *s = (mr_bytes){NULL, 0};
        else
            rc = string_at_view(s, w, i, st);
    }
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static mr_code string_values(mr_array *out, const walked *w, mr_buffer *keeper, mr_status *st)
{
    const char *f = w->schema->format;
    const level l = {.fixed = f[0] == 'w',
                     .large = f[0] == 'Z' || f[0] == 'U',
                     .size = f[0] == 'w' ? number_of(f) : 0,
                     .offsets = f[0] != 'w' && w->n ? w->values->buffers[1] : NULL,
                     .first = w->first,
                     .n = w->n};
    const char *bytes = w->n ? w->values->buffers[f[0] == 'w' ? 1 : 2] : NULL;
    MR_TRY(mr_array_alloc(out, MR_STRING, 0, NULL, (size_t)w->n, st));
    mr_code rc = mr_buffer_hold(out->owner, keeper, st);
    for (int64_t i = 0; i < w->n && rc == MR_OK; i++) {
        int64_t at = begin_of(&l, i), size = begin_of(&l, i + 1) - at;
        if (at < 0 || size < 0)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "field '%s': the offsets of entry %" PRId64 " decrease",
                         w->schema->name ? w->schema->name : "", i);
        else
            ((mr_bytes *)out->data)[i] = (mr_bytes){size ? bytes + at : NULL, (size_t)size};
    }
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static mr_code make_values(mr_array *out, const mr__arrow_type *t, const walked *w,
                           mr_buffer *keeper, mr_status *st)
{
    *out = (mr_array){.dtype = t->dtype};
    if (t->dtype == MR_STRING)
        return is_view(w->schema->format) ? viewed_values(out, w, keeper, st)
                                          : string_values(out, w, keeper, st);
    return t->dtype == MR_BOOL ? bool_values(out, w, st) : plain_values(out, w, keeper, st);
}

/* ---- rows ---- */

/* Makes the values rows of one shape. */
static void shape_rows(mr_array *out, mr_array *values, const mr__arrow_type *t, size_t rows)
{
    mr_array_move(out, values);
    out->rows = rows;
    out->rank = (int8_t)t->rank;
    memcpy(out->shape, t->shape, (size_t)t->rank * sizeof *t->shape);
}

/* Replaces the range [*at, *end) of entries by the range that they cover in the level below, and
 * sets *length to their length. Returns false if the lengths differ. */
static bool go_below(const level *l, int64_t *at, int64_t *end, int64_t *length)
{
    int64_t from = *at, n = *end - *at;
    *at = start_of(l, from);
    *end = start_of(l, from + n);
    *length = l->fixed ? l->size : n ? start_of(l, from + 1) - *at : 0;
    for (int64_t i = 1; i < n && !l->fixed; i++)
        if (start_of(l, from + i + 1) - start_of(l, from + i) != *length)
            return false;
    return true;
}

static mr_code fail_uneven(const walked *w, size_t row, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "field '%s': the lists of entry %zu from the third level on differ in length; "
                   "pad them first",
                   w->name ? w->name : "", row);
}

static mr_code ragged_rows(mr_array *out, const mr_array *values, const mr__arrow_type *t,
                           const walked *w, size_t rows, mr_status *st)
{
    const level *outer = &w->levels[0], *inner = t->ragged ? &w->levels[1] : NULL;
    mr_buffer *splits = NULL;
    size_t size = mr_dtype_size(t->dtype);
    MR_TRY(mr_array_alloc_ragged(out, t->dtype, t->rank, rows, st));
    mr_code rc = values->owner ? mr_buffer_hold(out->owner, values->owner, st) : MR_OK;
    if (rc == MR_OK && inner)
        rc = mr_buffer_alloc(&splits, ((size_t)inner->n + rows) * sizeof(int64_t), st);
    if (rc == MR_OK && splits)
        rc = mr_buffer_hold(out->owner, splits, st);
    int64_t *split = splits ? mr_buffer_data(splits) : NULL;
    for (size_t r = 0; r < rows && rc == MR_OK; r++) {
        int64_t at = start_of(outer, (int64_t)r), end = start_of(outer, (int64_t)r + 1);
        int64_t n = end - at;
        bool even = true;
        int64_t *shape = mr_array_shape_slot(out, r);
        mr_row *row = &((mr_row *)out->data)[r];
        memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
        shape[0] = n;
        row->shape = shape;
        if (inner) {
            row->splits = split;
            for (int64_t i = 0; i <= n; i++)
                *split++ = start_of(inner, at + i) - start_of(inner, at);
            at = start_of(inner, at);
            end = start_of(inner, end);
        }
        for (int k = inner ? 2 : 1; k < t->rank; k++)
            even = go_below(&w->levels[k], &at, &end, &shape[k]) && even;
        if (!even && !w->flaws)
            rc = fail_uneven(w, r, st);
        else if (!even) {
            if (!w->flaws[r])
                w->flaws[r] = MR__ARROW_ROW_UNEVEN;
            shape[0] = 0; /* the row is empty, and so are its splits */
        }
        if (values->data)
            row->data = (const char *)values->data + (size_t)at * size;
    }
    mr_buffer_unref(splits);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

/* A column of rows like those of v, which has none; they are flawed. */
static mr_code flawed_rows(mr_array *out, const mr_array *v, int64_t n, mr_status *st)
{
    if (v->storage == MR_RAGGED)
        return mr_fail(st, MR_INVALID_ARGUMENT, "a dictionary of lists has no values");
    MR_TRY(mr_array_alloc(out, v->dtype, v->rank, v->shape, (size_t)n, st));
    memset(out->data, 0, (size_t)n * mr_array_row_bytes(v));
    return MR_OK;
}

/* Finds the row of the dictionary's values for each of n entries. null: the flaws of the values. */
static mr_code read_indices(uint32_t *rows, const struct ArrowArray *a, int64_t from, int64_t n,
                            const struct ArrowSchema *s, const mr_array *values,
                            const uint8_t *null, uint8_t *flaws, mr_status *st)
{
    mr_dtype index = MR_INT32;
    plain_dtype(s->format, &index);
    size_t size = mr_dtype_size(index);
    const char *at = n ? (const char *)a->buffers[1] + (size_t)(from + a->offset) * size : NULL;
    const char *name = s->name ? s->name : "";
    for (int64_t i = 0; i < n; i++, at += size) {
        uint64_t v = 0;
        rows[i] = 0;
        if (flaws && flaws[i])
            continue;         /* its index means nothing */
        memcpy(&v, at, size); /* little-endian; a negative index fails the check as too large */
        if (v >= values->rows || v > UINT32_MAX)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "field '%s': the index at entry %" PRId64 " exceeds the dictionary's "
                           "%zu values",
                           name, i, values->rows);
        rows[i] = (uint32_t)v;
        if (null[v] && !flaws)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "field '%s' has a null at entry %" PRId64
                           ", which columns cannot hold; fill or drop nulls first",
                           name, i);
        if (null[v])
            flaws[i] = null[v];
    }
    return MR_OK;
}

/* Replaces dictionary indices by the values they refer to. */
static mr_code decode(mr_array *out, const struct ArrowArray *a, int64_t from, int64_t n,
                      const struct ArrowSchema *s, uint8_t *flaws, mr_buffer *keeper, mr_status *st)
{
    mr_array values = {0}, result = {0};
    const walked w = {.name = s->name, .flaws = flaws};
    const struct ArrowArray *d = a->dictionary;
    uint32_t *rows = NULL;
    MR_TRY(mark_or_refuse(&w, a, from, n, st));
    uint8_t *null = mr_calloc((size_t)d->length + 1, sizeof *null);
    mr_code rc = null ? MR_OK : mr_fail_memory(st, (size_t)d->length, "a dictionary's nulls");
    if (rc == MR_OK)
        rc = mr__arrow_column(&values, d, 0, d->length, s->dictionary, NULL, null, keeper, st);
    if (rc == MR_OK) {
        rows = mr_malloc(((size_t)n + 1) * sizeof *rows);
        if (!rows)
            rc = mr_fail_memory(st, (size_t)n * sizeof *rows, "a dictionary's rows");
    }
    if (rc == MR_OK)
        rc = read_indices(rows, a, from, n, s, &values, null, flaws, st);
    if (rc == MR_OK && values.rows == 0 && n)
        rc = flawed_rows(&result, &values, n, st);
    else if (rc == MR_OK) {
        rc = mr_array_start(&result, &values, n ? (size_t)n : 1, st);
        if (rc == MR_OK)
            rc = mr_array_append_rows(&result, &values, rows, (size_t)n, st);
    }
    if (rc == MR_OK)
        mr_array_move(out, &result);
    mr_array_reset(&result);
    mr_array_reset(&values);
    mr_free(null);
    mr_free(rows);
    return rc;
}

mr_code mr__arrow_column(mr_array *out, const struct ArrowArray *array, int64_t from, int64_t n,
                         const struct ArrowSchema *schema, const int64_t *way, uint8_t *flaws,
                         mr_buffer *keeper, mr_status *st)
{
    mr__arrow_type t;
    MR_TRY(mr__arrow_type_of(schema, way, &t, st));
    if (array->length < 0 || array->offset < 0 || from < 0 || n < 0 || from + n > array->length)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "field '%s': expected %" PRId64 " entries from entry %" PRId64
                       " on, but the array has %" PRId64,
                       schema->name ? schema->name : "", n, from, array->length);
    if (schema->dictionary)
        return decode(out, array, from, n, schema, flaws, keeper, st);
    walked w = {.name = schema->name, .flaws = flaws};
    mr_array values;
    MR_TRY(walk(&w, array, from, n, schema, way, st));
    MR_TRY(make_values(&values, &t, &w, keeper, st));
    if (!t.varies) {
        shape_rows(out, &values, &t, (size_t)n);
        return MR_OK;
    }
    mr_code rc = ragged_rows(out, &values, &t, &w, (size_t)n, st);
    mr_array_reset(&values);
    return rc;
}

/* ---- taking over ---- */

static void release_kept(void *ctx, void *data)
{
    struct ArrowArray *a = ctx;
    (void)data;
    if (a->release)
        a->release(a);
    mr_free(a);
}

mr_code mr__arrow_keep(struct ArrowArray *array, mr_buffer **keeper, mr_status *st)
{
    struct ArrowArray *a = mr_memdup(array, sizeof *array);
    if (!a)
        return mr_fail_memory(st, sizeof *array, "an arrow array");
    mr_code rc = mr_buffer_wrap(keeper, a, sizeof *a, true, release_kept, a, st);
    if (rc != MR_OK)
        mr_free(a);
    else
        array->release = NULL;
    return rc;
}

mr_code mr_import_arrow(mr_array *out, struct ArrowArray *array, const struct ArrowSchema *schema,
                        mr_status *st)
{
    mr_array a;
    mr_buffer *keeper;
    const struct ArrowArray whole = *array;
    MR_TRY(mr__arrow_keep(array, &keeper, st));
    mr_code rc = mr__arrow_column(&a, mr_buffer_data(keeper), 0, whole.length, schema, NULL, NULL,
                                  keeper, st);
    if (rc == MR_OK)
        *out = a;
    else { /* the caller keeps the array */
        ((struct ArrowArray *)mr_buffer_data(keeper))->release = NULL;
        *array = whole;
    }
    mr_buffer_unref(keeper);
    return rc;
}
