/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"

#define THREE "choose_from_datasets([range(3), range(10, 12), range(20, 24)], "

MR_TEST(elements_come_from_the_inputs_that_are_named)
{
    mr_drive(THREE "from_tensor_slices([0, 1, 2, 0, 2, 2]))", "0 10 20 1 21 22");
    mr_drive(THREE "range(0))", "");
    mr_drive("choose_from_datasets([range(3)], from_tensor_slices([0, 0]))", "0 1");
    mr_drive("choose_from_datasets([range(2).map(x => (x, \"s\")), range(3).map(x => (x, \"t\"))], "
             "from_tensor_slices([1, 0, 1]))",
             "(0,\"t\") (0,\"s\") (1,\"t\")");
    /* A list is not asked for: datasets alone will do. */
    mr_drive("choose_from_datasets(range(3), range(10, 12), from_tensor_slices([1, 0]))", "10 0");
}

MR_TEST(a_cache_below_is_pulled_no_further_than_elements_are_used)
{
    mr_drive_alike("choose_from_datasets([range(6).shuffle(6, seed=1).cache(), range(1)], "
                   "from_tensor_slices([0, 1, 0, 1, 0, 0])).repeat(4)");
    mr_drive_alike("choose_from_datasets([range(2), range(1)], "
                   "from_tensor_slices([0, 1, 0, 1, 0, 0]).shuffle(6, seed=1).cache()).repeat(4)");
}

MR_TEST(a_repeated_shuffle_below_is_opened_no_more_often_than_elements_are_used)
{
    mr_drive_alike("choose_from_datasets([range(5).shuffle(10, seed=1).repeat(3)"
                   ".filter(x => x < 3), range(1)], range(9).map(x => x % 2)).repeat(4)");
    mr_drive_alike("choose_from_datasets([range(2), range(1)], range(2).shuffle(2, seed=1)"
                   ".repeat(9).filter(x => x >= 0)).repeat(4)");
}

MR_TEST(the_first_end_is_the_end_unless_told_otherwise)
{
    mr_drive(THREE "counter().map(x => x % 3))", "0 10 20 1 11 21 2");
    mr_drive(THREE "counter().map(x => x % 3), stop_on_empty_dataset=false)",
             "0 10 20 1 11 21 2 22 23");
    mr_drive(THREE "counter().map(x => x % 3), stop_on_empty_dataset=false).repeat(2)",
             "0 10 20 1 11 21 2 22 23 0 10 20 1 11 21 2 22 23");
    mr_drive("choose_from_datasets([range(0), range(2)], range(1).repeat(), "
             "stop_on_empty_dataset=false).take(0)",
             "");
}

MR_TEST(shapes_may_differ_types_not)
{
    mr_drive("choose_from_datasets([range(4).batch(2), range(3).batch(3)], "
             "from_tensor_slices([0, 1, 0]))",
             "[0,1] [0,1,2] [2,3]");
    mr_drive("choose_from_datasets([range(2).map(x => zeros([x, 2])), range(2).map(x => "
             "zeros([2, 2 * x]))], from_tensor_slices([0, 1, 0, 1]))",
             "[] [[],[]] [[0,0]] [[0,0],[0,0]]");
    mr_drive_bad("choose_from_datasets([range(2), range(2).enumerate()], range(2))", "types");
    mr_drive_bad("choose_from_datasets([range(2)], range(2).map(x => 1.0))", "number");
    mr_drive_bad("choose_from_datasets([range(2)], range(4).batch(2))", "number");
    mr_drive_bad("choose_from_datasets([range(2)], range(2).map(x => {\"a\": x}))", "number");
    mr_drive_bad("choose_from_datasets([], range(2))", "dataset");
    mr_drive_bad("choose_from_datasets([range(2)])", "dataset");
}

MR_TEST(errors_take_the_place_of_an_element)
{
    mr_drive(THREE "from_tensor_slices([0, 3, -1, 1]))", "0 !range !range 10");
    mr_drive(THREE "from_tensor_slices([2, 0, 1]).map(x => 4 // x))", "20 !zero !range");
    mr_drive("choose_from_datasets([range(-1, 2).map(x => 6 // x), range(3)], "
             "from_tensor_slices([0, 1, 0, 1, 0]))",
             "-6 0 !zero 1 6");
    mr_drive("choose_from_datasets([range(2)], range(1).concatenate(range(2).batch(2)))",
             "0 !scalars");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("choose_from_datasets([range(3), range(4)], range(5))", MR_UNKNOWN_COUNT);
    mr_drive_count("choose_from_datasets([range(3), counter()], range(5))", MR_INFINITE);
    mr_drive_count("choose_from_datasets([range(3)], counter())", MR_UNKNOWN_COUNT);
}

MR_TEST(made_in_c)
{
    mr_dataset *inputs[] = {mr_range(0, 3, 1), mr_range(10, 11, 1)};
    mr_drive_dataset(mr_choose_from_datasets(inputs, 2, mr_range(0, 2, 1), NULL), "0 10");
}

MR_TEST(a_lack_of_memory_loses_nothing)
{
    mr_drive_goes_on(
        "choose_from_datasets([range(1, 9).map(x => 6 // x), range(4)], range(9).map(x => x % 2))");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults(THREE "range(9).map(x => x % 4), stop_on_empty_dataset=false)");
}
