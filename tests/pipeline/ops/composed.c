/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

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
