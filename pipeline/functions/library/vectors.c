/* SPDX-License-Identifier: Apache-2.0 */
/* Makes columns of vectors of different lengths, and copies values with strides. */
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

static bool all_equal(const int64_t *lengths, size_t rows)
{
    for (size_t r = 1; r < rows; r++)
        if (lengths[r] != lengths[0])
            return false;
    return true;
}

mr_code mr__vectors(mr_dtype t, const int64_t *lengths, size_t rows, mr_array *out, void **values,
                    mr_status *st)
{
    size_t n = 0, size = mr_dtype_size(t);
    if (all_equal(lengths, rows)) {
        MR_TRY(mr_array_alloc(out, t, 1, lengths, rows, st));
        *values = out->data;
        return MR_OK;
    }
    for (size_t r = 0; r < rows; r++)
        n += (size_t)lengths[r];
    mr_array a;
    mr_buffer *buffer = NULL;
    MR_TRY(mr_array_alloc_ragged(&a, t, 1, rows, st));
    mr_code rc = mr_buffer_alloc(&buffer, n * size, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, buffer, st);
    if (rc != MR_OK) {
        mr_buffer_unref(buffer);
        mr_array_reset(&a);
        return rc;
    }
    char *at = *values = mr_buffer_data(buffer);
    for (size_t r = 0; r < rows; r++) {
        int64_t *shape = mr_array_shape_slot(&a, r);
        *shape = lengths[r];
        ((mr_row *)a.data)[r] = (mr_row){.data = at, .shape = shape};
        at += (size_t)lengths[r] * size;
    }
    mr_buffer_unref(buffer);
    *out = a;
    return MR_OK;
}

mr_code mr__lists(mr_dtype t, const int64_t *lengths, size_t rows, size_t k, mr_array *out,
                  void **values, mr_status *st)
{
    size_t n = 0, size = mr_dtype_size(t);
    for (size_t i = 0; i < rows * k; i++)
        n += (size_t)lengths[i];
    mr_array a;
    mr_buffer *data = NULL, *splits = NULL;
    MR_TRY(mr_array_alloc_ragged(&a, t, 2, rows, st));
    mr_code rc = mr_buffer_alloc(&data, n * size, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&splits, rows * (k + 1) * sizeof(int64_t), st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, data, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, splits, st);
    if (rc == MR_OK) {
        char *at = *values = mr_buffer_data(data);
        int64_t *split = mr_buffer_data(splits);
        for (size_t r = 0; r < rows; r++, split += k + 1) {
            int64_t *shape = mr_array_shape_slot(&a, r);
            shape[0] = (int64_t)k;
            shape[1] = -1;
            split[0] = 0;
            for (size_t i = 0; i < k; i++)
                split[i + 1] = split[i] + *lengths++;
            ((mr_row *)a.data)[r] = (mr_row){.data = at, .shape = shape, .splits = split};
            at += (size_t)split[k] * size;
        }
        *out = a;
    } else
        mr_array_reset(&a);
    mr_buffer_unref(data);
    mr_buffer_unref(splits);
    return rc;
}

#define EACH(T)                                                                                    \
    for (int64_t i = 0; i < n; i++)                                                                \
    memcpy(to + i * (int64_t)sizeof(T), from + i * step * (int64_t)sizeof(T), sizeof(T))

/* Copies n values of `size` bytes that are `step` values apart. */
static void copy_line(char *to, const char *from, size_t size, int64_t n, int64_t step)
{
    if (n <= 0)
        return;
    if (step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        EACH(uint8_t);
        break;
    case 2:
        EACH(uint16_t);
        break;
    case 4:
        EACH(uint32_t);
        break;
    case 8:
        EACH(uint64_t);
        break;
    default:
        EACH(mr_bytes);
    }
}

void mr__copy_strided(char *to, const char *from, size_t size, int rank, const int64_t *shape,
                      const int64_t *strides)
{
    if (rank == 0) {
        memcpy(to, from, size);
        return;
    }
    if (rank == 1) {
        copy_line(to, from, size, shape[0], strides[0]);
        return;
    }
    size_t inner = size;
    for (int d = 1; d < rank; d++)
        inner *= (size_t)shape[d];
    for (int64_t i = 0; i < shape[0] && inner; i++)
        mr__copy_strided(to + (size_t)i * inner, from + i * strides[0] * (int64_t)size, size,
                         rank - 1, shape + 1, strides + 1);
}

mr_code mr__hold_strings(mr_array *out, const mr_rows *r, size_t n, mr_status *st)
{
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && out->dtype == MR_STRING && rc == MR_OK; i++)
        if (r->in[i].dtype == MR_STRING && r->in[i].owner)
            rc = mr_buffer_hold_all(out->owner, r->in[i].owner, st);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

const void *mr__row_at(const mr_rows *r, size_t i, size_t row)
{
    return mr_array_at(&r->in[i], r->constant[i] ? 0 : row);
}
