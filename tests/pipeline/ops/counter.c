/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(counts_for_ever)
{
    mr_drive("counter().take(3)", "0 1 2");
    mr_drive("counter(5, step=-2).take(4)", "5 3 1 -1");
    mr_drive("counter(7, 0).take(2)", "7 7");
    mr_drive_count("counter()", MR_INFINITE);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("counter().take(7)");
}
