/* SPDX-License-Identifier: Apache-2.0 */
/* decode_raw(x, "dtype"): the bytes of a string as values, little-endian.
 *
 *     string, shape s  ->  dtype, shape s + [bytes / size of dtype] */
#include <string.h>

#include "pipeline/functions/builtin.h"

struct plan {
    mr_dtype dtype;
};

static mr_code type(const mr_builtin_arg *args, size_t n, mr_spec **out, void **plan, mr_status *st)
{
    if (n != 2 || args[0].key || (args[1].key && strcmp(args[1].key, "dtype") != 0))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "decode_raw takes a string and a dtype, as in decode_raw(x, \"uint8\")");
    mr_dtype dtype;
    MR_TRY(mr__builtin_dtype(&args[1], &dtype, st));
    if (dtype == MR_STRING || dtype == MR_DATASET)
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw makes numbers, not %s",
                       mr_dtype_name(dtype));
    const mr_leaf *x =
        mr_spec_kind_of(args[0].spec) == MR_SPEC_LEAF ? mr_spec_leaf(args[0].spec, 0) : NULL;
    if (!x || x->dtype != MR_STRING || x->ragged || x->rank >= MR_MAX_RANK) {
        char found[256];
        mr_spec_format(args[0].spec, found, sizeof found);
        return mr_fail(st, MR_INVALID_ARGUMENT, "decode_raw expects strings, not %s", found);
    }
    mr_leaf leaf = *x;
    leaf.dtype = dtype;
    if (leaf.rank >= 0)
        leaf.shape[leaf.rank++] = -1;
    struct plan *p = mr_malloc(sizeof *p);
    mr_spec *spec = p ? mr_spec_of_leaf(&leaf) : NULL;
    if (!spec) {
        mr_free(p);
        return mr_fail_memory(st, sizeof *p, "decode_raw");
    }
    p->dtype = dtype;
    *plan = p;
    *out = spec;
    return MR_OK;
}

static void free_plan(void *plan)
{
    mr_free(plan);
}

/* Bytes of each of a row's n strings; those of a row that fails count as 0. */
static size_t string_bytes(const mr_bytes *v, size_t n, size_t size, size_t row,
                           mr_row_sink *errors)
{
    size_t bytes = n ? v[0].size : 0;
    for (size_t i = 1; i < n; i++) {
        if (v[i].size != bytes) {
            mr__row_fail(errors, row, MR_INVALID_ARGUMENT,
                         "decode_raw: strings of one element must have one length, found %zu and "
                         "%zu bytes",
                         bytes, v[i].size);
            return 0;
        }
    }
    if (bytes % size) {
        mr__row_fail(errors, row, MR_INVALID_ARGUMENT,
                     "decode_raw: %zu bytes are not a multiple of the dtype's %zu", bytes, size);
        return 0;
    }
    return bytes;
}

static void copy_row(char *to, const mr_bytes *v, size_t n, size_t bytes)
{
    for (size_t i = 0; i < n && bytes; i++, to += bytes)
        memcpy(to, v[i].data, bytes);
}

/* Rows of several lengths: one buffer of values, a shape for each row. */
static mr_code run_ragged(const mr_array *x, const size_t *bytes, size_t rows, mr_dtype dtype,
                          mr_array *out, mr_status *st)
{
    size_t n = mr_array_row_values(x), size = mr_dtype_size(dtype), total = 0;
    /* Each row starts at a multiple of 8, whatever the dtype. */
    for (size_t r = 0; r < rows; r++)
        total += (n * bytes[r] + 7) & ~(size_t)7;
    mr_buffer *values;
    mr_array a;
    MR_TRY(mr_buffer_alloc(&values, total, st));
    mr_code rc = mr_array_alloc_ragged(&a, dtype, x->rank + 1, rows, st);
    if (rc == MR_OK) {
        rc = mr_buffer_hold(a.owner, values, st);
        if (rc != MR_OK)
            mr_array_reset(&a);
    }
    char *to = mr_buffer_data(values);
    mr_buffer_unref(values);
    if (rc != MR_OK)
        return rc;
    for (size_t r = 0; r < rows; r++) {
        int64_t *shape = mr_array_shape_slot(&a, r);
        memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
        shape[x->rank] = (int64_t)(bytes[r] / size);
        ((mr_row *)a.data)[r] = (mr_row){.data = to, .shape = shape};
        copy_row(to, (const mr_bytes *)x->data + r * n, n, bytes[r]);
        to += (n * bytes[r] + 7) & ~(size_t)7;
    }
    *out = a;
    return MR_OK;
}

static mr_code run(const void *plan, const mr_array *args, size_t n_args, size_t rows,
                   mr_array *columns, mr_row_sink *errors, mr_status *st)
{
    (void)n_args;
    const mr_array *x = &args[0];
    mr_dtype dtype = ((const struct plan *)plan)->dtype;
    size_t n = mr_array_row_values(x), size = mr_dtype_size(dtype);
    size_t *bytes = mr_malloc((rows ? rows : 1) * sizeof *bytes);
    if (!bytes)
        return mr_fail_memory(st, rows * sizeof *bytes, "decode_raw");
    bool ragged = false;
    for (size_t r = 0; r < rows; r++) {
        bytes[r] = string_bytes((const mr_bytes *)x->data + r * n, n, size, r, errors);
        ragged |= bytes[r] != bytes[0];
    }
    mr_code rc;
    if (ragged) {
        rc = run_ragged(x, bytes, rows, dtype, &columns[0], st);
    } else {
        int64_t shape[MR_MAX_RANK];
        memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
        shape[x->rank] = (int64_t)((rows ? bytes[0] : 0) / size);
        rc = mr_array_alloc(&columns[0], dtype, x->rank + 1, shape, rows, st);
        for (size_t r = 0; r < rows && rc == MR_OK; r++)
            copy_row(mr_array_at(&columns[0], r), (const mr_bytes *)x->data + r * n, n, bytes[r]);
    }
    mr_free(bytes);
    return rc;
}

const mr_builtin mr_builtin_decode_raw = {
    .name = "decode_raw",
    .doc = "The bytes of a string as values of a dtype, little-endian.",
    .n_values = 1,
    .type = type,
    .free_plan = free_plan,
    .run = run,
};
