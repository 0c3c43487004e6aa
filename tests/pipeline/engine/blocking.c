/* SPDX-License-Identifier: Apache-2.0 */
/* Separate threads for tasks that block. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "pipeline/engine/executor.h"
#include "pipeline/engine/run.h"
#include "tests/harness.h"

struct slow {
    mr__task task; /* first, so that run finds the rest */
    atomic_bool ended;
};

static void sleep_a_little(mr__task *t)
{
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    atomic_store(&((struct slow *)t)->ended, true);
}

MR_TEST(an_executor_outlives_its_blocking_threads)
{
    enum { N = 3 };
    static struct slow tasks[N];
    mr_executor *ex = NULL;
    mr_status st;
    mr_ok(mr_executor_new(1, &ex, &st), &st);
    for (int i = 0; i < N; i++) {
        tasks[i].task.run = sleep_a_little;
        mr__task_submit_blocking(ex, &tasks[i].task);
    }
    mr_executor_free(ex);
    for (int i = 0; i < N; i++)
        mr_check(atomic_load(&tasks[i].ended));
}

/* A row that is itself ragged and has no entries, among others, in a state. */
MR_TEST(ragged_rows_without_entries_or_values_round_trip)
{
    static const int64_t none[] = {0, -1}, two[] = {2, -1}, no_splits[] = {0}, splits[] = {0, 0, 3};
    static const int64_t values[] = {7, 8, 9}, empty[] = {0};
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
    mr_ok(mr_block_prepare(&b, 2, &st), &st);
    mr_ok(mr_array_alloc_ragged(&b.columns[0], MR_INT64, 2, 2, &st), &st);
    ((mr_row *)b.columns[0].data)[0] = (mr_row){.shape = none, .splits = no_splits};
    ((mr_row *)b.columns[0].data)[1] = (mr_row){.data = values, .shape = two, .splits = splits};
    mr_ok(mr_array_alloc_ragged(&b.columns[1], MR_INT64, 1, 2, &st), &st);
    ((mr_row *)b.columns[1].data)[0] = (mr_row){.shape = empty};
    ((mr_row *)b.columns[1].data)[1] = (mr_row){.shape = empty};
    b.rows = 2;
    mr_leaf ragged = {.dtype = MR_INT64, .rank = 2, .shape = {-1, -1}, .ragged = true};
    const int64_t any = -1;
    mr_spec *leaves[] = {mr_spec_of_leaf(&ragged), mr_spec_tensor(MR_INT64, 1, &any)};
    mr_spec *spec = mr_spec_tuple(leaves, 2);
    mr_check(spec != NULL);
    mr_state_w w = {0};
    mr_ok(mr_state_put_block(&w, &b, &st), &st);
    mr_state_r r = {.at = w.data, .end = w.data + w.size};
    mr_ok(mr_state_get_block(&r, spec, &got, &st), &st);
    mr_check(r.at == r.end);
    const mr_row *rows = got.columns[0].data;
    mr_eq_i64(rows[0].shape[0], 0);
    mr_check(rows[0].splits && rows[0].splits[0] == 0);
    mr_eq_mem(rows[1].splits, splits, sizeof splits);
    mr_eq_mem(rows[1].data, values, sizeof values);
    mr_eq_i64(((const mr_row *)got.columns[1].data)[1].shape[0], 0);
    mr_block_reset(&got);
    mr_block_reset(&b);
    mr_spec_unref(spec);
    mr__state_w_reset(&w);
}
