/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise arithmetic over whole columns. Every loop is a plain one over contiguous values, in
 * three forms (both vary, the right one is a scalar, the left one is) and compiled for several
 * instruction sets; broader broadcasting copies the smaller operand out first. */
#include <math.h>
#include <string.h>

#include "pipeline/functions/typed.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(__clang__)
/* The resolver of a clone runs before a sanitizer's runtime is up; clang 14 knows no levels. */
#define CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CLONES
#endif

/* One text serves signed and unsigned types: "a < 0" is then never true for some. */
#pragma GCC diagnostic ignored "-Wtype-limits"

int64_t mr__int_at(const mr_array *a, size_t i)
{
    switch (a->dtype) {
    case MR_BOOL:
    case MR_UINT8:
        return ((const uint8_t *)a->data)[i];
    case MR_INT8:
        return ((const int8_t *)a->data)[i];
    case MR_INT16:
        return ((const int16_t *)a->data)[i];
    case MR_UINT16:
        return ((const uint16_t *)a->data)[i];
    case MR_INT32:
        return ((const int32_t *)a->data)[i];
    case MR_UINT32:
        return ((const uint32_t *)a->data)[i];
    default:
        return ((const int64_t *)a->data)[i];
    }
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
            return mr_fail(st, MR_INVALID_ARGUMENT, "shapes %s and %s do not fit each other", left,
                           right);
        }
        shape[d] = x == 1 ? y : x;
    }
    return MR_OK;
}

/* Copies one row of a, of shape `from`, out to `shape`. */
static void spread(char *to, const char *from, size_t size, int rank, const int64_t *shape,
                   const int64_t *strides)
{
    if (rank == 0) {
        memcpy(to, from, size);
        return;
    }
    size_t inner = size;
    for (int d = 1; d < rank; d++)
        inner *= (size_t)shape[d];
    for (int64_t i = 0; i < shape[0]; i++)
        spread(to + (size_t)i * inner, from + (size_t)(i * strides[0]) * size, size, rank - 1,
               shape + 1, strides + 1);
}

static mr_code broadcast_to(const mr_array *a, bool constant, size_t rows, int rank,
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
        spread(mr_array_at(out, r), mr_array_at(a, constant ? 0 : r), size, rank, shape, strides);
    if (a->dtype == MR_STRING && a->owner)
        return mr_buffer_hold_all(out->owner, a->owner, st);
    return MR_OK;
}

/* ---- loops ---- */

#define LOOPS(NAME, T, R, EXPR)                                                                    \
    CLONES static void NAME##_vv(const T *restrict x, const T *restrict y, R *restrict z,          \
                                 size_t n)                                                         \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T a = x[i], b = y[i];                                                                  \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    CLONES static void NAME##_vs(const T *restrict x, T b, R *restrict z, size_t n)                \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T a = x[i];                                                                            \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    CLONES static void NAME##_sv(T a, const T *restrict y, R *restrict z, size_t n)                \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T b = y[i];                                                                            \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const void *x, bool xs, const void *y, bool ys, void *z, size_t n)            \
    {                                                                                              \
        if (xs)                                                                                    \
            NAME##_sv(*(const T *)x, y, z, n);                                                     \
        else if (ys)                                                                               \
            NAME##_vs(x, *(const T *)y, z, n);                                                     \
        else                                                                                       \
            NAME##_vv(x, y, z, n);                                                                 \
    }

/* Python's floor semantics; zero divisors are looked for beforehand, -1 is a negation that wraps.
 */
#define FLOOR_DIV(T, U)                                                                            \
    (b == 0                    ? 0                                                                 \
     : b == (T)-1 && (T)-1 < 0 ? (T)(0 - (U)a)                                                     \
                               : (T)(a / b - ((a % b != 0) && ((a % b < 0) != (b < 0)))))
#define FLOOR_MOD(T, U)                                                                            \
    (b == 0 || (b == (T)-1 && (T)-1 < 0)                                                           \
         ? 0                                                                                       \
         : (T)(a % b + ((a % b != 0) && ((a % b < 0) != (b < 0)) ? b : 0)))
#define POWER(T, U) integer_power((uint64_t)(int64_t)a, (uint64_t)b)

static uint64_t integer_power(uint64_t base, uint64_t exponent)
{
    uint64_t r = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            r *= base;
    return r;
}

#define COMPARISONS(S, T)                                                                          \
    LOOPS(eq_##S, T, uint8_t, a == b)                                                              \
    LOOPS(ne_##S, T, uint8_t, a != b)                                                              \
    LOOPS(lt_##S, T, uint8_t, a < b)                                                               \
    LOOPS(le_##S, T, uint8_t, a <= b)                                                              \
    LOOPS(gt_##S, T, uint8_t, a > b)                                                               \
    LOOPS(ge_##S, T, uint8_t, a >= b)
#define INTEGERS(S, T, U)                                                                          \
    LOOPS(add_##S, T, T, (U)a + (U)b)                                                              \
    LOOPS(sub_##S, T, T, (U)a - (U)b)                                                              \
    LOOPS(mul_##S, T, T, (uint64_t)a *(uint64_t)b)                                                 \
    LOOPS(true_##S, T, double, (double)a / (double)b)                                              \
    LOOPS(floor_##S, T, T, FLOOR_DIV(T, U))                                                        \
    LOOPS(mod_##S, T, T, FLOOR_MOD(T, U))                                                          \
    LOOPS(pow_##S, T, T, POWER(T, U))                                                              \
    LOOPS(min_##S, T, T, a < b ? a : b)                                                            \
    LOOPS(max_##S, T, T, a > b ? a : b)                                                            \
    COMPARISONS(S, T)
static double floor_mod(double a, double b)
{
    double m = fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
#define FLOATS(S, T, FLOOR, POW)                                                                   \
    LOOPS(add_##S, T, T, a + b)                                                                    \
    LOOPS(sub_##S, T, T, a - b)                                                                    \
    LOOPS(mul_##S, T, T, a *b)                                                                     \
    LOOPS(true_##S, T, T, a / b)                                                                   \
    LOOPS(floor_##S, T, T, FLOOR(a / b))                                                           \
    LOOPS(mod_##S, T, T, floor_mod((double)a, (double)b))                                          \
    LOOPS(pow_##S, T, T, POW(a, b))                                                                \
    LOOPS(min_##S, T, T, a != a ? a : b != b ? b : a < b ? a : b)                                  \
    LOOPS(max_##S, T, T, a != a ? a : b != b ? b : a > b ? a : b)                                  \
    COMPARISONS(S, T)
INTEGERS(i8, int8_t, uint8_t)
INTEGERS(i16, int16_t, uint16_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u8, uint8_t, uint8_t)
INTEGERS(u16, uint16_t, uint16_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(u64, uint64_t, uint64_t)
FLOATS(f32, float, floorf, powf)
FLOATS(f64, double, floor, pow)

typedef void (*loop)(const void *x, bool xs, const void *y, bool ys, void *z, size_t n);
enum { N_OPS = 15 };
static const char op_codes[N_OPS + 1] = "+-*/f%p=!<l>g()"; /* ( min, ) max */
#define ROW(S)                                                                                     \
    {                                                                                              \
        add_##S, sub_##S, mul_##S, true_##S, floor_##S, mod_##S, pow_##S, eq_##S, ne_##S, lt_##S,  \
            le_##S, gt_##S, ge_##S, min_##S, max_##S                                               \
    }
static const loop loops[MR_N_DTYPES][N_OPS] = {
    [MR_BOOL] = ROW(u8),    [MR_INT8] = ROW(i8),     [MR_INT16] = ROW(i16),  [MR_INT32] = ROW(i32),
    [MR_INT64] = ROW(i64),  [MR_UINT8] = ROW(u8),    [MR_UINT16] = ROW(u16), [MR_UINT32] = ROW(u32),
    [MR_UINT64] = ROW(u64), [MR_FLOAT32] = ROW(f32), [MR_FLOAT64] = ROW(f64)};

static bool is_comparison(char op)
{
    return strchr("=!<l>g", op) != NULL;
}

/* ---- errors that integers can make ---- */

static bool scalar_row(const mr_array *a, bool constant)
{
    return constant && mr_array_row_values(a) == 1;
}

static void check_divisor(char op, const mr_array *b, bool b_scalar, size_t rows, size_t per_row,
                          mr_row_sink *sink)
{
    size_t n = b_scalar ? 1 : rows * per_row;
    bool power = op == 'p';
    for (size_t i = 0; i < n; i++) {
        int64_t v = mr__int_at(b, i);
        if (power ? v >= 0 || b->dtype == MR_UINT64 : v != 0)
            continue;
        size_t row = b_scalar ? 0 : i / per_row;
        size_t last = b_scalar ? rows : row + 1;
        for (; row < last; row++)
            mr__row_fail(sink, row, MR_INVALID_ARGUMENT,
                         power ? "an integer to a negative power" : "integer division by zero");
        if (!b_scalar)
            i = (i / per_row + 1) * per_row - 1; /* one error a row */
    }
}

/* ---- strings ---- */

static int compare_bytes(const mr_bytes *a, const mr_bytes *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int c = n ? memcmp(a->data, b->data, n) : 0;
    return c ? c : (a->size > b->size) - (a->size < b->size);
}

static mr_code string_loop(char op, const mr_bytes *x, bool xs, const mr_bytes *y, bool ys,
                           mr_array *out, size_t n, mr_status *st)
{
    if (op != '+') {
        uint8_t *z = out->data;
        for (size_t i = 0; i < n; i++) {
            int c = compare_bytes(&x[xs ? 0 : i], &y[ys ? 0 : i]);
            z[i] = op == '='   ? c == 0
                   : op == '!' ? c != 0
                   : op == '<' ? c < 0
                   : op == 'l' ? c <= 0
                   : op == '>' ? c > 0
                               : c >= 0;
        }
        return MR_OK;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += x[xs ? 0 : i].size + y[ys ? 0 : i].size;
    mr_buffer *text;
    MR_TRY(mr_buffer_alloc(&text, bytes, st));
    char *at = mr_buffer_data(text);
    mr_bytes *z = out->data;
    for (size_t i = 0; i < n; i++) {
        const mr_bytes *p = &x[xs ? 0 : i], *q = &y[ys ? 0 : i];
        z[i] = (mr_bytes){at, p->size + q->size};
        if (p->size)
            memcpy(at, p->data, p->size);
        if (q->size)
            memcpy(at + p->size, q->data, q->size);
        at += z[i].size;
    }
    mr_code rc = mr_buffer_hold(out->owner, text, st);
    mr_buffer_unref(text);
    return rc;
}

/* ---- the kernels ---- */

static bool is_half(mr_dtype t)
{
    return t == MR_FLOAT16 || t == MR_BFLOAT16;
}

/* Half floats compute as float32. */
static mr_code half_binary(char op, const mr_array *a, bool a_const, const mr_array *b,
                           bool b_const, size_t rows, mr_array *out, mr_row_sink *sink,
                           mr_status *st)
{
    mr_array x = {0}, y = {0}, z = {0};
    mr_code rc = mr__kernel_cast(a, MR_FLOAT32, &x, st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(b, MR_FLOAT32, &y, st);
    if (rc == MR_OK)
        rc = mr__kernel_binary(op, &x, a_const, &y, b_const, rows, &z, sink, st);
    if (rc == MR_OK && is_comparison(op))
        mr_array_move(out, &z);
    else if (rc == MR_OK)
        rc = mr__kernel_cast(&z, a->dtype, out, st);
    mr_array_reset(&x);
    mr_array_reset(&y);
    mr_array_reset(&z);
    return rc;
}

mr_code mr__kernel_binary(char op, const mr_array *a, bool a_const, const mr_array *b, bool b_const,
                          size_t rows, mr_array *out, mr_row_sink *sink, mr_status *st)
{
    mr_dtype t = a->dtype;
    if (is_half(t))
        return half_binary(op, a, a_const, b, b_const, rows, out, sink, st);
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_status why;
    if (broadcast_shape(a, b, &rank, shape, &why) != MR_OK) {
        for (size_t r = 0; r < rows; r++)
            mr__row_fail(sink, r, MR_INVALID_ARGUMENT, "%s", why.message);
        rank = 0; /* any value will do: no row is left */
        a_const = b_const = true;
        static const int64_t zero[2];
        static const mr_bytes none;
        static const double nothing;
        const void *any = t == MR_STRING                       ? (const void *)&none
                          : t == MR_FLOAT32 || t == MR_FLOAT64 ? (const void *)&nothing
                                                               : (const void *)zero;
        mr_array scalar = {.dtype = t,
                           .storage = t == MR_STRING ? MR_BYTES : MR_DENSE,
                           .rows = 1,
                           .data = (void *)(uintptr_t)any};
        mr_row_sink ignore = {.n_rows = 0};
        return mr__kernel_binary(op, &scalar, true, &scalar, true, rows, out, &ignore, st);
    }
    mr_array wide_a = {0}, wide_b = {0};
    mr_code rc = MR_OK;
    size_t per_row = 1;
    for (int d = 0; d < rank; d++)
        per_row *= (size_t)shape[d];
    bool a_scalar = scalar_row(a, a_const), b_scalar = scalar_row(b, b_const);
    bool a_fits = !a_const && mr_array_row_values(a) == per_row;
    bool b_fits = !b_const && mr_array_row_values(b) == per_row;
    if (a_scalar && b_scalar) {
        rc = broadcast_to(a, true, rows, rank, shape, &wide_a, st);
        a = &wide_a;
        a_scalar = false;
    } else {
        if (!a_scalar && !a_fits) {
            rc = broadcast_to(a, a_const, rows, rank, shape, &wide_a, st);
            a = &wide_a;
        }
        if (rc == MR_OK && !b_scalar && !b_fits) {
            rc = broadcast_to(b, b_const, rows, rank, shape, &wide_b, st);
            b = &wide_b;
        }
    }
    bool integer = mr_dtype_is_integer(t);
    mr_dtype result = is_comparison(op) ? MR_BOOL : op == '/' && integer ? MR_FLOAT64 : t;
    if (rc == MR_OK)
        rc = mr_array_alloc(out, result, rank, shape, rows, st);
    if (rc == MR_OK && integer && strchr("f%p", op))
        check_divisor(op, b, b_scalar, rows, per_row ? per_row : 1, sink);
    if (rc == MR_OK && t == MR_STRING)
        rc = string_loop(op, a->data, a_scalar, b->data, b_scalar, out, rows * per_row, st);
    else if (rc == MR_OK) {
        loop f = loops[t][strchr(op_codes, op) - op_codes];
        f(a->data, a_scalar, b->data, b_scalar, out->data, rows * per_row);
    }
    mr_array_reset(&wide_a);
    mr_array_reset(&wide_b);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

#define NEGATE(T, U)                                                                               \
    for (size_t i = 0; i < n; i++)                                                                 \
        ((T *)out->data)[i] =                                                                      \
            (T)(op == '-' || ((const T *)a->data)[i] < 0 ? (T)(0 - (U)((const T *)a->data)[i])     \
                                                         : ((const T *)a->data)[i]);               \
    break
#define NEGATE_FLOAT(T, ABS)                                                                       \
    for (size_t i = 0; i < n; i++)                                                                 \
        ((T *)out->data)[i] = op == '-' ? -((const T *)a->data)[i] : ABS(((const T *)a->data)[i]); \
    break

/* op: '-', 'n' (not), 'a' (abs). */
mr_code mr__kernel_unary(char op, const mr_array *a, mr_array *out, mr_status *st)
{
    if (is_half(a->dtype)) {
        mr_array x = {0}, y = {0};
        mr_code rc = mr__kernel_cast(a, MR_FLOAT32, &x, st);
        if (rc == MR_OK)
            rc = mr__kernel_unary(op, &x, &y, st);
        if (rc == MR_OK)
            rc = mr__kernel_cast(&y, a->dtype, out, st);
        mr_array_reset(&x);
        mr_array_reset(&y);
        return rc;
    }
    MR_TRY(mr_array_alloc(out, a->dtype, a->rank, a->shape, a->rows, st));
    size_t n = a->rows * mr_array_row_values(a);
    switch (a->dtype) {
    case MR_BOOL:
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out->data)[i] = !((const uint8_t *)a->data)[i];
        break;
    case MR_INT8:
        NEGATE(int8_t, uint8_t);
    case MR_INT16:
        NEGATE(int16_t, uint16_t);
    case MR_INT32:
        NEGATE(int32_t, uint32_t);
    case MR_INT64:
        NEGATE(int64_t, uint64_t);
    case MR_UINT8:
    case MR_UINT16:
    case MR_UINT32:
    case MR_UINT64:
        if (op == 'a')
            memcpy(out->data, a->data, n * mr_dtype_size(a->dtype));
        else {
            mr_array zero;
            mr_row_sink none = {.n_rows = 0};
            mr_array_reset(out);
            MR_TRY(mr_array_alloc(&zero, a->dtype, 0, NULL, 1, st));
            memset(zero.data, 0, mr_dtype_size(a->dtype));
            mr_code rc = mr__kernel_binary('-', &zero, true, a, false, a->rows, out, &none, st);
            mr_array_reset(&zero);
            return rc;
        }
        break;
    case MR_FLOAT32:
        NEGATE_FLOAT(float, fabsf);
    default:
        NEGATE_FLOAT(double, fabs);
    }
    return MR_OK;
}

/* ---- reductions: over all values of a row ---- */

#define REDUCE_INT(T)                                                                              \
    for (size_t r = 0; r < a->rows; r++) {                                                         \
        const T *x = (const T *)a->data + r * n;                                                   \
        T *z = (T *)out->data + r;                                                                 \
        uint64_t sum = 0;                                                                          \
        T least = n ? x[0] : 0, most = least;                                                      \
        for (size_t i = 0; i < n; i++) {                                                           \
            sum += (uint64_t)x[i];                                                                 \
            least = x[i] < least ? x[i] : least;                                                   \
            most = x[i] > most ? x[i] : most;                                                      \
        }                                                                                          \
        *z = (T)(op == '<'   ? least                                                               \
                 : op == '>' ? most                                                                \
                 : op == 's' ? (T)sum                                                              \
                 : !n        ? 0                                                                   \
                 : (T)-1 < 0 ? (T)((int64_t)(T)sum / (int64_t)n)                                   \
                             : (T)((uint64_t)(T)sum / n));                                         \
    }                                                                                              \
    break
/* Sums in double and eight lanes, so that long vectors lose nothing and still vectorise. */
#define REDUCE_FLOAT(T)                                                                            \
    for (size_t r = 0; r < a->rows; r++) {                                                         \
        const T *x = (const T *)a->data + r * n;                                                   \
        double lane[8] = {0};                                                                      \
        T least = n ? x[0] : 0, most = least;                                                      \
        for (size_t i = 0; i < n; i++) {                                                           \
            lane[i & 7] += (double)x[i];                                                           \
            least = x[i] < least || x[i] != x[i] ? x[i] : least;                                   \
            most = x[i] > most || x[i] != x[i] ? x[i] : most;                                      \
        }                                                                                          \
        double sum = ((lane[0] + lane[4]) + (lane[1] + lane[5])) +                                 \
                     ((lane[2] + lane[6]) + (lane[3] + lane[7]));                                  \
        ((T *)out->data)[r] = op == '<'   ? least                                                  \
                              : op == '>' ? most                                                   \
                              : op == 's' ? (T)sum                                                 \
                                          : (T)(n ? sum / (double)n : 0);                          \
    }                                                                                              \
    break

mr_code mr__kernel_reduce(char op, const mr_array *a, mr_array *out, mr_row_sink *sink,
                          mr_status *st)
{
    if (is_half(a->dtype)) {
        mr_array x = {0}, y = {0};
        mr_code rc = mr__kernel_cast(a, MR_FLOAT32, &x, st);
        if (rc == MR_OK)
            rc = mr__kernel_reduce(op, &x, &y, sink, st);
        if (rc == MR_OK)
            rc = mr__kernel_cast(&y, a->dtype, out, st);
        mr_array_reset(&x);
        mr_array_reset(&y);
        return rc;
    }
    MR_TRY(mr_array_alloc(out, a->dtype, 0, NULL, a->rows, st));
    size_t n = mr_array_row_values(a);
    if (n == 0 && op != 's')
        for (size_t r = 0; r < a->rows; r++)
            mr__row_fail(sink, r, MR_INVALID_ARGUMENT, "%s of no values",
                         op == 'm'   ? "mean"
                         : op == '<' ? "min"
                                     : "max");
    switch (a->dtype) {
    case MR_INT8:
        REDUCE_INT(int8_t);
    case MR_INT16:
        REDUCE_INT(int16_t);
    case MR_INT32:
        REDUCE_INT(int32_t);
    case MR_INT64:
        REDUCE_INT(int64_t);
    case MR_UINT8:
        REDUCE_INT(uint8_t);
    case MR_UINT16:
        REDUCE_INT(uint16_t);
    case MR_UINT32:
        REDUCE_INT(uint32_t);
    case MR_UINT64:
        REDUCE_INT(uint64_t);
    case MR_FLOAT32:
        REDUCE_FLOAT(float);
    default:
        REDUCE_FLOAT(double);
    }
    return MR_OK;
}

/* ---- casts ---- */

#define CAST_LOOP(S, D, T, F)                                                                      \
    CLONES static void cast_##S##_##D(const F *restrict x, T *restrict z, size_t n)                \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = (T)x[i];                                                                        \
    }
/* Out of range floats have no integer in C: they go through the nearest one there is. */
#define CAST_FLOAT_INT(S, D, T, F, LEAST, MOST)                                                    \
    CLONES static void cast_##S##_##D(const F *restrict x, T *restrict z, size_t n)                \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            F v = x[i];                                                                            \
            z[i] = v != v ? 0 : v <= (F)(LEAST) ? (T)(LEAST) : v >= (F)(MOST) ? (T)(MOST) : (T)v;  \
        }                                                                                          \
    }
#define CASTS_FROM_INT(S, F)                                                                       \
    CAST_LOOP(S, i8, int8_t, F)                                                                    \
    CAST_LOOP(S, i16, int16_t, F)                                                                  \
    CAST_LOOP(S, i32, int32_t, F)                                                                  \
    CAST_LOOP(S, i64, int64_t, F)                                                                  \
    CAST_LOOP(S, u8, uint8_t, F)                                                                   \
    CAST_LOOP(S, u16, uint16_t, F)                                                                 \
    CAST_LOOP(S, u32, uint32_t, F)                                                                 \
    CAST_LOOP(S, u64, uint64_t, F)                                                                 \
    CAST_LOOP(S, f32, float, F)                                                                    \
    CAST_LOOP(S, f64, double, F)
#define CASTS_FROM_FLOAT(S, F)                                                                     \
    CAST_FLOAT_INT(S, i8, int8_t, F, INT8_MIN, INT8_MAX)                                           \
    CAST_FLOAT_INT(S, i16, int16_t, F, INT16_MIN, INT16_MAX)                                       \
    CAST_FLOAT_INT(S, i32, int32_t, F, INT32_MIN, INT32_MAX)                                       \
    CAST_FLOAT_INT(S, i64, int64_t, F, INT64_MIN, INT64_MAX)                                       \
    CAST_FLOAT_INT(S, u8, uint8_t, F, 0, UINT8_MAX)                                                \
    CAST_FLOAT_INT(S, u16, uint16_t, F, 0, UINT16_MAX)                                             \
    CAST_FLOAT_INT(S, u32, uint32_t, F, 0, UINT32_MAX)                                             \
    CAST_FLOAT_INT(S, u64, uint64_t, F, 0, UINT64_MAX)                                             \
    CAST_LOOP(S, f32, float, F)                                                                    \
    CAST_LOOP(S, f64, double, F)
CASTS_FROM_INT(i8, int8_t)
CASTS_FROM_INT(i16, int16_t)
CASTS_FROM_INT(i32, int32_t)
CASTS_FROM_INT(i64, int64_t)
CASTS_FROM_INT(u8, uint8_t)
CASTS_FROM_INT(u16, uint16_t)
CASTS_FROM_INT(u32, uint32_t)
CASTS_FROM_INT(u64, uint64_t)
CASTS_FROM_FLOAT(f32, float)
CASTS_FROM_FLOAT(f64, double)

#define CAST_TO(S, F)                                                                              \
    switch (to) {                                                                                  \
    case MR_INT8:                                                                                  \
        cast_##S##_i8(x, z, n);                                                                    \
        break;                                                                                     \
    case MR_INT16:                                                                                 \
        cast_##S##_i16(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_INT32:                                                                                 \
        cast_##S##_i32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_INT64:                                                                                 \
        cast_##S##_i64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT8:                                                                                 \
        cast_##S##_u8(x, z, n);                                                                    \
        break;                                                                                     \
    case MR_UINT16:                                                                                \
        cast_##S##_u16(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT32:                                                                                \
        cast_##S##_u32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT64:                                                                                \
        cast_##S##_u64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_FLOAT32:                                                                               \
        cast_##S##_f32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_FLOAT64:                                                                               \
        cast_##S##_f64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_BOOL:                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            ((uint8_t *)z)[i] = ((const F *)x)[i] != 0;                                            \
        break;                                                                                     \
    default:                                                                                       \
        break;                                                                                     \
    }                                                                                              \
    break

static void cast_values(mr_dtype from, const void *x, mr_dtype to, void *z, size_t n)
{
    switch (from) {
    case MR_BOOL:
    case MR_UINT8:
        CAST_TO(u8, uint8_t);
    case MR_INT8:
        CAST_TO(i8, int8_t);
    case MR_INT16:
        CAST_TO(i16, int16_t);
    case MR_INT32:
        CAST_TO(i32, int32_t);
    case MR_INT64:
        CAST_TO(i64, int64_t);
    case MR_UINT16:
        CAST_TO(u16, uint16_t);
    case MR_UINT32:
        CAST_TO(u32, uint32_t);
    case MR_UINT64:
        CAST_TO(u64, uint64_t);
    case MR_FLOAT32:
        CAST_TO(f32, float);
    case MR_FLOAT64:
        CAST_TO(f64, double);
    default:
        break;
    }
}

mr_code mr__kernel_cast(const mr_array *a, mr_dtype to, mr_array *out, mr_status *st)
{
    if (a->dtype == to) {
        mr_array_slice(out, a, 0, a->rows);
        return MR_OK;
    }
    size_t n = a->rows * mr_array_row_values(a);
    if (is_half(a->dtype) && to != MR_FLOAT32) {
        mr_array wide = {0};
        MR_TRY(mr__kernel_cast(a, MR_FLOAT32, &wide, st));
        mr_code rc = mr__kernel_cast(&wide, to, out, st);
        mr_array_reset(&wide);
        return rc;
    }
    if (is_half(to) && a->dtype != MR_FLOAT32) {
        mr_array wide = {0};
        MR_TRY(mr__kernel_cast(a, MR_FLOAT32, &wide, st));
        mr_code rc = mr__kernel_cast(&wide, to, out, st);
        mr_array_reset(&wide);
        return rc;
    }
    MR_TRY(mr_array_alloc(out, to, a->rank, a->shape, a->rows, st));
    for (size_t i = 0; i < n && is_half(a->dtype); i++)
        ((float *)out->data)[i] = a->dtype == MR_FLOAT16
                                      ? mr_half_to_float(((const uint16_t *)a->data)[i])
                                      : mr_bfloat_to_float(((const uint16_t *)a->data)[i]);
    for (size_t i = 0; i < n && is_half(to); i++)
        ((uint16_t *)out->data)[i] = to == MR_FLOAT16
                                         ? mr_float_to_half(((const float *)a->data)[i])
                                         : mr_float_to_bfloat(((const float *)a->data)[i]);
    if (!is_half(a->dtype) && !is_half(to))
        cast_values(a->dtype, a->data, to, out->data, n);
    return MR_OK;
}
