/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(counts_as_python)
{
    mr_drive("range(5)", "0 1 2 3 4");
    mr_drive("range(2, 10, 3)", "2 5 8");
    mr_drive("range(5, 0, -2)", "5 3 1");
    mr_drive("range(10, 5)", "");
    mr_drive("range(-3)", "");
}

MR_TEST(the_ends_of_int64_do_not_overflow)
{
    mr_drive("range(9223372036854775805, 9223372036854775807)",
             "9223372036854775805 9223372036854775806");
    mr_drive("range(-9223372036854775807, 9223372036854775807, 9223372036854775807)",
             "-9223372036854775807 0");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(0, 5, 0)", "step");
    mr_drive_bad("range(1.5)", "integer");
    mr_drive_bad("range(true)", "integer");
}

MR_TEST(cardinality_is_exact)
{
    mr_drive_count("range(10)", 10);
    mr_drive_count("range(10, 5)", 0);
    mr_drive_count("range(0, 10, 3)", 4);
    mr_drive_count("range(10, 0, -3)", 4);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(10)");
}
