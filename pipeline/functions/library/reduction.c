/* SPDX-License-Identifier: Apache-2.0 */
/* sum, mean, min, max: over all values of an element, or along axes; min and max of several
 * arguments are elementwise. */
#include "pipeline/functions/library/along_axis.h"
#include "pipeline/functions/library/elementwise.h"

/* The same code serves signed and unsigned types: "a < 0" is never true for some. */
#pragma GCC diagnostic ignored "-Wtype-limits"

typedef struct reduction {
    mr__reducer loops[MR_N_DTYPES]; /* half floats use float32 */
    bool of_none;                   /* no values have a result: zero */
    const mr__elementwise *several;
} reduction;

/* NAME: starting with START, STEP for each value v, RESULT at the end. */
#define REDUCER(NAME, T, START, STEP, RESULT)                                                      \
    static void NAME(const void *from, void *to, size_t rows, size_t n)                            \
    {                                                                                              \
        T *z = to;                                                                                 \
        for (size_t r = 0; r < rows; r++) {                                                        \
            const T *x = (const T *)from + r * n;                                                  \
            START;                                                                                 \
            for (size_t i = 0; i < n; i++) {                                                       \
                T v = x[i];                                                                        \
                STEP;                                                                              \
            }                                                                                      \
            z[r] = (T)(RESULT);                                                                    \
        }                                                                                          \
    }
#define FIRST(T) T m = n ? x[0] : 0
/* Sums that cannot wrap around, for means: means of integers are truncated towards zero. */
__extension__ typedef __int128 wide_sum;
#define SUM_i8  int64_t
#define SUM_i16 int64_t
#define SUM_i32 int64_t
#define SUM_i64 wide_sum
#define SUM_u8  int64_t
#define SUM_u16 int64_t
#define SUM_u32 int64_t
#define SUM_u64 wide_sum
#define INTEGERS(S, T, U)                                                                          \
    REDUCER(sum_##S, T, uint64_t sum = 0, sum += (uint64_t)v, sum)                                 \
    REDUCER(mean_##S, T, SUM_##S sum = 0, sum += v, n ? sum / (SUM_##S)n : 0)                      \
    REDUCER(min_##S, T, FIRST(T), m = v < m ? v : m, m)                                            \
    REDUCER(max_##S, T, FIRST(T), m = v > m ? v : m, m)                                            \
    MR__BINARY(lesser_##S, T, T, a < b ? a : b)                                                    \
    MR__BINARY(greater_##S, T, T, a > b ? a : b)
/* Sums in double with eight lanes, which keep precision for long vectors and still vectorise.
 * NaN wins. */
#define LANES double lane[8] = {0}
#define LANES_SUM                                                                                  \
    (((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7])))
#define FLOATS(S, T)                                                                               \
    REDUCER(sum_##S, T, LANES, lane[i & 7] += (double)v, LANES_SUM)                                \
    REDUCER(mean_##S, T, LANES, lane[i & 7] += (double)v, n ? LANES_SUM / (double)n : 0)           \
    REDUCER(min_##S, T, FIRST(T), m = v < m || v != v ? v : m, m)                                  \
    REDUCER(max_##S, T, FIRST(T), m = v > m || v != v ? v : m, m)                                  \
    MR__BINARY(lesser_##S, T, T, a != a ? a : b != b ? b : a < b ? a : b)                          \
    MR__BINARY(greater_##S, T, T, a != a ? a : b != b ? b : a > b ? a : b)
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(FLOATS)

static const mr__elementwise lesser = {.loops = {MR__NUMBERS(lesser)}};
static const mr__elementwise greater = {.loops = {MR__NUMBERS(greater)}};
static const reduction sum = {.loops = {MR__NUMBERS(sum)}, .of_none = true};
static const reduction mean = {.loops = {MR__NUMBERS(mean)}};
static const reduction least = {.loops = {MR__NUMBERS(min)}, .several = &lesser};
static const reduction most = {.loops = {MR__NUMBERS(max)}, .several = &greater};

static mr_code type(mr_call *c, mr_status *st)
{
    const reduction *f = c->function->family;
    const mr__axes *p = c->params;
    c->out = (mr_leaf){.dtype = c->in[0]->dtype};
    if (c->n == 1)
        return mr__axes_type(c, p, c->in[0], &c->out, st);
    if (p->has_axis || p->keepdims)
        return mr_call_fail(c, st, -1,
                            "%s of several arguments is elementwise and has no axis; stack them "
                            "first",
                            c->function->name);
    c->out = *c->in[0];
    for (size_t i = 1; i < c->n; i++)
        MR_TRY(mr__elementwise_type(c, f->several, &c->out, c->in[i], st));
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const reduction *f = r->function->family;
    if (r->n == 1)
        return mr__axes_reduce(r, &r->in[0], f->loops, r->in[0].dtype, !f->of_none, out, st);
    mr_array so_far;
    mr_array_slice(&so_far, &r->in[0], 0, r->in[0].rows);
    bool constant = r->constant[0];
    mr_code rc = MR_OK;
    for (size_t i = 1; i < r->n && rc == MR_OK; i++) {
        mr_array next = {0};
        rc = mr__elementwise_run(r, f->several, &so_far, constant, &r->in[i], r->constant[i], &next,
                                 st);
        mr_array_reset(&so_far);
        so_far = next;
        constant = false;
    }
    *out = so_far;
    return rc;
}

/* ---- clip: the greater of x and min, and of that and max the lesser ---- */

static mr_code type_clip(mr_call *c, mr_status *st)
{
    MR_TRY(mr__elementwise_type(c, &greater, c->in[0], c->in[1], st));
    return mr__elementwise_type(c, &lesser, &c->out, c->in[2], st);
}

static mr_code run_clip(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr_array low = {0};
    mr_code rc = mr__elementwise_run(r, &greater, &r->in[0], r->constant[0], &r->in[1],
                                     r->constant[1], &low, st);
    if (rc == MR_OK)
        rc = mr__elementwise_run(r, &lesser, &low, false, &r->in[2], r->constant[2], out, st);
    mr_array_reset(&low);
    return rc;
}

static const mr_param clipped[] = {
    MR_INPUT_WITH(mr_input_numbers, "x", MR_P_ALIKE, "Numbers."),
    MR_INPUT_WITH(mr_input_numbers, "min", MR_P_ALIKE, "The lower bound."),
    MR_INPUT_WITH(mr_input_numbers, "max", MR_P_ALIKE, "The upper bound."),
    {0}};
const mr_function mr_function_clip = {
    .abi = MR_ABI_VERSION,
    .name = "clip",
    .doc = "Each value clamped to min and max; max if min is greater than max.",
    .example = "range(5).map(x => clip(x, 1, 3))",
    .params = clipped,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE,
    .type = type_clip,
    .run = run_clip,
};

static const mr_param single[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."), MR__AXES_OPTIONS(MR__AXES_SAY), {0}};
static const mr_param several[] = {
    MR_INPUT_WITH(mr_input_numbers, "x", MR_P_VARIADIC | MR_P_ALIKE,
                  "Numbers; several arguments, of one type, elementwise."),
    MR__AXES_OPTIONS(MR__AXES_SAY),
    {0}};

#define REDUCTION(ident, table, rule, says, shown)                                                 \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = #ident,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = table,                                                                           \
        .params_size = sizeof(mr__axes),                                                           \
        .props = MR_FUNCTION_CONSTANTS,                                                            \
        .family = &rule,                                                                           \
        .type = type,                                                                              \
        .run = run,                                                                                \
    }
REDUCTION(sum, single, sum, "The sum of all values; 0 without values.",
          "range(3).map(x => sum([[x, 1], [2, 3]], axis=0))");
REDUCTION(mean, single, mean,
          "The mean of all values; for integers an integer, truncated towards zero. Fails without "
          "values.",
          "range(3).map(x => mean([x, 4]))");
REDUCTION(min, several, least,
          "The least of all values, or elementwise over several arguments. Fails without values.",
          "range(3).map(x => min(x, 1))");
REDUCTION(
    max, several, most,
    "The greatest of all values, or elementwise over several arguments. Fails without values.",
    "range(3).map(x => max([x, 1]))");
