/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic operators, and abs. Integers wrap around; // and % work as in Python. */
#include <math.h>
#include <string.h>

#include "pipeline/functions/library/constant_divisor.h"
#include "pipeline/functions/library/elementwise.h"

/* The same code serves signed and unsigned types: "a < 0" is never true for some. */
#pragma GCC diagnostic ignored "-Wtype-limits"

/* Python's floor semantics; zero divisors are rejected beforehand, -1 is a negation that wraps. */
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

static double floor_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/* a = b * q + m for a whole q, m of b's sign. As in Python q is not floor(a / b): a division may
 * have rounded up to a whole number. */
#define FLOOR_QUOTIENT(NAME, T, FMOD, FLOOR, COPYSIGN)                                             \
    static T NAME(T a, T b)                                                                        \
    {                                                                                              \
        if (b == 0)                                                                                \
            return a / b;                                                                          \
        T m = FMOD(a, b), q = (a - m) / b;                                                         \
        if (m != 0 && (m < 0) != (b < 0))                                                          \
            q -= 1;                                                                                \
        if (q == 0)                                                                                \
            return COPYSIGN(0, a / b);                                                             \
        T whole = FLOOR(q);                                                                        \
        return q - whole > (T)0.5 ? whole + 1 : whole;                                             \
    }
FLOOR_QUOTIENT(floor_quotient_f32, float, fmodf, floorf, copysignf)
FLOOR_QUOTIENT(floor_quotient_f64, double, fmod, floor, copysign)

#define INTEGERS(S, T, U)                                                                          \
    MR__BINARY(add_##S, T, T, (U)a + (U)b)                                                         \
    MR__BINARY(subtract_##S, T, T, (U)a - (U)b)                                                    \
    MR__BINARY(multiply_each_##S, T, T, (uint64_t)a *(uint64_t)b)                                  \
    MR__BINARY(divide_##S, T, double, (double)a / (double)b)                                       \
    MR__BINARY(floor_divide_each_##S, T, T, FLOOR_DIV(T, U))                                       \
    MR__BINARY(remainder_each_##S, T, T, FLOOR_MOD(T, U))                                          \
    MR__BINARY(power_##S, T, T, POWER(T, U))                                                       \
    MR__UNARY(negate_##S, T, 0 - (U)a)                                                             \
    MR__UNARY(abs_##S, T, a < 0 ? (T)(0 - (U)a) : a)
#define FLOATS(S, T)                                                                               \
    MR__BINARY(add_##S, T, T, a + b)                                                               \
    MR__BINARY(subtract_##S, T, T, a - b)                                                          \
    MR__BINARY(multiply_##S, T, T, a *b)                                                           \
    MR__BINARY(divide_##S, T, T, a / b)                                                            \
    MR__BINARY(floor_divide_##S, T, T, floor_quotient_##S(a, b))                                   \
    MR__BINARY(remainder_##S, T, T, floor_mod((double)a, (double)b))                               \
    MR__BINARY(power_##S, T, T, POW_##S(a, b))                                                     \
    MR__UNARY(negate_##S, T, -a)                                                                   \
    MR__UNARY(abs_##S, T, ABS_##S(a))
#define POW_f32 powf
#define POW_f64 pow
#define ABS_f32 fabsf
#define ABS_f64 fabs
MR__EACH_INTEGER(INTEGERS)

/* By a power of two integers are shifted: products of 64 bits take three multiplications. */
#define PRODUCTS(S, T, U)                                                                          \
    MR__CLONES static void double_##S(const T *restrict x, int times, T *restrict z, size_t n)     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = (T)((uint64_t)x[i] << times);                                                   \
    }                                                                                              \
    static void multiply_##S(const void *x, bool xs, const void *y, bool ys, void *z, size_t n)    \
    {                                                                                              \
        U by = xs == ys ? 0 : *(const U *)(ys ? y : x);                                            \
        if (by && !(by & (U)(by - 1)))                                                             \
            double_##S(ys ? x : y, __builtin_ctzll(by), z, n);                                     \
        else                                                                                       \
            multiply_each_##S(x, xs, y, ys, z, n);                                                 \
    }
MR__EACH_INTEGER(PRODUCTS)

/* Fewer values than this are divided: finding a multiplier takes a division. */
enum { FEW = 16 };

#define DIVISIONS(S, T, U, BITS)                                                                   \
    MR__BY_CONSTANT(by_constant_##S, T, U, BITS)                                                   \
    static void floor_divide_##S(const void *x, bool xs, const void *y, bool ys, void *z,          \
                                 size_t n)                                                         \
    {                                                                                              \
        if (ys && !xs && n >= FEW && *(const T *)y)                                                \
            by_constant_##S(x, *(const T *)y, false, z, n);                                        \
        else                                                                                       \
            floor_divide_each_##S(x, xs, y, ys, z, n);                                             \
    }                                                                                              \
    static void remainder_##S(const void *x, bool xs, const void *y, bool ys, void *z, size_t n)   \
    {                                                                                              \
        if (ys && !xs && n >= FEW && *(const T *)y)                                                \
            by_constant_##S(x, *(const T *)y, true, z, n);                                         \
        else                                                                                       \
            remainder_each_##S(x, xs, y, ys, z, n);                                                \
    }
DIVISIONS(i8, int8_t, uint8_t, 32)
DIVISIONS(i16, int16_t, uint16_t, 32)
DIVISIONS(i32, int32_t, uint32_t, 32)
DIVISIONS(i64, int64_t, uint64_t, 64)
DIVISIONS(u8, uint8_t, uint8_t, 32)
DIVISIONS(u16, uint16_t, uint16_t, 32)
DIVISIONS(u32, uint32_t, uint32_t, 32)
DIVISIONS(u64, uint64_t, uint64_t, 64)
MR__EACH_FLOAT(FLOATS)

static mr_code join_strings(const mr_bytes *x, bool xs, const mr_bytes *y, bool ys, mr_array *out,
                            size_t n, mr_status *st)
{
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

static bool is_zero(int64_t right, mr_dtype t)
{
    (void)t;
    return right == 0;
}

static bool is_negative(int64_t right, mr_dtype t)
{
    return right < 0 && t != MR_UINT64;
}

static const mr__elementwise add_rule = {.loops = {MR__NUMBERS(add)}, .strings = join_strings};
static const mr__elementwise subtract_rule = {.loops = {MR__NUMBERS(subtract)}};
static const mr__elementwise multiply_rule = {.loops = {MR__NUMBERS(multiply)}};
static const mr__elementwise divide_rule = {.loops = {MR__NUMBERS(divide)}, .quotient = true};
static const mr__elementwise floor_divide_rule = {.loops = {MR__NUMBERS(floor_divide)},
                                                  .refuses = is_zero,
                                                  .refusal = "integer division by zero"};
static const mr__elementwise remainder_rule = {
    .loops = {MR__NUMBERS(remainder)}, .refuses = is_zero, .refusal = "integer division by zero"};
static const mr__elementwise power_rule = {.loops = {MR__NUMBERS(power)},
                                           .refuses = is_negative,
                                           .refusal = "an integer to a negative power"};
static const mr__unary_loop negate[MR_N_DTYPES] = {MR__NUMBERS(negate)};
static const mr__unary_loop absolute[MR_N_DTYPES] = {MR__NUMBERS(abs)};

static const mr_param pair[] = {
    MR_INPUT_WITH(mr_input_tensor, "a", MR_P_ALIKE, "The left operand."),
    MR_INPUT_WITH(mr_input_tensor, "b", MR_P_ALIKE, "The right operand, of the same type."),
    {0}};
static const mr_param single[] = {MR_INPUT(mr_input_numbers, "x", "Numbers."), {0}};

/* A descriptor of these families, which differ only in a few fields. */
#define OPERATOR(ident, symbol, says, shown)                                                       \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = symbol,                                                                            \
        .form = "a " symbol " b",                                                                  \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = pair,                                                                            \
        .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_FOLDS | MR_FUNCTION_ELEMENTWISE |             \
                 MR__FUNCTION_LOOPS,                                                               \
        .family = &ident##_rule,                                                                   \
        .type = mr__binary_type,                                                                   \
        .run = mr__binary_run,                                                                     \
    }
OPERATOR(add, "+", "The sum; integers wrap around. Strings are joined.",
         "range(3).map(x => x + 1)");
OPERATOR(subtract, "-", "The difference; integers wrap around.", "range(3).map(x => x - 1)");
OPERATOR(multiply, "*", "The product; integers wrap around.", "range(3).map(x => x * x)");
OPERATOR(divide, "/", "The quotient: float64 from integers, else of the type of the operands.",
         "range(3).map(x => x / 2)");
OPERATOR(floor_divide, "//", "The quotient rounded down. An integer divided by zero fails.",
         "range(3).map(x => x // 2)");
OPERATOR(remainder, "%",
         "The remainder, with the sign of the divisor. An integer divided by zero fails.",
         "range(3).map(x => x % 2)");
OPERATOR(power, "**", "The power. An integer to a negative power fails.",
         "range(3).map(x => x ** 2)");

const mr_function mr_function_pow = {
    .abi = MR_ABI_VERSION,
    .name = "pow",
    .doc = "The power, as a ** b. An integer to a negative power fails.",
    .example = "range(3).map(x => pow(x, 2))",
    .params = pair,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE | MR__FUNCTION_LOOPS,
    .family = &power_rule,
    .type = mr__binary_type,
    .run = mr__binary_run,
};
const mr_function mr_function_negate = {
    .abi = MR_ABI_VERSION,
    .name = "-",
    .form = "-x",
    .doc = "The negative; integers wrap around.",
    .example = "range(3).map(x => -x)",
    .params = single,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_FOLDS | MR_FUNCTION_ELEMENTWISE,
    .family = negate,
    .type = mr__unary_type,
    .run = mr__unary_run,
};
const mr_function mr_function_abs = {
    .abi = MR_ABI_VERSION,
    .name = "abs",
    .doc = "The absolute value of each value.",
    .example = "range(3).map(x => abs(x - 1))",
    .params = single,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE,
    .family = absolute,
    .type = mr__unary_type,
    .run = mr__unary_run,
};
