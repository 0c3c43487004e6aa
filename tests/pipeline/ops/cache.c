/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include <string.h>

#include "pipeline/log.h"
#include "pipeline/ops/sequence.h"

MR_TEST(later_passes_do_not_read_the_input)
{
    mr_drive("range(3).cache().repeat(2)", "0 1 2 0 1 2");
    mr_drive("range(6).shuffle(6, seed=42).cache().repeat(2).batch(6)",
             "[3,2,1,4,5,0] [3,2,1,4,5,0]");
}

MR_TEST(errors_are_not_kept)
{
    mr_drive("from_tensor_slices([1, 0, 2]).map(x => 2 // x).cache().repeat(2)", "2 !zero 1 2 1");
    mr_drive("from_tensors(0).map(x => 1 // x).cache().repeat(3)", "!zero");
}

MR_TEST(an_abandoned_recording_is_thrown_away)
{
    mr_drive("range(10).cache().take(3).repeat(2)", "0 1 2 0 1 2");
    mr_drive_alike("range(6).shuffle(6, seed=1).cache().take(3).repeat(3)");
}

MR_TEST(a_known_count_completes_it_without_the_end)
{
    mr_drive_alike("range(6).shuffle(6, seed=1).cache().take(6).repeat(3)");
    mr_drive("range(3).shuffle(3, seed=1).cache().take(3).repeat(2).batch(3)", "[1,2,0] [1,2,0]");
}

MR_TEST(an_input_without_elements_leaves_a_complete_cache)
{
    mr_drive("range(0).cache().repeat(2)", "");
}

MR_TEST(rows_of_every_kind_in_any_place)
{
    mr_drive_alike("range(9).map(x => (x, ones([x]), \"s\")).cache().repeat(2)");
    mr_drive_alike("range(9).window(2).cache().repeat(2).flat_map(w => w)");
    mr_drive_alike("range(9).cache().shuffle(5, seed=1).repeat(3)");
    mr_drive_alike("range(4).flat_map(x => range(x).cache().repeat(2))");
    mr_drive_alike("range(9).cache().batch(4).cache().repeat(2).unbatch()");
}

static void keep_warning(void *ctx, mr_log_level level, const char *message)
{
    if (level == MR_LOG_WARNING && strstr(message, "thrown away"))
        *(int *)ctx += 1;
}

MR_TEST(throwing_away_is_logged)
{
    int warnings = 0;
    mr_log_set(keep_warning, &warnings, MR_LOG_WARNING);
    mr_dataset *ds = mr_drive_build("range(10).cache().take(3).repeat(2)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    while (mr_iterator_next(it, 10, &b, &st) == MR_OK)
        ;
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_eq_i64(warnings, 2);
}

MR_TEST(a_recording_does_not_lie_in_the_callers_segments)
{
    mr_dataset *ds = mr_drive_build("range(8).batch(4).cache()");
    mr_iterator *it = NULL;
    mr_status st;
    int64_t room[4] = {0};
    mr_segment segment = {room, sizeof room};
    mr_destination destination = {.n_columns = 1, .n_segments = 1, .segments = &segment};
    mr_block b = {.destination = &destination};
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    while (mr_iterator_next(it, 1, &b, &st) == MR_OK)
        memset(room, 0xff, sizeof room);
    b.destination = NULL;
    mr_ok(mr_iterator_rewind(it, &st), &st);
    for (int64_t i = 0; i < 8; i += 4) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_eq_i64(b.columns[0].storage, MR_DENSE);
        for (int64_t k = 0; k < 4; k++)
            mr_eq_i64(((const int64_t *)b.columns[0].data)[k], i + k);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(9).cache().repeat(3)");
    mr_drive_faults("from_tensor_slices([1, 0, 2]).map(x => 2 // x).cache().repeat(2)");
}

MR_TEST(the_first_complete_recording_stays)
{
    /* Two iterators record one cache at a time, in other orders; the left one is complete first. */
    mr_dataset *cache = mr_cache(mr_drive_build("range(8).shuffle(8, seed=1)"));
    mr_dataset *both[2] = {cache, mr_dataset_ref(cache)};
    mr_dataset *ds = mr_repeat(mr_zip(both, 2), 2);
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    int64_t left[16], right[16];
    size_t n = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    while (mr_iterator_next(it, 16, &b, &st) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, n++) {
            left[n] = ((const int64_t *)b.columns[0].data)[i];
            right[n] = ((const int64_t *)b.columns[1].data)[i];
        }
    mr_eq_u64(n, 16);
    mr_check(memcmp(left, right, 8 * sizeof *left) != 0);
    mr_eq_mem(left + 8, left, 8 * sizeof *left);
    mr_eq_mem(right + 8, left, 8 * sizeof *left);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

/* Batches of int64 that begin where the one before ended. */
static size_t count_adjacent(const char *text)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const char *end = NULL;
    size_t n = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    while (mr_iterator_next(it, 1, &b, &st) == MR_OK) {
        const mr_array *a = &b.columns[0];
        n += a->data == end;
        end = (const char *)a->data + mr_array_row_bytes(a);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return n;
}

MR_TEST(batches_of_a_replay_are_views)
{
    /* Passes begin anywhere in a batch. Batches that cross the end of a pass or of one of the seven
     * blocks, each twice as large as those before, are copied. */
    mr_check(count_adjacent("range(1000).map(x => x * 3).cache().repeat(4).batch(10)") > 250);
    mr_check(count_adjacent("range(1003).map(x => x * 3).cache().repeat(40).batch(10)") > 3000);
    mr_drive("range(103).map(x => x * 3).cache().repeat(3).batch(20).map(x => sum(x))",
             "570 1770 2970 4170 5370 1317 1590 2790 3990 5190 2064 1410 2610 3810 5010 2646");
}
