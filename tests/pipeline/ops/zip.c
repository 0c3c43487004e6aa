/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdlib.h>

#include "tests/harness.h"

MR_TEST(ends_with_the_shortest)
{
    mr_drive("zip(range(3), range(10, 20))", "(0,10) (1,11) (2,12)");
    mr_drive("range(9).zip(range(2))", "(0,0) (1,1)");
    mr_drive("zip(range(2), range(2), range(2))", "(0,0,0) (1,1,1)");
    mr_drive("zip(range(3), range(0))", "");
}

MR_TEST(an_error_advances_the_other_inputs)
{
    mr_drive("zip(from_tensor_slices([1, 0, 2]).map(x => 2 // x), range(3))", "(2,0) !zero (1,2)");
    mr_drive("zip(range(3), from_tensor_slices([1, 0, 2]).map(x => 2 // x))", "(0,2) !zero (2,1)");
    mr_drive("zip(from_tensor_slices([1, 0, 2]).map(x => 2 // x), range(1))", "(2,0) !zero");
}

MR_TEST(inputs_with_blocks_of_other_sizes_stay_in_step)
{
    mr_drive_alike(
        "zip(range(20), range(100).filter(x => x % 3 == 0), range(40).batch(3).unbatch())");
    mr_drive_alike("zip(range(7).shuffle(4, seed=1).repeat(2), range(50).shard(3, 1))");
}

/* Whether a cache is complete, and so what repeat() gives, does not depend on block sizes. */
MR_TEST(a_cache_below_is_pulled_no_further_than_elements_are_used)
{
    mr_drive("zip(range(6).shuffle(6, seed=1).cache(), range(1)).repeat(4).map((a, b) => a)",
             "4 4 3 0");
    char *want = mr_drive_show("range(6).shuffle(6, seed=1).take(2).repeat(3)");
    mr_drive("zip(range(2), range(6).shuffle(6, seed=1).cache()).repeat(3).map((a, b) => b)", want);
    free(want);
    mr_drive(
        "zip(range(9).filter(x => x < 1), range(6).shuffle(6, seed=1).cache(), range(3).cache())"
        ".repeat(4).map((a, b, c) => b)",
        "4 4 3 0");
    mr_drive_alike(
        "zip(range(6).shuffle(6, seed=1).cache().filter(x => x != 1), range(3)).repeat(4)");
    mr_drive_alike("zip(range(7).shuffle(7, seed=1).cache(), range(5).map(x => 6 // (x // 4)))"
                   ".ignore_errors().repeat(4)");
    mr_drive_alike(
        "zip(range(6).shuffle(6, seed=1).cache(), range(9).filter(x => x < 2)).repeat(4)");
    mr_drive_alike("zip(range(6).shuffle(6, seed=1).cache().concatenate(range(2)), "
                   "range(9).filter(x => x < 2)).repeat(4)");
    mr_drive_alike("zip(range(6).shuffle(6, seed=1).cache(), "
                   "range(6).shuffle(6, seed=2).cache().filter(x => x < 2)).repeat(4)");
    mr_drive_alike("zip(range(4).shuffle(4, seed=1).cache(), range(9).shuffle(9, seed=2).cache(), "
                   "range(8).map(x => 6 // (x - 2))).ignore_errors().repeat(4)");
}

/* The same of a shuffle that repeat() opens again and again: every time draws another order. */
MR_TEST(a_repeated_shuffle_below_is_opened_no_more_often_than_elements_are_used)
{
#define REPEATED "range(5).shuffle(10, seed=1).repeat(3)"
    mr_drive(REPEATED ".flat_map(x => from_tensors(x)).zip(range(1)).repeat(3).map((a, b) => a)",
             "0 3 0");
    mr_drive(REPEATED ".filter(x => x >= 0).zip(range(9).filter(x => x < 1)).repeat(3)"
                      ".map((a, b) => a)",
             "0 3 0");
    mr_drive_alike(REPEATED ".batch(2).zip(range(1)).repeat(4)");
    mr_drive_alike("zip(range(9).filter(x => x < 2), " REPEATED ".shard(2, 1)).repeat(4)");
    mr_drive_alike("zip(" REPEATED ", range(7).filter(x => x < 6)).repeat(4)");
}

/* What was pulled of an input and is not used counts as taken in positions after the end too. */
MR_TEST(positions_after_the_end)
{
    mr_drive_alike("zip(" REPEATED ", range(5)).batch(7).repeat(4)");
    mr_drive_alike("zip(" REPEATED ", range(5).map(x => 6 // (x - 4))).batch(3).repeat(4)");
}

MR_TEST(one_dataset_twice_draws_two_orders)
{
    mr_drive_alike(
        "from_tensors(1).map(x => range(5).shuffle(5, seed=1)).flat_map(d => zip(d, d))");
}

MR_TEST(a_lack_of_memory_uses_up_no_round)
{
    mr_drive_goes_on("zip(range(7), range(1, 9).map(x => 6 // x), range(9).filter(x => x > 1))");
}

MR_TEST(cardinality)
{
    mr_drive_count("zip(range(5), counter())", 5);
    mr_drive_count("zip(range(5), range(3))", 3);
    mr_drive_count("zip(counter(), counter())", MR_INFINITE);
    mr_drive_count("zip(range(5), range(5).filter(x => x > 1))", MR_UNKNOWN_COUNT);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("zip(range(10), range(20).filter(x => x % 2 == 0))");
}
