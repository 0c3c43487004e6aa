/* SPDX-License-Identifier: Apache-2.0 */
/* and, or, not, if. On single bools, `and`, `or` and `if` evaluate only the side that they need:
 * expression_type.c makes them choices. Here they are computed for tensors of bools. */
#include "pipeline/functions/library/elementwise.h"

MR__BINARY(and_bools, uint8_t, uint8_t, a &b)
MR__BINARY(or_bools, uint8_t, uint8_t, a | b)
MR__UNARY(not_bools, uint8_t, !a)
static const mr__elementwise both = {.loops = {[MR_BOOL] = and_bools}};
static const mr__elementwise either = {.loops = {[MR_BOOL] = or_bools}};
static const mr__unary_loop negated[MR_N_DTYPES] = {[MR_BOOL] = not_bools};

static const mr_param pair[] = {MR_INPUT(mr_input_bools, "a", "The left operand."),
                                MR_INPUT(mr_input_bools, "b", "The right operand."),
                                {0}};
static const mr_param single[] = {MR_INPUT(mr_input_bools, "x", "Bools."), {0}};
static const mr_param choice[] = {
    MR_INPUT(mr_input_tensor, "a", "The result where c is true; tuples and records too."),
    MR_INPUT(mr_input_bool, "c", "The condition."),
    MR_INPUT(mr_input_tensor, "b", "The result where c is false, of the types and axes of a."),
    {0}};

const mr_function mr_function_and = {
    .abi = MR_ABI_VERSION,
    .name = "and",
    .form = "a and b",
    .doc = "Whether both are true; for single bools, b is evaluated only if a is true.",
    .example = "range(4).filter(x => x != 0 and 6 // x > 2)",
    .params = pair,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE | MR__FUNCTION_LOOPS,
    .family = &both,
    .type = mr__binary_type,
    .run = mr__binary_run,
};
const mr_function mr_function_or = {
    .abi = MR_ABI_VERSION,
    .name = "or",
    .form = "a or b",
    .doc = "Whether either is true; for single bools, b is evaluated only if a is false.",
    .example = "range(4).filter(x => x == 0 or 6 // x > 2)",
    .params = pair,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE | MR__FUNCTION_LOOPS,
    .family = &either,
    .type = mr__binary_type,
    .run = mr__binary_run,
};
const mr_function mr_function_not = {
    .abi = MR_ABI_VERSION,
    .name = "not",
    .form = "not x",
    .doc = "Whether x is false.",
    .example = "range(4).filter(x => not x == 2)",
    .params = single,
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_ELEMENTWISE,
    .family = negated,
    .type = mr__unary_type,
    .run = mr__unary_run,
};
const mr_function mr_function_if = {
    .abi = MR_ABI_VERSION,
    .name = "if",
    .form = "a if c else b",
    .doc = "a where c is true, else b; only the needed one is computed.",
    .example = "range(4).map(x => 0 if x == 0 else 6 // x)",
    .params = choice,
};
