/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, sqrt, sin, cos, and floor, ceil, round: elementwise, as in numpy. */
#include <math.h>
#include <string.h>

#include "pipeline/functions/library/elementwise.h"

/* The two loops of a function of floats; integers are converted to float64. */
typedef struct elementary {
    mr__unary_loop f32, f64;
    bool rounds; /* integers stay as they are */
} elementary;

#define LOOPS(NAME, F32, F64)                                                                      \
    MR__UNARY(NAME##_f32, float, F32(a))                                                           \
    MR__UNARY(NAME##_f64, double, F64(a))
LOOPS(exp, expf, exp)
LOOPS(log, logf, log)
LOOPS(sqrt, sqrtf, sqrt)
LOOPS(sin, sinf, sin)
LOOPS(cos, cosf, cos)
LOOPS(floor, floorf, floor)
LOOPS(ceil, ceilf, ceil)
LOOPS(round, rintf, rint)

struct decimals {
    int64_t decimals;
};

static mr_code type(mr_call *c, mr_status *st)
{
    (void)st;
    const elementary *f = c->function->family;
    c->out = *c->in[0];
    if (!mr_dtype_is_integer(c->out.dtype))
        return MR_OK;
    if (!f->rounds)
        c->out.dtype = MR_FLOAT64;
    return MR_OK;
}

static void round_decimals(mr_dtype t, void *v, size_t n, int64_t decimals)
{
    double scale = pow(10, fabs((double)decimals));
    for (size_t i = 0; i < n; i++) {
        double x = t == MR_FLOAT32 ? (double)((float *)v)[i] : ((double *)v)[i];
        double y = decimals < 0 ? rint(x / scale) * scale : rint(x * scale) / scale;
        y = isfinite(x) && isfinite(y) ? y : x;
        if (t == MR_FLOAT32)
            ((float *)v)[i] = (float)y;
        else
            ((double *)v)[i] = y;
    }
}

/* Rounds integers to tens, hundreds and so on, halves to even; values out of range wrap. */
static mr_code round_tens(const mr_array *x, int64_t digits, mr_array *out, mr_status *st)
{
    mr_dtype t = x->dtype == MR_UINT64 ? MR_UINT64 : MR_INT64;
    mr_array wide = {0}, whole = {0};
    uint64_t ten = 1;
    for (int64_t i = 0; i < digits && ten; i++)
        ten = ten > UINT64_MAX / 10 ? 0 : ten * 10; /* 0: more than twice any value */
    mr_code rc = mr__kernel_cast(x, t, &wide, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&whole, t, x->rank, x->shape, x->rows, st);
    const uint64_t *v = wide.data;
    uint64_t *z = whole.data;
    for (size_t i = 0, n = x->rows * mr_array_row_values(x); i < n && rc == MR_OK; i++) {
        bool minus = t == MR_INT64 && (int64_t)v[i] < 0;
        uint64_t size = minus ? 0 - v[i] : v[i], part = ten ? size % ten : 0,
                 tens = ten ? size / ten : 0;
        tens += part > ten / 2 || (ten && part == ten / 2 && tens % 2);
        z[i] = minus ? 0 - tens * ten : tens * ten;
    }
    if (rc == MR_OK)
        rc = mr__kernel_cast(&whole, x->dtype, out, st);
    mr_array_reset(&wide);
    mr_array_reset(&whole);
    return rc;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const elementary *f = r->function->family;
    const struct decimals *p = r->params;
    const mr_array *x = &r->in[0];
    mr_dtype t = mr__is_half(x->dtype)           ? MR_FLOAT32
                 : mr_dtype_is_integer(x->dtype) ? MR_FLOAT64
                                                 : x->dtype;
    if (f->rounds && mr_dtype_is_integer(x->dtype))
        return p && p->decimals < 0 ? round_tens(x, -p->decimals, out, st)
                                    : mr__kernel_cast(x, x->dtype, out, st);
    mr_array wide = {0}, z = {0};
    mr_code rc = mr__kernel_cast(x, t, &wide, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&z, t, x->rank, x->shape, x->rows, st);
    if (rc == MR_OK) {
        size_t n = x->rows * mr_array_row_values(x), bytes = n * mr_dtype_size(t);
        if (p && p->decimals && bytes) {
            memcpy(z.data, wide.data, bytes);
            round_decimals(t, z.data, n, p->decimals);
        } else
            (t == MR_FLOAT32 ? f->f32 : f->f64)(wide.data, z.data, n);
        rc = mr__kernel_cast(&z, mr__is_half(x->dtype) ? x->dtype : t, out, st);
    }
    mr_array_reset(&wide);
    mr_array_reset(&z);
    return rc;
}

static const mr_param single[] = {MR_INPUT(mr_input_numbers, "x", "Numbers."), {0}};
static const mr_param rounded[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."),
    MR_PARAM(struct decimals, decimals, .min.i = -300, .max.i = 300,
             .doc = "Digits to keep after the decimal point; -1 rounds to tens."),
    {0}};

#define ELEMENTARY(ident, table, size, of_integers, says, shown)                                   \
    static const elementary ident##_rule = {ident##_f32, ident##_f64, of_integers};                \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = #ident,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = table,                                                                           \
        .params_size = size,                                                                       \
        .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE,                                  \
        .family = &ident##_rule,                                                                   \
        .type = type,                                                                              \
        .run = run,                                                                                \
    }
ELEMENTARY(exp, single, 0, false, "e to the power of each value; float64 from integers.",
           "range(3).map(x => exp(x))");
ELEMENTARY(log, single, 0, false,
           "The natural logarithm of each value, -inf for 0 and NaN below; float64 from integers.",
           "range(3).map(x => log(x + 1))");
ELEMENTARY(sqrt, single, 0, false,
           "The square root of each value, NaN below 0; float64 from integers.",
           "range(3).map(x => sqrt(x))");
ELEMENTARY(sin, single, 0, false, "The sine of each value in radians; float64 from integers.",
           "range(3).map(x => sin(x))");
ELEMENTARY(cos, single, 0, false, "The cosine of each value in radians; float64 from integers.",
           "range(3).map(x => cos(x))");
ELEMENTARY(floor, single, 0, true, "Each value rounded down; integers are unchanged.",
           "range(3).map(x => floor(x / 2))");
ELEMENTARY(ceil, single, 0, true, "Each value rounded up; integers are unchanged.",
           "range(3).map(x => ceil(x / 2))");
ELEMENTARY(
    round, rounded, sizeof(struct decimals), true,
    "Each value rounded to the nearest, halves to even; integers change only with negative digits.",
    "range(3).map(x => round(x / 2))");
