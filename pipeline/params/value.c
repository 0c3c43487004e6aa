/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/value.h"

#include <string.h>

#include "pipeline/memory/object.h"
#include "pipeline/params/params.h"

void mr_value_reset(mr_value *v)
{
    for (size_t i = 0; i < v->n; i++) {
        if (v->items)
            mr_value_reset(&v->items[i]);
        if (v->names)
            mr_free(v->names[i]);
    }
    mr_free(v->items);
    mr_free(v->names);
    mr_free(v->s);
    if (v->tensor.owner)
        mr_array_reset(&v->tensor);
    mr__object_unref((mr__object *)v->fn);
    mr__object_unref((mr__object *)v->dataset);
    mr_spec_unref(v->spec);
    *v = (mr_value){0};
}

static mr_code copy_items(mr_value *dst, const mr_value *src, mr_status *st)
{
    size_t n = src->n;
    dst->items = mr_calloc(n ? n : 1, sizeof *dst->items);
    if (src->names)
        dst->names = mr_calloc(n ? n : 1, sizeof *dst->names);
    if (!dst->items || (src->names && !dst->names))
        return mr_fail_memory(st, n * sizeof *dst->items, "a list of values");
    dst->n = n;
    for (size_t i = 0; i < n; i++) {
        MR_TRY(mr_value_copy(&dst->items[i], &src->items[i], st));
        if (src->names && !(dst->names[i] = mr_strdup(src->names[i])))
            return mr_fail_memory(st, strlen(src->names[i]) + 1, "a name");
    }
    return MR_OK;
}

mr_code mr_value_copy(mr_value *dst, const mr_value *src, mr_status *st)
{
    mr_value v = {
        .kind = src->kind, .computed = src->computed, .i = src->i, .f = src->f, .size = src->size};
    mr_code rc = MR_OK;
    if (src->s && !(v.s = mr_strndup(src->s, src->size)))
        rc = mr_fail_memory(st, src->size + 1, "a string");
    if (rc == MR_OK && src->items)
        rc = copy_items(&v, src, st);
    if (rc != MR_OK) {
        mr_value_reset(&v);
        return rc;
    }
    if (src->kind == MR_V_TENSOR)
        mr_array_slice(&v.tensor, &src->tensor, 0, src->tensor.rows);
    v.fn = mr__reference(src->fn);
    v.dataset = mr__reference(src->dataset);
    v.spec = mr_spec_ref(src->spec);
    *dst = v;
    return MR_OK;
}

/* ---- equality ---- */

static bool strings_equal(const mr_bytes *a, const mr_bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].size != b[i].size || (a[i].size && memcmp(a[i].data, b[i].data, a[i].size) != 0))
            return false;
    return true;
}

/* One row, in either storage. */
struct row {
    const void *data;
    const int64_t *shape, *splits;
    size_t values;
};

static struct row row_of(const mr_array *a, size_t i)
{
    struct row r = {.shape = a->shape};
    if (a->storage == MR_RAGGED) {
        const mr_row *row = (const mr_row *)a->data + i;
        r = (struct row){.data = row->data, .shape = row->shape, .splits = row->splits};
    } else
        r.data = mr_array_at(a, i);
    r.values = r.splits ? (size_t)r.splits[r.shape[0]] : 1;
    for (int d = r.splits ? 2 : 0; d < a->rank; d++)
        r.values *= (size_t)r.shape[d];
    return r;
}

static bool tensors_equal(const mr_array *a, const mr_array *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->rows != b->rows || a->rows != 1)
        return false;
    struct row x = row_of(a, 0), y = row_of(b, 0);
    if (x.values != y.values || !x.splits != !y.splits ||
        (a->rank > 0 && memcmp(x.shape, y.shape, (size_t)a->rank * sizeof *x.shape) != 0))
        return false;
    if (x.splits && memcmp(x.splits, y.splits, (size_t)(x.shape[0] + 1) * sizeof *x.splits) != 0)
        return false;
    if (x.values == 0)
        return true;
    if (a->dtype == MR_STRING)
        return strings_equal(x.data, y.data, x.values);
    return memcmp(x.data, y.data, x.values * mr_dtype_size(a->dtype)) == 0;
}

static bool items_equal(const mr_value *a, const mr_value *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (a->names && strcmp(a->names[i], b->names[i]) != 0)
            return false;
        if (!mr_value_equal(&a->items[i], &b->items[i]))
            return false;
    }
    return true;
}

bool mr_value_equal(const mr_value *a, const mr_value *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case MR_V_UNSET:
    case MR_V_NONE:
    case MR_V_AUTO:
        return true;
    case MR_V_BOOL:
    case MR_V_INT:
        return a->i == b->i;
    case MR_V_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case MR_V_STRING:
        return a->size == b->size && (a->size == 0 || memcmp(a->s, b->s, a->size) == 0);
    case MR_V_TENSOR:
        return tensors_equal(&a->tensor, &b->tensor);
    case MR_V_LIST:
    case MR_V_TUPLE:
    case MR_V_RECORD:
        return items_equal(a, b);
    case MR_V_FN:
        return a->fn == b->fn;
    case MR_V_DATASET:
        return a->dataset == b->dataset;
    case MR_V_UNKNOWN:
        return a->spec == b->spec || (a->spec && b->spec && mr_spec_equal(a->spec, b->spec));
    }
    return false;
}

/* ---- arrays ---- */

static mr_code string_array(const char *s, size_t size, mr_array *out, mr_status *st)
{
    mr_array a;
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, 1, st));
    mr_bytes *view = a.data;
    *view = (mr_bytes){.size = size};
    if (size) {
        mr_buffer *text = NULL;
        mr_code rc = mr_buffer_alloc(&text, size, st);
        if (rc == MR_OK)
            rc = mr_buffer_hold(a.owner, text, st);
        if (rc == MR_OK) {
            view->data = mr_buffer_data(text);
            memcpy(mr_buffer_data(text), s, size);
        }
        mr_buffer_unref(text);
        if (rc != MR_OK) {
            mr_array_reset(&a);
            return rc;
        }
    }
    *out = a;
    return MR_OK;
}

mr_code mr_value_to_array(const mr_value *v, mr_array *out, mr_status *st)
{
    mr_array a;
    switch (v->kind) {
    case MR_V_INT:
        MR_TRY(mr_array_alloc(&a, MR_INT64, 0, NULL, 1, st));
        *(int64_t *)a.data = v->i;
        break;
    case MR_V_FLOAT:
        MR_TRY(mr_array_alloc(&a, MR_FLOAT32, 0, NULL, 1, st));
        *(float *)a.data = (float)v->f;
        break;
    case MR_V_BOOL:
        MR_TRY(mr_array_alloc(&a, MR_BOOL, 0, NULL, 1, st));
        *(bool *)a.data = v->i != 0;
        break;
    case MR_V_STRING:
        return string_array(v->s, v->size, out, st);
    case MR_V_TENSOR:
        mr_array_slice(out, &v->tensor, 0, v->tensor.rows);
        return MR_OK;
    default:
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "expected a number, a bool, a string, or a list of these with one shape");
    }
    *out = a;
    return MR_OK;
}

mr_code mr_value_from_array(mr_value *v, const mr_array *a, size_t row, mr_status *st)
{
    mr_value made = {.computed = true};
    const char *at = NULL;
    int rank = a->rank;
    if (rank == 0)
        at = a->storage == MR_RAGGED ? ((const mr_row *)a->data)[row].data : mr_array_at(a, row);
    if (rank == 0 && a->dtype == MR_INT64) {
        made.kind = MR_V_INT;
        memcpy(&made.i, at, sizeof made.i);
    } else if (rank == 0 && a->dtype == MR_FLOAT32) {
        float f;
        memcpy(&f, at, sizeof f);
        made.kind = MR_V_FLOAT;
        made.f = (double)f;
    } else if (rank == 0 && a->dtype == MR_BOOL) {
        made.kind = MR_V_BOOL;
        made.i = *at != 0;
    } else if (rank == 0 && a->dtype == MR_STRING) {
        mr_bytes b;
        memcpy(&b, at, sizeof b);
        made.kind = MR_V_STRING;
        made.size = b.size;
        made.s = mr_strndup(b.data ? b.data : "", b.size);
        if (!made.s)
            return mr_fail_memory(st, b.size + 1, "a string");
    } else if (a->dtype == MR_DATASET) {
        made.kind = MR_V_DATASET;
        made.dataset = mr__reference(((mr_dataset *const *)a->data)[row]);
    } else {
        made.kind = MR_V_TENSOR;
        mr_array_slice(&made.tensor, a, row, 1);
    }
    *v = made;
    return MR_OK;
}
