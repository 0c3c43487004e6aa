/* SPDX-License-Identifier: Apache-2.0 */
/* What expressions compute: each sentence of the grammar's paragraph about them. */
#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

MR_TEST(integers_are_int64_and_points_make_float32)
{
    mr_eq_str(evaluate(1, "x => (1, 1.5, 1e2, -3)"), "(1, 1.5, 100.0, -3)");
    mr_eq_str(evaluate(1, "x => 0.1", "x => cast(x, \"float64\")"), "0.10000000149011612");
}

MR_TEST(nested_lists_are_tensors)
{
    mr_eq_str(evaluate(1, "x => [1, 2]"), "[1, 2]");
    mr_eq_str(evaluate(1, "x => [[1, 2.5], [3, 4]]"), "[[1.0, 2.5], [3.0, 4.0]]");
    mr_eq_str(evaluate(2, "x => [x, x + 1]"), "[0, 1]; [1, 2]");
    mr_eq_str(evaluate(1, "x => [[true], [false]]"), "[[true], [false]]");
    mr_eq_str(evaluate(1, "x => [\"a\", \"b\"]"), "[\"a\", \"b\"]");
    mr_eq_str(evaluate(1, "x => []", "x => size(x)"), "0");
    mr_has_str(evaluate(1, "x => [1, \"a\"]"), "refused");
    mr_has_str(evaluate(1, "x => [1, true]"), "refused");
    mr_has_str(evaluate(1, "x => [[1], [1, 2]]"), "refused");
}

MR_TEST(slash_gives_floats)
{
    mr_eq_str(evaluate(3, "x => x / 2"), "0.0; 0.5; 1.0");
    mr_eq_str(evaluate(1, "x => x / 2", "x => x == cast(0, \"float64\")"), "true");
    mr_eq_str(evaluate(2, "x => cast(x, \"float32\") / 2", "x => x + cast(1, \"float32\")"),
              "1.0; 1.5");
}

MR_TEST(a_quotient_of_integer_literals_is_a_float64)
{
    mr_eq_str(evaluate(1, "x => 1 / 3"), "0.3333333333333333");
    mr_eq_str(evaluate(1, "x => [1 / 3, 1]"), "[0.3333333333333333, 1.0]");
    mr_eq_str(evaluate(1, "x => 1 / 3 + 0.5"), "0.8333333333333333");
    mr_eq_str(evaluate(1, "x => 1.0 / 3"), "0.33333334");
    mr_eq_str(evaluate(1, "x => cast(x, \"float32\") + 1 / 3"), "0.33333334");
    mr_has_str(evaluate(1, "x => x + 1 / 3"), "refused");
}

MR_TEST(floor_division_and_remainder_are_pythons)
{
    mr_eq_str(evaluate(1, "x => [7 // 2, -7 // 2, 7 // -2, -7 // -2]"), "[3, -4, -4, 3]");
    mr_eq_str(evaluate(1, "x => [7 % 3, -7 % 3, 7 % -3, -7 % -3]"), "[1, 2, -2, -1]");
    mr_eq_str(evaluate(6, "x => (x - 3) // 2"), "-2; -1; -1; 0; 0; 1");
    mr_eq_str(evaluate(6, "x => (x - 3) % 2"), "1; 0; 1; 0; 1; 0");
    mr_eq_str(evaluate(6, "x => (x - 3) % -2"), "-1; 0; -1; 0; -1; 0");
    mr_eq_str(evaluate(3, "x => cast(x, \"float32\") - 1.5", "x => (x // 1, x % 1)"),
              "(-2.0, 0.5); (-1.0, 0.5); (0.0, 0.5)");
    /* Not floor(a / b): 1 / 0.1 is rounded up to 10. */
    mr_eq_str(evaluate(1, "x => cast(1, \"float64\") // to_number(\"0.1\", \"float64\")"), "9.0");
    mr_eq_str(evaluate(1, "x => [1.0 // -1e999, -1.0 // 1e999, 1.0 // 1e999]"),
              "[-1.0, -1.0, 0.0]");
    mr_eq_str(evaluate(1, "x => [1e999 // 2.0, 1.0 // 0.0, -0.0 // 1.0]"),
              "[(1e999 - 1e999), 1e999, -0.0]");
}

MR_TEST(literals_take_the_type_beside_them)
{
    mr_eq_str(evaluate(2, "x => cast(x, \"float32\") * 2"), "0.0; 2.0");
    mr_eq_str(evaluate(2, "x => 2 * cast(x, \"uint8\")"), "0; 2");
    mr_eq_str(evaluate(2, "x => cast(x, \"float64\") + 0.5"), "0.5; 1.5");
    mr_eq_str(evaluate(2, "x => [cast(x, \"float32\"), 1]"), "[0.0, 1.0]; [1.0, 1.0]");
    mr_has_str(evaluate(1, "x => x + 1.5"), "refused");
    mr_has_str(evaluate(1, "x => x * cast(x, \"float32\")"), "refused");
    mr_has_str(evaluate(1, "x => x + \"a\""), "refused");
    mr_has_str(evaluate(1, "x => cast(x, \"int32\") == x"), "refused");
    mr_has_str(evaluate(1, "x => true + 1"), "refused");
    mr_has_str(evaluate(1, "x => cast(x, \"uint8\") + 256"), "exceeds the range");
    mr_has_str(evaluate(1, "x => [-1, cast(x, \"uint64\")]"), "exceeds the range");
    mr_has_str(evaluate(1, "x => -129 < cast(x, \"int8\")"), "exceeds the range");
    mr_eq_str(evaluate(1, "x => [-128, 127] + cast(x, \"int8\")"), "[-128, 127]");
}

MR_TEST(integers_wrap_around)
{
    mr_eq_str(evaluate(1, "x => x + 9223372036854775807 + 1"), "-9223372036854775808");
    mr_eq_str(evaluate(1, "x => cast(x, \"uint8\") - 1"), "255");
    mr_eq_str(evaluate(1, "x => cast(x, \"int8\") + 127 + 1"), "-128");
    mr_eq_str(evaluate(1, "x => (x - 9223372036854775807 - 1) // -1"), "-9223372036854775808");
    mr_eq_str(evaluate(1, "x => (x - 9223372036854775807 - 1) % -1"), "0");
    mr_eq_str(evaluate(1, "x => -(x - 9223372036854775807 - 1)"), "-9223372036854775808");
    mr_eq_str(evaluate(1, "x => abs(x - 9223372036854775807 - 1)"), "-9223372036854775808");
    mr_eq_str(evaluate(1, "x => cast(x + 3, \"uint64\") ** cast(x - 1, \"uint64\")"),
              "12297829382473034411");
    mr_eq_str(evaluate(1, "x => (x + 3) ** 40 * (x + 3)"), "-420491770248316829");
}

MR_TEST(an_error_is_its_rows_alone)
{
    mr_eq_str(evaluate(3, "x => 10 // (x - 1)"),
              "-10; !integer division by zero in 10 // (x - 1); 10");
    mr_eq_str(evaluate(3, "x => 10 % (x - 1)"), "0; !integer division by zero in 10 % (x - 1); 0");
    mr_eq_str(evaluate(3, "x => 2 ** (x - 1)"),
              "!an integer to a negative power in 2 ** (x - 1); 1; 2");
    mr_has_str(evaluate(2, "x => 1 // 0"), "division by zero in 1 // 0; !");
    mr_eq_str(
        evaluate(4, "x => ([1, 2, 3][x], x)"),
        "(1, 0); (2, 1); (3, 2); !index 3 is out of range: axis 0 has length 3 in [1, 2, 3][x]");
    mr_eq_str(evaluate(3, "x => [10 // x, 10 // (x - 1)]"),
              "!integer division by zero in 10 // x; !integer division by zero in 10 // (x - 1); "
              "[5, 10]");
}

MR_TEST(failed_rows_of_unequal_shapes_stay_apart)
{
    static const char *const texts[] = {
        "x => reshape(zeros([x]), [x, 2])[x]",
        "x => stack(zeros([x]), zeros([2]))[0]",
        "x => (zeros([x]) + zeros([2]))[0]",
        "x => reshape(zeros([x]), [x, 2]) if x < 3 else zeros([x, 2])[0]",
        "x => reshape(zeros([x]), [x, 2]) if x < 1 else zeros([x, 2])",
        "x => concat(zeros([x]) + zeros([4]), ones([2]))",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *steps[] = {texts[i], NULL};
        char whole[2000];
        snprintf(whole, sizeof whole, "%s", evaluate_some(6, steps));
        mr_eq_str(evaluate_rows_alone(6, steps), whole);
    }
}

MR_TEST(only_what_is_needed_is_looked_at)
{
    mr_eq_str(evaluate(5, "x => x != 0 and 10 // x > 3"), "false; true; true; false; false");
    mr_eq_str(evaluate(3, "x => x == 0 or 10 // x > 5"), "true; true; false");
    mr_eq_str(evaluate(3, "x => 0 if x == 0 else 10 // x"), "0; 10; 5");
    mr_eq_str(evaluate(3, "x => (10 // x if x > 1 else 1 // (x - 1)) if x != 1 else 7"),
              "-1; 7; 5");
    mr_eq_str(evaluate(2, "x => false and 1 // 0 == 1"), "false; false");
    mr_has_str(evaluate(1, "x => 1 if x else 2"), "refused");
    mr_has_str(evaluate(1, "x => not x"), "refused");
    mr_has_str(evaluate(1, "x => x and true"), "refused");
    mr_has_str(evaluate(1, "x => 1 if true else \"a\""), "refused");
}

MR_TEST(branches_may_be_tuples_and_of_unequal_shape)
{
    mr_eq_str(evaluate(2, "x => (x, 1) if x == 0 else (5, x)"), "(0, 1); (5, 1)");
    mr_eq_str(evaluate(2, "x => {\"a\": x} if x == 0 else {\"a\": 7}"), "{a: 0}; {a: 7}");
    mr_eq_str(evaluate(3, "x => [x] if x != 1 else [x, x]"), "[0]; [1, 1]; [2]");
    mr_eq_str(evaluate(3, "x => [x] if x != 1 else [x, x]", "x => sum(x * 2)"), "0; 4; 4");
    mr_eq_str(evaluate(2, "x => 1.5 if x == 0 else 2"), "1.5; 2.0");
    mr_has_str(evaluate(1, "x => [x] if x == 0 else 2"), "refused");
}

MR_TEST(reductions_go_over_all_values)
{
    mr_eq_str(evaluate(1, "x => (sum([[1, 2], [3, 4]]), min([3, 1, 2]), max([3, 1, 2]))"),
              "(10, 1, 3)");
    mr_eq_str(evaluate(1, "x => (mean([1, 2]), mean([-1, -2]), mean([1.0, 2.0]))"), "(1, -1, 1.5)");
    /* Of any integers: the sum does not wrap around. */
    mr_eq_str(evaluate(1, "x => mean(cast([216, 160, 255], \"uint8\"))"), "210");
    mr_eq_str(evaluate(1, "x => mean([9223372036854775807, 9223372036854775805])"),
              "9223372036854775806");
    mr_eq_str(evaluate(1, "x => mean(cast([[-32768, -32767]], \"int16\"), axis=1)"), "[-32767]");
    mr_eq_str(evaluate(1, "x => (size([[1, 2, 3]]), length([[1, 2, 3]]), size(5))"), "(3, 1, 1)");
    mr_eq_str(evaluate(1, "x => sum(zeros([0]))"), "0.0");
    mr_has_str(evaluate(1, "x => mean(zeros([0]))"), "!mean of no values");
    mr_has_str(evaluate(1, "x => min(zeros([x], \"int64\"))"), "!min of no values");
    mr_has_str(evaluate(1, "x => max(zeros([x], \"int64\"))"), "!max of no values");
    mr_has_str(evaluate(1, "x => length(x)"), "refused");
    mr_has_str(evaluate(1, "x => sum(\"a\")"), "refused");
}

MR_TEST(min_and_max_of_several_are_elementwise)
{
    mr_eq_str(evaluate(3, "x => (min(x, 1), max(x, 1, 2 - x))"), "(0, 2); (1, 1); (1, 2)");
    mr_eq_str(evaluate(2, "x => max([1, 5], [3, 2] + x)"), "[3, 5]; [4, 5]");
    mr_eq_str(evaluate(1, "x => min(cast(x, \"float32\"), 0.5)"), "0.0");
}

MR_TEST(concat_stack_reshape_one_hot_zeros_ones)
{
    mr_eq_str(evaluate(2, "x => concat([x], [7, 8])"), "[0, 7, 8]; [1, 7, 8]");
    mr_eq_str(evaluate(2, "x => stack(x, 7)"), "[0, 7]; [1, 7]");
    mr_eq_str(evaluate(2, "x => stack([x, 1], [2, 3])"), "[[0, 1], [2, 3]]; [[1, 1], [2, 3]]");
    mr_eq_str(evaluate(1, "x => reshape([1, 2, 3, 4], [2, -1])"), "[[1, 2], [3, 4]]");
    mr_eq_str(evaluate(2, "x => reshape([x, x, 1, 1], [2, 2])"),
              "[[0, 0], [1, 1]]; [[1, 1], [1, 1]]");
    mr_eq_str(evaluate(3, "x => one_hot(x, 2)"), "[1.0, 0.0]; [0.0, 1.0]; [0.0, 0.0]");
    mr_eq_str(evaluate(1, "x => one_hot([1, 0], 2)"), "[[0.0, 1.0], [1.0, 0.0]]");
    mr_eq_str(evaluate(1, "x => zeros([2, 3])"), "[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]");
    mr_eq_str(evaluate(1, "x => ones([2], \"uint8\")"), "[1, 1]");
    mr_eq_str(evaluate(3, "x => ones([x], \"int64\")"), "[]; [1]; [1, 1]");
    mr_has_str(evaluate(1, "x => reshape([1, 2, 3], [2, -1])"), "refused");
    mr_has_str(evaluate(1, "x => concat([1], [[2]])"), "refused");
    mr_has_str(evaluate(3, "x => reshape(ones([x]), [2])"), "!reshape");
}

MR_TEST(indexing_takes_components_and_rows)
{
    mr_eq_str(evaluate(2, "x => (x, 5)", "x => (x[0], x[1], x[-1])"), "(0, 5, 5); (1, 5, 5)");
    mr_eq_str(evaluate(2, "x => {\"b\": x, \"a\": 9}", "x => x[\"b\"] + x[\"a\"]"), "9; 10");
    mr_eq_str(evaluate(2, "x => [[x, 1], [2, 3]][0]"), "[0, 1]; [1, 1]");
    mr_eq_str(evaluate(2, "x => [x, 1, 7][-1]"), "7; 7");
    mr_eq_str(evaluate(2, "x => [4, 5][x]"), "4; 5");
    mr_has_str(evaluate(1, "x => (x, 5)", "x => x[2]"), "refused");
    mr_has_str(evaluate(1, "x => (x, 5)", "x => x[-3]"), "refused");
    mr_has_str(evaluate(1, "x => [1, 2][2]"), "refused");
    mr_has_str(evaluate(1, "x => [1, 2][-3]"), "refused");
    mr_has_str(evaluate(1, "x => x[0]"), "refused");
    mr_has_str(evaluate(1, "x => {\"a\": x}", "x => x[\"b\"]"), "refused");
    mr_has_str(evaluate(3, "x => ones([x])[1]"), "out of range");
}

MR_TEST(parentheses_around_one_are_no_tuple)
{
    mr_eq_str(evaluate(2, "x => (x,)"), "0; 1");
    mr_eq_str(evaluate(2, "x => (x)"), "0; 1");
}

MR_TEST(strings_join_and_compare)
{
    mr_eq_str(evaluate(2, "x => \"a\" + \"b\""), "\"ab\"; \"ab\"");
    mr_eq_str(
        evaluate(2, "x => \"a\" if x == 0 else \"bc\"", "s => (s + \"!\", s == \"a\", s < \"b\")"),
        "(\"a!\", true, true); (\"bc!\", false, false)");
    mr_eq_str(evaluate(1, "x => [\"a\", \"b\"] + \"c\""), "[\"ac\", \"bc\"]");
    mr_eq_str(evaluate(1, "x => \"a\" < \"ab\""), "true");
    mr_has_str(evaluate(1, "x => \"a\" * 2"), "refused");
    mr_has_str(evaluate(1, "x => \"a\" - \"b\""), "refused");
}

MR_TEST(operators_broadcast_like_numpy)
{
    mr_eq_str(evaluate(2, "x => [1, 2] + x"), "[1, 2]; [2, 3]");
    mr_eq_str(evaluate(2, "x => [[x], [10]] * [1, 2, 3]"),
              "[[0, 0, 0], [10, 20, 30]]; [[1, 2, 3], [10, 20, 30]]");
    mr_eq_str(evaluate(1, "x => [[1, 2], [3, 4]] - [1, 2]"), "[[0, 0], [2, 2]]");
    mr_has_str(evaluate(1, "x => [1, 2] + [1, 2, 3]"), "refused");
    mr_has_str(evaluate(4, "x => ones([x]) + ones([3])"), "!shapes");
    mr_eq_str(evaluate(3, "x => ones([x], \"int64\") + [1]"), "[]; [2]; [2, 2]");
}

MR_TEST(comparisons_give_bools)
{
    mr_eq_str(evaluate(3, "x => [x == 1, x != 1, x < 1, x <= 1, x > 1, x >= 1]"),
              "[false, true, true, true, false, false]; [true, false, false, true, false, true]; "
              "[false, true, false, false, true, true]");
    mr_eq_str(evaluate(1, "x => [true, false] == [true, true]"), "[true, false]");
    mr_eq_str(evaluate(1, "x => not (1 < 2)"), "false");
    mr_eq_str(evaluate(1, "x => [1, 2] < [2, 1] and [true, true]"), "[true, false]");
}

MR_TEST(several_parameters_take_a_tuples_components)
{
    mr_eq_str(evaluate(2, "x => (x, (x + 1, 5))", "(a, b) => (b[1], a, b)"),
              "(5, 0, (1, 5)); (5, 1, (2, 5))");
    mr_has_str(evaluate(1, "x => (x, 1)", "(a, b, c) => a"), "refused");
    mr_has_str(evaluate(1, "x => {\"a\": x, \"b\": 1}", "(a, b) => a"), "refused");
    mr_has_str(evaluate(1, "x => y"), "refused");
    mr_has_str(evaluate(1, "x => foo(x)"), "refused");
}

static const char *const numbers[] = {"int8",    "int16",    "int32",   "int64",
                                      "uint8",   "uint16",   "uint32",  "uint64",
                                      "float16", "bfloat16", "float32", "float64"};

MR_TEST(every_dtype_computes)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char f[256];
        bool floating = strstr(numbers[i], "float") != NULL;
        mr_test_context("%s", numbers[i]);
        snprintf(f, sizeof f, "x => cast(x + 5, \"%s\")", numbers[i]);
        mr_eq_str(evaluate(1, f, "x => (x + 2, x - 2, x * 3, x // 2, x % 3, x ** 2)"),
                  floating ? "(7.0, 3.0, 15.0, 2.0, 2.0, 25.0)" : "(7, 3, 15, 2, 2, 25)");
        mr_eq_str(evaluate(1, f, "x => (abs(x), min(x, 4), max(x, 4), x == 5, x < 5, x >= 5)"),
                  floating ? "(5.0, 4.0, 5.0, true, false, true)" : "(5, 4, 5, true, false, true)");
        mr_eq_str(evaluate(1, f, "x => (sum([x, x]), mean([x, x]), min([x, x]), max([x, x]))"),
                  floating ? "(10.0, 5.0, 5.0, 5.0)" : "(10, 5, 5, 5)");
        mr_eq_str(evaluate(1, f, "x => x / 2"), "2.5");
        mr_eq_str(evaluate(1, f, "x => (cast(x, \"int64\"), cast(x, \"bool\"), cast(x, float32))"),
                  "(5, true, 5.0)");
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            char g[256];
            snprintf(g, sizeof g, "x => cast(x, \"%s\")", numbers[k]);
            mr_eq_str(evaluate(1, f, g), strstr(numbers[k], "float") ? "5.0" : "5");
        }
    }
    mr_eq_str(evaluate(2, "x => cast(x, \"bool\")", "x => (x, cast(x, \"int8\"))"),
              "(false, 0); (true, 1)");
}

/* Blocks of many rows and blocks of one row agree, on expressions drawn at random. */
static void draw(char *to, size_t size, int depth, uint64_t *random)
{
    static const char *const leaves[] = {"x", "2", "-3", "7", "y", "[x, y]", "x", "y"};
    static const char *const forms[][3] = {{"(", " + ", ")"},   {"(", " - ", ")"},
                                           {"(", " * ", ")"},   {"(", " // ", ")"},
                                           {"(", " % ", ")"},   {"min(", ", ", ")"},
                                           {"max(", ", ", ")"}, {"(", " if sum(", ") > 0 else 4)"}};
    if (depth <= 0) {
        snprintf(to, size, "%s", leaves[mr_test_random(random) % 8]);
        return;
    }
    char a[400], b[400];
    draw(a, sizeof a, depth - 1 - (int)(mr_test_random(random) % (uint64_t)depth), random);
    draw(b, sizeof b, depth - 1, random);
    const char *const *form = forms[mr_test_random(random) % 8];
    snprintf(to, size, "%s%s%s%s%s", form[0], a, form[1], b, form[2]);
}

MR_TEST(blocks_and_lone_rows_agree)
{
    uint64_t random = mr_test_seed();
    size_t ran = 0;
    for (int i = 0; i < (mr_test_long() ? 5000 : 300); i++) {
        char body[1024], f[1100], whole[16384];
        draw(body, sizeof body, 1 + (int)(mr_test_random(&random) % 4), &random);
        snprintf(f, sizeof f, "(x, y) => %s", body);
        mr_test_context("%s", f);
        const char *const steps[] = {"x => (x - 4, x * x % 7 - 3)", f, NULL};
        snprintf(whole, sizeof whole, "%s", evaluate_some(9, steps));
        mr_eq_str(whole, evaluate_rows_alone(9, steps));
        ran += strncmp(whole, "refused", 7) != 0;
    }
    mr_test_context("%s", "");
    mr_check(ran > 50);
}

MR_TEST(running_out_of_memory_is_an_error_and_leaks_nothing)
{
    static const char *const functions[] = {
        "x => x * 2 + 1",
        "x => {\"a\": [x, x + 1], \"b\": \"s\" + \"t\"}",
        "x => 10 // (x - 1) if x > 0 else x",
        "x => sum(ones([x])) + 1",
        "x => ones([x]) * 2.0 + 1.0",
        "x => concat(one_hot(x, 3), zeros([x]))",
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        mr_test_context("%s", functions[i]);
        mr_fault_each_allocation(n)
        {
            mr_status st;
            mr_block in = MR_BLOCK_EMPTY, out = MR_BLOCK_EMPTY;
            mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
            mr_spec *spec = mr_spec_scalar(MR_INT64), *out_spec = NULL;
            if (spec && evaluate_integers(0, 4, &in, &st) == MR_OK)
                mr_fault_expect(
                    evaluate_step(functions[i], spec, &in, &out_spec, &out, &errors, &st), &st);
            mr_spec_unref(spec);
            mr_spec_unref(out_spec);
            mr_row_errors_reset(&errors);
            mr_block_reset(&in);
            mr_block_reset(&out);
            mr_buffer_pool_trim();
        }
    }
}
