/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(repeats_epochs)
{
    mr_drive("range(3).repeat(2)", "0 1 2 0 1 2");
    mr_drive("range(2).repeat(2).repeat(2)", "0 1 0 1 0 1 0 1");
    mr_drive("range(3).repeat(0)", "");
    mr_drive("range(2).repeat().take(5)", "0 1 0 1 0");
    mr_drive("range(2).repeat(-2).take(3)", "0 1 0");
}

MR_TEST(an_epoch_without_elements_ends_an_endless_repeat)
{
    mr_drive("range(0).repeat()", "");
    mr_drive("range(0).repeat(9223372036854775807)", "");
    mr_drive("range(3).filter(x => x > 5).repeat()", "");
    mr_drive("from_tensors(0).map(x => 1 // x).repeat()", "!zero");
    mr_drive("zip(from_tensors(0).map(x => 1 // x), range(0)).repeat()", "!zero");
    mr_drive("zip(from_tensors(0).map(x => 1 // x), range(0)).repeat(3)", "!zero !zero !zero");
    mr_drive("range(2).shuffle(2, seed=4).take(1).filter(x => x == 1).repeat()", "1 1");
}

MR_TEST(each_epoch_is_a_new_iterator)
{
    mr_drive("range(5).shuffle(5, seed=1).repeat(2).batch(5)", "[0,4,3,1,2] [3,1,0,4,2]");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(3).repeat(2)", 6);
    mr_drive_count("range(3).repeat()", MR_INFINITE);
    mr_drive_count("range(9223372036854775807).repeat(2)", INT64_MAX);
    mr_drive_count("range(0).repeat()", 0);
    mr_drive_count("range(3).filter(x => x > 1).repeat()", MR_INFINITE);
    mr_drive_count("range(3).filter(x => x > 1).repeat(0)", 0);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(4).repeat(3)");
}
