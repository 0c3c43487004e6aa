/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that make tensors: zeros, ones, one_hot. */
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

struct fill {
    mr_dtype dtype;
};

static mr_code type_fill(mr_call *c, mr_status *st)
{
    mr_dtype t = ((const struct fill *)c->params)->dtype;
    if (!mr_dtype_is_integer(t) && !mr_dtype_is_floating(t) && t != MR_BOOL)
        return mr_call_fail(c, st, -1, "%s does not make %s", c->function->name, mr_dtype_name(t));
    MR_TRY(mr__call_shape(c, 0, false, &c->out, st));
    c->out.dtype = t;
    return MR_OK;
}

static mr_code run_fill(const mr_rows *r, mr_array *out, mr_status *st)
{
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_dtype t = ((const struct fill *)r->params)->dtype;
    if (!mr__rows_shape(r, 0, false, &rank, shape))
        return mr__any_value(t, r->rows, out, st);
    mr_array value = {0};
    const mr_array one = {
        .dtype = MR_INT64, .rows = 1, .data = (void *)(uintptr_t)r->function->family};
    mr_code rc = mr__kernel_cast(&one, t, &value, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(out, t, rank, shape, r->rows, st);
    if (rc == MR_OK) {
        size_t size = mr_dtype_size(t), n = r->rows * mr_array_row_values(out);
        for (size_t i = 0; i < n; i++)
            memcpy((char *)out->data + i * size, value.data, size);
    }
    mr_array_reset(&value);
    return rc;
}

static mr_code type_one_hot(mr_call *c, mr_status *st)
{
    const mr_array *n = c->known[1];
    c->out = *c->in[0];
    c->out.dtype = MR_FLOAT32;
    if (n && mr__int_at(n, 0) < 0)
        return mr_call_fail(c, st, 1, "the number of classes must not be negative");
    if (c->out.rank == MR_MAX_RANK)
        return mr_call_fail(c, st, -1, "more than %d axes", MR_MAX_RANK);
    if (c->out.rank >= 0)
        c->out.shape[c->out.rank++] = n ? mr__int_at(n, 0) : -1;
    return MR_OK;
}

static mr_code run_one_hot(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int64_t n = mr__int_at(&r->in[1], 0), shape[MR_MAX_RANK];
    if (n < 0 || x->rank == MR_MAX_RANK) {
        mr__fail_all(r, n < 0 ? "one_hot of a negative number of classes"
                              : "one_hot adds an axis: more than 8");
        return mr__any_value(MR_FLOAT32, r->rows, out, st);
    }
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank] = n;
    MR_TRY(mr_array_alloc(out, MR_FLOAT32, x->rank + 1, shape, r->rows, st));
    size_t values = mr_array_row_values(x), bytes = mr_array_row_bytes(out);
    float *z = out->data;
    if (bytes)
        memset(z, 0, r->rows * bytes);
    for (size_t row = 0; row < r->rows; row++)
        for (size_t i = 0; i < values; i++, z += n) {
            /* A class out of range makes a row of zeros, as in tf.one_hot. */
            int64_t k = mr__int_at(x, (r->constant[0] ? 0 : row) * values + i);
            if (k >= 0 && k < n)
                z[k] = 1;
        }
    return MR_OK;
}

static const int64_t zero = 0, one = 1;
static const mr_param fill[] = {
    MR_INPUT_WITH(mr_input_shape, "shape", MR_P_DECIDES_SHAPE, "The axes."),
    {.name = "dtype",
     .doc = "The type, a number or bool.",
     .type = MR_PT_OWN,
     .kind = &mr_option_dtype,
     .flags = MR_P_OPTIONAL,
     .def.s = "float32",
     .at = offsetof(struct fill, dtype)},
    {0}};
static const mr_param hot[] = {
    MR_INPUT(mr_input_integers, "x", "Classes, from 0; any other number becomes zeros."),
    MR_INPUT_WITH(mr_input_integer, "n", MR_P_DECIDES_SHAPE, "The number of classes."),
    {0}};

const mr_function mr_function_zeros = {
    .abi = MR_ABI_VERSION,
    .name = "zeros",
    .doc = "A tensor of zeros.",
    .example = "range(3).map(x => zeros([2, 3]))",
    .params = fill,
    .params_size = sizeof(struct fill),
    .props = MR_FUNCTION_CONSTANTS,
    .family = &zero,
    .type = type_fill,
    .run = run_fill,
};
const mr_function mr_function_ones = {
    .abi = MR_ABI_VERSION,
    .name = "ones",
    .doc = "A tensor of ones.",
    .example = "range(3).map(x => ones([x], dtype=\"int64\"))",
    .params = fill,
    .params_size = sizeof(struct fill),
    .props = MR_FUNCTION_CONSTANTS,
    .family = &one,
    .type = type_fill,
    .run = run_fill,
};
const mr_function mr_function_one_hot = {
    .abi = MR_ABI_VERSION,
    .name = "one_hot",
    .doc = "A new last axis of n float32 values, 1 at the class and 0 elsewhere.",
    .example = "range(3).map(x => one_hot(x, 3))",
    .params = hot,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_one_hot,
    .run = run_one_hot,
};
