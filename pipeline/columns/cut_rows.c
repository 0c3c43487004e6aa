/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/cut_rows_internal.h"

#include <string.h>

void mr__cut_dense(mr_array *out, const mr_array *a, size_t row, size_t from, size_t n, size_t run)
{
    mr_array_slice(out, a, row, 1);
    size_t values = 1;
    for (int d = 1; d < a->rank; d++)
        values *= (size_t)a->shape[d];
    if (out->data && from)
        out->data = (char *)out->data + from * values * mr_dtype_size(a->dtype);
    out->rows = run;
    out->shape[0] = (int64_t)n;
}

static mr_code cut_splits(mr_array *out, const mr_array *a, const mr_row *row, size_t from,
                          size_t n, mr_status *st)
{
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, (n + 1) * sizeof(int64_t), st));
    int64_t *splits = mr_buffer_data(b);
    for (size_t i = 0; i <= n; i++)
        splits[i] = row->splits[from + i] - row->splits[from];
    size_t inner = mr_dtype_size(a->dtype);
    for (int d = 2; d < a->rank; d++)
        inner *= (size_t)row->shape[d];
    mr_row *to = out->data;
    to->splits = splits;
    to->data = (const char *)row->data + (size_t)row->splits[from] * inner;
    mr_code rc = mr_buffer_hold(out->owner, b, st);
    mr_buffer_unref(b);
    return rc;
}

mr_code mr__cut_ragged(mr_array *out, const mr_array *a, size_t r, size_t from, size_t n,
                       mr_status *st)
{
    const mr_row *row = (const mr_row *)a->data + r;
    MR_TRY(mr_array_alloc_ragged(out, a->dtype, a->rank, 1, st));
    MR_TRY(mr_buffer_hold(out->owner, a->owner, st));
    MR_TRY(mr_buffer_hold_all(out->owner, a->owner, st));
    mr_row *to = out->data;
    int64_t *shape = mr_array_shape_slot(out, 0);
    memcpy(shape, row->shape, (size_t)a->rank * sizeof *shape);
    shape[0] = (int64_t)n;
    to->shape = shape;
    if (row->splits)
        return cut_splits(out, a, row, from, n, st);
    size_t inner = mr_dtype_size(a->dtype);
    for (int d = 1; d < a->rank; d++)
        inner *= (size_t)row->shape[d];
    to->data = row->data ? (const char *)row->data + from * inner : NULL;
    return MR_OK;
}
