/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/block_size_tuner.h"

#include "pipeline/engine/run.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* As much of an iterator as a tuner looks at. */
static mr_run run;
static mr_iter it = {.run = &run};

static void start(mr__block_size_tuner *t, int threads, int64_t block_rows, size_t row_bytes)
{
    run.opts =
        (mr_iterator_opts){.threads = threads, .has_threads = true, .block_rows = block_rows};
    mr__block_size_tuner_start(t, &it, row_bytes);
}

MR_TEST(starts_with_one_row_and_doubles_while_requests_are_short)
{
    mr__block_size_tuner t;
    start(&t, 2, 0, 0);
    for (size_t rows = 1; rows <= 1024; rows *= 2) {
        mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), rows);
        mr__block_size_tuner_note(&t, rows, 1e-6, rows, rows * 8);
    }
}

MR_TEST(long_requests_become_smaller)
{
    mr__block_size_tuner t;
    start(&t, 2, 0, 0);
    for (size_t rows = 1; rows < 64; rows *= 2)
        mr__block_size_tuner_note(&t, rows, 1e-6, rows, rows * 8);
    mr__block_size_tuner_note(&t, 64, 0.001, 64, 512); /* neither short nor long */
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 64);
    mr__block_size_tuner_note(&t, 64, 0.01, 64, 512);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 32);
    mr__block_size_tuner_note(&t, 1, 0.01, 1, 8);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 1);
    mr__block_size_tuner_note(&t, 1, 0.01, 1, 8);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 1);
}

MR_TEST(without_threads_time_changes_nothing)
{
    mr__block_size_tuner fast, slow;
    start(&fast, 0, 0, 0);
    start(&slow, 0, 0, 0);
    for (int i = 0; i < 12; i++) {
        size_t rows = mr__block_size_tuner_ask(&fast, &it, SIZE_MAX);
        mr_eq_u64(mr__block_size_tuner_ask(&slow, &it, SIZE_MAX), rows);
        mr__block_size_tuner_note(&fast, rows, 1e-9, rows, rows * 100);
        mr__block_size_tuner_note(&slow, rows, 10, rows, rows * 100);
    }
    mr_eq_u64(mr__block_size_tuner_ask(&slow, &it, SIZE_MAX), 256 * 1024 / 100);
}

MR_TEST(rows_are_bounded_by_their_bytes_by_block_rows_and_by_what_is_wanted)
{
    mr__block_size_tuner t;
    start(&t, 0, 0, 0);
    for (size_t rows = 1; rows < 4096; rows *= 2)
        mr__block_size_tuner_note(&t, rows, 0, rows, rows * 1024);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 256);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, 7), 7);
    mr__block_size_tuner_note(&t, 256, 0, 10, 10 << 20); /* larger than a block */
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 1);
    mr__block_size_tuner_note(&t, 1, 0, 0, 0); /* nothing came: the size is as it was */
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 1);
    run.opts.block_rows = 3;
    mr__block_size_tuner_note(&t, 256, 0, 10, 10);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 3);
}

MR_TEST(a_known_size_fills_a_block_at_once)
{
    mr__block_size_tuner t;
    start(&t, 0, 0, 1024);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, SIZE_MAX), 256);
    mr_eq_u64(mr__block_size_tuner_ask(&t, &it, 9), 9);
}

MR_TEST(a_request_that_was_cut_short_does_not_grow_the_next)
{
    mr__block_size_tuner t;
    start(&t, 0, 0, 0);
    for (int i = 0; i < 10; i++)
        mr__block_size_tuner_note(&t, 1, 0, 1, 8); /* one row is requested each time */
    mr_check(mr__block_size_tuner_ask(&t, &it, SIZE_MAX) <= 2);
}
