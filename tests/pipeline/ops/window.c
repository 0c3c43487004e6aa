/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(datasets_of_consecutive_elements)
{
    mr_drive("range(7).window(3)", "{0,1,2} {3,4,5} {6}");
    mr_drive("range(7).window(3, drop_remainder=true)", "{0,1,2} {3,4,5}");
    mr_drive("range(5).window(3, 1)", "{0,1,2} {1,2,3} {2,3,4} {3,4} {4}");
    mr_drive("range(5).window(3, 1, drop_remainder=true)", "{0,1,2} {1,2,3} {2,3,4}");
    mr_drive("range(7).window(2, 3)", "{0,1} {3,4} {6}");
    mr_drive("range(7).window(3, 2, 2)", "{0,2,4} {2,4,6} {4,6} {6}");
    mr_drive("range(10).window(2, shift=5, stride=2)", "{0,2} {5,7}");
    mr_drive("range(0).window(3)", "");
    mr_drive("range(2).window(9223372036854775807)", "{0,1}");
    /* A span of 2^64. */
    mr_drive("range(2).window(4, 4, 6148914691236517205)", "{0}");
}

MR_TEST(each_component_is_a_dataset)
{
    mr_drive("zip(range(4), range(10, 14)).window(2)", "({0,1},{10,11}) ({2,3},{12,13})");
    mr_drive("range(4).window(2).window(2)", "{{0,1},{2,3}}");
    mr_drive("range(4).map(x => ones([x])).window(3)", "{[],[1],[1,1]} {[1,1,1]}");
    mr_drive("range(3).map(x => (range(x), ones([x]))).window(3)",
             "({{},{0},{0,1}},{[],[1],[1,1]})");
}

MR_TEST(a_window_that_picks_an_error_is_that_error_others_vanish)
{
    mr_drive("from_tensor_slices([1, 0, 2, 1]).map(x => 2 // x).window(2)", "!zero {1,2}");
    mr_drive("from_tensor_slices([1, 0, 2, 1]).map(x => 2 // x).window(2, 1)",
             "!zero !zero {1,2} {2}");
    mr_drive("from_tensor_slices([1, 0, 2, 0]).map(x => 2 // x).window(2).flat_map(w => w)",
             "!zero !zero");
    mr_drive("from_tensor_slices([1, 0, 2]).map(x => 2 // x).window(2, 3, 2).flat_map(w => w)",
             "2 1");
    mr_drive("from_tensor_slices([1, 0, 2]).map(x => 2 // x).window(1, 2).flat_map(w => w)", "2 1");
    mr_drive("from_tensors(0).map(x => 1 // x).window(1).flat_map(w => w)", "!zero");
}

MR_TEST(positions_within_windows)
{
    mr_drive_alike(
        "range(20).shuffle(5, seed=1).window(4, 2, 3).flat_map(w => w.batch(3)).repeat(2)");
    mr_drive_alike("range(-5, 5).map(x => 12 // x).window(3, 2).flat_map(w => w).repeat(2)");
    mr_drive_alike("range(20).batch(3).window(2, 1).flat_map(w => w)");
    /* Elements that come in another order each time are part of the position. */
    mr_drive("range(9).map(x => 1, num_parallel_calls=2, deterministic=false).window(4, 2)",
             "{1,1,1,1} {1,1,1,1} {1,1,1,1} {1,1,1} {1}");
}

/* What a shift leaves out is taken with the window: a shuffle below is opened for it. */
MR_TEST(a_shift_is_taken_of_the_input_at_once)
{
    mr_drive("range(5).shuffle(10, seed=1).repeat(3).window(1, shift=3).flat_map(w => w)"
             ".zip(range(1)).repeat(6).map((a, b) => a)",
             "0 0 2 2 1 3");
    mr_drive("from_tensor_slices([1, 0, 0, 2, 0, 0, 4]).map(x => 4 // x).window(1, 3)"
             ".flat_map(w => w)",
             "4 2 1");
    mr_drive("zip(range(1), range(2).shuffle(2, seed=1).repeat(9).map(x => 6 // x)"
             ".window(1, shift=3)).repeat(4)",
             "!zero (0,{6}) !zero !zero");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).window(0)", "window");
    mr_drive_bad("range(3).window(2, 0)", "window");
    mr_drive_bad("range(3).window(2, 1, 0)", "window");
    mr_drive_bad("range(3).window(2, -1)", "window");
}

MR_TEST(cardinality)
{
    mr_drive_count("range(7).window(3)", 3);
    mr_drive_count("range(7).window(3, 1, 2)", 7);
    mr_drive_count("range(7).window(3, 1, 2, drop_remainder=true)", 3);
    mr_drive_count("range(2).window(3, 1, drop_remainder=true)", 0);
    mr_drive_count("range(3).window(3, 1, drop_remainder=true)", 1);
    mr_drive_count("counter().window(3)", MR_INFINITE);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(9).window(3, 2).flat_map(w => w)");
    mr_drive_faults("from_tensor_slices([1, 0, 2]).map(x => 2 // x).window(2).flat_map(w => w)");
}
