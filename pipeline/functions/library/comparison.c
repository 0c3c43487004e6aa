/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons return bools. */
#include <string.h>

#include "pipeline/functions/library/elementwise.h"

static int compare_bytes(const mr_bytes *a, const mr_bytes *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int c = n ? memcmp(a->data, b->data, n) : 0;
    return c ? c : (a->size > b->size) - (a->size < b->size);
}

/* NAME for numbers, bools and strings; c is the sign of the comparison of a with b. */
#define COMPARISON(NAME, OP)                                                                       \
    static mr_code NAME##_strings(const mr_bytes *x, bool xs, const mr_bytes *y, bool ys,          \
                                  mr_array *out, size_t n, mr_status *st)                          \
    {                                                                                              \
        (void)st;                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            ((uint8_t *)out->data)[i] = compare_bytes(&x[xs ? 0 : i], &y[ys ? 0 : i]) OP 0;        \
        return MR_OK;                                                                              \
    }
#define INTEGERS(S, T, U) NUMBERS(S, T)
#define NUMBERS(S, T)                                                                              \
    MR__BINARY(equal_##S, T, uint8_t, a == b)                                                      \
    MR__BINARY(not_equal_##S, T, uint8_t, a != b)                                                  \
    MR__BINARY(less_##S, T, uint8_t, a < b)                                                        \
    MR__BINARY(less_equal_##S, T, uint8_t, a <= b)                                                 \
    MR__BINARY(greater_##S, T, uint8_t, a > b)                                                     \
    MR__BINARY(greater_equal_##S, T, uint8_t, a >= b)
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(NUMBERS)
COMPARISON(equal, ==)
COMPARISON(not_equal, !=)
COMPARISON(less, <)
COMPARISON(less_equal, <=)
COMPARISON(greater, >)
COMPARISON(greater_equal, >=)

static const mr_param pair[] = {
    MR_INPUT_WITH(mr_input_tensor, "a", MR_P_ALIKE, "The left operand."),
    MR_INPUT_WITH(mr_input_tensor, "b", MR_P_ALIKE, "The right operand, of the same type."),
    {0}};

#define OPERATOR(ident, symbol, says, ...)                                                         \
    static const mr__elementwise ident = {.loops = {MR__NUMBERS(ident), __VA_ARGS__},              \
                                          .strings = ident##_strings,                              \
                                          .comparison = true};                                     \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = symbol,                                                                            \
        .form = "a " symbol " b",                                                                  \
        .doc = says,                                                                               \
        .example = "range(3).map(x => x " symbol " 1)",                                            \
        .params = pair,                                                                            \
        .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_FOLDS | MR_FUNCTION_ELEMENTWISE |             \
                 MR__FUNCTION_LOOPS,                                                               \
        .family = &ident,                                                                          \
        .type = mr__binary_type,                                                                   \
        .run = mr__binary_run,                                                                     \
    }
OPERATOR(equal, "==", "Whether the values are the same; strings bytewise.", [MR_BOOL] = equal_u8);
OPERATOR(not_equal, "!=", "Whether the values differ; strings bytewise.", [MR_BOOL] = not_equal_u8);
OPERATOR(less, "<",
         "Whether the left value comes before the right one; strings bytewise.", [MR_BOOL] = NULL);
OPERATOR(less_equal, "<=",
         "Whether the left value is not after the right one; strings bytewise.", [MR_BOOL] = NULL);
OPERATOR(greater, ">",
         "Whether the left value comes after the right one; strings bytewise.", [MR_BOOL] = NULL);
OPERATOR(greater_equal, ">=",
         "Whether the left value is not before the right one; strings bytewise.", [MR_BOOL] = NULL);
