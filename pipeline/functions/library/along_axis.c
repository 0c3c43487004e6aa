/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/along_axis.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline/functions/library/elementwise.h"

int mr__axis_of(int64_t axis, int rank)
{
    return axis < -rank || axis >= rank ? -1 : (int)(axis < 0 ? axis + rank : axis);
}

mr_code mr__axis_type(const mr_call *c, int64_t axis, int rank, int *at, mr_status *st)
{
    *at = rank < 0 ? -1 : mr__axis_of(axis, rank);
    if (rank >= 0 && *at < 0)
        return mr_call_fail(c, st, -1, "%s along axis %" PRId64 " of a tensor of %d axes",
                            c->function->name, axis, rank);
    return MR_OK;
}

bool mr__axis_run(const mr_rows *r, int64_t axis, int rank, int *at)
{
    *at = mr__axis_of(axis, rank);
    if (*at < 0)
        mr__fail_all(r, "%s along axis %" PRId64 " of a tensor of %d axes", r->function->name, axis,
                     rank);
    return *at >= 0;
}

mr__lines mr__lines_of(const mr_array *x, int at)
{
    mr__lines l = {x->rows, mr_array_row_values(x), 1};
    if (at < 0)
        return l;
    l.n = (size_t)x->shape[at];
    for (int d = 0; d < at; d++)
        l.outer *= (size_t)x->shape[d];
    for (int d = at + 1; d < x->rank; d++)
        l.inner *= (size_t)x->shape[d];
    return l;
}

/* ---- several axes ---- */

/* Sets bit d of *gone if axis d is reduced. Returns NULL, or a description of the error. */
static bool which_go(const mr__axes *p, int rank, unsigned *gone, char *text, size_t room)
{
    *gone = p->has_axis ? 0 : (1u << rank) - 1;
    for (size_t i = 0; p->has_axis && i < p->axis.n; i++) {
        int at = mr__axis_of(p->axis.v[i], rank);
        if (at < 0)
            snprintf(text, room, "along axis %" PRId64 " of a tensor of %d axes", p->axis.v[i],
                     rank);
        else if (*gone & 1u << at)
            snprintf(text, room, "along axis %d twice", at);
        if (at < 0 || *gone & 1u << at)
            return false;
        *gone |= 1u << at;
    }
    return true;
}

static int what_stays(const mr__axes *p, int rank, const int64_t *of_x, unsigned gone,
                      int64_t *shape)
{
    int n = 0;
    for (int d = 0; d < rank; d++) {
        bool goes = gone & 1u << d;
        if (!goes || p->keepdims)
            shape[n++] = goes ? 1 : of_x[d];
    }
    return n;
}

mr_code mr__axes_type(const mr_call *c, const mr__axes *p, const mr_leaf *x, mr_leaf *out,
                      mr_status *st)
{
    unsigned gone;
    char why[96];
    if (x->rank < 0) {
        out->rank = p->has_axis || p->keepdims ? -1 : 0;
        return MR_OK;
    }
    if (!which_go(p, x->rank, &gone, why, sizeof why))
        return mr_call_fail(c, st, -1, "%s %s", c->function->name, why);
    out->rank = (int8_t)what_stays(p, x->rank, x->shape, gone, out->shape);
    return MR_OK;
}

/* x with the reduced axes moved to its end. */
static mr_code move_to_end(const mr_array *x, unsigned gone, mr_array *out, mr_status *st)
{
    int64_t shape[MR_MAX_RANK], strides[MR_MAX_RANK], of_x[MR_MAX_RANK], step = 1;
    int n = 0;
    for (int d = x->rank - 1; d >= 0; d--) {
        of_x[d] = step;
        step *= x->shape[d];
    }
    for (int end = 0; end < 2; end++)
        for (int d = 0; d < x->rank; d++)
            if (((gone >> d) & 1u) == (unsigned)end) {
                shape[n] = x->shape[d];
                strides[n++] = of_x[d];
            }
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank, shape, x->rows, st));
    for (size_t row = 0; row < x->rows && step; row++)
        mr__copy_strided(mr_array_at(out, row), mr_array_at(x, row), mr_dtype_size(x->dtype),
                         x->rank, shape, strides);
    return MR_OK;
}

/* *rank and shape: those of the reduced x. *lines = x with the reduced axes at its end, so that
 * each value of the result has one line (inner is 1); a view if they already are at the end.
 * Owned. *known false: x has no such axes; the rows have failed. */
static mr_code to_lines(const mr_rows *r, const mr__axes *p, const mr_array *x, int *rank,
                        int64_t *shape, mr_array *lines, size_t *n, bool *known, mr_status *st)
{
    unsigned gone, all = (1u << x->rank) - 1;
    char why[96];
    *known = which_go(p, x->rank, &gone, why, sizeof why);
    if (!*known) {
        mr__fail_all(r, "%s %s", r->function->name, why);
        return MR_OK;
    }
    *n = 1;
    for (int d = 0; d < x->rank; d++)
        if (gone & 1u << d)
            *n *= (size_t)x->shape[d];
    *rank = what_stays(p, x->rank, x->shape, gone, shape);
    /* They are at the end if no kept axis follows a reduced one. */
    unsigned stays = all & ~gone;
    if (stays & (stays + 1))
        return move_to_end(x, gone, lines, st);
    mr_array_slice(lines, x, 0, x->rows);
    return MR_OK;
}

static mr_code reduce_half(const mr_rows *r, const mr_array *x, const mr__reducer *loops,
                           mr_dtype gives, bool needs_values, mr_array *out, mr_status *st)
{
    mr_array wide = {0}, z = {0};
    mr_code rc = mr__kernel_cast(x, MR_FLOAT32, &wide, st);
    if (rc == MR_OK)
        rc = mr__axes_reduce(r, &wide, loops, mr__is_half(gives) ? MR_FLOAT32 : gives, needs_values,
                             &z, st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(&z, gives, out, st);
    mr_array_reset(&wide);
    mr_array_reset(&z);
    return rc;
}

mr_code mr__axes_reduce(const mr_rows *r, const mr_array *x, const mr__reducer *loops,
                        mr_dtype gives, bool needs_values, mr_array *out, mr_status *st)
{
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_array lines = {0};
    size_t n;
    bool known;
    if (mr__is_half(x->dtype))
        return reduce_half(r, x, loops, gives, needs_values, out, st);
    MR_TRY(to_lines(r, r->params, x, &rank, shape, &lines, &n, &known, st));
    if (!known)
        return mr__any_value(gives, x->rows, out, st);
    mr_code rc = mr_array_alloc(out, gives, rank, shape, x->rows, st);
    if (rc == MR_OK) {
        size_t values = mr_array_row_values(out);
        if (needs_values && n == 0 && values > 0)
            mr__fail_all(r, "%s of no values", r->function->name);
        loops[x->dtype](lines.data, out->data, x->rows * values, n);
    }
    mr_array_reset(&lines);
    return rc;
}
