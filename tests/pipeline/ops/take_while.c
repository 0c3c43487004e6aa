/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

MR_TEST(ends_before_the_first_that_is_refused)
{
    mr_drive("range(10).take_while(x => x < 4)", "0 1 2 3");
    mr_drive("from_tensor_slices([1, 2, 9, 1]).take_while(x => x < 4)", "1 2");
    mr_drive("range(3).take_while(x => x < 9)", "0 1 2");
    mr_drive("range(3).take_while(x => x > 9)", "");
    mr_drive("range(0).take_while(x => true)", "");
    mr_drive("range(4).map(x => (x, \"s\")).take_while((x, s) => x != 2)", "(0,\"s\") (1,\"s\")");
    mr_drive("range(5).take_while(x => x < 2).repeat(3)", "0 1 0 1 0 1");
    mr_drive("counter().take_while(x => x < 3)", "0 1 2");
}

MR_TEST(errors_keep_their_places_and_those_behind_the_end_are_not_seen)
{
    mr_drive("range(-2, 4).map(x => 6 // x).take_while(x => x != 3)", "-3 -6 ! 6");
    mr_drive("range(-2, 4).take_while(x => 6 // x != 3)", "-2 -1 ! 1");
    mr_drive("range(-3, 4).take_while(x => 6 // x > -9)", "-3 -2 -1 ! 1 2 3");
    mr_drive("range(-2, 4).take_while(x => 6 // x != -6)", "-2");
    mr_drive("range(-2, 4).take_while(x => 6 // x != -3)", "");
    mr_drive("from_tensor_slices([0, 1, 2, 0, 3]).take_while(x => 6 // x != 3)", "! 1");
    mr_drive("range(4).map(x => 6 // (x - 2)).take_while(x => x != -6)", "-3");
    mr_drive("from_tensors(0).take_while(x => 1 // x > 0)", "!zero");
}

MR_TEST(a_cache_below_is_pulled_no_further_than_elements_are_used)
{
    mr_drive_alike("range(6).shuffle(6, seed=1).cache().take_while(x => x != 0).repeat(9)");
    mr_drive_alike("range(6).shuffle(6, seed=1).cache().map(x => 6 // (x - 3))"
                   ".take_while(x => x != 6).ignore_errors().repeat(4)");
}

MR_TEST(a_repeated_shuffle_below_is_opened_no_more_often_than_elements_are_used)
{
    mr_drive_alike("range(5).shuffle(10, seed=1).repeat().filter(x => x != 1)"
                   ".take_while(x => x != 3).repeat(6)");
}

MR_TEST(the_function_must_return_one_bool)
{
    mr_drive_bad("range(3).take_while(x => x)", "bool");
    mr_drive_bad("range(3).take_while(x => (x > 1, x > 2))", "bool");
    mr_drive_bad("range(6).batch(2, drop_remainder=true).take_while(x => x > 1)", "bool");
    mr_drive_bad("range(3).take_while(3)", "function");
}

MR_TEST(number_of_elements)
{
    mr_drive_count("range(3).take_while(x => true)", MR_UNKNOWN_COUNT);
    mr_drive_count("counter().take_while(x => true)", MR_UNKNOWN_COUNT);
}

MR_TEST(a_lack_of_memory_loses_nothing)
{
    mr_drive_goes_on("range(-3, 9).take_while(x => 6 // x < 6)");
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(-3, 9).take_while(x => 6 // x < 6)");
}
