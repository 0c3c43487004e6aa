/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

const mr_input_kind rows_kind = {.name = "numbers as float64", .dtypes = MR_DTYPE_BIT(MR_FLOAT64)};
const char *const rows_words[] = {"first", "second", NULL};

static const mr_param rows[] = {
    MR_ARG(struct all_types, count, .min.i = 1, .max.i = INT64_MAX, .doc = "A number."),
    MR_PARAM(struct all_types, rate, .def.f = 0.5, .min.f = -1, .max.f = 1, .doc = "A rate."),
    MR_PARAM(struct all_types, on, .def.b = true, .doc = "A switch."),
    MR_PARAM(struct all_types, maybe, .def.b = true, .doc = "A switch, or neither."),
    MR_PARAM(struct all_types, word, .def.s = "first", .names = rows_words, .doc = "A word."),
    MR_ARG(struct all_types, fn, .doc = "A function."),
    MR_ARG(struct all_types, value, .doc = "A value."),
    MR_PARAM(struct all_types, ints, .min.i = -1, .max.i = 9, .doc = "Integers."),
    MR_PARAM(struct all_types, floats, .min.f = 0, .max.f = 0.25, .doc = "Numbers."),
    MR_PARAM_WITH(struct all_types, strings, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                  .doc = "Files."),
    MR_PARAM_OWN(struct all_types, dtype, mr_option_dtype, .doc = "A dtype."),
    MR_OPT(struct all_types, seed, .has_at = offsetof(struct all_types, o.has_seed),
           .flags = MR_P_NONE, .doc = "A seed."),
    MR_OPT(struct all_types, again, .def.b = true, .doc = "Once more."),
    MR_INPUT(mr_input_strings, "x", "An input."),
    MR_INPUT_WITH(rows_kind, "y", MR_P_OPTIONAL | MR_P_ALIKE, "Another."),
    {0}};

const mr_param *rows_of_c(size_t *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}
