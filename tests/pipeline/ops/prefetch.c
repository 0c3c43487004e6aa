/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/compiler/function.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

#include <time.h>

MR_TEST(passes_its_input_through)
{
    mr_drive("range(9).prefetch(1)", "0 1 2 3 4 5 6 7 8");
    mr_drive("range(9).prefetch(4)", "0 1 2 3 4 5 6 7 8");
    mr_drive("range(9).prefetch(1000)", "0 1 2 3 4 5 6 7 8");
    mr_drive("range(9).prefetch(auto)", "0 1 2 3 4 5 6 7 8");
    mr_drive("range(0).prefetch(2)", "");
}

MR_TEST(errors_keep_their_places)
{
    mr_drive("range(-2, 3).map(x => 10 // x).prefetch(2)", "-5 -10 ! 10 5");
    mr_drive("range(-2, 3).map(x => 10 // x).prefetch(auto).prefetch(1)", "-5 -10 ! 10 5");
}

MR_TEST(nests_in_functions_without_deadlock)
{
    mr_drive("range(5).prefetch(1).flat_map(n => range(n).prefetch(2)).prefetch(auto)",
             "0 0 1 0 1 2 0 1 2 3");
    mr_drive("range(4).prefetch(2).interleave(n => range(n).prefetch(1).map(x => x + n, "
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
    mr_dataset *ds = mr_prefetch(
        mr_map(mr_drive_build("range(1000)"), mr_fn_element(slow, &calls, NULL), NULL), 3);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.threads = 2, .has_threads = true}, &st),
          &st);
    for (int taken = 1; taken <= 20; taken++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(*(const int64_t *)b.columns[0].data, taken - 1);
        mr_check(__atomic_load_n(&calls, __ATOMIC_RELAXED) <= taken + 3);
    }
    mr_await(__atomic_load_n(&calls, __ATOMIC_RELAXED) >= 22);
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
        mr_map(mr_drive_build("range(1000)"), mr_fn_element(slow, &calls, NULL), NULL), 50);
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
    mr_drive_bad("range(3).prefetch(-2)", "buffer_size");
    mr_drive_bad("range(3).prefetch(1.5)", "prefetch");
}

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    mr_drive_faults("range(-3, 9).map(x => 6 // x).prefetch(2).prefetch(auto)");
}

static mr_code one_and_a_late_end(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    (void)pass, (void)want;
    int *calls = ctx;
    if ((*calls)++) {
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        return MR_END;
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, 1, st));
    *(int64_t *)out->columns[0].data = 7;
    out->rows = 1;
    return MR_OK;
}

MR_TEST(who_waits_for_what_is_read_ahead_is_woken_by_the_end)
{
    int calls = 0;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    mr_dataset *ds = mr_prefetch(
        mr_from_generator(&(mr_generator){.ctx = &calls, .next = one_and_a_late_end}, spec), 4);
    mr_iterator_opts opts = {.has_threads = true, .threads = 1};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL); /* a thread is at it now */
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_END, &st);
    mr_eq_i64(calls, 2);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_spec_unref(spec);
}
