/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(skips_the_first)
{
    mr_drive("range(5).skip(3)", "3 4");
    mr_drive("range(5).skip(0)", "0 1 2 3 4");
    mr_drive("range(5).skip(9)", "");
    mr_drive("range(5).skip(-1)", "");
    mr_drive("counter().skip(-1)", "");
    mr_drive("from_tensors(0).map(x => 1 // x).skip(-1)", "");
}

MR_TEST(errors_of_skipped_elements_come_up_and_do_not_count)
{
    mr_drive("from_tensor_slices([1, 0, 2, 3, 6]).map(x => 6 // x).skip(2)", "!zero 2 1");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(5).skip(2)", 3);
    mr_drive_count("range(5).skip(9)", 0);
    mr_drive_count("range(5).skip(-1)", 0);
    mr_drive_count("counter().skip(4)", MR_INFINITE);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).skip(10)");
}
