/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_COLUMNS_H
#define MR_TESTS_COLUMNS_H
/* Columns for the tests of this folder. The makers return a code, for use with failing memory. */
#include <string.h>

#include "pipeline/memory/array.h"
#include "tests/harness.h"

/* Row i of `rows` dense int32 rows of n values: 100 * i, 100 * i + 1, ... */
static inline mr_code make_numbers(mr_array *a, size_t rows, int64_t n, mr_status *st)
{
    MR_TRY(mr_array_alloc(a, MR_INT32, 1, &n, rows, st));
    for (size_t i = 0; i < rows * (size_t)n; i++)
        ((int32_t *)a->data)[i] = (int32_t)(i / (size_t)n * 100 + i % (size_t)n);
    return MR_OK;
}

/* Scalars 0, 1, ... of any dtype that is a number, by their low bytes. */
static inline mr_code make_scalars(mr_array *a, mr_dtype t, size_t rows, mr_status *st)
{
    MR_TRY(mr_array_alloc(a, t, 0, NULL, rows, st));
    size_t size = mr_dtype_size(t);
    memset(a->data, 0, rows * size);
    for (size_t i = 0; i < rows; i++)
        memcpy((char *)a->data + i * size, &i, size < 8 ? size : 8);
    return MR_OK;
}

/* Strings one after the other in one buffer. */
static inline mr_code make_strings(mr_array *a, const char *const *text, size_t rows, mr_status *st)
{
    size_t bytes = 0;
    for (size_t i = 0; i < rows; i++)
        bytes += strlen(text[i]);
    mr_buffer *b = NULL;
    mr_array made = {0};
    mr_code rc = mr_buffer_alloc(&b, bytes, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&made, MR_STRING, 0, NULL, rows, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(made.owner, b, st);
    if (rc == MR_OK) {
        char *at = mr_buffer_data(b);
        for (size_t i = 0; i < rows; i++) {
            size_t n = strlen(text[i]);
            memcpy(at, text[i], n);
            ((mr_bytes *)made.data)[i] = (mr_bytes){at, n};
            at += n;
        }
        *a = made;
    } else {
        mr_array_reset(&made);
    }
    mr_buffer_unref(b);
    return rc;
}

/* int64 rows of rank 2: row i has shape [i, 2] and the values 10 * i, 10 * i + 1, ... */
static inline mr_code make_ragged(mr_array *a, size_t rows, mr_status *st)
{
    mr_array values = {0}, made = {0};
    mr_code rc = make_scalars(&values, MR_INT64, rows * rows + 1, st);
    if (rc == MR_OK)
        rc = mr_array_alloc_ragged(&made, MR_INT64, 2, rows, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(made.owner, values.owner, st);
    if (rc == MR_OK) {
        int64_t *at = values.data;
        for (size_t i = 0; i < rows; i++) {
            int64_t *shape = mr_array_shape_slot(&made, i);
            shape[0] = (int64_t)i;
            shape[1] = 2;
            ((mr_row *)made.data)[i] = (mr_row){.data = at, .shape = shape};
            for (size_t k = 0; k < 2 * i; k++)
                *at++ = (int64_t)(10 * i + k);
        }
        *a = made;
    } else {
        mr_array_reset(&made);
    }
    mr_array_reset(&values);
    return rc;
}

/* One ragged row of shape [3, -1, 2] with entries of 1, 0 and 2 pairs: 0, 1 | | 2, 3, 4, 5 */
static inline mr_code make_split_row(mr_array *a, mr_status *st)
{
    mr_array values = {0}, splits = {0}, made = {0};
    mr_code rc = make_scalars(&values, MR_INT64, 6, st);
    if (rc == MR_OK)
        rc = make_scalars(&splits, MR_INT64, 4, st);
    if (rc == MR_OK)
        rc = mr_array_alloc_ragged(&made, MR_INT64, 3, 1, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(made.owner, values.owner, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(made.owner, splits.owner, st);
    if (rc == MR_OK) {
        memcpy(splits.data, (int64_t[]){0, 1, 1, 3}, 4 * sizeof(int64_t));
        int64_t *shape = mr_array_shape_slot(&made, 0);
        memcpy(shape, (int64_t[]){3, -1, 2}, 3 * sizeof(int64_t));
        *(mr_row *)made.data = (mr_row){.data = values.data, .shape = shape, .splits = splits.data};
        *a = made;
    } else {
        mr_array_reset(&made);
    }
    mr_array_reset(&splits);
    mr_array_reset(&values);
    return rc;
}

static inline const mr_row *ragged_row(const mr_array *a, size_t i)
{
    return (const mr_row *)a->data + i;
}

static inline void check_string(const mr_array *a, size_t i, const char *text)
{
    const mr_bytes *v = (const mr_bytes *)a->data + i;
    mr_eq_u64(v->size, strlen(text));
    mr_check(memcmp(v->data, text, v->size) == 0);
}
#endif
