/* SPDX-License-Identifier: Apache-2.0 */
/* any, all, count_nonzero, norm, argmax, argmin: as in numpy, over all values or along axes; the
 * last two along one axis. */
#include <math.h>
#include <string.h>

#include "pipeline/functions/library/along_axis.h"
#include "pipeline/functions/library/elementwise.h"

typedef struct reduction {
    mr__reducer loops[MR_N_DTYPES]; /* half floats use float32 */
    mr_dtype gives;                 /* FLOAT64: the input's dtype for floats, else float64 */
    bool one_axis;                  /* maximum number; such a function needs values too */
} reduction;

/* NAME: starting with START, STEP for each value v, the i-th of a line, RESULT at its end. */
#define REDUCER(NAME, T, R, START, STEP, RESULT)                                                   \
    static void NAME(const void *from, void *to, size_t lines, size_t n)                           \
    {                                                                                              \
        R *z = to;                                                                                 \
        for (size_t k = 0; k < lines; k++) {                                                       \
            const T *x = (const T *)from + k * n;                                                  \
            START;                                                                                 \
            for (size_t i = 0; i < n; i++) {                                                       \
                const T v = x[i];                                                                  \
                STEP;                                                                              \
            }                                                                                      \
            z[k] = (R)(RESULT);                                                                    \
        }                                                                                          \
    }
/* The first of equal values; for floats the first NaN, as in numpy. */
#define BEST(T)                                                                                    \
    T m = n ? x[0] : 0;                                                                            \
    size_t best = 0
#define TAKE(better)                                                                               \
    if (better) {                                                                                  \
        m = v;                                                                                     \
        best = i;                                                                                  \
    }
#define INTEGERS(S, T, U)                                                                          \
    REDUCER(any_##S, T, bool, bool any = false, any = any || v != 0, any)                          \
    REDUCER(all_##S, T, bool, bool all = true, all = all && v != 0, all)                           \
    REDUCER(count_nonzero_##S, T, int64_t, int64_t not0 = 0, not0 += v != 0, not0)                 \
    REDUCER(norm_##S, T, double, double sum = 0, sum += (double)v * (double)v, sqrt(sum))          \
    REDUCER(argmax_##S, T, int64_t, BEST(T), TAKE(v > m), best)                                    \
    REDUCER(argmin_##S, T, int64_t, BEST(T), TAKE(v < m), best)
#define FLOATS(S, T)                                                                               \
    REDUCER(any_##S, T, bool, bool any = false, any = any || v != 0, any)                          \
    REDUCER(all_##S, T, bool, bool all = true, all = all && v != 0, all)                           \
    REDUCER(count_nonzero_##S, T, int64_t, int64_t not0 = 0, not0 += v != 0, not0)                 \
    REDUCER(norm_##S, T, T, double sum = 0, sum += (double)v * (double)v, sqrt(sum))               \
    REDUCER(argmax_##S, T, int64_t, BEST(T), TAKE(v > m || (v != v && m == m)), best)              \
    REDUCER(argmin_##S, T, int64_t, BEST(T), TAKE(v < m || (v != v && m == m)), best)
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(FLOATS)

static mr_dtype result_type(const reduction *f, mr_dtype t)
{
    return f->gives == MR_FLOAT64 && mr_dtype_is_floating(t) ? t : f->gives;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const reduction *f = c->function->family;
    const mr__axes *p = c->params;
    const mr_leaf *x = c->in[0];
    if (!f->loops[mr__is_half(x->dtype) ? MR_FLOAT32 : x->dtype])
        return mr_call_fail(c, st, -1, "%s does not take %s", c->function->name,
                            mr_dtype_name(x->dtype));
    if (f->one_axis && p->has_axis && p->axis.n != 1)
        return mr_call_fail(c, st, -1, "%s takes one axis, not %zu", c->function->name, p->axis.n);
    c->out = (mr_leaf){.dtype = result_type(f, x->dtype)};
    return mr__axes_type(c, p, x, &c->out, st);
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const reduction *f = r->function->family;
    const mr_array *x = &r->in[0];
    return mr__axes_reduce(r, x, f->loops, result_type(f, x->dtype), f->one_axis, out, st);
}

static const mr_param along_axes[] = {
    MR_INPUT(mr_input_tensor, "x", "Numbers or bools."), MR__AXES_OPTIONS(MR__AXES_SAY), {0}};
static const mr_param along_one[] = {
    MR_INPUT(mr_input_tensor, "x", "Numbers or bools."),
    MR__AXES_OPTIONS("The axis to reduce; -1 is the last; none: all values of the tensor."),
    {0}};

#define REDUCTION(ident, to, one, says, shown)                                                     \
    static const reduction ident = {                                                               \
        .loops = {MR__NUMBERS(ident), [MR_BOOL] = ident##_u8}, .gives = to, .one_axis = one};      \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = #ident,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = (one) ? along_one : along_axes,                                                  \
        .params_size = sizeof(mr__axes),                                                           \
        .family = &ident,                                                                          \
        .type = type,                                                                              \
        .run = run,                                                                                \
    }
REDUCTION(any, MR_BOOL, false, "Whether any value is true, or not 0; false without values.",
          "range(3).map(x => any([x, 1] == 2))");
REDUCTION(all, MR_BOOL, false, "Whether all values are true, or not 0; true without values.",
          "range(3).map(x => all([x, 1] == 1))");
REDUCTION(count_nonzero, MR_INT64, false, "The number of values that are true, or not 0.",
          "range(3).map(x => count_nonzero([x, 1]))");
REDUCTION(norm, MR_FLOAT64, false,
          "The root of the sum of the squares: float64 from integers and bools, else of the type "
          "of x.",
          "range(3).map(x => norm([3 * x, 4 * x]))");
REDUCTION(argmax, MR_INT64, true,
          "The index of the greatest value, the first among equals; a NaN is greater than all. "
          "Without an axis x is flattened. Fails without values.",
          "range(3).map(x => argmax([x, 1, 0]))");
REDUCTION(argmin, MR_INT64, true,
          "The index of the least value, the first among equals; a NaN is less than all. Without "
          "an axis x is flattened. Fails without values.",
          "range(3).map(x => argmin([x, 1, 1]))");
