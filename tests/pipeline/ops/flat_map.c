/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

MR_TEST(puts_the_datasets_one_behind_the_other)
{
    mr_drive("range(5).flat_map(n => range(n))", "0 0 1 0 1 2 0 1 2 3");
    mr_drive("range(3).flat_map(n => range(0))", "");
    mr_drive("range(0).flat_map(n => range(3))", "");
    mr_drive("range(3).flat_map(n => range(2).flat_map(m => range(n).map(x => x + 10 * m)))",
             "0 10 0 1 10 11");
}

MR_TEST(shapes_may_differ_between_the_datasets)
{
    mr_drive("range(1, 4).flat_map(n => range(6).batch(n))",
             "[0] [1] [2] [3] [4] [5] [0,1] [2,3] [4,5] [0,1,2] [3,4,5]");
}

MR_TEST(errors_of_input_function_and_dataset_stand_in_their_places)
{
    mr_drive("range(-1, 3).map(x => 4 // x).flat_map(n => range(n))", "! 0 1 2 3 0 1");
    mr_drive("range(-1, 3).flat_map(n => range(6 // n).take(2))", "! 0 1 0 1");
    mr_drive("range(2).flat_map(n => range(-1, 2).map(x => 6 // x))", "-6 ! 6 -6 ! 6");
    mr_drive("range(2).flat_map(n => range(3).batch(n))", "! [0] [1] [2]");
}

MR_TEST(shapes_that_only_a_call_knows_spoil_elements_and_not_calls)
{
    const char *two = "range(3).batch(2).flat_map(z => from_tensors(z).repeat(2)"; /* [0,1], [2] */
    char text[200];
    static const char *const rest[][2] = {
        {".map(v => v[1] if length(v) > 1 else v[0]))", "1 1 2 2"},
        {".map(v => v[1]).enumerate())", "(0,1) (1,1) !range !range"},
        {".map(v => z[1]))", "1 1 !range !range"},
        {".filter(v => v[1] > 0))", "[0,1] [0,1] !range !range"},
        {".scan(5, (s, v) => (v[1], s)))", "5 1 !range !range"},
        {".padded_batch(1, padded_shapes=[1]))", "!pad !pad [[2]] [[2]]"},
        {".map(v => (v, [5, 6])).unbatch())", "(0,5) (1,6) (0,5) (1,6) !axis !axis"},
    };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(text, sizeof text, "%s%s", two, rest[i][0]);
        mr_drive(text, rest[i][1]);
    }
    mr_drive("range(3).batch(2).flat_map(z => from_tensors((z, [5, 6])).repeat(2).unbatch())",
             "(0,5) (1,6) (0,5) (1,6) !axis !axis");
    mr_drive("range(3).batch(2).window(1).flat_map(w => w.map(v => v[1]))", "1 !range");
    mr_drive("range(4).batch(2).window(2).flat_map(w => w.padded_batch(1, padded_shapes=[1]))",
             "!pad !pad");
    mr_drive("range(3).batch(2).group_by_window(x => 0, (k, w) => w.repeat(2).map(v => v[1]), 1)",
             "1 1 !range !range");
}

/* Ops whose positions include buffered datasets: these continue as their functions made them. */
MR_TEST(datasets_that_wait_know_no_more_once_they_are_restored)
{
    mr_drive("range(3).batch(2).map(z => from_tensors(z).repeat(2).map(v => v[1]))"
             ".shuffle(5, seed=1).flat_map(d => d)",
             "1 1 !range !range");
    mr_drive("range(3).batch(2).map(z => range(2).map(x => z[1] + x)).shuffle(5, seed=1)"
             ".flat_map(d => d)",
             "1 2 !range !range");
    mr_drive("range(3).batch(2).map(z => from_tensors(z).padded_batch(1, padded_shapes=[1]))"
             ".shuffle(5, seed=1).flat_map(d => d.repeat(2))",
             "!pad !pad [[2]] [[2]]");
    mr_drive_faults("range(3).batch(2).map(z => range(2).map(x => z[0] + x)).shuffle(5, seed=1)"
                    ".flat_map(d => d)");
}

MR_TEST(the_function_must_return_a_dataset)
{
    mr_drive_bad("range(3).flat_map(x => x + 1)", "dataset");
}

MR_TEST(large_datasets_come_through_whole)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build("range(3).flat_map(n => range(100000))");
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    int64_t next = 0, calls = 0;
    while (mr_iterator_next(it, 1 << 20, &b, &st) == MR_OK) {
        for (size_t i = 0; i < b.rows; i++)
            mr_eq_i64(((const int64_t *)b.columns[0].data)[i], next++ % 100000);
        calls++;
    }
    mr_eq_i64(next, 300000);
    mr_check(calls < 100);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    mr_drive_faults("range(-1, 5).flat_map(n => range(n).batch(2 // n))");
}

MR_TEST(an_error_after_rows_is_saved_and_restored)
{
    mr_dataset *ds = mr_drive_build("range(1).flat_map(n => range(3).map(x => 6 // (x - 1)))");
    mr_iterator_opts o = {.has_threads = true, .positions = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes;
    size_t size;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(it, 9, &b, &st), &st); /* the error is due now */
    mr_eq_u64(b.rows, 1);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_iterator_close(it);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
    mr_code_is(mr_iterator_next(it, 9, &b, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "zero");
    mr_ok(mr_iterator_next(it, 9, &b, &st), &st);
    mr_eq_i64(*(const int64_t *)b.columns[0].data, 6);
    mr_code_is(mr_iterator_next(it, 9, &b, &st), MR_END, &st);
    mr_free(bytes);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(the_count_is_known_if_all_datasets_are_equally_long)
{
    mr_drive_count("range(4).flat_map(x => range(3).map(y => x + y))", 12);
    mr_drive_count("range(4).interleave(x => range(3).repeat(2), cycle_length=2)", 24);
    mr_drive_count("range(4).flat_map(x => range(0))", 0);
    mr_drive_count("range(0).flat_map(x => range(x))", 0);
    mr_drive_count("range(4).flat_map(x => counter())", MR_INFINITE);
    mr_drive_count("counter().flat_map(x => range(2))", MR_INFINITE);
    mr_drive_count("counter().flat_map(x => range(0))", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).flat_map(x => range(x))", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).flat_map(x => range(9).take(x))", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).flat_map(x => range(9) if x > 1 else range(5))", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).window(2).flat_map(w => w)", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).filter(x => x > 1).flat_map(x => range(3))", MR_UNKNOWN_COUNT);
    mr_drive_count("range(4).flat_map(x => parquet(\"none\", schema={\"a\": int64}))",
                   MR_UNKNOWN_COUNT);
}
