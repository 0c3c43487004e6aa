/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of tensors: what numpy gives for the same arguments, and what is refused. */
#include <stdio.h>

#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

#define NOT "(1e999 - 1e999)" /* a NaN */

MR_TEST(ranges_are_pythons)
{
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][1:3]"), "[1, 2]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][:]"), "[0, 1, 2, 3, 4]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][-2:]"), "[3, 4]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][:-2]"), "[0, 1, 2]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][::2]"), "[0, 2, 4]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][::-1]"), "[4, 3, 2, 1, 0]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][3:0:-2]"), "[3, 1]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][100:-100:-3]"), "[4, 1]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][-100:100:3]"), "[0, 3]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][3:1]"), "[]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][1:4:9223372036854775807]"), "[1]");
    mr_eq_str(evaluate(1, "x => [0, 1, 2, 3, 4][::-9223372036854775808]"), "[4]");
    mr_eq_str(evaluate(1, "x => [[0, 1, 2], [3, 4, 5]][:, 1:]"), "[[1, 2], [4, 5]]");
    mr_eq_str(evaluate(1, "x => [[0, 1, 2], [3, 4, 5]][1, ::-1]"), "[5, 4, 3]");
    mr_eq_str(evaluate(1, "x => [[0, 1, 2], [3, 4, 5]][-1, -1]"), "5");
    mr_eq_str(evaluate(1, "x => [[0, 1, 2], [3, 4, 5]][:, 0]"), "[0, 3]");
    mr_eq_str(evaluate(1, "x => [[0, 1, 2], [3, 4, 5]][1:]"), "[[3, 4, 5]]");
    mr_eq_str(evaluate(1, "x => [\"a\", \"b\", \"c\"][::2]"), "[\"a\", \"c\"]");
    mr_eq_str(evaluate(3, "x => [0, 1, 2, 3][x:x + 2]"), "[0, 1]; [1, 2]; [2, 3]");
    mr_eq_str(evaluate(3, "x => [0, 1, 2][x:]"), "[0, 1, 2]; [1, 2]; [2]");
    mr_eq_str(evaluate(2, "x => [[0, 1], [2, 3]][x, :]"), "[0, 1]; [2, 3]");
    mr_eq_str(evaluate(3, "x => ones([x])", "x => x[1:]"), "[]; []; [1.0]");
    mr_eq_str(evaluate(2, "x => [4, 5, 6][::x]"),
              "!the step of a range must not be 0 in [4, 5, 6][::x]; [4, 5, 6]");
    mr_has_str(evaluate(1, "x => [4, 5][::0]"), "the step of a range must not be 0");
    mr_has_str(evaluate(1, "x => [4, 5][1:, 0]"), "2 indices or ranges into a tensor of 1 axes");
    mr_has_str(evaluate(1, "x => [[4, 5]][1, :]"), "index 1 is out of range: axis 0 has length 1");
    mr_has_str(evaluate(3, "x => [[4], [5]][x, :]"),
               "!index 2 is out of range: axis 0 has length 2");
    mr_has_str(evaluate(1, "x => x[:1]"), "into a tensor of 0 axes");
    mr_has_str(evaluate(1, "x => [1, 2][\"a\":]"), "[:] expects an integer, not string");
    mr_has_str(evaluate(1, "x => [1, 2][1:2:3:4]"), "expected ',' or ']'");
    mr_has_str(evaluate(1, "x => (1:2)"), "expected ',' or ')'");
}

MR_TEST(where_picks_and_finds)
{
    mr_eq_str(evaluate(2, "x => where([x, 1] > 0, [x, 7], -1)"), "[-1, 7]; [1, 7]");
    mr_eq_str(evaluate(2, "x => where(x > 0, \"a\", \"b\")"), "\"b\"; \"a\"");
    mr_eq_str(evaluate(1, "x => where([[true], [false]], [1, 2], 3)"), "[[1, 2], [3, 3]]");
    mr_eq_str(evaluate(2, "x => where([x > 0, true, false])"), "[1]; [0, 1]");
    mr_eq_str(evaluate(1, "x => where([[true, false], [true, true]])"), "([0, 1, 1], [0, 0, 1])");
    mr_eq_str(evaluate(1, "x => where([false])"), "[]");
    mr_eq_str(evaluate(3, "x => ones([x]) > 0", "c => where(c)"), "[]; [0]; [0, 1]");
    mr_eq_str(evaluate(2, "x => where([true], x=x, y=5)"), "[0]; [1]");
    mr_has_str(evaluate(1, "x => where(true)"), "where of a single condition");
    mr_has_str(evaluate(1, "x => where([true], 1)"), "a condition alone, or with x and y");
    mr_has_str(evaluate(1, "x => where([true], 1, \"a\")"),
               "a number cannot be combined with a string");
    mr_has_str(evaluate(1, "x => where([true, false], [1, 2, 3], 1)"), "are not compatible");
    mr_has_str(evaluate(4, "x => where([true, false], ones([x]), 1.0)"),
               "!shapes [2] and [0] are not compatible");
    mr_has_str(evaluate(1, "x => where(x, 1, 2)"), "where expects bools, not int64");
}

MR_TEST(reductions_take_an_axis_or_several)
{
#define A "[[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [10, 11, 13]]]"
    mr_eq_str(evaluate(1, "x => sum(" A ")"), "79");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=none)"), "79");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=0)"), "[[8, 10, 12], [14, 16, 19]]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=-1)"), "[[6, 15], [24, 34]]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=[0, 1])"), "[22, 26, 31]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=[-1, 0])"), "[30, 49]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=[1, 2])"), "[21, 58]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=[0, 1, 2])"), "79");
    mr_eq_str(evaluate(1, "x => sum([[1, 2]], axis=[])"), "[[1, 2]]");
    mr_eq_str(evaluate(1, "x => sum(" A ", axis=[0, 2], keepdims=true)"), "[[[30], [49]]]");
    mr_eq_str(evaluate(1, "x => sum(" A ", keepdims=true)"), "[[[79]]]");
    mr_eq_str(evaluate(1, "x => mean(" A ", axis=[0, 2])"), "[5, 8]");
    mr_eq_str(evaluate(1, "x => mean([[1.0, 2.0], [3.0, 5.0]], axis=0)"), "[2.0, 3.5]");
    mr_eq_str(evaluate(1, "x => (min(" A ", axis=[0, 1]), max(" A ", axis=[0, 2]))"),
              "([1, 2, 3], [9, 13])");
    mr_eq_str(evaluate(1, "x => any([[[true, false]], [[false, false]]], axis=[0, 1])"),
              "[true, false]");
    mr_eq_str(evaluate(1, "x => count_nonzero(" A " > 4, axis=[0, 2])"), "[3, 5]");
    mr_eq_str(evaluate(1, "x => norm([[[3, 0]], [[0, 4]]], axis=[0, 2])"), "[5.0]");
    mr_eq_str(evaluate(3, "x => sum([[x, 1], [2, x]], axis=0)"), "[2, 1]; [3, 2]; [4, 3]");
    mr_eq_str(evaluate(1, "x => sum(zeros([2, 0]), axis=1)"), "[0.0, 0.0]");
    mr_has_str(evaluate(1, "x => max(zeros([2, 0]), axis=1)"), "max of no values");
    mr_has_str(evaluate(1, "x => sum([[1]], axis=2)"), "sum along axis 2 of a tensor of 2 axes");
    mr_has_str(evaluate(1, "x => sum([[1]], axis=[0, -2])"), "sum along axis 0 twice");
    mr_has_str(evaluate(1, "x => min(x, 1, axis=0)"), "elementwise and has no axis");
    mr_has_str(evaluate(1, "x => argmax([[1]], axis=[0, 1])"), "takes one axis, not 2");
#undef A
}

MR_TEST(reductions_go_along_an_axis_or_over_all)
{
    mr_eq_str(evaluate(1, "x => argmax([[1, 5, 5], [7, 0, 2]])"), "3");
    mr_eq_str(evaluate(1, "x => argmax([[1, 5, 5], [7, 0, 2]], axis=1)"), "[1, 0]");
    mr_eq_str(evaluate(1, "x => argmax([[1, 5, 5], [7, 0, 2]], 0)"), "[1, 0, 0]");
    mr_eq_str(evaluate(1, "x => argmax([[1, 5, 5], [7, 0, 2]], axis=none)"), "3");
    mr_eq_str(evaluate(1, "x => argmin([[1, 5, 5], [7, 0, 2]], axis=-1, keepdims=true)"),
              "[[0], [1]]");
    mr_eq_str(evaluate(1, "x => argmin([1, 2], keepdims=true)"), "[0]");
    mr_eq_str(evaluate(1, "x => (argmax([1.0, " NOT ", 3.0]), argmin([1.0, " NOT ", 3.0]))"),
              "(1, 1)");
    mr_eq_str(evaluate(1, "x => argmax([false, true, true])"), "1");
    mr_eq_str(evaluate(1, "x => argmax(cast([1, 3], \"float16\"))"), "1");
    mr_eq_str(evaluate(2, "x => argmax(ones([x]))"),
              "!argmax of no values in argmax(ones([x])); 0");
    mr_eq_str(evaluate(1, "x => argmax(zeros([0, 3]), axis=1)"), "[]");
    mr_has_str(evaluate(1, "x => argmax(zeros([0, 3]), axis=0)"), "!argmax of no values");
    mr_eq_str(evaluate(1, "x => (any([0, 2]), all([0, 2]), any([false]), all([true]))"),
              "(true, false, false, true)");
    mr_eq_str(evaluate(1, "x => (any(zeros([0])), all(zeros([0])))"), "(false, true)");
    mr_eq_str(evaluate(1, "x => any([[true, false], [false, false]], axis=0)"), "[true, false]");
    mr_eq_str(evaluate(1, "x => all([[1.0, 2.0], [0.0, 1.0]], axis=1)"), "[true, false]");
    mr_eq_str(evaluate(1, "x => count_nonzero([[1, 0], [2, 3]], axis=0)"), "[2, 1]");
    mr_eq_str(evaluate(1, "x => count_nonzero([0.0, " NOT ", -1.0])"), "2");
    mr_eq_str(evaluate(1, "x => norm([3, 4])"), "5.0");
    mr_eq_str(evaluate(1, "x => norm([[3.0, 4.0], [6.0, 8.0]], axis=1)"), "[5.0, 10.0]");
    mr_eq_str(evaluate(1, "x => norm(cast([3, 4], \"float16\"))"), "5.0");
    mr_eq_str(evaluate(1, "x => norm(-2)"), "2.0");
    mr_has_str(evaluate(1, "x => argmax([1, 2], axis=1)"), "argmax along axis 1 of a tensor of 1");
    mr_has_str(evaluate(1, "x => any(\"a\")"), "any does not take string");
    mr_has_str(evaluate(1, "x => all([1], axis=x)"), "unknown name 'x'");
}

MR_TEST(values_are_put_in_order)
{
    mr_eq_str(evaluate(1, "x => sort([3, -1, 2])"), "[-1, 2, 3]");
    mr_eq_str(evaluate(1, "x => sort([2.0, " NOT ", -1.0, 1e999])"), "[-1.0, 2.0, 1e999, " NOT "]");
    mr_eq_str(evaluate(1, "x => sort([[3, 1], [2, 0]], axis=0)"), "[[2, 0], [3, 1]]");
    mr_eq_str(evaluate(1, "x => sort([\"b\", \"\", \"ab\", \"a\"])"),
              "[\"\", \"a\", \"ab\", \"b\"]");
    mr_eq_str(evaluate(1, "x => sort([true, false])"), "[false, true]");
    mr_eq_str(evaluate(1, "x => sort(cast([2, 1], \"bfloat16\"))"), "[1.0, 2.0]");
    mr_eq_str(evaluate(1, "x => sort(zeros([0]))"), "[]");
    mr_has_str(evaluate(1, "x => sort(x)"), "sort along axis -1 of a tensor of 0 axes");
    mr_eq_str(evaluate(1, "x => topk([1, 3, 2, 3], 3)"), "([3, 3, 2], [1, 3, 2])");
    mr_eq_str(evaluate(1, "x => topk([[1, 2], [4, 3]], 1)[1]"), "[[1], [0]]");
    mr_eq_str(evaluate(1, "x => topk(cast([1, 2], \"float16\"), 1)"), "([2.0], [1])");
    mr_eq_str(evaluate(3, "x => topk([5, 6], x)[0]"), "[]; [6]; [6, 5]");
    mr_has_str(evaluate(1, "x => topk([5, 6], 3)"), "topk: k is 3, out of range");
    mr_has_str(evaluate(2, "x => topk([5, 6], 3 * x)[0]"), "[]; !topk: k is 3, out of range for 2");
    mr_has_str(evaluate(1, "x => topk(5, 1)"), "topk of a scalar");
    mr_eq_str(evaluate(1, "x => unique_values([3, 1, 3, 2, 1])"), "[3, 1, 2]");
    mr_eq_str(evaluate(1, "x => unique_values([0.0, -0.0, " NOT ", " NOT "])"),
              "[0.0, " NOT ", " NOT "]");
    mr_eq_str(evaluate(1, "x => unique_values([\"b\", \"a\", \"b\", \"\"])"),
              "[\"b\", \"a\", \"\"]");
    mr_eq_str(evaluate(1, "x => unique_values([[true, false], [true, true]])"), "[true, false]");
    mr_eq_str(evaluate(2, "x => unique_values(cast([x, 1], \"float16\"))"), "[0.0, 1.0]; [1.0]");
    mr_eq_str(evaluate(2, "x => unique_values(zeros([0]))"), "[]; []");
}

/* Long lines against the definition: sorting and picking agree with each other. */
MR_TEST(long_lines_are_sorted_too)
{
    for (int n = 10; n < 3000; n = n * 3 + 1) {
        mr_test_context("%d values", n);
        char pipeline[200];
        snprintf(pipeline, sizeof pipeline, "x => (ones([%d], \"int64\"), x)", n);
        mr_eq_str(evaluate(1, pipeline, "(o, x) => cumsum(o) * 7919 % 1009",
                           "v => (sort(v), topk(v, 10)[0], -sort(-v))",
                           "(s, t, d) => (all(s[1:] >= s[:-1]), all(t == d[:10]), size(s))",
                           "(a, b, n) => a and b and n > 9"),
                  "true");
    }
}

MR_TEST(axes_move)
{
    mr_eq_str(evaluate(1, "x => transpose([[1, 2], [3, 4]])"), "[[1, 3], [2, 4]]");
    mr_eq_str(evaluate(1, "x => transpose([[[1, 2]], [[3, 4]]], [1, 0, 2])"), "[[[1, 2], [3, 4]]]");
    mr_eq_str(evaluate(1, "x => transpose([[\"a\", \"b\"]], axes=[-1, 0])"), "[[\"a\"], [\"b\"]]");
    mr_eq_str(evaluate(1, "x => transpose(7)"), "7");
    mr_eq_str(evaluate(1, "x => transpose(zeros([2, 0]))"), "[]");
    mr_has_str(evaluate(1, "x => transpose([[1]], [0, 0])"),
               "axes is not a permutation of the 2 axes of x");
    mr_has_str(evaluate(1, "x => transpose([[1]], [0])"),
               "axes is not a permutation of the 2 axes of x");
    mr_eq_str(evaluate(2, "x => expand_dims(x, 0)"), "[0]; [1]");
    mr_eq_str(evaluate(1, "x => expand_dims([1, 2], -1)"), "[[1], [2]]");
    mr_eq_str(evaluate(1, "x => expand_dims([1, 2], axis=0)"), "[[1, 2]]");
    mr_has_str(evaluate(1, "x => expand_dims([1], 2)"), "along axis 2 of a tensor of 2 axes");
    mr_has_str(evaluate(1, "x => expand_dims([[[[[[[[1]]]]]]]], 0)"), "more than 8 axes");
    mr_eq_str(evaluate(1, "x => squeeze([[[1], [2]]])"), "[1, 2]");
    mr_eq_str(evaluate(1, "x => squeeze([[[1], [2]]], axis=0)"), "[[1], [2]]");
    mr_eq_str(evaluate(2, "x => ones([x + 1])", "x => squeeze(x[:1], axis=0)"), "1.0; 1.0");
    mr_has_str(evaluate(2, "x => ones([x + 1])", "x => squeeze(x, axis=0)"),
               "1.0; !squeeze: axis 0 has length 2, not 1");
    mr_has_str(evaluate(1, "x => squeeze([1, 2], axis=0)"), "axis 0 has length 2, not 1");
    mr_has_str(evaluate(1, "x => ones([x])", "x => squeeze(x)"), "name the axis to remove");
}

MR_TEST(parts_are_gathered)
{
    mr_eq_str(evaluate(3, "x => gather([4, 5, 6], x)"), "4; 5; 6");
    mr_eq_str(evaluate(1, "x => gather([4, 5, 6], [[0, -1], [1, 1]])"), "[[4, 6], [5, 5]]");
    mr_eq_str(evaluate(1, "x => gather([[1, 2], [3, 4]], [1, 0], axis=1)"), "[[2, 1], [4, 3]]");
    mr_eq_str(evaluate(2, "x => gather([[1, 2], [x, 4]], x)"), "[1, 2]; [1, 4]");
    mr_eq_str(evaluate(1, "x => gather([\"a\", \"b\"], [1])"), "[\"b\"]");
    mr_eq_str(evaluate(3, "x => gather([4, 5], x)"),
              "4; 5; !index 2 is out of range: axis 0 has length 2 in gather([4, 5], x)");
    mr_has_str(evaluate(1, "x => gather([4, 5], [0, 2])"), "index 2 is out of range");
    mr_has_str(evaluate(1, "x => gather(4, 0)"), "gather along axis 0 of a tensor of 0 axes");
}

MR_TEST(axes_are_padded)
{
    mr_eq_str(evaluate(1, "x => pad([1, 2], 1)"), "[0, 1, 2, 0]");
    mr_eq_str(evaluate(1, "x => pad([1, 2], [0, 2], constant_values=-1)"), "[1, 2, -1, -1]");
    mr_eq_str(evaluate(2, "x => pad([[x]], [[1, 0], [0, 2]], constant_values=9)"),
              "[[9, 9, 9], [0, 9, 9]]; [[9, 9, 9], [1, 9, 9]]");
    mr_eq_str(evaluate(1, "x => pad([\"a\"], 1)"), "[\"\", \"a\", \"\"]");
    mr_eq_str(evaluate(1, "x => pad([1, 2, 3], [2, 3], mode=\"edge\")"),
              "[1, 1, 1, 2, 3, 3, 3, 3]");
    mr_eq_str(evaluate(1, "x => pad([1, 2, 3], [4, 5], mode=\"reflect\")"),
              "[1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2]");
    mr_eq_str(evaluate(1, "x => pad([1, 2, 3], [4, 4], mode=\"symmetric\")"),
              "[3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1]");
    mr_eq_str(evaluate(1, "x => pad([7], 2, mode=\"reflect\")"), "[7, 7, 7, 7, 7]");
    mr_eq_str(evaluate(1, "x => pad([[1, 2], [3, 4]], [[0, 1], [1, 0]], mode=\"reflect\")"),
              "[[2, 1, 2], [4, 3, 4], [2, 1, 2]]");
    mr_eq_str(evaluate(1, "x => pad(zeros([0]), [1, 1], constant_values=2)"), "[2.0, 2.0]");
    mr_eq_str(evaluate(3, "x => pad([5], [0, x])"), "[5]; [5, 0]; [5, 0, 0]");
    mr_eq_str(evaluate(3, "x => ones([x])", "x => pad(x, [0, 2 - length(x)])"),
              "[0.0, 0.0]; [1.0, 0.0]; [1.0, 1.0]");
    mr_has_str(evaluate(2, "x => pad([5], -x)"), "[5]; !pad: pad_width is negative");
    mr_has_str(evaluate(1, "x => pad([5], [1, 2, 3])"),
               "pad_width is n, [before, after] or a pair");
    mr_has_str(evaluate(1, "x => pad(5, 1)"), "pad of a scalar");
    mr_has_str(evaluate(1, "x => pad([5], 1, constant_values=\"a\")"),
               "a number cannot be combined");
    mr_has_str(evaluate(1, "x => pad(zeros([0]), 1, mode=\"edge\")"), "cannot be extended");
    mr_has_str(evaluate(1, "x => pad([5], 9223372036854775807)"), "!pad: too many values");
}

MR_TEST(matrices_are_multiplied)
{
    mr_eq_str(evaluate(1, "x => matmul([[1, 2], [3, 4]], [[5, 6], [7, 8]])"),
              "[[19, 22], [43, 50]]");
    mr_eq_str(evaluate(2, "x => matmul([[1, x], [0, 1]], [2, 3])"), "[2, 3]; [5, 3]");
    mr_eq_str(evaluate(1, "x => matmul([1.5, 2.0], [2.0, 3.0])"), "9.0");
    mr_eq_str(evaluate(1, "x => matmul([2, 3], [[1, 2], [3, 4]])"), "[11, 16]");
    mr_eq_str(evaluate(2, "x => matmul([[[1, x]], [[2, 3]]], [[1], [1]])"),
              "[[[1]], [[5]]]; [[[2]], [[5]]]");
    mr_eq_str(evaluate(2, "x => matmul([[1], [2]], [[[x, 1]], [[2, 3]]])"),
              "[[[0, 1], [0, 2]], [[2, 3], [4, 6]]]; [[[1, 1], [2, 2]], [[2, 3], [4, 6]]]");
    mr_eq_str(evaluate(2, "x => matmul([[[1, x]], [[2, 3]]], [1, 1])"), "[[1], [5]]; [[2], [5]]");
    mr_eq_str(evaluate(1, "x => matmul(zeros([2, 0]), zeros([0, 1]))"), "[[0.0], [0.0]]");
    mr_eq_str(evaluate(1, "x => matmul(cast([[2]], \"float16\"), cast([[3]], \"float16\"))"),
              "[[6.0]]");
    mr_has_str(evaluate(1, "x => matmul([[1, 2]], [[1, 2]])"),
               "matmul: shapes [1, 2] and [1, 2] are not compatible");
    mr_has_str(evaluate(1, "x => matmul(1, [2])"), "are not compatible");
    mr_has_str(evaluate(2, "x => matmul(ones([x]), [2.0])"),
               "!matmul: shapes [0] and [1] are not compatible");
}

MR_TEST(values_one_by_one)
{
    mr_eq_str(evaluate(1, "x => round([0.5, 1.5, -0.5, 2.4])"), "[0.0, 2.0, -0.0, 2.0]");
    mr_eq_str(evaluate(1, "x => round([1.25, 1e999], decimals=1)"), "[1.2, 1e999]");
    mr_eq_str(evaluate(1, "x => round(cast(15, \"float64\"), -1)"), "20.0");
    mr_eq_str(evaluate(1, "x => (round(7), floor(-7), ceil(7))"), "(7, -7, 7)");
    mr_eq_str(evaluate(1, "x => round([17, 15, 25, -25, -26, 4], -1)"),
              "[20, 20, 20, -20, -30, 0]");
    mr_eq_str(evaluate(1, "x => round(9223372036854775807, decimals=-18)"), "9000000000000000000");
    mr_eq_str(evaluate(1, "x => (round(5, -19), round(5, -300), round(5, 3))"), "(0, 0, 5)");
    mr_eq_str(evaluate(1, "x => round(cast(255, \"uint8\"), -1)"), "4"); /* 260 wraps */
    mr_eq_str(evaluate(1, "x => round(to_number(\"18446744073709551614\", \"uint64\"), -1)"),
              "18446744073709551610");
    mr_eq_str(evaluate(1, "x => (floor(-1.5), ceil(-1.5))"), "(-2.0, -1.0)");
    mr_eq_str(evaluate(1, "x => floor(cast(1.5, \"float16\"))"), "1.0");
    mr_eq_str(evaluate(1, "x => exp([0, 1])"), "[1.0, 2.718281828459045]");
    mr_eq_str(evaluate(1, "x => log([1.0, 0.0])"), "[0.0, -1e999]");
    mr_eq_str(evaluate(1, "x => sqrt([4, 2])"), "[2.0, 1.4142135623730951]");
    mr_eq_str(evaluate(1, "x => (sin(0), cos(0.0))"), "(0.0, 1.0)");
    mr_eq_str(evaluate(3, "x => pow(x, 2)"), "0; 1; 4");
    mr_has_str(evaluate(1, "x => pow(2, x - 1)"), "!an integer to a negative power");
    mr_eq_str(evaluate(5, "x => clip(x, 1, 3)"), "1; 1; 2; 3; 3");
    mr_eq_str(evaluate(1, "x => clip([1.0, 5.0], [2.0, 0.0], 3.0)"), "[2.0, 3.0]");
    mr_eq_str(evaluate(1, "x => clip(" NOT ", 0.0, 1.0)"), NOT);
    mr_eq_str(evaluate(1, "x => clip(5, 3, 1)"), "1");
    mr_eq_str(evaluate(1, "x => cumsum([[1, 2], [3, 4]])"), "[1, 3, 6, 10]");
    mr_eq_str(evaluate(1, "x => cumsum([[1, 2], [3, 4]], axis=0)"), "[[1, 2], [4, 6]]");
    mr_eq_str(evaluate(1, "x => cumsum(cast([100, 100], \"int8\"))"), "[100, -56]");
    mr_eq_str(evaluate(1, "x => cumsum(cast([1, 2], \"float16\"), -1)"), "[1.0, 3.0]");
    mr_eq_str(evaluate(1, "x => cumsum(zeros([2, 0]), axis=0)"), "[[], []]");
    mr_eq_str(evaluate(1, "x => cumsum(5)"), "[5]");
    mr_has_str(evaluate(1, "x => sin(\"a\")"), "sin expects numbers, not string");
    mr_has_str(evaluate(1, "x => cumsum(true)"), "cumsum expects numbers, not bool");
    mr_eq_str(evaluate(1, "x => discretization([-1.0, 0.0, 0.5, 2.0, 9.0], [0.0, 0.5, 2.0])"),
              "[0, 1, 2, 3, 3]");
    mr_eq_str(evaluate(1, "x => discretization([[3, 4]], bin_boundaries=[4.0])"), "[[0, 1]]");
    mr_eq_str(evaluate(1, "x => discretization(cast(2.5, \"float16\"), [-1.0])"), "1");
    mr_has_str(evaluate(1, "x => discretization(x, [1.0, 1.0])"), "finite and ascend");
    mr_has_str(evaluate(1, "x => discretization(\"a\", [1.0])"), "discretization expects numbers");
}

MR_TEST(rescaling_and_normalization_are_the_layers)
{
    mr_eq_str(evaluate(2, "x => rescaling([x, 4], 0.5)"), "[0.0, 2.0]; [0.5, 2.0]");
    mr_eq_str(evaluate(1, "x => rescaling(cast([255, 0], \"uint8\"), 2, offset=-1)"),
              "[509.0, -1.0]");
    mr_eq_str(evaluate(1, "x => rescaling(cast(1, \"float64\") / 3, 1.0)"), "0.3333333333333333");
    mr_eq_str(evaluate(1, "x => normalization([[1, 4], [3, 2]], mean=[1, 2], variance=[4, 1])"),
              "[[0.0, 2.0], [1.0, 0.0]]");
    mr_eq_str(evaluate(2, "x => normalization(x, mean=[1], variance=[4.0])"), "-0.5; 0.0");
    mr_eq_str(evaluate(1, "x => normalization([3, 5], [1.0], [0.0]) > [1e6, 1e6]"), "[true, true]");
    mr_eq_str(evaluate(1, "x => normalization(zeros([0, 2]), [1, 2], [1, 1])"), "[]");
    mr_has_str(evaluate(1, "x => normalization([1, 2, 3], [1, 2], [1])"), "mean has 2 values");
    mr_has_str(evaluate(1, "x => normalization([1, 2], [1], [-1])"), "a variance is -1");
    mr_has_str(evaluate(1, "x => normalization([1, 2], [], [1])"), "expects mean and variance");
    mr_has_str(evaluate(1, "x => normalization([1, 2], mean=[1])"), "expects mean and variance");
    mr_has_str(evaluate(1, "x => normalization([1, 2], mean=[1], adapted=\"d\")"),
               "or adapted alone");
    mr_has_str(evaluate(1, "x => normalization([1, 2], adapted=\"\")"), "but is empty");
    mr_has_str(evaluate(2, "x => normalization(ones([x + 1]), [1, 2], [1])"),
               "do not match an axis of 1");
    mr_has_str(evaluate(1, "x => rescaling(\"a\", 1.0)"), "refused");
}

MR_TEST(category_encoding_is_the_layer)
{
    mr_eq_str(evaluate(2, "x => category_encoding([x, 2, 2], 3)"),
              "[1.0, 0.0, 1.0]; [0.0, 1.0, 1.0]");
    mr_eq_str(evaluate(1, "x => category_encoding([0, 2, 2], 3, output_mode=\"count\")"),
              "[1.0, 0.0, 2.0]");
    mr_eq_str(evaluate(1, "x => category_encoding([0, 2], 3, output_mode=\"one_hot\")"),
              "[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]");
    mr_eq_str(evaluate(1, "x => category_encoding([[0], [1]], 2, output_mode=\"one_hot\")"),
              "[[1.0, 0.0], [0.0, 1.0]]");
    mr_eq_str(evaluate(1, "x => category_encoding([[0, 1], [1, 1]], 2)"),
              "[[1.0, 1.0], [0.0, 1.0]]");
    mr_eq_str(evaluate(2, "x => category_encoding(cast(x, \"uint8\"), 2)"),
              "[1.0, 0.0]; [0.0, 1.0]");
    mr_eq_str(
        evaluate(2, "x => category_encoding([2 - x, 0], 2)"),
        "!category_encoding: 2 is not a class from 0 to below 2 in category_encoding([2 - x, 0], "
        "2); [1.0, 1.0]");
    mr_has_str(evaluate(1, "x => category_encoding([-1], 2)"), "-1 is not a class");
    mr_has_str(evaluate(1, "x => category_encoding([1.0], 2)"), "refused");
    mr_has_str(evaluate(1, "x => category_encoding([1], 0)"), "num_tokens");
    mr_has_str(evaluate(1, "x => category_encoding([1], 2, output_mode=\"hot\")"), "multi_hot");
}
