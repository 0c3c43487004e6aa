/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(one_after_the_other)
{
    mr_drive("range(3).concatenate(range(10, 12))", "0 1 2 10 11");
    mr_drive("range(0).concatenate(range(2)).repeat(2)", "0 1 0 1");
}

MR_TEST(shapes_may_differ_types_not)
{
    mr_drive("from_tensors([1, 2]).concatenate(from_tensors([3]))", "[1,2] [3]");
    mr_drive_bad("range(3).concatenate(from_tensors(\"a\"))", "types");
}

MR_TEST(state_that_epochs_share_is_kept_also_of_an_input_not_yet_open)
{
    mr_drive_alike("range(2).concatenate(range(9).shuffle(9, seed=3)).repeat(3)");
    mr_drive_alike("range(2).concatenate(range(9).shuffle(9, seed=3).cache()).repeat(3)");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(3).concatenate(range(4))", 7);
    mr_drive_count("range(3).concatenate(counter())", MR_INFINITE);
    mr_drive_count("range(9223372036854775807).concatenate(range(1))", INT64_MAX);
    mr_drive_count("range(3).concatenate(range(3).filter(x => x > 1))", MR_UNKNOWN_COUNT);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(4).concatenate(range(7))");
}
