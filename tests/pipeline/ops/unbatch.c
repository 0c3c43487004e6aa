/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(splits_along_axis_0)
{
    mr_drive("range(7).batch(3).unbatch()", "0 1 2 3 4 5 6");
    mr_drive("from_tensors([[1, 2], [3, 4]]).unbatch()", "[1,2] [3,4]");
    /* Rows of several elements at once, of which a block takes a part. */
    mr_drive("from_tensor_slices([[1, 2], [3, 4], [5, 6], [7, 8]]).unbatch()", "1 2 3 4 5 6 7 8");
    mr_drive("range(4).map(x => zeros([x])).unbatch()", "0 0 0 0 0 0");
    mr_drive("range(3).batch(2).map(x => (x, x + 1)).unbatch()", "(0,1) (1,2) (2,3)");
    mr_drive("from_tensors([\"a\", \"b\"]).unbatch().batch(3)", "[\"a\",\"b\"]");
}

MR_TEST(components_that_differ_are_an_error_of_the_element)
{
    mr_drive("range(1, 4).map(x => (zeros([x]), zeros([2]))).unbatch()", "!axis (0,0) (0,0) !axis");
    mr_drive_bad("from_tensors([1, 2], [1, 2, 3]).unbatch()", "axis");
    mr_drive_bad("range(3).unbatch()", "scalar");
}

MR_TEST(cardinality)
{
    mr_drive_count("from_tensors([1, 2, 3]).repeat(2).unbatch()", 6);
    mr_drive_count("range(10).batch(4, drop_remainder=true).unbatch()", 8);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).batch(3).unbatch()");
    mr_drive_faults("range(5).map(x => zeros([x])).unbatch()");
}

MR_TEST(the_count_is_known_right_after_a_batch)
{
    mr_drive_count("range(10).batch(4).unbatch()", 10);
    mr_drive_count("range(10).batch(4, drop_remainder=true).unbatch()", 8);
    mr_drive_count("range(10).batch(4).batch(2).unbatch()", 3);
    mr_drive_count("range(1, 4).map(x => ones([x])).padded_batch(2).unbatch()", 3);
    mr_drive_count("range(1, 4).map(x => ones([x])).padded_batch(2, drop_remainder=true).unbatch()",
                   2);
    mr_drive_count("range(1, 4).map(x => ones([x])).unbatch()", MR_UNKNOWN_COUNT);
    mr_drive_count("range(9).filter(x => x > 4).batch(4).unbatch()", MR_UNKNOWN_COUNT);
    mr_drive_count("counter().batch(4).unbatch()", MR_INFINITE);
}
