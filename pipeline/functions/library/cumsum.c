/* SPDX-License-Identifier: Apache-2.0 */
/* cumsum(x, axis=none): running sums, as in numpy. */
#include <string.h>

#include "pipeline/functions/library/along_axis.h"
#include "pipeline/functions/library/elementwise.h"

/* z = x with each value of a line increased by the preceding result. */
#define RUNNING(S, T, SUM)                                                                         \
    static void running_##S(const void *from, void *to, mr__lines l)                               \
    {                                                                                              \
        const T *x = from;                                                                         \
        T *z = to;                                                                                 \
        for (size_t o = 0; o < l.outer; o++, x += l.n * l.inner, z += l.n * l.inner) {             \
            for (size_t i = 0; i < l.inner && l.n; i++)                                            \
                z[i] = x[i];                                                                       \
            for (size_t i = l.inner; i < l.n * l.inner; i++)                                       \
                z[i] = (T)(SUM);                                                                   \
        }                                                                                          \
    }
#define INTEGERS(S, T, U) RUNNING(S, T, (U)z[i - l.inner] + (U)x[i])
#define FLOATS(S, T)      RUNNING(S, T, z[i - l.inner] + x[i])
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(FLOATS)

typedef void (*loop)(const void *x, void *z, mr__lines l);
static const loop loops[MR_N_DTYPES] = {MR__NUMBERS(running)};

static mr_code type(mr_call *c, mr_status *st)
{
    const mr__axis *p = c->params;
    const mr_leaf *x = c->in[0];
    int at;
    c->out = *x;
    if (p->has_axis)
        return mr__axis_type(c, p->axis, x->rank, &at, st);
    c->out = (mr_leaf){.dtype = x->dtype, .rank = 1, .shape = {x->rank < 0 ? -1 : 1}};
    for (int d = 0; d < x->rank; d++)
        if (c->out.shape[0] < 0 || x->shape[d] < 0 ||
            __builtin_mul_overflow(c->out.shape[0], x->shape[d], &c->out.shape[0]))
            c->out.shape[0] = -1;
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr__axis *p = r->params;
    const mr_array *x = &r->in[0];
    int at = -1;
    if (p->has_axis && !mr__axis_run(r, p->axis, x->rank, &at))
        return mr__any_value(x->dtype, r->rows, out, st);
    const int64_t all = (int64_t)mr_array_row_values(x);
    bool half = mr__is_half(x->dtype);
    mr_array wide = {0}, sums = {0};
    mr_code rc = mr__kernel_cast(x, half ? MR_FLOAT32 : x->dtype, &wide, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&sums, wide.dtype, at < 0 ? 1 : x->rank, at < 0 ? &all : x->shape,
                            r->rows, st);
    if (rc == MR_OK)
        loops[wide.dtype](wide.data, sums.data, mr__lines_of(x, at));
    if (rc == MR_OK)
        rc = mr__kernel_cast(&sums, x->dtype, out, st);
    mr_array_reset(&wide);
    mr_array_reset(&sums);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."),
    MR__AXIS_OPTION(mr__axis, "The axis to sum along; -1 is the last; none: x is flattened."),
    {0}};
const mr_function mr_function_cumsum = {
    .abi = MR_ABI_VERSION,
    .name = "cumsum",
    .doc = "The cumulative sums, each including the value itself; integers wrap around.",
    .example = "range(3).map(x => cumsum([x, 1, 2]))",
    .params = table,
    .params_size = sizeof(mr__axis),
    .type = type,
    .run = run,
};
