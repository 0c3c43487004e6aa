/* SPDX-License-Identifier: Apache-2.0 */
/* decode_raw(x, dtype): the bytes of strings as values, little-endian. Strings of one length make a
 * dense column; if rows differ in length it is ragged, each row a part of one buffer.
 *
 *   offset in the string   size          meaning
 *   i * size(dtype)        size(dtype)   value i */
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    mr_dtype dtype;
};

static mr_code type(mr_call *c, mr_status *st)
{
    mr_dtype t = ((const struct params *)c->params)->dtype;
    if (t == MR_STRING || t == MR_DATASET)
        return mr_call_fail(c, st, -1, "decode_raw makes numbers and bools, not %s",
                            mr_dtype_name(t));
    c->out = *c->in[0];
    c->out.dtype = t;
    if (c->out.rank == MR_MAX_RANK)
        return mr_call_fail(c, st, 0, "decode_raw adds an axis: more than %d", MR_MAX_RANK);
    if (c->out.rank >= 0)
        c->out.shape[c->out.rank++] = -1;
    return MR_OK;
}

/* The number of bytes of each string of a row, or -1: sizes differ or are not a multiple of the
 * size of a value, and the row has failed. */
static int64_t row_length(const mr_rows *r, size_t row, size_t n, size_t size)
{
    const mr_bytes *v = (const mr_bytes *)r->in[0].data + row * n;
    for (size_t i = 0; i < n; i++) {
        if (v[i].size % size) {
            mr_row_fail_at(
                r, row, 0, i, MR_INVALID_ARGUMENT,
                "decode_raw: a string of %zu bytes is not a whole number of values of %zu bytes",
                v[i].size, size);
            return -1;
        }
        if (v[i].size != v[0].size) {
            mr_row_fail_at(r, row, 0, i, MR_INVALID_ARGUMENT,
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

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr_dtype t = ((const struct params *)r->params)->dtype;
    const mr_array *x = &r->in[0];
    size_t per_row = mr_array_row_values(x), rows = r->rows;
    if (x->rank >= MR_MAX_RANK) {
        mr__fail_all(r, "decode_raw adds an axis: more than %d", MR_MAX_RANK);
        return mr__any_value(t, rows, out, st);
    }
    int64_t *lengths = mr_malloc((rows ? rows : 1) * sizeof *lengths);
    if (!lengths)
        return mr_fail_memory(st, rows * sizeof *lengths, "lengths");
    int64_t common = -1;
    bool same = true;
    for (size_t row = 0; row < rows; row++) {
        lengths[row] = row_length(r, row, per_row, mr_dtype_size(t));
        common = common < 0 ? lengths[row] : common;
        same = same && lengths[row] >= 0 && lengths[row] == common;
    }
    mr_code rc = same ? run_dense(t, x, common < 0 ? 0 : (size_t)common, rows, out, st)
                      : run_ragged(t, x, lengths, rows, out, st);
    mr_free(lengths);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_strings, "x", "Strings; those of one element must have the same length."),
    {.name = "dtype",
     .doc = "The type of the values, little-endian.",
     .type = MR_PT_OWN,
     .kind = &mr_option_dtype,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, dtype)},
    {0}};
const mr_function mr_function_decode_raw = {
    .abi = MR_ABI_VERSION,
    .name = "decode_raw",
    .doc = "The bytes of a string as values of a dtype, on a new last axis.",
    .example = "from_tensor_slices([\"abcd\", \"efgh\"]).map(x => decode_raw(x, \"uint8\"))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
