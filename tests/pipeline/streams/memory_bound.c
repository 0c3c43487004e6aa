/* SPDX-License-Identifier: Apache-2.0 */
/* Peak of live bytes while rows of 1 MiB go through each op: a few rows, whatever the op above asks
 * for. 60 rows are asked for at once; what is held is bounded by what each graph says. */
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/memory/buffer.h"
#include "tests/harness.h"
#include "tests/pipeline/streams/counted_memory.h"

/* @: rows of 1 MiB, of a shape that the graph knows or that it does not. */
static const char *const rows[] = {"range(60).map(x => zeros([262144]))",
                                   "range(60).map(x => zeros([x * 0 + 262144]))"};

/* MiB: what the graph asks to hold, and a few rows. */
static const struct {
    const char *text;
    int mib, threads;
} graphs[] = {
    {"@.map(x => sum(x))", 4, 0},
    {"range(60).map(x => sum(zeros([262144], \"int64\") + x))", 12, 0},
    {"range(60).map(x => sum(zeros([x * 0 + 262144], \"int64\") + x))", 12, 0},
    {"@.map(x => x).map(x => sum(x)).batch(100)", 4, 0},
    {"@.filter(x => sum(x) < 1.0).map(x => sum(x)).batch(100)", 4, 0},
    {"@.filter(x => sum(x) > 1.0)", 4, 0},
    {"@.take(50).skip(3).shard(2, 1).map(x => sum(x)).batch(9)", 4, 0},
    {"@.enumerate().map((i, x) => sum(x)).batch(100)", 4, 0},
    {"@.repeat(2).concatenate(@).map(x => sum(x)).batch(100)", 4, 0},
    {"zip(@, @).map((a, b) => sum(a) + sum(b)).batch(100)", 6, 0},
    {"@.batch(4).map(x => sum(x)).batch(20)", 10, 0},
    {"@.batch(2).batch(2).map(x => sum(x))", 12, 0},
    {"@.padded_batch(4).map(x => sum(x)).batch(20)", 14, 0},
    {"@.batch(4).unbatch().map(x => sum(x)).batch(20)", 10, 0},
    {"@.batch(4).rebatch(3).map(x => sum(x)).batch(20)", 14, 0},
    {"@.batch(4).replica_slices(2).map(x => sum(x)).batch(20)", 10, 0},
    {"@.window(3, 1).flat_map(w => w).map(x => sum(x)).batch(50)", 14, 0},
    {"range(15).flat_map(n => @.take(4)).map(x => sum(x)).batch(50)", 4, 0},
    {"range(15).interleave(n => @.take(4), cycle_length=4).map(x => sum(x)).batch(50)", 12, 0},
    {"@.shuffle(4, seed=1).map(x => sum(x)).batch(50)", 10, 0},
    {"@.take(5).cache().repeat(4).map(x => sum(x)).batch(50)", 10, 0},
    {"@.prefetch(2).map(x => sum(x)).batch(50)", 4, 0},
    {"@.prefetch(auto).map(x => sum(x)).batch(50)", 10, 2},
    {"@.prefetch(3).map(x => sum(x)).batch(50)", 10, 2},
    {"@.map(x => x, num_parallel_calls=2).map(x => sum(x), num_parallel_calls=2)", 16, 2},
    {"range(15).interleave(n => @.take(4), cycle_length=4, num_parallel_calls=4).map(x => sum(x))",
     24, 2},
    {"@.ignore_errors().assert_cardinality(60).map(x => sum(x)).batch(50)", 4, 0},
    {"@.with_options(deterministic=true).map(x => sum(x)).batch(50)", 4, 0},
    {"@.take_while(x => sum(x) < 1.0).map(x => sum(x)).batch(50)", 4, 0},
    {"@.scan(0.0, (s, x) => (sum(x), x)).map(x => sum(x)).batch(50)", 6, 0},
    {"sample_from_datasets([@, @], seed=1).map(x => sum(x)).batch(50)", 6, 0},
    {"choose_from_datasets([@, @], range(60).map(x => x % 2)).map(x => sum(x)).batch(50)", 6, 0},
    {"@.rejection_resample(x => cast(sum(x), \"int64\"), [0.9, 0.1], initial_dist=[0.5, 0.5], "
     "seed=1).map((c, x) => sum(x)).batch(50)",
     6, 0},
    {"@.group_by_window(x => 0, (k, w) => w.batch(3), 3).map(x => sum(x)).batch(50)", 14, 0},
    {"@.bucket_by_sequence_length(x => 1, [3], [3, 3]).map(x => sum(x)).batch(50)", 14, 0},
    {"@.ragged_batch(3).map(x => 1).batch(50)", 14, 0},
};

static void expand(const char *text, const char *with, char *out, size_t size)
{
    size_t n = 0;
    for (; *text; text++)
        n += (size_t)snprintf(out + n, size - n, "%.*s", *text == '@' ? (int)strlen(with) : 1,
                              *text == '@' ? with : text);
}

MR_TEST_SLOW(large_rows_stay_few_under_every_op)
{
    mr_count_memory();
    for (size_t g = 0; g < 2 * (sizeof graphs / sizeof *graphs); g++) {
        if (!mr_test_takes(g, 3) || (graphs[g / 2].threads == 0 && mr_test_for_races()))
            continue;
        char text[1024];
        mr_status st;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        expand(graphs[g / 2].text, rows[g % 2], text, sizeof text);
        mr_test_context("%s", text);
        mr_iterator_opts o = {.threads = graphs[g / 2].threads, .has_threads = true};
        mr_dataset *ds = mr_test_graph(text);
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        mr_buffer_pool_trim();
        mr_restart_peak();
        mr_code rc;
        do
            rc = mr_iterator_next(it, 60, &b, &st);
        while (rc == MR_OK);
        mr_code_is(rc, MR_END, &st);
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        double mib = (double)mr_peak_memory() / (1 << 20);
        if (mib > graphs[g / 2].mib)
            mr_fail_test("%.1f MiB were live at once, where %d may be", mib, graphs[g / 2].mib);
    }
}
