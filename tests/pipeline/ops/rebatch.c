/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

MR_TEST(joins_across_batches)
{
    mr_drive("range(12).batch(4).rebatch(6)", "[0,1,2,3,4,5] [6,7,8,9,10,11]");
    mr_drive("range(7).batch(4).rebatch([2, 1])", "[0,1] [2] [3,4] [5] [6]");
    mr_drive("range(7).batch(7).rebatch(3)", "[0,1,2] [3,4,5] [6]");
    mr_drive("range(7).batch(4).rebatch(3, drop_remainder=true)", "[0,1,2] [3,4,5]");
}

MR_TEST(a_size_of_0_reads_nothing)
{
    mr_drive("range(3).batch(4).rebatch([0, 1])", "[] [0] [] [1] [] [2] []");
    mr_drive("range(3).batch(4).rebatch([1, 0])", "[0] [] [1] [] [2] []");
}

MR_TEST(a_short_batch_is_the_last)
{
    mr_drive("range(5).batch(2).rebatch([3, 3, 0])", "[0,1,2] [3,4]");
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).batch(2).rebatch(-1)", "rebatch");
    mr_drive_bad("range(3).batch(2).rebatch([])", "rebatch");
    mr_drive_bad("range(3).batch(2).rebatch(0)", "rebatch");
    mr_drive_bad("range(3).rebatch(2)", "scalar");
}

MR_TEST(batches_of_one_size_have_a_known_axis)
{
#define DROPPED "range(8).batch(3).rebatch([2, 2], drop_remainder=true)"
    mr_drive(DROPPED, "[0,1] [2,3] [4,5] [6,7]");
    mr_drive_bad(DROPPED ".padded_batch(2, padded_shapes=[1])", "pad axis 0 of size 2");
#undef DROPPED
    mr_drive("range(4).batch(2).rebatch([2, 1]).padded_batch(2, padded_shapes=[2])",
             "[[0,1],[2,0]] [[3,0]]");
}

MR_TEST(batches_that_divide_evenly_have_a_known_axis)
{
#define EVEN "range(8).batch(4, drop_remainder=true).rebatch(2)"
    mr_drive(EVEN, "[0,1] [2,3] [4,5] [6,7]");
    mr_drive_bad(EVEN ".padded_batch(2, padded_shapes=[1])", "pad axis 0 of size 2");
#undef EVEN
#define ODD "range(8).batch(4, drop_remainder=true).rebatch(3)"
    mr_drive(ODD ".padded_batch(3, padded_shapes=[3])", "[[0,1,2],[3,4,5],[6,7,0]]");
    /* Padding to less than a known axis would be refused. */
    mr_drive(ODD ".skip(2).padded_batch(1, padded_shapes=[2])", "[[6,7]]");
#undef ODD
    mr_drive("range(3).batch(2).rebatch(4).padded_batch(1, padded_shapes=[3])", "[[0,1,2]]");
}

MR_TEST(components_of_unequal_axis_0_are_an_error_in_their_place)
{
#define UNEQUAL "from_tensors([1, 2], [1, 2, 3]).rebatch(2"
    mr_drive(UNEQUAL ")", "!components_must_agree");
    mr_drive(UNEQUAL ", drop_remainder=true)", "!components_must_agree");
    mr_drive(UNEQUAL ", drop_remainder=true).take(0)", "");
#undef UNEQUAL
}

MR_TEST(a_batch_of_rows_that_do_not_fit_has_had_its_turn)
{
#define ROWS "range(7).batch(3).batch(1).repeat(2)" /* of 3, 3, 1, 3, 3, 1 */
    mr_drive(ROWS ".rebatch([1, 3, 2])", "[[0,1,2]] !different_shapes !different_shapes");
    mr_drive(ROWS ".rebatch([2, 1])", "[[0,1,2],[3,4,5]] [[6]] [[0,1,2],[3,4,5]] [[6]]");
    mr_drive(ROWS ".rebatch([1, 2, 1])", "[[0,1,2]] !different_shapes [[0,1,2]] [[3,4,5]] [[6]]");
#undef ROWS
}

/* An error of the input is of no batch. */
MR_TEST(an_error_of_the_input_has_no_turn)
{
    mr_drive("range(5).map(x => 6 // (x - 1)).batch(1).rebatch([1, 2])", "[-6] !zero [6,3] [2]");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).batch(3).rebatch([4, 0, 1])");
}
