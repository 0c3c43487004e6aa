/* SPDX-License-Identifier: Apache-2.0 */
/* Corners of arithmetic and of branches, through graphs: Python's results. */
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

MR_TEST(floor_division_and_remainder_are_pythons)
{
    mr_drive("range(-3, 4).map(x => (x // 2, x % 2, x // -2, x % -2))",
             "(-2,1,1,-1) (-1,0,1,0) (-1,1,0,-1) (0,0,0,0) (0,1,-1,-1) (1,0,-1,0) (1,1,-2,-1)");
    mr_drive("range(-2, 3).map(x => (x // -1, x % -1))", "(2,0) (1,0) (0,0) (-1,0) (-2,0)");
    mr_drive("from_tensors(-9223372036854775807).map(x => ((x - 1) // -1, (x - 1) % -1))",
             "(-9223372036854775808,0)");
    mr_drive("from_tensor_slices([6.0, -6.0, 7.0, -7.0]).map(x => (x % 3.0, x % -3.0))",
             "(0,-0) (0,-0) (1,-2) (2,-1)");
    mr_drive("from_tensor_slices([6.0, -6.0, 7.0, -7.0]).map(x => (x // 3.0, x // -3.0))",
             "(2,-2) (-2,2) (2,-3) (-3,2)");
    mr_drive("range(3).map(x => (0 ** x, x ** 0, (-2) ** x))", "(1,1,1) (0,1,-2) (0,1,4)");
}

MR_TEST(min_and_max_with_nan_are_nan)
{
    mr_drive("from_tensors(0.0).map(x => (min(x / x, 1.0), min(1.0, x / x), max(x / x, 1.0), "
             "max(1.0, x / x)))",
             "(nan,nan,nan,nan)");
    mr_drive("from_tensors(2.0).map(x => (min(x, 1.0), max(x, 1.0)))", "(1,2)");
}

MR_TEST(rows_after_a_branch_report_their_own_errors)
{
    mr_drive("range(6).map(x => (12 // (x - 1) if x % 2 == 1 else 7) + 12 // (x - 4))",
             "4 !zero 1 -6 !zero 15");
    mr_drive("range(6).map(x => ((12 // (x - 3) if x > 2 else 1) if x % 2 == 1 else 12 // x) + 1)",
             "!zero 2 7 !zero 4 7");
    mr_drive("range(6).map(x => x > 2 and 12 // (x - 4) > 0 or 12 // x < 5)",
             "!zero false false true !zero true");
}

MR_TEST(rows_and_shapes_are_checked)
{
    mr_drive("from_tensors([1, 2, 3]).flat_map(v => range(-4, 5).map(i => v[i]))",
             "!range 1 2 3 1 2 3 !range !range");
    mr_drive("range(1, 4).map(x => zeros([x])).map(v => concat(v, ones([2])))",
             "[0,1,1] [0,0,1,1] [0,0,0,1,1]");
    mr_drive("range(2, 5).map(x => reshape(zeros([x * 2]), [-1, 4]))",
             "[[0,0,0,0]] !reshape [[0,0,0,0],[0,0,0,0]]");
    mr_drive("range(2, 5).map(x => reshape(zeros([x]), [3]))", "!reshape [0,0,0] !reshape");
    mr_drive("range(-1, 4).map(x => one_hot(x, 3))", "[0,0,0] [1,0,0] [0,1,0] [0,0,1] [0,0,0]");
    mr_drive("from_tensors([[1, 2, 3], [4, 5, 6]]).map(x => (length(x), size(x)))", "(2,6)");
}
