/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/function.h"
#include "pipeline/ops/function_ops.h"
#include "replay.h"
#include "tests/harness.h"

#include <time.h>

MR_TEST(passes_its_input_through)
{
    check_graph("range(9).prefetch(1)", "0 1 2 3 4 5 6 7 8");
    check_graph("range(9).prefetch(4)", "0 1 2 3 4 5 6 7 8");
    check_graph("range(9).prefetch(1000)", "0 1 2 3 4 5 6 7 8");
    check_graph("range(9).prefetch(auto)", "0 1 2 3 4 5 6 7 8");
    check_graph("range(0).prefetch(2)", "");
}

MR_TEST(errors_keep_their_places)
{
    check_graph("range(-2, 3).map(x => 10 // x).prefetch(2)", "-5 -10 ! 10 5");
    check_graph("range(-2, 3).map(x => 10 // x).prefetch(auto).prefetch(1)", "-5 -10 ! 10 5");
}

MR_TEST(nests_in_functions_without_deadlock)
{
    check_graph("range(5).prefetch(1).flat_map(n => range(n).prefetch(2)).prefetch(auto)",
                "0 0 1 0 1 2 0 1 2 3");
    check_graph(
        "range(4).prefetch(2).interleave(n => range(n).prefetch(1).map(x => x + n, "
        "num_parallel_calls=2).prefetch(1), cycle_length=3, num_parallel_calls=3).prefetch(3)",
        "1 2 3 3 4 5");
}

static mr_code slow(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    /* Relaxed: a count. */
    __atomic_fetch_add((int *)ctx, 1, __ATOMIC_RELAXED);
    nanosleep(&(struct timespec){0, 200 * 1000}, NULL);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(reads_ahead_as_many_elements_as_asked_for)
{
    int calls = 0;
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds =
        mr_prefetch(mr_map(parse_graph("range(1000)"), mr_fn_element(slow, &calls, NULL), NULL), 3);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = 2, .has_threads = true}, &st),
          &st);
    for (int taken = 1; taken <= 20; taken++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(const int64_t *)b.columns[0].data, taken - 1);
        mr_check(__atomic_load_n(&calls, __ATOMIC_RELAXED) <= taken + 3);
    }
    for (int i = 0; i < 1000 && __atomic_load_n(&calls, __ATOMIC_RELAXED) < 22; i++)
        nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    mr_check(__atomic_load_n(&calls, __ATOMIC_RELAXED) >= 22);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_cancelled_iterator_ends_and_closes)
{
    int calls = 0;
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_prefetch(
        mr_map(parse_graph("range(1000)"), mr_fn_element(slow, &calls, NULL), NULL), 50);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = 2, .has_threads = true}, &st),
          &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_iterator_cancel(it);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_CANCELLED, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(a_size_below_minus_one_is_refused)
{
    check_refused("range(3).prefetch(-2)", "buffer_size");
    check_refused("range(3).prefetch(1.5)", "prefetch");
}

MR_TEST(every_failing_allocation_is_told_and_nothing_leaks)
{
    check_faults("range(-3, 9).map(x => 6 // x).prefetch(2).prefetch(auto)");
}
