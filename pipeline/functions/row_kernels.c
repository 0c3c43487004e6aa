/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that move rows about: indexing, joining, shapes; arithmetic is kernels.c's. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/row_kernels.h"

mr_code mr__repeat_row(mr_array *a, size_t rows, mr_status *st)
{
    uint32_t zeros[256] = {0};
    mr_array wide;
    MR_TRY(mr_array_start(&wide, a, rows, st));
    mr_code rc = MR_OK;
    for (size_t done = 0; done < rows && rc == MR_OK; done += 256)
        rc = mr_array_append_rows(&wide, a, zeros, rows - done < 256 ? rows - done : 256, st);
    if (rc != MR_OK) {
        mr_array_reset(&wide);
        return rc;
    }
    mr_array_reset(a);
    *a = wide;
    return MR_OK;
}

static const void *row_at(const arguments *a, size_t i, size_t row)
{
    return mr_array_at(&a->v[i], a->constant[i] ? 0 : row);
}

void mr__fail_all(mr_row_sink *sink, size_t rows, const char *text)
{
    for (size_t r = 0; r < rows; r++)
        mr__row_fail(sink, r, MR_INVALID_ARGUMENT, "%s", text);
}

mr_code mr__any_value(mr_dtype t, size_t rows, mr_array *out, mr_status *st)
{
    MR_TRY(mr_array_alloc(out, t, 0, NULL, rows, st));
    memset(out->data, 0, rows * mr_dtype_size(t));
    return MR_OK;
}

static mr_code hold_targets(mr_array *out, const arguments *a, mr_status *st)
{
    for (size_t i = 0; i < a->n && out->dtype == MR_STRING; i++)
        if (a->v[i].owner)
            MR_TRY(mr_buffer_hold_all(out->owner, a->v[i].owner, st));
    return MR_OK;
}

static mr_code pick_row(const arguments *a, mr_array *out, mr_row_sink *sink, mr_status *st)
{
    const mr_array *x = &a->v[0];
    if (x->rank == 0) {
        mr__fail_all(sink, a->rows, "a scalar has no rows to pick from");
        return mr__any_value(x->dtype, a->rows, out, st);
    }
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank - 1, x->shape + 1, a->rows, st));
    size_t bytes = mr_array_row_bytes(out);
    int64_t n = x->shape[0];
    for (size_t r = 0; r < a->rows; r++) {
        int64_t k = mr__int_at(&a->v[1], a->constant[1] ? 0 : r);
        if (k < -n || k >= n) {
            mr__row_fail(sink, r, MR_OUT_OF_RANGE,
                         "index %" PRId64 " is out of range: axis 0 has length %" PRId64, k, n);
            if (bytes)
                memset(mr_array_at(out, r), 0, bytes);
        } else if (bytes)
            memcpy(mr_array_at(out, r),
                   (const char *)row_at(a, 0, r) + (size_t)(k < 0 ? k + n : k) * bytes, bytes);
    }
    return hold_targets(out, &(arguments){a->v, a->constant, 1, a->rows}, st);
}

static mr_code join(const arguments *a, bool stack, mr_array *out, mr_row_sink *sink, mr_status *st)
{
    const mr_array *x = &a->v[0];
    int64_t shape[MR_MAX_RANK] = {0};
    int rank = x->rank + stack;
    bool fits = rank <= MR_MAX_RANK && rank > 0;
    for (size_t i = 0; i < a->n && fits; i++) {
        const mr_array *y = &a->v[i];
        fits = y->rank == x->rank;
        for (int d = !stack; fits && d < x->rank; d++)
            fits = y->shape[d] == x->shape[d];
        if (fits)
            shape[0] += stack ? 1 : y->shape[0];
    }
    if (!fits) {
        mr__fail_all(sink, a->rows,
                     stack ? "stack of tensors of unequal shapes"
                           : "concat of tensors of unequal shapes");
        return mr__any_value(x->dtype, a->rows, out, st);
    }
    for (int d = 1; d < rank; d++)
        shape[d] = x->shape[d - stack];
    MR_TRY(mr_array_alloc(out, x->dtype, rank, shape, a->rows, st));
    for (size_t r = 0; r < a->rows; r++) {
        char *at = mr_array_at(out, r);
        for (size_t i = 0; i < a->n; i++) {
            size_t bytes = mr_array_row_bytes(&a->v[i]);
            if (bytes)
                memcpy(at, row_at(a, i, r), bytes);
            at += bytes;
        }
    }
    return hold_targets(out, a, st);
}

/* The shape that argument i says; false: it is none (the rows have failed). */
static bool computed_shape(const mr_array *a, int *rank, int64_t *shape, bool one_free,
                           mr_row_sink *sink, size_t rows)
{
    size_t n = mr_array_row_values(a);
    int n_free = 0;
    bool good = n <= MR_MAX_RANK;
    for (size_t d = 0; d < n && good; d++) {
        shape[d] = mr__int_at(a, d);
        n_free += shape[d] == -1;
        good = shape[d] >= 0 || (one_free && shape[d] == -1 && n_free == 1);
    }
    *rank = (int)n;
    if (!good)
        mr__fail_all(sink, rows, "a shape has at most 8 axes, none negative (reshape: one -1)");
    return good;
}

static mr_code reshape(const arguments *a, mr_array *out, mr_row_sink *sink, mr_status *st)
{
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!computed_shape(&a->v[1], &rank, shape, true, sink, a->rows))
        return mr__any_value(a->v[0].dtype, a->rows, out, st);
    size_t have = mr_array_row_values(&a->v[0]), want = 1;
    int free_axis = -1;
    bool good = true;
    for (int d = 0; d < rank; d++)
        if (shape[d] < 0)
            free_axis = d;
        else
            good = good && !__builtin_mul_overflow(want, (size_t)shape[d], &want);
    if (free_axis >= 0 && good) {
        good = want > 0 ? have % want == 0 : have == 0;
        shape[free_axis] = want ? (int64_t)(have / want) : 0;
    } else
        good = good && have == want;
    if (!good) {
        char text[160], shown[96];
        mr_shape_format(rank, shape, shown, sizeof shown);
        snprintf(text, sizeof text, "reshape of %zu values to shape %s", have, shown);
        mr__fail_all(sink, a->rows, text);
        return mr__any_value(a->v[0].dtype, a->rows, out, st);
    }
    if (a->constant[0]) {
        mr_array_slice(out, &a->v[0], 0, 1);
        MR_TRY(mr__repeat_row(out, a->rows, st));
    } else
        mr_array_slice(out, &a->v[0], 0, a->rows);
    out->rank = (int8_t)rank;
    memcpy(out->shape, shape, (size_t)rank * sizeof *shape);
    return MR_OK;
}

static mr_code one_hot(const arguments *a, mr_array *out, mr_row_sink *sink, mr_status *st)
{
    const mr_array *x = &a->v[0];
    int64_t n = mr__int_at(&a->v[1], 0), shape[MR_MAX_RANK];
    if (n < 0 || x->rank == MR_MAX_RANK) {
        mr__fail_all(sink, a->rows, "one_hot of a negative number of classes");
        return mr__any_value(MR_FLOAT32, a->rows, out, st);
    }
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank] = n;
    MR_TRY(mr_array_alloc(out, MR_FLOAT32, x->rank + 1, shape, a->rows, st));
    size_t values = mr_array_row_values(x), bytes = mr_array_row_bytes(out);
    float *z = out->data;
    if (bytes)
        memset(z, 0, a->rows * bytes);
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < values; i++, z += n) {
            /* A class that is none gives a row of zeros, as in tf.one_hot. */
            int64_t k = mr__int_at(x, (a->constant[0] ? 0 : r) * values + i);
            if (k >= 0 && k < n)
                z[k] = 1;
        }
    return MR_OK;
}

static mr_code fill(const typed *t, const arguments *a, mr_array *out, mr_row_sink *sink,
                    mr_status *st)
{
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!computed_shape(&a->v[0], &rank, shape, false, sink, a->rows))
        return mr__any_value(t->to, a->rows, out, st);
    mr_array one = {0}, value = {0};
    MR_TRY(mr_array_alloc(&one, MR_INT64, 0, NULL, 1, st));
    *(int64_t *)one.data = t->op;
    mr_code rc = mr__kernel_cast(&one, t->to, &value, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(out, t->to, rank, shape, a->rows, st);
    if (rc == MR_OK) {
        size_t size = mr_dtype_size(t->to), n = a->rows * mr_array_row_values(out);
        for (size_t i = 0; i < n; i++)
            memcpy((char *)out->data + i * size, value.data, size);
    }
    mr_array_reset(&one);
    mr_array_reset(&value);
    return rc;
}

static mr_code extreme(const typed *t, const arguments *a, mr_array *out, mr_row_sink *sink,
                       mr_status *st)
{
    mr_array so_far;
    mr_array_slice(&so_far, &a->v[0], 0, a->v[0].rows);
    bool constant = a->constant[0];
    mr_code rc = MR_OK;
    for (size_t i = 1; i < a->n && rc == MR_OK; i++) {
        mr_array next = {0};
        rc = mr__kernel_binary(t->op, &so_far, constant, &a->v[i], a->constant[i], a->rows, &next,
                               sink, st);
        mr_array_reset(&so_far);
        so_far = next;
        constant = false;
    }
    *out = so_far;
    return rc;
}

static mr_code count_values(const typed *t, const arguments *a, mr_array *out, mr_status *st)
{
    MR_TRY(mr_array_alloc(out, MR_INT64, 0, NULL, a->rows, st));
    const mr_array *x = &a->v[0];
    int64_t n = t->kind == TYPED_LENGTH ? x->shape[0] : (int64_t)mr_array_row_values(x);
    for (size_t r = 0; r < a->rows; r++)
        ((int64_t *)out->data)[r] = n;
    return MR_OK;
}

mr_code mr__run_kernel(const typed *t, const arguments *a, mr_array *out, mr_row_sink *sink,
                       mr_status *st)
{
    switch (t->kind) {
    case TYPED_UNARY:
        return mr__kernel_unary(t->op, &a->v[0], out, st);
    case TYPED_ABS:
        return mr__kernel_unary('a', &a->v[0], out, st);
    case TYPED_BINARY:
        return mr__kernel_binary(t->op, &a->v[0], a->constant[0], &a->v[1], a->constant[1], a->rows,
                                 out, sink, st);
    case TYPED_EXTREME:
        return extreme(t, a, out, sink, st);
    case TYPED_REDUCE:
        return mr__kernel_reduce(t->op, &a->v[0], out, sink, st);
    case TYPED_CAST:
        return mr__kernel_cast(&a->v[0], t->to, out, st);
    case TYPED_SIZE:
    case TYPED_LENGTH:
        return count_values(t, a, out, st);
    case TYPED_ROW:
        return pick_row(a, out, sink, st);
    case TYPED_CONCAT:
    case TYPED_STACK:
        return join(a, t->kind == TYPED_STACK, out, sink, st);
    case TYPED_RESHAPE:
        return reshape(a, out, sink, st);
    case TYPED_ONE_HOT:
        return one_hot(a, out, sink, st);
    case TYPED_FILL:
        return fill(t, a, out, sink, st);
    default:
        return mr_fail(st, MR_INTERNAL, "an expression node without a kernel");
    }
}
