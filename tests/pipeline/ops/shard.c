/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/ops/sequence.h"
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

/* The shards in turn: an error comes where it came in the input. */
MR_TEST(own_errors_come_in_one_shard)
{
    static const char text[] = "from_tensor_slices([1, 0, 2, 4, 0, 0, 8]).map(x => 8 // x)";
    static const struct {
        int64_t n, index;
        const char *events;
    } cases[] = {
        {1, 0, "8 !zero 4 2 !zero !zero 1"},
        {2, 0, "8 2"},
        {2, 1, "!zero 4 !zero !zero 1"},
        {3, 0, "8 !zero !zero 1"},
        {3, 1, "!zero 4"},
        {3, 2, "2"},
        {5, 3, "!zero !zero 1"},
        {5, 4, ""},
    };
    mr_drive_without_lookups();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int first = 0; first < 2; first++) {
            const mr_shard_opts o = {.own_errors = true,
                                     .require_non_empty = first && cases[i].n < 5};
            mr_drive_dataset(mr_shard(mr_drive_build(text), cases[i].n, cases[i].index, &o),
                             cases[i].events);
        }
    const mr_shard_opts own = {.own_errors = true};
    for (int64_t i = 0; i < 3; i++) { /* the environment's are everyone's */
        mr_dataset *ds = mr_drive_build(mr_drive_path("text_line(\"@/none\")"));
        mr_drive_dataset(mr_shard(ds, 3, i, &own), "!cannot_open");
    }
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
