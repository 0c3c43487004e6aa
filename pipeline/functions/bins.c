/* SPDX-License-Identifier: Apache-2.0 */
/* discretization(x, bin_boundaries): which of the ranges between the boundaries a number is in. */
#include <string.h>

#include "pipeline/functions/typed.h"

struct params {
    mr_floats bin_boundaries;
};

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_floats *b = &((const struct params *)c->params)->bin_boundaries;
    for (size_t i = 1; i < b->n; i++)
        if (!(b->v[i - 1] < b->v[i]))
            return mr_call_fail(c, st, -1,
                                "discretization: bin_boundaries must rise; %g follows %g", b->v[i],
                                b->v[i - 1]);
    c->out = *c->in[0];
    c->out.dtype = MR_INT64;
    return MR_OK;
}

/* How many boundaries are at most v: all of them where it is no number. */
static int64_t bin_of(const mr_floats *b, double v)
{
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (v < b->v[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return (int64_t)low;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const mr_array *x = &r->in[0];
    size_t n = x->rows * mr_array_row_values(x);
    mr_array wide = {0};
    MR_TRY(mr__kernel_cast(x, MR_FLOAT64, &wide, st));
    mr_code rc = mr_array_alloc(out, MR_INT64, x->rank, x->shape, x->rows, st);
    const double *v = wide.data;
    int64_t *z = out->data;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        z[i] = bin_of(&p->bin_boundaries, v[i]);
    mr_array_reset(&wide);
    return rc;
}

static const mr_param table[] = {MR_INPUT(mr_input_numbers, "x", "Numbers."),
                                 MR_ARG(struct params, bin_boundaries, .doc = "Numbers that rise."),
                                 {0}};
const mr_function mr_function_discretization = {
    .abi = MR_ABI_VERSION,
    .name = "discretization",
    .doc =
        "The number of each value's bin, an int64: 0 below the first boundary, 1 from it on below "
        "the second, and so on.",
    .example = "range(3).map(x => discretization(x, bin_boundaries=[0.5, 2.0]))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
