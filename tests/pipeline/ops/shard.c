/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(every_nth_element)
{
    mr_drive("range(10).shard(3, 0)", "0 3 6 9");
    mr_drive("range(10).shard(3, 2)", "2 5 8");
    mr_drive("range(3).shard(1, 0)", "0 1 2");
    mr_drive("range(3).shard(8, 7)", "");
}

MR_TEST(an_error_has_no_position)
{
    mr_drive("from_tensor_slices([1, 0, 2, 4]).map(x => 4 // x).shard(2, 1)", "!zero 2");
}

MR_TEST(too_few_elements_are_told_once_where_that_is_asked)
{
    mr_drive("range(3).shard(4, 0, require_non_empty=true)", "!found_3_elements");
    mr_drive("range(3).shard(4, 3, require_non_empty=true)", "!found_3_elements");
    mr_drive("range(0).shard(4, 3, require_non_empty=true)", "");
    mr_drive("range(9).shard(4, 1, require_non_empty=true)", "1 5");
    /* Its element is seen before the error, and delivered after it. */
    mr_drive("from_tensor_slices([1, 0, 2, 4]).map(x => 4 // x).shard(3, 0, "
             "require_non_empty=true)",
             "!zero 4");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).shard(0, 0)", "num_shards");
    mr_drive_bad("range(3).shard(-2, 0)", "num_shards");
    mr_drive_bad("range(3).shard(5, 7)", "index");
    mr_drive_bad("range(3).shard(5, -1)", "index");
}

MR_TEST(a_hint_that_nobody_replaced_fails_when_opened)
{
    mr_dataset *ds = mr_drive_build("range(3).shard(-1, 0)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_code_is(mr_iterator_open(&it, ds, NULL, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "HINT");
    mr_dataset_unref(ds);
}

MR_TEST(cardinality)
{
    mr_drive_count("range(5).shard(8, 7)", 0);
    mr_drive_count("range(10).shard(3, 0)", 4);
    mr_drive_count("range(10).shard(3, 1)", 3);
    mr_drive_count("counter().shard(3, 1)", MR_INFINITE);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(30).shard(3, 1)");
    mr_drive_faults("range(30).shard(3, 1, require_non_empty=true)");
}
