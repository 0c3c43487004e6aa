/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that move axes: transpose, expand_dims, squeeze. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/along_axis.h"

/* ---- transpose ---- */

struct transpose {
    mr_ints axes;
    bool has_axes;
};

/* order[d]: the axis of x that becomes axis d. false: the list is not a permutation of `rank` axes.
 */
static bool axis_order(const struct transpose *p, int rank, int *order)
{
    unsigned used = 0;
    for (int d = 0; d < rank; d++)
        order[d] = rank - 1 - d;
    if (!p->has_axes)
        return true;
    for (size_t i = 0; i < p->axes.n && p->axes.n == (size_t)rank; i++) {
        int at = mr__axis_of(p->axes.v[i], rank);
        if (at < 0 || (used & 1u << at))
            return false;
        used |= 1u << at;
        order[i] = at;
    }
    return p->axes.n == (size_t)rank;
}

static mr_code type_transpose(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    int order[MR_MAX_RANK];
    c->out = *x;
    if (x->rank < 0)
        return MR_OK;
    if (!axis_order(c->params, x->rank, order))
        return mr_call_fail(c, st, -1, "transpose: axes is not a permutation of the %d axes of x",
                            x->rank);
    for (int d = 0; d < x->rank; d++)
        c->out.shape[d] = x->shape[order[d]];
    return MR_OK;
}

static mr_code run_transpose(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int order[MR_MAX_RANK];
    int64_t shape[MR_MAX_RANK], strides[MR_MAX_RANK], of_x[MR_MAX_RANK], step = 1;
    if (!axis_order(r->params, x->rank, order)) {
        mr__fail_all(r, "transpose: axes is not a permutation of the %d axes of x", x->rank);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    for (int d = x->rank - 1; d >= 0; d--) {
        of_x[d] = step;
        step *= x->shape[d];
    }
    for (int d = 0; d < x->rank; d++) {
        shape[d] = x->shape[order[d]];
        strides[d] = of_x[order[d]];
    }
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank, shape, r->rows, st));
    for (size_t row = 0; row < r->rows && step; row++)
        mr__copy_strided(mr_array_at(out, row), mr_array_at(x, row), mr_dtype_size(x->dtype),
                         x->rank, shape, strides);
    return mr__hold_strings(out, r, 1, st);
}

/* ---- expand_dims, squeeze: the same values with other axes ---- */

static mr_code type_expand(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    int at;
    c->out = *x;
    if (x->rank < 0)
        return MR_OK;
    if (x->rank == MR_MAX_RANK)
        return mr_call_fail(c, st, -1, "more than %d axes", MR_MAX_RANK);
    MR_TRY(mr__axis_type(c, ((const mr__axis *)c->params)->axis, x->rank + 1, &at, st));
    memmove(c->out.shape + at + 1, x->shape + at, (size_t)(x->rank - at) * sizeof *x->shape);
    c->out.shape[at] = 1;
    c->out.rank++;
    return MR_OK;
}

static mr_code run_expand(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int at;
    if (x->rank == MR_MAX_RANK) {
        mr__fail_all(r, "expand_dims: more than %d axes", MR_MAX_RANK);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    if (!mr__axis_run(r, ((const mr__axis *)r->params)->axis, x->rank + 1, &at))
        return mr__any_value(x->dtype, r->rows, out, st);
    mr_array_slice(out, x, 0, x->rows);
    memmove(out->shape + at + 1, x->shape + at, (size_t)(x->rank - at) * sizeof *x->shape);
    out->shape[at] = 1;
    out->rank++;
    return MR_OK;
}

static mr_code type_squeeze(mr_call *c, mr_status *st)
{
    const mr__axis *p = c->params;
    const mr_leaf *x = c->in[0];
    int at = -1;
    c->out = *x;
    if (p->has_axis)
        MR_TRY(mr__axis_type(c, p->axis, x->rank, &at, st));
    if (x->rank < 0 && p->has_axis)
        return MR_OK;
    bool unknown = x->rank < 0;
    for (int d = 0; d < x->rank && !p->has_axis; d++)
        unknown = unknown || x->shape[d] < 0;
    if (unknown)
        return mr_call_fail(c, st, -1,
                            "squeeze: the lengths of the axes are not known here; name the axis to "
                            "remove, as in squeeze(x, axis=0)");
    if (at >= 0 && x->shape[at] >= 0 && x->shape[at] != 1)
        return mr_call_fail(c, st, -1, "squeeze: axis %d has length %" PRId64 ", not 1", at,
                            x->shape[at]);
    c->out.rank = 0;
    for (int d = 0; d < x->rank; d++)
        if (p->has_axis ? d != at : x->shape[d] != 1)
            c->out.shape[c->out.rank++] = x->shape[d];
    return MR_OK;
}

static mr_code run_squeeze(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr__axis *p = r->params;
    const mr_array *x = &r->in[0];
    int at = -1;
    if (p->has_axis && !mr__axis_run(r, p->axis, x->rank, &at))
        return mr__any_value(x->dtype, r->rows, out, st);
    if (at >= 0 && x->shape[at] != 1) {
        mr__fail_all(r, "squeeze: axis %d has length %" PRId64 ", not 1", at, x->shape[at]);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    mr_array_slice(out, x, 0, x->rows);
    out->rank = 0;
    for (int d = 0; d < x->rank; d++)
        if (p->has_axis ? d != at : x->shape[d] != 1)
            out->shape[out->rank++] = x->shape[d];
    return MR_OK;
}

/* ---- descriptors ---- */

static const mr_param transposed[] = {
    MR_INPUT(mr_input_tensor, "x", "Any tensor."),
    {.name = "axes",
     .doc = "The axes of x in their new order; none: the reverse.",
     .type = MR_PT_INTS,
     .flags = MR_P_OPTIONAL | MR_P_NONE,
     .at = offsetof(struct transpose, axes),
     .has_at = offsetof(struct transpose, has_axes)},
    {0}};
static const mr_param expanded[] = {
    MR_INPUT(mr_input_tensor, "x", "Any tensor."),
    MR_ARG(mr__axis, axis, .doc = "Position of the new axis; -1 is after the last."),
    {0}};
static const mr_param squeezed[] = {
    MR_INPUT(mr_input_tensor, "x", "Any tensor."),
    MR__AXIS_OPTION(mr__axis, "The axis of length 1 to remove; none: all of length 1."),
    {0}};

const mr_function mr_function_transpose = {
    .abi = MR_ABI_VERSION,
    .name = "transpose",
    .doc = "The tensor with its axes in another order.",
    .example = "range(3).map(x => transpose([[x, 1], [2, 3]]))",
    .params = transposed,
    .params_size = sizeof(struct transpose),
    .type = type_transpose,
    .run = run_transpose,
};
const mr_function mr_function_expand_dims = {
    .abi = MR_ABI_VERSION,
    .name = "expand_dims",
    .doc = "The tensor with one more axis, of length 1.",
    .example = "range(3).map(x => expand_dims([x, 1], 0))",
    .params = expanded,
    .params_size = sizeof(mr__axis),
    .type = type_expand,
    .run = run_expand,
};
const mr_function mr_function_squeeze = {
    .abi = MR_ABI_VERSION,
    .name = "squeeze",
    .doc = "The tensor without its axes of length 1, or without one of them.",
    .example = "range(3).map(x => squeeze([[x, 1]]))",
    .params = squeezed,
    .params_size = sizeof(mr__axis),
    .type = type_squeeze,
    .run = run_squeeze,
};
