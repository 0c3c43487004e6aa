/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(takes_the_first)
{
    mr_drive("range(5).take(3)", "0 1 2");
    mr_drive("range(5).take(9)", "0 1 2 3 4");
    mr_drive("range(5).take(0)", "");
    mr_drive("range(5).take(-7)", "0 1 2 3 4");
}

MR_TEST(an_error_behind_the_last_never_shows)
{
    mr_drive("from_tensor_slices([1, 2, 3, 0, 5]).map(x => 10 // x).take(3)", "10 5 3");
    mr_drive("from_tensor_slices([1, 0, 3, 4]).map(x => 12 // x).take(3)", "12 !zero 4 3");
}

MR_TEST(a_take_of_nothing_does_not_open_its_input)
{
    mr_drive("range(3).shard(-1, 0).take(0)", "");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(5).take(3)", 3);
    mr_drive_count("range(5).take(-1)", 5);
    mr_drive_count("range(5).take(-7)", 5);
    mr_drive_count("counter().take(4)", 4);
    mr_drive_count("range(5).filter(x => x > 1).take(0)", MR_UNKNOWN_COUNT);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).take(10)");
}
