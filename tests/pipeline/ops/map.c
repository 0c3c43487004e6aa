/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/compiler/function.h"
#include "pipeline/ops/apply.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

#include <time.h>

MR_TEST(applies_the_function_to_each_element)
{
    mr_drive("range(7).map(x => x * x)", "0 1 4 9 16 25 36");
    mr_drive("range(3).map(x => (x, x + 1)).map((a, b) => a * b)", "0 2 6");
    mr_drive("range(0).map(x => x)", "");
}

MR_TEST(an_error_takes_the_place_of_its_element)
{
    mr_drive("range(-2, 3).map(x => 10 // x)", "-5 -10 ! 10 5");
    mr_drive("range(-2, 3).map(x => 10 // x).map(x => 10 // (x - 5))", "-1 -1 ! 2 !");
}

MR_TEST(parallel_calls_keep_the_order_and_the_errors)
{
    mr_drive("range(-2, 20).map(x => 12 // x, num_parallel_calls=3)",
             "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0");
    mr_drive("range(-2, 20).map(x => 12 // x, num_parallel_calls=auto)",
             "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0");
    mr_drive("range(-2, 2).map(x => x, num_parallel_calls=-1)", "-2 -1 0 1"); /* AUTOTUNE */
    mr_drive("range(-3, 3).map(x => 6 // x, num_parallel_calls=2).map(x => 6 // (x + 2), "
             "num_parallel_calls=2)",
             "! -6 -2 ! 0 1");
}

MR_TEST(without_order_nothing_is_lost_or_repeated)
{
    mr_drive_any("range(-2, 30).map(x => 12 // x, num_parallel_calls=4, "
                 "deterministic=false).prefetch(3)",
                 "-6 -12 ! 12 6 4 3 2 2 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0");
}

MR_TEST(take_never_meets_an_error_behind_its_last_element)
{
    mr_drive("range(-3, 3).map(x => 6 // x, num_parallel_calls=2).take(3)", "-2 -3 -6");
}

MR_TEST(bad_arguments_are_refused_when_the_graph_is_built)
{
    mr_drive_bad("range(3).map(x => x, num_parallel_calls=0)", "num_parallel_calls");
    mr_drive_bad("range(3).map(x => x, num_parallel_calls=-2)", "num_parallel_calls");
    mr_drive_bad("range(3).map(x => y)", "y");
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
    mr_dataset *ds = mr_map(mr_drive_build("range(100)"), mr_fn_element(count_call, &calls, NULL),
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

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    mr_drive_faults("range(-3, 9).map(x => (6 // x, x), num_parallel_calls=2)");
    mr_drive_faults("range(-3, 9).map(x => 6 // x, num_parallel_calls=2, deterministic=false)");
}

static mr_code some_are_slow(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    (void)ctx;
    if (((const int64_t *)in->columns[0].data)[0] % 3 == 0)
        nanosleep(&(struct timespec){0, 50 * 1000}, NULL);
    return mr_block_slice(out, in, 0, in->rows, st);
}

MR_TEST(calls_that_overtake_each_other_lose_nothing)
{
    /* The call that was started last, the tail of the queue, often finishes before the others. */
    mr_dataset *ds = mr_map(mr_drive_build("range(2000)"), mr_fn_element(some_are_slow, NULL, NULL),
                            &(mr_map_opts){.num_parallel_calls = 2, .deterministic = MR_NO});
    mr_iterator_opts o = {.threads = 2, .has_threads = true, .block_rows = 1};
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    static bool seen[2000];
    size_t n = 0;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    while (mr_iterator_next(it, 1, &b, &st) == MR_OK) {
        int64_t x = *(const int64_t *)b.columns[0].data;
        mr_check(x >= 0 && x < 2000 && !seen[x]);
        seen[x] = true;
        n++;
    }
    mr_eq_u64(n, 2000);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

static bool lie_together(const mr_array *a)
{
    const mr_row *rows = a->data;
    for (size_t i = 1; i < a->rows; i++)
        if ((const char *)rows[i - 1].data + mr_array_payload_bytes(a, i - 1, 1) !=
            (const char *)rows[i].data)
            return false;
    return true;
}

/* Do the rows of each block do so? */
static bool blocks_lie_together(const char *text)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    bool together = true;
    size_t most = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    while (mr_iterator_next(it, 64, &b, &st) == MR_OK) {
        together = together && lie_together(&b.columns[0]);
        most = b.rows > most ? b.rows : most;
    }
    mr_check(most > 1);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return together;
}

MR_TEST(small_rows_of_several_shapes_lie_one_after_the_other)
{
    mr_check(blocks_lie_together("range(100).map(x => ones([x % 7]))"));
    mr_drive("range(4).map(x => [format(\"a{}\", x), \"b\"][:x])",
             "[] [\"a1\"] [\"a2\",\"b\"] [\"a3\",\"b\"]");
    /* Large ones are not copied. */
    mr_check(!blocks_lie_together("range(20).map(x => ones([x + 1000]))"));
}
