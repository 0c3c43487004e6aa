/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/events.h"
#include "tests/harness.h"

/* Graphs of several ops, saved and restored at every position. */
MR_TEST(chains_give_the_same_however_they_run)
{
    static const char *const graphs[] = {
        "range(10).shuffle(4, seed=1).batch(3).repeat(2).unbatch().take(17).shard(2, 1)",
        "range(9).interleave(x => range(x).shuffle(3, seed=2), cycle_length=3).batch(4)",
        "range(9).map(x => x * x, num_parallel_calls=2).prefetch(2).shuffle(3, "
        "seed=5).cache().repeat(2)",
        "range(12).window(4, 3).flat_map(w => w.shuffle(9, seed=3).batch(2)).prefetch(1)",
        "range(-6, 6).map(x => 12 // x).ignore_errors().padded_batch(4).unbatch().enumerate()",
        "range(20).batch(6).rebatch([4, 0, 3]).map(x => size(x))",
        "range(12).batch(6).replica_slices(4).shard(2, 1, require_non_empty=true)",
        "range(3).concatenate(range(5).skip(2)).repeat(2).prefetch(3).batch(2)",
        "from_tensor_slices([[1, 2], [3, 4]], [\"a\", \"b\"]).repeat(3).shuffle(4, "
        "seed=9).batch(4)",
        "range(6).map(x => range(x)).flat_map(d => d.cache().repeat(2)).take(20)",
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        mr_drive_alike(graphs[i]);
}

/* Rows that an op holds of a repeated shuffle were drawn, even if they are not read again after a
 * restore: the next orders are those after them. */
MR_TEST(what_is_held_of_a_repeated_shuffle_was_drawn)
{
#define REPEATED "range(2).shuffle(2, seed=1).repeat(3)"
    mr_drive(REPEATED ".batch(4).unbatch().take(1).repeat(6)", "0 1 0 0 0 0");
    mr_drive_alike(REPEATED ".batch(4).rebatch(1).take(1).repeat(6)");
    mr_drive_alike(REPEATED ".batch(4).unbatch().shard(2, 0).take(1).repeat(6)");
    mr_drive_alike(REPEATED ".batch(4).replica_slices(2).take(1).repeat(6)");
    mr_drive(REPEATED ".window(3, shift=2).flat_map(w => w).take(1).repeat(4)", "0 1 0 0");
    mr_drive_alike("zip(" REPEATED ".batch(4).unbatch(), range(3)).repeat(4)");
    mr_drive_alike("range(3).shuffle(10, seed=6).repeat(2).batch(3).unbatch().take(4).repeat(3)");
    mr_drive_alike("sample_from_datasets([range(3).shuffle(10, seed=6).repeat(2).batch(3)"
                   ".unbatch(), range(3)], seed=2, stop_on_empty_dataset=true).repeat(3)");
    mr_drive_alike("sample_from_datasets([range(3).shuffle(10, seed=7).repeat(2), range(6)], "
                   "seed=3, stop_on_empty_dataset=true).batch(20).repeat(2)");
    mr_drive_alike("mix({\"a\": range(3).shuffle(10, seed=7).repeat(2), \"b\": range(6)}, "
                   "seed=3).batch(20).repeat(2)");
    mr_drive_alike("choose_from_datasets([" REPEATED ", range(4)], range(9).map(x => x % 2))"
                   ".batch(20).repeat(3)");
}

/* The same of a cache, which is complete once all was recorded. */
MR_TEST(what_is_held_of_a_cache_was_recorded)
{
    mr_drive_alike("range(3).shuffle(3, seed=2).filter(x => x >= 0).cache().batch(4).unbatch()"
                   ".take(2).repeat(6)");
    mr_drive_alike("range(6).shuffle(10, seed=1).cache().shuffle(5, seed=1)"
                   ".window(2, shift=1, stride=2).flat_map(w => w.batch(2)).unbatch().repeat(2)"
                   ".take(5).repeat(4)");
    mr_drive_alike("range(4).map(x => 6 // (x - 2)).shuffle(4, seed=9).shard(2, 0).cache()"
                   ".map(x => zeros([x % 3 + 1], \"int64\") + x).rebatch(2).unbatch().take(3)"
                   ".window(3, shift=1).flat_map(w => w).repeat(3)");
    mr_drive_alike("from_tensor_slices([0]).map(x => 1 // x).cache().repeat(2).shuffle(3, seed=1)"
                   ".window(4, shift=4, stride=3).repeat(3)");
}

/* A snapshot is complete or not by what was used of it, however large blocks are. */
MR_TEST(a_snapshot_below_is_pulled_no_further_than_elements_are_used)
{
    static const int64_t rows[] = {1, 3, 1024};
    static const struct {
        int stop; /* what ends a pass: the last element of the first one, or the one before it */
        const char *expected;
    } cases[] = {{2, "0 4 3 1 0 4 3 1 0 4 3 1"}, {1, "0 4 3 3 0"}};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 3; i++) {
            char text[400];
            mr_status st;
            mr_events e = {0};
            mr_iterator *it = NULL;
            snprintf(text, sizeof text,
                     "range(5).shuffle(5, seed=1).snapshot(\"%s%d-%d\").interleave(x => range(x, x "
                     "+ 1), cycle_length=2).take_while(x => x != %d).repeat(3)",
                     mr_test_path("snapshot"), (int)i, cases[k].stop, cases[k].stop);
            mr_dataset *ds = mr_drive_build(text);
            const mr_iterator_opts o = {.has_threads = true, .block_rows = rows[i]};
            mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
            mr_events_run(&e, it, 100, SIZE_MAX);
            char *got = mr_events_join(&e);
            mr_eq_str(got, cases[k].expected);
            free(got);
            mr_events_reset(&e, 0);
            mr_iterator_close(it);
            mr_dataset_unref(ds);
        }
}
