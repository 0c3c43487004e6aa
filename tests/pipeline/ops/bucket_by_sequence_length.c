/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/batch.h"
#include "tests/harness.h"

#define LENGTHS "from_tensor_slices([1, 4, 2, 5, 3, 1, 6]).map(n => zeros([n], \"int64\") + n)"

MR_TEST(elements_of_similar_length_are_batched_together)
{
    mr_drive(LENGTHS ".bucket_by_sequence_length(x => length(x), [3, 5], [2, 2, 2])",
             "[[1,0],[2,2]] [[4,4,4,4],[3,3,3,0]] [[5,5,5,5,5,0],[6,6,6,6,6,6]] [[1]]");
    /* A length equal to a boundary belongs to the next bucket; the rest comes in their order. */
    mr_drive(LENGTHS ".bucket_by_sequence_length(x => length(x), [4], [9, 9])",
             "[[1,0,0],[2,2,0],[3,3,3],[1,0,0]] "
             "[[4,4,4,4,0,0],[5,5,5,5,5,0],[6,6,6,6,6,6]]");
    mr_drive(LENGTHS ".bucket_by_sequence_length(x => length(x), [3, 5], [2, 2, 2], "
                     "drop_remainder=true)",
             "[[1,0],[2,2]] [[4,4,4,4],[3,3,3,0]] [[5,5,5,5,5,0],[6,6,6,6,6,6]]");
    mr_drive(LENGTHS ".bucket_by_sequence_length(x => length(x), [], [3])",
             "[[1,0,0,0],[4,4,4,4],[2,2,0,0]] [[5,5,5,5,5],[3,3,3,0,0],[1,0,0,0,0]] "
             "[[6,6,6,6,6,6]]");
    mr_drive("range(6).bucket_by_sequence_length(x => x, [2, 2, 4], [2, 1, 1, 1])",
             "[0,1] [2] [3] [4] [5]");
}

MR_TEST(padding_can_be_chosen)
{
    mr_drive(LENGTHS ".take(3).bucket_by_sequence_length(x => length(x), [3], [2, 2], "
                     "padding_values=-1)",
             "[[1,-1],[2,2]] [[4,4,4,4]]");
    mr_drive(LENGTHS ".take(3).bucket_by_sequence_length(x => length(x), [3], [2, 2], "
                     "padded_shapes=[5])",
             "[[1,0,0,0,0],[2,2,0,0,0]] [[4,4,4,4,0]]");
    mr_drive("range(4).map(x => zeros([2]) + cast(x, \"float32\")).bucket_by_sequence_length(x => "
             "2, [3], [3, 1], no_padding=true)",
             "[[0,0],[1,1],[2,2]] [[3,3]]");
    mr_drive("range(1, 3).map(x => ones([x])).bucket_by_sequence_length(x => 2, [3], [2, 1], "
             "no_padding=true)",
             "!shape");
}

MR_TEST(padding_up_to_the_boundary)
{
    mr_drive(LENGTHS ".take(3).bucket_by_sequence_length(x => length(x), [4, 6], [2, 1, 1], "
                     "pad_to_bucket_boundary=true)",
             "[[4,4,4,4,0]] [[1,0,0],[2,2,0]]");
    mr_drive(LENGTHS ".take(4).bucket_by_sequence_length(x => length(x), [4], [2, 1], "
                     "pad_to_bucket_boundary=true)",
             "!boundary [[1,0,0],[2,2,0]] !boundary");
    mr_drive("range(1, 3).map(x => (ones([x]), [x, x], x)).bucket_by_sequence_length((a, b, c) => "
             "c, [4], [2, 1], pad_to_bucket_boundary=true)",
             "([[1,0,0],[1,1,0]],[[1,1],[2,2]],[1,2])");
    mr_drive("range(1, 3).map(x => {\"a\": ones([x, 2]), \"n\": x}).bucket_by_sequence_length(x => "
             "x[\"n\"], [4], [2, 1], pad_to_bucket_boundary=true, padded_shapes={\"a\": [none, 3], "
             "\"n\": []})",
             "([[[1,1,0],[0,0,0],[0,0,0]],[[1,1,0],[1,1,0],[0,0,0]]],[1,2])");
}

MR_TEST(lists_that_do_not_fit_are_refused)
{
    mr_drive_bad(LENGTHS ".bucket_by_sequence_length(x => length(x), [3], [2])", "batch_sizes");
    mr_drive_bad(LENGTHS ".bucket_by_sequence_length(x => length(x), [5, 3], [2, 2, 2])",
                 "boundaries");
    mr_drive_bad(LENGTHS ".bucket_by_sequence_length(x => x, [3], [2, 2])", "length_fn");
    mr_drive_bad(LENGTHS ".bucket_by_sequence_length(x => length(x), [3], [2, 2], "
                         "padded_shapes=[2, 2])",
                 "axes");
    mr_drive("range(2).bucket_by_sequence_length(x => x, [1], [0, 1])", "!window [1]");
}

MR_TEST(errors_stay_where_they_are)
{
    mr_drive("range(-2, 3).bucket_by_sequence_length(x => 6 // x, [0], [2, 2])",
             "[-2,-1] !zero [1,2]");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("range(4).bucket_by_sequence_length(x => x, [1], [2, 1])", MR_UNKNOWN_COUNT);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults(LENGTHS ".bucket_by_sequence_length(x => length(x), [3, 5], [2, 2, 2], "
                            "pad_to_bucket_boundary=true)");
}
