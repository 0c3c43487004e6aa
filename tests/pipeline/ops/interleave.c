/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

#include <stdio.h>

/* The same with no, two and all parallel calls. */
static void check_both(const char *head, const char *arguments, const char *expected)
{
    char text[512];
    snprintf(text, sizeof text, "%s, %s)", head, arguments);
    mr_drive(text, expected);
    snprintf(text, sizeof text, "%s, %s, num_parallel_calls=2)", head, arguments);
    mr_drive(text, expected);
    snprintf(text, sizeof text, "%s, %s, num_parallel_calls=auto)", head, arguments);
    mr_drive(text, expected);
}

MR_TEST(a_slot_that_ends_is_refilled_when_the_cycle_comes_round)
{
    check_both("from_tensor_slices([4, 0, 6, 4, 0, 6]).interleave(x => from_tensors(x).repeat(x)",
               "cycle_length=2", "4 4 6 4 6 4 6 6 4 6 4 6 4 4 6 6 6 6 6 6");
    check_both("from_tensor_slices([4, 5, 6, 4, 5, 6]).interleave(x => from_tensors(x).repeat(x)",
               "cycle_length=2, block_length=3",
               "4 4 4 5 5 5 4 5 5 6 6 6 4 4 4 6 6 6 4 5 5 5 6 6 6 5 5 6 6 6");
}

/* Turns of all slots in a row, while each has rows for some, and what comes before and after. */
MR_TEST(rounds_of_all_slots_keep_the_order)
{
    check_both("range(3).interleave(n => range(n, n + 90, 10)", "cycle_length=3",
               "0 1 2 10 11 12 20 21 22 30 31 32 40 41 42 50 51 52 60 61 62 70 71 72 80 81 82");
    check_both("range(3).interleave(n => range(n, n + 110, 10)", "cycle_length=3, block_length=2",
               "0 10 1 11 2 12 20 30 21 31 22 32 40 50 41 51 42 52 60 70 61 71 62 72 80 90 81 91 "
               "82 92 100 101 102");
    check_both("range(1, 4).interleave(n => range(100 * n, 106 * n)", "cycle_length=2",
               "100 200 101 201 102 202 103 203 104 204 105 205 206 300 207 301 208 302 209 303 "
               "210 304 211 305 306 307 308 309 310 311 312 313 314 315 316 317");
    mr_drive("range(3).interleave(n => range(n, n + 60, 10).map(x => (x, format(\"s{}\", x), [x, 1]"
             ")), cycle_length=5).filter((x, s, v) => s == format(\"s{}\", x) and sum(v) == x + 1)"
             ".map((x, s, v) => x)",
             "0 1 2 10 11 12 20 21 22 30 31 32 40 41 42 50 51 52");
}

MR_TEST(one_slot_is_flat_map)
{
    mr_drive("range(4).interleave(n => range(n), cycle_length=1)", "0 0 1 0 1 2");
    mr_drive("range(4).interleave(n => range(n), cycle_length=1, block_length=2, "
             "num_parallel_calls=1)",
             "0 0 1 0 1 2");
}

MR_TEST(without_a_length_sixteen_are_open)
{
    mr_drive("range(18).interleave(n => range(n, n + 40, 20))",
             "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 "
             "35 16 17 36 37");
}

MR_TEST(more_slots_than_datasets)
{
    check_both("range(1, 4).interleave(n => range(n)", "cycle_length=1000000000", "0 0 0 1 1 2");
}

MR_TEST(errors_change_nothing_but_their_element)
{
    check_both("range(-1, 3).map(x => 4 // x).interleave(n => range(n)", "cycle_length=2",
               "! 0 0 1 1 2 3");
    check_both("range(3).interleave(n => range(-1, 2).map(x => 6 // x)", "cycle_length=2",
               "-6 -6 ! 6 ! 6 -6 ! 6");
}

MR_TEST(without_order_nothing_is_lost_or_repeated)
{
    mr_drive_any("range(6).interleave(n => range(-1, n).map(x => 6 // x), "
                 "cycle_length=3, num_parallel_calls=3, deterministic=false)",
                 "-6 -6 -6 -6 -6 -6 ! ! ! ! ! 6 6 6 6 3 3 3 2 2 1");
}

MR_TEST(bad_arguments_are_refused_when_the_graph_is_built)
{
    mr_drive_bad("range(3).interleave(n => range(n), cycle_length=0)", "cycle_length");
    mr_drive_bad("range(3).interleave(n => range(n), block_length=0)", "block_length");
    mr_drive_bad("range(3).interleave(n => range(n), cycle_length=2, num_parallel_calls=3)",
                 "num_parallel_calls");
    mr_drive_bad("range(3).interleave(n => n)", "dataset");
}

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    mr_drive_faults(
        "range(-1, 5).interleave(n => range(-1, n).map(x => (6 // x, x)), cycle_length=3, "
        "block_length=2, num_parallel_calls=2)");
}
