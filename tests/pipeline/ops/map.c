/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/function.h"
#include "pipeline/ops/function_ops.h"
#include "replay.h"
#include "tests/harness.h"

MR_TEST(applies_the_function_to_each_element)
{
    check_graph("range(7).map(x => x * x)", "0 1 4 9 16 25 36");
    check_graph("range(3).map(x => (x, x + 1)).map((a, b) => a * b)", "0 2 6");
    check_graph("range(0).map(x => x)", "");
}

MR_TEST(an_error_takes_the_place_of_its_element)
{
    check_graph("range(-2, 3).map(x => 10 // x)", "-5 -10 ! 10 5");
    check_graph("range(-2, 3).map(x => 10 // x).map(x => 10 // (x - 5))", "-1 -1 ! 2 !");
}

MR_TEST(parallel_calls_keep_the_order_and_the_errors)
{
    check_graph("range(-2, 20).map(x => 12 // x, num_parallel_calls=3)",
                "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0");
    check_graph("range(-2, 20).map(x => 12 // x, num_parallel_calls=auto)",
                "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0");
    check_graph("range(-3, 3).map(x => 6 // x, num_parallel_calls=2).map(x => 6 // (x + 2), "
                "num_parallel_calls=2)",
                "! -6 -2 ! 0 1");
}

MR_TEST(without_order_nothing_is_lost_or_repeated)
{
    check_dataset(parse_graph("range(-2, 30).map(x => 12 // x, num_parallel_calls=4, "
                              "deterministic=false).prefetch(3)"),
                  "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0", ANY_ORDER);
}

MR_TEST(take_never_meets_an_error_behind_its_last_element)
{
    check_graph("range(-3, 3).map(x => 6 // x, num_parallel_calls=2).take(3)", "-2 -3 -6");
}

MR_TEST(bad_arguments_are_refused_when_the_graph_is_built)
{
    check_refused("range(3).map(x => x, num_parallel_calls=0)", "num_parallel_calls");
    check_refused("range(3).map(x => x, num_parallel_calls=-2)", "num_parallel_calls");
    check_refused("range(3).map(x => y)", "y");
}

static mr_code count_call(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    /* Relaxed: a count. */
    __atomic_fetch_add((int *)ctx, 1, __ATOMIC_RELAXED);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(callbacks_run_in_the_pool_and_are_released_once)
{
    int calls = 0;
    mr_dataset *ds = mr_map(parse_graph("range(100)"), mr_fn_element(count_call, &calls, NULL),
                            &(mr_map_opts){.num_parallel_calls = 4});
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = 3, .has_threads = true}, &st),
          &st);
    int64_t next = 0;
    while (mr_iterator_next(it, 7, &b, &st) == MR_OK)
        for (size_t i = 0; i < b.rows; i++)
            mr_eq_i64(((const int64_t *)b.columns[0].data)[i], next++);
    mr_eq_i64(next, 100);
    mr_eq_i64(calls, 100);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_failing_allocation_is_told_and_nothing_leaks)
{
    check_faults("range(-3, 9).map(x => (6 // x, x), num_parallel_calls=2)");
    check_faults("range(-3, 9).map(x => 6 // x, num_parallel_calls=2, deterministic=false)");
}
