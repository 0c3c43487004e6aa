/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(passes_what_is_there_and_tells_what_is_not)
{
    mr_drive("range(3).assert_cardinality(3)", "0 1 2");
    mr_drive("range(3).assert_cardinality(4)", "0 1 2 !expected_4_elements");
    mr_drive("range(3).assert_cardinality(2)", "0 1 !one_more");
    mr_drive("range(2).assert_cardinality(-1)", "0 1 !without_end");
    mr_drive("range(0).assert_cardinality(0)", "");
    mr_drive("counter().assert_cardinality(-1).take(2)", "0 1");
}

MR_TEST(an_error_is_not_an_element)
{
    mr_drive("from_tensor_slices([1, 0, 2]).map(x => 2 // x).assert_cardinality(2)", "2 !zero 1");
}

MR_TEST(the_number_is_known)
{
    mr_drive_count("range(9).filter(x => x > 4).assert_cardinality(4)", 4);
    mr_drive_bad("range(3).assert_cardinality(-2)", "cardinality");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(9).assert_cardinality(9)");
}
