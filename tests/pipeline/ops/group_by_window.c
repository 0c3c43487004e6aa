/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

#define BY_PARITY(size) "range(10).group_by_window(x => x % 2, (k, w) => w.batch(10), " size ")"

MR_TEST(a_full_window_comes_out_at_once_the_rest_in_order_of_keys)
{
    mr_drive(BY_PARITY("3"), "[0,2,4] [1,3,5] [6,8] [7,9]");
    mr_drive(BY_PARITY("5"), "[0,2,4,6,8] [1,3,5,7,9]");
    mr_drive(BY_PARITY("100"), "[0,2,4,6,8] [1,3,5,7,9]");
    mr_drive(BY_PARITY("1"), "[0] [1] [2] [3] [4] [5] [6] [7] [8] [9]");
    mr_drive("range(5).group_by_window(x => -x, (k, w) => w, 2)", "4 3 2 1 0");
    mr_drive("range(0).group_by_window(x => x, (k, w) => w, 2)", "");
    mr_drive("range(6).group_by_window(x => x % 2, (k, w) => w.batch(3), 3).repeat(2)",
             "[0,2,4] [1,3,5] [0,2,4] [1,3,5]");
}

MR_TEST(the_size_may_be_a_function_of_the_key)
{
    mr_drive("range(10).group_by_window(x => x % 2, (k, w) => w.batch(9), k => k * 3 + 1)",
             "[0] [2] [4] [6] [1,3,5,7] [8] [9]");
    mr_drive("range(4).group_by_window(x => x % 2, (k, w) => w.batch(9), window_size_fn=k => 2)",
             "[0,2] [1,3]");
    mr_drive("range(2).flat_map(n => range(6).group_by_window(x => x % 2, (k, w) => w.batch(9), "
             "n + 1))",
             "[0] [1] [2] [3] [4] [5] [0,2] [1,3] [4] [5]");
}

MR_TEST(the_dataset_of_a_window_is_one_like_others)
{
    mr_drive("range(6).group_by_window(x => x % 2, (k, w) => zip(w, w.map(x => x * 10)), 2)",
             "(0,0) (2,20) (1,10) (3,30) (4,40) (5,50)");
    mr_drive("range(5).group_by_window(x => 7, (k, w) => w.repeat(2).map(x => (k, x)), 2)",
             "(7,0) (7,1) (7,0) (7,1) (7,2) (7,3) (7,2) (7,3) (7,4) (7,4)");
    mr_drive("range(4).map(x => (ones([x]), x)).group_by_window((a, x) => x % 2, (k, w) => "
             "w.padded_batch(4), 2)",
             "([[0,0],[1,1]],[0,2]) ([[1,0,0],[1,1,1]],[1,3])");
    mr_drive("range(4).group_by_window(x => 0, (k, w) => range(0), 2)", "");
    mr_drive("range(7).group_by_window(x => x % 2, (k, w) => w.shuffle(9, seed=1), 3)",
             "2 4 0 3 5 1 6");
}

MR_TEST(errors_stay_where_they_are)
{
    mr_drive("range(-2, 3).group_by_window(x => 6 // x % 2, (k, w) => w.batch(9), 9)",
             "!zero [-1,1] [-2,2]");
    mr_drive("range(-2, 3).map(x => 6 // x).group_by_window(x => x % 2, (k, w) => w.batch(2), 2)",
             "!zero [-6,6] [-3,3]");
    mr_drive("range(6).group_by_window(x => x % 3, (k, w) => w.map(x => 6 // (x - 1)), 2)",
             "-6 3 !zero 2 6 1");
    mr_drive("range(6).group_by_window(x => x % 3, (k, w) => w.batch(2 // (k - 1)), 2)",
             "!batch !zero [2,5]");
    mr_drive("range(4).group_by_window(x => x % 2, (k, w) => w.batch(2), k => k)",
             "!window [1] !window [3]");
    mr_drive("range(4).group_by_window(x => x % 2, (k, w) => w.batch(2), k => 2 // k)",
             "!zero !zero [1,3]");
    mr_drive("range(2).group_by_window(x => x, (k, w) => w, 0)", "!window !window");
    mr_drive("range(2).group_by_window(x => x, (k, w) => w, -3)", "!window !window");
}

MR_TEST(functions_of_other_types_are_refused)
{
    mr_drive_bad("range(3).group_by_window(x => 1.0, (k, w) => w, 2)", "key_fn");
    mr_drive_bad("range(3).group_by_window(x => [x], (k, w) => w, 2)", "key_fn");
    mr_drive_bad("range(3).group_by_window(x => x, (k, w) => k, 2)", "dataset");
    mr_drive_bad("range(3).group_by_window(x => x, (k, w) => w, k => 1.0)", "window_size");
    mr_drive_bad("range(3).group_by_window(x => x, (k, w) => w, 1.5)", "window_size");
    mr_drive_bad("range(3).group_by_window(x => x, (k, w) => w)", "window_size");
    mr_drive_bad("range(3).group_by_window(x => x, (k, w) => w, 2, window_size_fn=k => 1)", "both");
    mr_drive_bad("range(3).group_by_window(x => x, 2)", "reduce_fn");
}

MR_TEST_SLOW(many_keys)
{
    mr_drive("range(390).group_by_window(x => x * 7919 % 130, (k, w) => w.map(x => x % 130), "
             "3).unique().batch(1000).map(x => (size(x), sum(x)))",
             "(130,8385)");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("range(7).group_by_window(x => x, (k, w) => w, 2)", MR_UNKNOWN_COUNT);
    mr_drive_count("counter().group_by_window(x => x, (k, w) => w, 2)", MR_INFINITE);
}

MR_TEST(made_in_c)
{
    mr_drive_dataset(mr_group_by_window(mr_range(0, 5, 1), mr_fn_text("x => x % 2"),
                                        mr_fn_text("(k, w) => w.batch(2)"), 2, NULL),
                     "[0,2] [1,3] [4]");
    mr_drive_dataset(mr_group_by_window(mr_range(0, 5, 1), mr_fn_text("x => x % 2"),
                                        mr_fn_text("(k, w) => w.batch(2)"), 0,
                                        mr_fn_text("k => k + 1")),
                     "[0] [2] [1,3] [4]");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults(
        "range(-2, 9).map(x => (x, \"s\")).group_by_window((x, s) => 6 // x % 3, (k, w) "
        "=> w.batch(2), k => k + 1)");
}
