/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

MR_TEST(drops_what_came_before)
{
    mr_drive("from_tensor_slices([1, 3, 1, 2, 3, 3, 4]).unique()", "1 3 2 4");
    mr_drive("range(20).map(x => x % 3).unique()", "0 1 2");
    mr_drive("range(5).unique()", "0 1 2 3 4");
    mr_drive("range(0).unique()", "");
    mr_drive("from_tensor_slices([\"a\", \"\", \"b\", \"a\", \"\", \"ab\"]).unique()",
             "\"a\" \"\" \"b\" \"ab\"");
    mr_drive("from_tensor_slices([2, 2, 1]).map(x => cast(x, \"uint8\")).unique()", "2 1");
    mr_drive("from_tensor_slices([1, 1, 2]).unique().repeat(2)", "1 2 1 2");
}

MR_TEST(tensors_are_compared_with_their_shapes)
{
    mr_drive("from_tensor_slices([[1, 2], [2, 1], [1, 2]]).unique()", "[1,2] [2,1]");
    mr_drive("range(6).map(x => reshape([0, 0], [2] if x % 2 == 0 else [2])).unique()", "[0,0]");
    mr_drive("range(7).batch(2).map(x => x * 0).unique()", "[0,0] [0]");
    mr_drive("range(5).map(x => zeros([x % 2], \"int64\")).unique()", "[] [0]");
    mr_drive("range(4).map(x => reshape([0, 0, 0, 0, 0, 0], [2 + x % 2, 3 - x % 2])).unique()",
             "[[0,0,0],[0,0,0]] [[0,0],[0,0],[0,0]]");
    /* The same bytes, cut another way. */
    mr_drive("from_tensor_slices([[\"ab\", \"c\"], [\"a\", \"bc\"], [\"ab\", \"c\"]]).unique()",
             "[\"ab\",\"c\"] [\"a\",\"bc\"]");
}

MR_TEST(errors_stay_where_they_are)
{
    mr_drive("range(-3, 4).map(x => 6 // x % 4).unique()", "2 1 ! 3");
}

MR_TEST(other_elements_are_refused)
{
    mr_drive_bad("range(3).map(x => 1.0).unique()", "unique");
    mr_drive_bad("range(3).map(x => x > 1).unique()", "unique");
    mr_drive_bad("range(3).enumerate().unique()", "unique");
    mr_drive_bad("range(3).window(2).unique()", "unique");
    mr_drive_bad("range(6).batch(2).ragged_batch(2).unique()", "unique");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("range(3).unique()", MR_UNKNOWN_COUNT);
}

MR_TEST(many_values)
{
    mr_drive(
        "range(5000).map(x => x * 7919 % 3001).unique().batch(5000).map(x => (size(x), sum(x), "
        "max(x)))",
        "(3001,4501500,3000)");
}

MR_TEST(a_lack_of_memory_loses_no_value)
{
    mr_drive_goes_on("range(9).map(x => x % 4).unique()");
    mr_drive_goes_on("from_tensor_slices([\"a\", \"b\", \"a\", \"c\"]).unique()");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(200).map(x => x % 90).unique()");
    mr_drive_faults("range(90).batch(3).map(x => x % 5).unique()");
}
