/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that rearrange and count values: x[i], concat, stack, reshape, size, length. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/library/texts.h"

/* ---- x[i] ---- */

static mr_code type_row(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    if (x->rank == 0)
        return mr_call_fail(c, st, -1, "a scalar has no rows to pick from");
    c->out = *x;
    if (x->rank < 0)
        return MR_OK;
    if (c->known[1] && x->shape[0] >= 0) {
        int64_t k = mr__int_at(c->known[1], 0), n = x->shape[0];
        if (k < -n || k >= n)
            return mr_call_fail(
                c, st, 1, "index %" PRId64 " is out of range: axis 0 has length %" PRId64, k, n);
    }
    c->out.rank = (int8_t)(x->rank - 1);
    memmove(c->out.shape, c->out.shape + 1, (size_t)c->out.rank * sizeof *c->out.shape);
    return MR_OK;
}

static mr_code run_row(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    if (x->rank == 0) {
        mr__fail_all(r, "a scalar has no rows to pick from");
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank - 1, x->shape + 1, r->rows, st));
    size_t bytes = mr_array_row_bytes(out);
    int64_t n = x->shape[0];
    for (size_t row = 0; row < r->rows; row++) {
        int64_t k = mr__int_at(&r->in[1], r->constant[1] ? 0 : row);
        if (k < -n || k >= n) {
            mr_row_fail(r, row, MR_OUT_OF_RANGE,
                        "index %" PRId64 " is out of range: axis 0 has length %" PRId64, k, n);
            if (bytes)
                memset(mr_array_at(out, row), 0, bytes);
        } else if (bytes)
            memcpy(mr_array_at(out, row),
                   (const char *)mr__row_at(r, 0, row) + (size_t)(k < 0 ? k + n : k) * bytes,
                   bytes);
    }
    return mr__hold_strings(out, r, 1, st);
}

/* ---- concat and stack ---- */

static const bool along_axis_0 = false, along_new_axis = true;

static bool makes_axis(const mr_function *f)
{
    return *(const bool *)f->family;
}

static mr_code type_join(mr_call *c, mr_status *st)
{
    bool stack = makes_axis(c->function);
    c->out = *c->in[0];
    mr_leaf *leaf = &c->out;
    if (!stack && leaf->rank == 0)
        return mr_call_fail(c, st, 0, "concat of scalars; use stack");
    for (size_t i = 1; i < c->n; i++) {
        const mr_leaf *a = c->in[i];
        if (a->rank < 0 || leaf->rank < 0) {
            leaf->rank = -1;
            continue;
        }
        bool fits = a->rank == leaf->rank;
        for (int d = 0; fits && d < leaf->rank; d++) {
            if (!stack && d == 0)
                leaf->shape[0] =
                    leaf->shape[0] < 0 || a->shape[0] < 0 ? -1 : leaf->shape[0] + a->shape[0];
            else if (leaf->shape[d] < 0)
                leaf->shape[d] = a->shape[d];
            else if (a->shape[d] >= 0 && a->shape[d] != leaf->shape[d])
                fits = false;
        }
        if (!fits) {
            char first[96], other[96];
            mr_shape_format(c->in[0]->rank, c->in[0]->shape, first, sizeof first);
            mr_shape_format(a->rank, a->shape, other, sizeof other);
            return mr_call_fail(c, st, (int)i, "%s of tensors of different shapes, %s and %s",
                                c->function->name, first, other);
        }
    }
    if (!stack || leaf->rank < 0)
        return MR_OK;
    if (leaf->rank == MR_MAX_RANK)
        return mr_call_fail(c, st, -1, "more than %d axes", MR_MAX_RANK);
    memmove(leaf->shape + 1, leaf->shape, (size_t)leaf->rank * sizeof *leaf->shape);
    leaf->shape[0] = (int64_t)c->n;
    leaf->rank++;
    return MR_OK;
}

static mr_code run_join(const mr_rows *r, mr_array *out, mr_status *st)
{
    bool stack = makes_axis(r->function);
    const mr_array *x = &r->in[0], *y = x;
    int64_t shape[MR_MAX_RANK] = {0};
    int rank = x->rank + stack;
    bool fits = rank <= MR_MAX_RANK && rank > 0;
    for (size_t i = 0; i < r->n && fits; i++) {
        y = &r->in[i];
        fits = y->rank == x->rank;
        for (int d = !stack; fits && d < x->rank; d++)
            fits = y->shape[d] == x->shape[d];
        if (fits)
            shape[0] += stack ? 1 : y->shape[0];
    }
    if (!fits) {
        char first[96], other[96];
        mr_shape_format(x->rank, x->shape, first, sizeof first);
        mr_shape_format(y->rank, y->shape, other, sizeof other);
        mr__fail_all(r, "%s of tensors of different shapes, %s and %s", r->function->name, first,
                     other);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    for (int d = 1; d < rank; d++)
        shape[d] = x->shape[d - stack];
    MR_TRY(mr_array_alloc(out, x->dtype, rank, shape, r->rows, st));
    for (size_t row = 0; row < r->rows; row++) {
        char *at = mr_array_at(out, row);
        for (size_t i = 0; i < r->n; i++) {
            size_t bytes = mr_array_row_bytes(&r->in[i]);
            if (bytes)
                memcpy(at, mr__row_at(r, i, row), bytes);
            at += bytes;
        }
    }
    return mr__hold_strings(out, r, r->n, st);
}

/* ---- reshape ---- */

/* Sets the length of the free axis of a shape. false: `values` values do not fit that shape. */
static bool fit_shape(int64_t values, int rank, int64_t *shape)
{
    int64_t want = 1;
    int free_axis = -1;
    for (int d = 0; d < rank; d++)
        if (shape[d] < 0)
            free_axis = d;
        else if (__builtin_mul_overflow(want, shape[d], &want))
            return false;
    if (free_axis < 0)
        return want == values;
    if (want == 0 ? values != 0 : values % want != 0)
        return false;
    shape[free_axis] = want ? values / want : 0;
    return true;
}

/* What the values and the shape are, for both messages. */
static void say_misfit(const int64_t *have, int have_rank, const int64_t *want, int rank,
                       int64_t values, char *text, size_t size)
{
    char from[96], to[96];
    mr_shape_format(have_rank, have, from, sizeof from);
    mr_shape_format(rank, want, to, sizeof to);
    snprintf(text, size, "reshape: %" PRId64 " values of shape %s do not fit shape %s", values,
             from, to);
}

static mr_code type_reshape(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    MR_TRY(mr__call_shape(c, 1, true, &c->out, st));
    c->out.dtype = x->dtype;
    int64_t values = x->rank < 0 ? -1 : 1;
    for (int d = 0; d < x->rank; d++)
        if (values < 0 || x->shape[d] < 0 || __builtin_mul_overflow(values, x->shape[d], &values))
            values = -1;
    if (!c->known[1] || values < 0)
        return MR_OK;
    mr_leaf wanted = c->out;
    if (fit_shape(values, c->out.rank, c->out.shape))
        return MR_OK;
    char text[320];
    say_misfit(x->shape, x->rank, wanted.shape, wanted.rank, values, text, sizeof text);
    return mr_call_fail(c, st, 1, "%s", text);
}

static mr_code run_reshape(const mr_rows *r, mr_array *out, mr_status *st)
{
    int rank;
    int64_t shape[MR_MAX_RANK], wanted[MR_MAX_RANK];
    const mr_array *x = &r->in[0];
    if (!mr__rows_shape(r, 1, true, &rank, shape))
        return mr__any_value(x->dtype, r->rows, out, st);
    memcpy(wanted, shape, sizeof wanted);
    int64_t values = (int64_t)mr_array_row_values(x);
    if (!fit_shape(values, rank, shape)) {
        char text[320];
        say_misfit(x->shape, x->rank, wanted, rank, values, text, sizeof text);
        mr__fail_all(r, "%s", text);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    mr_array_slice(out, x, 0, x->rows);
    if (r->constant[0])
        MR_TRY(mr__repeat_row(out, r->rows, st));
    out->rank = (int8_t)rank;
    memcpy(out->shape, shape, (size_t)rank * sizeof *shape);
    return MR_OK;
}

/* ---- size and length ---- */

static mr_code type_size(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = (mr_leaf){.dtype = MR_INT64};
    return MR_OK;
}

struct length {
    char *unit;
};

static mr_code type_length(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    if (x->rank == 0 && x->dtype != MR_STRING)
        return mr_call_fail(c, st, 0, "length of a scalar; it has no axis 0");
    return type_size(c, st);
}

static mr_code put_count(const mr_rows *r, int64_t n, mr_array *out, mr_status *st)
{
    MR_TRY(mr_array_alloc(out, MR_INT64, 0, NULL, r->rows, st));
    for (size_t row = 0; row < r->rows; row++)
        ((int64_t *)out->data)[row] = n;
    return MR_OK;
}

static mr_code run_size(const mr_rows *r, mr_array *out, mr_status *st)
{
    return put_count(r, (int64_t)mr_array_row_values(&r->in[0]), out, st);
}

/* For single strings, the length of each. */
static mr_code run_string_length(const mr_rows *r, mr_array *out, mr_status *st)
{
    bool chars = mr__unit_is_char(((const struct length *)r->params)->unit);
    MR_TRY(mr_array_alloc(out, MR_INT64, 0, NULL, r->rows, st));
    for (size_t row = 0; row < r->rows; row++) {
        const mr_bytes *s = mr__row_at(r, 0, row);
        ((int64_t *)out->data)[row] = (int64_t)(chars ? mr__utf8_count(s) : s->size);
    }
    return MR_OK;
}

static mr_code run_length(const mr_rows *r, mr_array *out, mr_status *st)
{
    if (r->in[0].rank == 0 && r->in[0].dtype == MR_STRING)
        return run_string_length(r, out, st);
    if (r->in[0].rank == 0) {
        mr__fail_all(r, "length of a scalar; it has no axis 0");
        return mr__any_value(MR_INT64, r->rows, out, st);
    }
    return put_count(r, r->in[0].shape[0], out, st);
}

/* ---- descriptors ---- */

static const mr_param single[] = {MR_INPUT(mr_input_tensor, "x", "Any tensor."), {0}};
static const mr_param counted[] = {MR_INPUT(mr_input_tensor, "x", "A tensor, or one string."),
                                   MR__UNIT_OPTION(struct length),
                                   {0}};
static const mr_param indexed[] = {
    MR_INPUT(mr_input_tensor, "x", "A tensor, tuple or record."),
    MR_INPUT(mr_input_integer, "i", "The row; -1 is the last. For a record, a name in quotes."),
    {0}};
static const mr_param joined[] = {
    MR_INPUT_WITH(mr_input_tensor, "x", MR_P_VARIADIC | MR_P_ALIKE, "Tensors of one type."), {0}};
static const mr_param reshaped[] = {
    MR_INPUT(mr_input_tensor, "x", "Any tensor."),
    MR_INPUT_WITH(mr_input_shape, "shape", MR_P_DECIDES_SHAPE,
                  "The axes; one of them may be -1: it is inferred."),
    {0}};

const mr_function mr_function_row = {
    .abi = MR_ABI_VERSION,
    .name = "[ ]",
    .form = "x[i]",
    .doc = "A row of a tensor, or a component of a tuple or record.",
    .example = "range(3).map(x => [4, 5, 6][x])",
    .params = indexed,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_row,
    .run = run_row,
};
const mr_function mr_function_concat = {
    .abi = MR_ABI_VERSION,
    .name = "concat",
    .doc = "The tensors joined along axis 0.",
    .example = "range(3).map(x => concat([x], [7, 8]))",
    .params = joined,
    .props = MR_FUNCTION_CONSTANTS,
    .family = &along_axis_0,
    .type = type_join,
    .run = run_join,
};
const mr_function mr_function_stack = {
    .abi = MR_ABI_VERSION,
    .name = "stack",
    .doc = "The tensors, all of one shape, joined along a new axis 0; [a, b] is the same.",
    .example = "range(3).map(x => stack(x, 7))",
    .params = joined,
    .props = MR_FUNCTION_CONSTANTS,
    .family = &along_new_axis,
    .type = type_join,
    .run = run_join,
};
const mr_function mr_function_reshape = {
    .abi = MR_ABI_VERSION,
    .name = "reshape",
    .doc = "The same values in another shape.",
    .example = "range(3).map(x => reshape([x, 1, 2, 3], [2, -1]))",
    .params = reshaped,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_reshape,
    .run = run_reshape,
};
const mr_function mr_function_size = {
    .abi = MR_ABI_VERSION,
    .name = "size",
    .doc = "The number of values, an int64.",
    .example = "range(3).map(x => size([[x, 1]]))",
    .params = single,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_size,
    .run = run_size,
};
const mr_function mr_function_length = {
    .abi = MR_ABI_VERSION,
    .name = "length",
    .doc = "The size of axis 0, or the number of bytes of one string; an int64.",
    .example = "range(3).map(x => length([[x, 1]]))",
    .params = counted,
    .params_size = sizeof(struct length),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_length,
    .run = run_length,
};
