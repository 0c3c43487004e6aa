/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/batch.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

#define ONES "range(4).map(x => ones([x]))"

MR_TEST(elements_of_any_length_make_one_row)
{
    mr_drive(ONES ".ragged_batch(2)", "[[],[1]] [[1,1],[1,1,1]]");
    mr_drive(ONES ".ragged_batch(3)", "[[],[1],[1,1]] [[1,1,1]]");
    mr_drive(ONES ".ragged_batch(3, drop_remainder=true)", "[[],[1],[1,1]]");
    mr_drive("range(0).map(x => ones([x])).ragged_batch(3)", "");
    mr_drive("range(3).map(x => zeros([0 * x])).ragged_batch(3)", "[[],[],[]]");
    mr_drive("range(4).map(x => ones([x, 2])).ragged_batch(4)",
             "[[],[[1,1]],[[1,1],[1,1]],[[1,1],[1,1],[1,1]]]");
    mr_drive("from_tensor_slices([\"a\", \"bc\", \"d\"]).batch(2).ragged_batch(2)",
             "[[\"a\",\"bc\"],[\"d\"]]");
    mr_drive(ONES ".map(x => (x, length(x), \"s\")).ragged_batch(4)",
             "([[],[1],[1,1],[1,1,1]],[0,1,2,3],[\"s\",\"s\",\"s\",\"s\"])");
}

MR_TEST(elements_of_known_shape_are_batched_as_ever)
{
    mr_drive("range(5).ragged_batch(2)", "[0,1] [2,3] [4]");
    mr_drive("range(5).ragged_batch(2).map(x => sum(x))", "1 5 4");
    mr_drive("range(4).map(x => [x, x]).ragged_batch(3)", "[[0,0],[1,1],[2,2]] [[3,3]]");
}

MR_TEST(a_batch_comes_apart_again)
{
    mr_drive(ONES ".ragged_batch(3).unbatch()", "[] [1] [1,1] [1,1,1]");
    mr_drive(ONES ".ragged_batch(3).cache().repeat(2).unbatch().padded_batch(8)",
             "[[0,0,0],[1,0,0],[1,1,0],[1,1,1],[0,0,0],[1,0,0],[1,1,0],[1,1,1]]");
    mr_drive(ONES ".ragged_batch(1).shuffle(9, seed=3).unbatch().map(x => length(x)).batch(4)"
                  ".map(x => sum(x))",
             "6");
}

MR_TEST(axes_must_agree_but_for_the_first)
{
    mr_drive("range(3).map(x => ones([x, x])).ragged_batch(3)", "!axis");
    mr_drive("range(1, 5).map(x => ones([x, x // 3])).ragged_batch(2)",
             "[[[]],[[],[]]] [[[1],[1],[1]],[[1],[1],[1],[1]]]");
    mr_drive_bad(ONES ".ragged_batch(2).ragged_batch(2)", "ragged");
    mr_drive_bad(ONES ".ragged_batch(0)", "batch_size");
    mr_drive_bad("range(3).window(2).ragged_batch(2)", "dataset");
}

MR_TEST(an_error_of_the_input_loses_what_was_collected)
{
    mr_drive("range(-2, 3).map(x => ones([abs(6 // x) % 4])).ragged_batch(4)",
             "!zero [[1,1],[1,1,1]]");
}

MR_TEST(number_of_elements)
{
    mr_drive_count(ONES ".ragged_batch(3)", 2);
    mr_drive_count(ONES ".ragged_batch(3, drop_remainder=true)", 1);
    mr_drive_count("counter().ragged_batch(3)", MR_INFINITE);
}

MR_TEST(made_in_c)
{
    mr_drive_dataset(mr_ragged_batch(mr_range(0, 3, 1), 2, NULL), "[0,1] [2]");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults(ONES ".map(x => (x, [\"a\", \"b\"])).ragged_batch(3)");
    mr_drive_faults("from_tensor_slices([\"a\", \"bc\", \"d\"]).batch(2).ragged_batch(2)");
}
