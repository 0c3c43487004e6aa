/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/elementwise.h"

#include <string.h>

/* ---- typing ---- */

static mr_dtype result_type(const mr__elementwise *rule, mr_dtype t)
{
    return rule->comparison ? MR_BOOL : rule->quotient && mr_dtype_is_integer(t) ? MR_FLOAT64 : t;
}

static mr_code fail_dtype(const mr_call *c, mr_dtype t, mr_status *st)
{
    return mr_call_fail(c, st, -1, "%s does not take %s", c->function->name, mr_dtype_name(t));
}

mr_code mr__elementwise_type(mr_call *c, const mr__elementwise *rule, const mr_leaf *a,
                             const mr_leaf *b, mr_status *st)
{
    mr_dtype t = a->dtype;
    if (t == MR_STRING ? !rule->strings : !rule->loops[mr__is_half(t) ? MR_FLOAT32 : t])
        return fail_dtype(c, t, st);
    mr_leaf *out = &c->out;
    const mr_leaf x = *a, y = *b; /* out may be one of them */
    *out = (mr_leaf){.dtype = result_type(rule, t), .rank = -1};
    if (x.rank < 0 || y.rank < 0)
        return MR_OK;
    out->rank = x.rank > y.rank ? x.rank : y.rank;
    for (int d = 0; d < out->rank; d++) {
        int dx = d - (out->rank - x.rank), dy = d - (out->rank - y.rank);
        int64_t m = dx < 0 ? 1 : x.shape[dx], n = dy < 0 ? 1 : y.shape[dy];
        if (m > 1 && n > 1 && m != n) {
            char left[96], right[96];
            mr_shape_format(x.rank, x.shape, left, sizeof left);
            mr_shape_format(y.rank, y.shape, right, sizeof right);
            return mr_call_fail(c, st, -1, "shapes %s and %s are not compatible", left, right);
        }
        out->shape[d] = m == 1 ? n : n == 1 ? m : m == -1 ? n : m;
    }
    return MR_OK;
}

mr_code mr__binary_type(mr_call *c, mr_status *st)
{
    return mr__elementwise_type(c, c->function->family, c->in[0], c->in[1], st);
}

mr_code mr__unary_type(mr_call *c, mr_status *st)
{
    const mr__unary_loop *loops = c->function->family;
    mr_dtype t = c->in[0]->dtype;
    if (!loops[mr__is_half(t) ? MR_FLOAT32 : t])
        return fail_dtype(c, t, st);
    c->out = *c->in[0];
    return MR_OK;
}

/* ---- broadcasting ---- */

static mr_code broadcast_shape(const mr_array *a, const mr_array *b, int *rank, int64_t *shape,
                               mr_status *st)
{
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int d = 0; d < *rank; d++) {
        int da = d - (*rank - a->rank), db = d - (*rank - b->rank);
        int64_t x = da < 0 ? 1 : a->shape[da], y = db < 0 ? 1 : b->shape[db];
        if (x != y && x != 1 && y != 1) {
            char left[96], right[96];
            mr_shape_format(a->rank, a->shape, left, sizeof left);
            mr_shape_format(b->rank, b->shape, right, sizeof right);
            return mr_fail(st, MR_INVALID_ARGUMENT, "shapes %s and %s are not compatible", left,
                           right);
        }
        shape[d] = x == 1 ? y : x;
    }
    return MR_OK;
}

mr_code mr__broadcast_to(const mr_array *a, bool constant, size_t rows, int rank,
                         const int64_t *shape, mr_array *out, mr_status *st)
{
    int64_t strides[MR_MAX_RANK], step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        int da = d - (rank - a->rank);
        strides[d] = da < 0 || a->shape[da] == 1 ? 0 : step;
        if (da >= 0)
            step *= a->shape[da];
    }
    MR_TRY(mr_array_alloc(out, a->dtype, rank, shape, rows, st));
    size_t size = mr_dtype_size(a->dtype);
    for (size_t r = 0; r < rows; r++)
        mr__copy_strided(mr_array_at(out, r), mr_array_at(a, constant ? 0 : r), size, rank, shape,
                         strides);
    if (a->dtype == MR_STRING && a->owner)
        return mr_buffer_hold_all(out->owner, a->owner, st);
    return MR_OK;
}

/* ---- running ---- */

/* Fails the rows whose right operand the rule refuses. */
static void refuse(const mr_rows *r, const mr__elementwise *rule, const mr_array *b, bool b_scalar,
                   size_t per_row)
{
    size_t n = per_row == 0 ? 0 : b_scalar ? 1 : r->rows * per_row;
    for (size_t i = 0; i < n; i++) {
        if (!rule->refuses(mr__int_at(b, i), b->dtype))
            continue;
        size_t row = b_scalar ? 0 : i / per_row, last = b_scalar ? r->rows : row + 1;
        for (; row < last; row++)
            mr_row_fail(r, row, MR_INVALID_ARGUMENT, "%s", rule->refusal);
        if (!b_scalar)
            i = (i / per_row + 1) * per_row - 1; /* one error per row */
    }
}

/* Half floats compute as float32. */
static mr_code run_half(const mr_rows *r, const mr__elementwise *rule, const mr_array *a,
                        bool a_const, const mr_array *b, bool b_const, mr_array *out, mr_status *st)
{
    mr_array x = {0}, y = {0}, z = {0};
    mr_code rc = mr__kernel_cast(a, MR_FLOAT32, &x, st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(b, MR_FLOAT32, &y, st);
    if (rc == MR_OK)
        rc = mr__elementwise_run(r, rule, &x, a_const, &y, b_const, &z, st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(&z, result_type(rule, a->dtype), out, st);
    mr_array_reset(&x);
    mr_array_reset(&y);
    mr_array_reset(&z);
    return rc;
}

mr_code mr__elementwise_run(const mr_rows *r, const mr__elementwise *rule, const mr_array *a,
                            bool a_const, const mr_array *b, bool b_const, mr_array *out,
                            mr_status *st)
{
    mr_dtype t = a->dtype;
    if (mr__is_half(t))
        return run_half(r, rule, a, a_const, b, b_const, out, st);
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_status why;
    size_t rows = r->rows, per_row = 1;
    if (broadcast_shape(a, b, &rank, shape, &why) != MR_OK) {
        mr__fail_all(r, "%s", why.message);
        return mr__any_value(result_type(rule, t), rows, out, st);
    }
    for (int d = 0; d < rank; d++)
        per_row *= (size_t)shape[d];
    mr_array wide_a = {0}, wide_b = {0};
    mr_code rc = MR_OK;
    bool a_scalar = a_const && mr_array_row_values(a) == 1;
    bool b_scalar = b_const && mr_array_row_values(b) == 1;
    bool both = a_scalar && b_scalar;
    if (both || (!a_scalar && (a_const || mr_array_row_values(a) != per_row))) {
        rc = mr__broadcast_to(a, a_const, rows, rank, shape, &wide_a, st);
        a = &wide_a;
        a_scalar = false;
    }
    if (rc == MR_OK && !b_scalar && (b_const || mr_array_row_values(b) != per_row)) {
        rc = mr__broadcast_to(b, b_const, rows, rank, shape, &wide_b, st);
        b = &wide_b;
    }
    if (rc == MR_OK)
        rc = mr_array_alloc(out, result_type(rule, t), rank, shape, rows, st);
    if (rc == MR_OK && rule->refuses && mr_dtype_is_integer(t))
        refuse(r, rule, b, b_scalar, per_row);
    if (rc == MR_OK && t == MR_STRING)
        rc = rule->strings(a->data, a_scalar, b->data, b_scalar, out, rows * per_row, st);
    else if (rc == MR_OK)
        rule->loops[t](a->data, a_scalar, b->data, b_scalar, out->data, rows * per_row);
    mr_array_reset(&wide_a);
    mr_array_reset(&wide_b);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

mr_code mr__binary_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    return mr__elementwise_run(r, r->function->family, &r->in[0], r->constant[0], &r->in[1],
                               r->constant[1], out, st);
}

mr_code mr__unary_run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr__unary_loop *loops = r->function->family;
    const mr_array *a = &r->in[0];
    bool half = mr__is_half(a->dtype);
    mr_array wide = {0}, z = {0};
    mr_code rc = half ? mr__kernel_cast(a, MR_FLOAT32, &wide, st) : MR_OK;
    if (rc != MR_OK)
        return rc;
    const mr_array *x = half ? &wide : a;
    rc = mr_array_alloc(&z, x->dtype, x->rank, x->shape, x->rows, st);
    if (rc == MR_OK)
        loops[x->dtype](x->data, z.data, x->rows * mr_array_row_values(x));
    if (rc == MR_OK)
        rc = mr__kernel_cast(&z, a->dtype, out, st);
    mr_array_reset(&wide);
    mr_array_reset(&z);
    return rc;
}
