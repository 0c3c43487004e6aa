/* SPDX-License-Identifier: Apache-2.0 */
/* decode_raw(x, dtype): the bytes of strings as values, little-endian as they lie. Strings of one
 * length make a dense column; where the rows differ in length it is ragged, each row a part of one
 * buffer.
 *
 *   offset in the string   size          meaning
 *   i * size(dtype)        size(dtype)   value i */
#include <string.h>

#include "pipeline/functions/builtin.h"
#include "pipeline/graph/dataset.h"

struct plan {
    mr_dtype dtype;
};

static mr_code type(const mr_builtin_arg *args, size_t n, mr_spec **out, void **plan, mr_status *st)
{
    mr_dtype t;
    if (n != 2 || args[0].key || (args[1].key && strcmp(args[1].key, "dtype") != 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "decode_raw takes a string and a dtype, as in decode_raw(x, \"uint8\")");
    MR_TRY(mr__builtin_dtype(&args[1], &t, st));
    const mr_leaf *x =
        mr_spec_kind_of(args[0].spec) == MR_SPEC_LEAF ? mr_spec_leaf(args[0].spec, 0) : NULL;
    if (!x || x->dtype != MR_STRING || x->ragged) {
        char found[128];
        mr_spec_format(args[0].spec, found, sizeof found);
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw wants strings, not %s", found);
    }
    if (t == MR_STRING || t == MR_DATASET)
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw makes numbers and bools, not %s",
                       mr_dtype_name(t));
    mr_leaf leaf = *x;
    leaf.dtype = t;
    if (leaf.rank == MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw adds an axis: more than %d",
                       MR_MAX_RANK);
    if (leaf.rank >= 0)
        leaf.shape[leaf.rank++] = -1;
    struct plan *p = mr_malloc(sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a function's plan");
    p->dtype = t;
    *out = mr_spec_of_leaf(&leaf);
    if (!*out) {
        mr_free(p);
        return mr_fail_memory(st, sizeof leaf, "a spec");
    }
    *plan = p;
    return MR_OK;
}

/* Bytes of each string of a row, or -1: they differ, or are no whole number of values; told to
 * errors. */
static int64_t row_length(const mr_bytes *v, size_t n, size_t size, size_t row, mr_row_sink *errors)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].size % size) {
            mr__row_fail(errors, row, MR_INVALID_ARGUMENT,
                         "decode_raw: a string of %zu bytes is no whole number of values of %zu "
                         "bytes",
                         v[i].size, size);
            return -1;
        }
        if (v[i].size != v[0].size) {
            mr__row_fail(errors, row, MR_INVALID_ARGUMENT,
                         "decode_raw: strings of one element differ in length, %zu and %zu bytes",
                         v[0].size, v[i].size);
            return -1;
        }
    }
    return n ? (int64_t)v[0].size : 0;
}

static void copy_row(char *to, const mr_bytes *v, size_t n, mr_dtype t)
{
    for (size_t i = 0; i < n; i++) {
        if (v[i].size)
            memcpy(to, v[i].data, v[i].size);
        if (t == MR_BOOL)
            for (size_t k = 0; k < v[i].size; k++)
                to[k] = to[k] != 0;
        to += v[i].size;
    }
}

static mr_code run_dense(mr_dtype t, const mr_array *x, size_t length, size_t rows, mr_array *out,
                         mr_status *st)
{
    int64_t shape[MR_MAX_RANK];
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank] = (int64_t)(length / mr_dtype_size(t));
    MR_TRY(mr_array_alloc(out, t, x->rank + 1, shape, rows, st));
    copy_row(out->data, x->data, rows * mr_array_row_values(x), t);
    return MR_OK;
}

static mr_code run_ragged(mr_dtype t, const mr_array *x, const int64_t *lengths, size_t rows,
                          mr_array *out, mr_status *st)
{
    size_t per_row = mr_array_row_values(x), bytes = 0, size = mr_dtype_size(t);
    for (size_t r = 0; r < rows; r++)
        bytes += lengths[r] > 0 ? (size_t)lengths[r] * per_row : 0;
    mr_array a;
    mr_buffer *values = NULL;
    MR_TRY(mr_array_alloc_ragged(&a, t, x->rank + 1, rows, st));
    mr_code rc = mr_buffer_alloc(&values, bytes, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, values, st);
    char *at = values ? mr_buffer_data(values) : NULL;
    mr_row *to = a.data;
    for (size_t r = 0; r < rows && rc == MR_OK; r++) {
        size_t length = lengths[r] > 0 ? (size_t)lengths[r] : 0;
        int64_t *shape = mr_array_shape_slot(&a, r);
        memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
        shape[x->rank] = (int64_t)(length / size);
        to[r] = (mr_row){.data = at, .shape = shape};
        if (length)
            copy_row(at, (const mr_bytes *)x->data + r * per_row, per_row, t);
        at += length * per_row;
    }
    mr_buffer_unref(values);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

static mr_code run(const void *plan, const mr_array *args, size_t n, size_t rows, mr_array *columns,
                   mr_row_sink *errors, mr_status *st)
{
    (void)n;
    const struct plan *p = plan;
    const mr_array *x = &args[0];
    size_t per_row = mr_array_row_values(x);
    if (x->rank >= MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw adds an axis: more than %d",
                       MR_MAX_RANK);
    int64_t *lengths = mr_malloc((rows ? rows : 1) * sizeof *lengths);
    if (!lengths)
        return mr_fail_memory(st, rows * sizeof *lengths, "lengths");
    int64_t common = -1;
    bool same = true;
    for (size_t r = 0; r < rows; r++) {
        lengths[r] = row_length((const mr_bytes *)x->data + r * per_row, per_row,
                                mr_dtype_size(p->dtype), r, errors);
        common = common < 0 ? lengths[r] : common;
        same = same && lengths[r] >= 0 && lengths[r] == common;
    }
    mr_code rc = same ? run_dense(p->dtype, x, common < 0 ? 0 : (size_t)common, rows, columns, st)
                      : run_ragged(p->dtype, x, lengths, rows, columns, st);
    mr_free(lengths);
    return rc;
}

extern const mr_builtin mr_builtin_decode_raw;
const mr_builtin mr_builtin_decode_raw = {
    .name = "decode_raw",
    .doc = "The bytes of a string as values of a dtype, on a new last axis.",
    .n_values = 1,
    .type = type,
    .free_plan = mr_free,
    .run = run,
};
