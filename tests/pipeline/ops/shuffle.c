/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include <stdlib.h>
#include <string.h>

MR_TEST(the_order_is_tf_datas)
{
    mr_drive("range(10).shuffle(10, seed=42)", "5 9 6 4 7 1 2 8 3 0");
    mr_drive("range(10).shuffle(10, seed=42).repeat(2).batch(10)",
             "[5,9,6,4,7,1,2,8,3,0] [3,7,6,5,8,4,0,1,9,2]");
    mr_drive("range(10).shuffle(10, seed=42, reshuffle_each_iteration=false).repeat(2).batch(10)",
             "[2,0,7,8,9,3,6,4,1,5] [2,0,7,8,9,3,6,4,1,5]");
    mr_drive("range(10).repeat(3).shuffle(3, seed=42).batch(7)",
             "[0,3,4,2,1,5,8] [6,9,7,2,3,1,4] [6,0,7,9,0,1,2] [8,4,5,5,3,8,9] [7,6]");
    mr_drive("range(10).repeat(2).shuffle(4, seed=42).batch(7)",
             "[1,4,2,3,5,0,6] [9,8,2,0,3,1,4] [5,7,9,6,7,8]");
    mr_drive("range(4).shuffle(1, seed=3)", "0 1 2 3");
    mr_drive("range(0).shuffle(5, seed=3)", "");
}

MR_TEST(minus_2_is_the_whole_dataset)
{
    mr_drive("range(10).shuffle(-2, seed=42)", "5 9 6 4 7 1 2 8 3 0");
    mr_drive("range(10).shuffle(9223372036854775807, seed=42)", "5 9 6 4 7 1 2 8 3 0");
}

MR_TEST(two_shuffles_in_a_row_and_epochs_of_both)
{
    mr_drive_alike("range(9).shuffle(4, seed=1).shuffle(3, seed=2).repeat(3)");
    mr_drive_alike("range(9).shuffle(4, seed=1).repeat(2).shuffle(5, seed=2).repeat(2)");
}

MR_TEST(an_error_while_filling_comes_up_at_once)
{
    mr_drive_alike("range(-4, 5).map(x => 12 // x).shuffle(3, seed=5)");
    mr_drive_alike("range(-4, 5).map(x => 12 // (x % 3)).shuffle(20, seed=5).repeat(2)");
    mr_drive("from_tensors(0).map(x => 1 // x).shuffle(3, seed=5)", "!zero");
}

MR_TEST(without_a_seed_the_jobs_decides_and_all_elements_come)
{
    mr_drive_alike("range(9).shuffle(5).repeat(2)");
    char *shown = mr_drive_show("range(100).shuffle(30).batch(100).map(x => sum(x))");
    mr_eq_str(shown, "4950");
    free(shown);
}

MR_TEST(rows_of_every_kind)
{
    mr_drive_alike("range(20).map(x => (x, ones([3]), \"s\")).shuffle(7, seed=2)");
    mr_drive_alike(
        "from_tensor_slices([\"a\", \"bb\", \"\", \"dddddddddddddddd\", \"e\"], [1, 2, 3, "
        "4, 5]).map((s, n) => (s + s, n)).repeat(3).shuffle(4, seed=2)");
    mr_drive_alike("from_tensor_slices([\"a\", \"bb\", \"\", \"d\"]).repeat(3).shuffle(4, seed=2)");
    mr_drive_alike("range(12).map(x => ones([x])).shuffle(4, seed=2)");
    mr_drive_alike("range(10).batch(4).shuffle(4, seed=2)");
    mr_drive_alike("range(10).batch(2).concatenate(range(3).batch(3)).shuffle(3, seed=2)");
    mr_drive_alike("range(10).window(3).shuffle(2, seed=2).flat_map(w => w.batch(2))");
    mr_drive_alike("range(10).map(x => (x, [x, 1])).cache().repeat(2).shuffle(5, seed=2)");
}

MR_TEST(long_strings_are_given_back)
{
    mr_dataset *ds = mr_drive_build("from_tensors(\"0123456789abcdef\").map(s => s + s + s + s)"
                                    ".map(s => s + s + s + s).map(s => s + s + s + s)"
                                    ".map(s => s + s + s + s).map(s => s + s + s + s)"
                                    ".map(s => s + s + s + s).map(s => s + s + s + s)"
                                    ".repeat(9).shuffle(4, seed=1)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_ok(mr_iterator_next(it, 2, &b, &st), &st); /* closed with rows in the buffer */
    mr_eq_u64(((mr_bytes *)b.columns[0].data)->size, 16 << 14);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(bad_arguments_are_refused)
{
    mr_drive_bad("range(3).shuffle(0)", "greater than zero");
    mr_drive_bad("range(3).shuffle(-1)", "greater than zero");
    mr_drive_bad("range(3).shuffle(-3)", "greater than zero");
}

MR_TEST(a_position_is_small)
{
    mr_dataset *ds = mr_drive_build("range(100000).shuffle(50000, seed=1)");
    mr_iterator_opts opts = {.positions = true, .has_threads = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    void *bytes;
    size_t size;
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_ok(mr_iterator_next(it, 100, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
    mr_check(size < 400);
    mr_free(bytes);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("range(20).shuffle(6, seed=1)");
    mr_drive_faults("from_tensor_slices([\"a\", \"bb\", \"\", \"d\"]).map(s => s + s).shuffle(3)");
    mr_drive_faults("range(10).batch(4).shuffle(4, seed=2)");
}

/* Lengths of the strings that come, in order, from a position on. */
static size_t read_lengths(mr_iterator *it, size_t most, size_t *lengths)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t n = 0;
    mr_code rc = MR_OK;
    while (n < most && (rc = mr_iterator_next(it, most - n, &b, &st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++)
            lengths[n++] = ((const mr_bytes *)b.columns[0].data)[i].size;
    mr_check(rc >= 0);
    mr_block_reset(&b);
    return n;
}

MR_TEST(outputs_that_were_drawn_and_not_delivered_are_saved)
{
    /* Strings of 64 KiB: more outputs are drawn than a block holds, and the rest is due. The input
     * cannot be read again, so that the rows are what is saved. Without threads it is in order. */
    mr_dataset *ds = mr_drive_build(
        "from_tensor_slices([\"0123456789abcdef\", \"0123456789abcde\", \"0123456789abcd\", "
        "\"0123456789abc\", \"0123456789ab\", \"0123456789a\", \"0123456789\", \"012345678\"])"
        ".map(s => s + s + s + s + s + s + s + s).map(s => s + s + s + s + s + s + s + s)"
        ".map(s => s + s + s + s + s + s + s + s).map(s => s + s + s + s + s + s + s + s, "
        "num_parallel_calls=2, deterministic=false).shuffle(100, seed=3)");
    mr_iterator_opts o = {.has_threads = true, .positions = true};
    mr_iterator *it = NULL, *other = NULL;
    mr_status st;
    size_t whole[16], rest[16];
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_eq_u64(read_lengths(it, 16, whole), 8);
    mr_iterator_close(it);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_open(&other, ds, &o, &st), &st);
    mr_block b = MR_BLOCK_EMPTY;
    for (size_t n = 0; mr_iterator_next(it, 16, &b, &st) == MR_OK;) {
        void *bytes;
        size_t size;
        n += b.rows;
        mr_ok(mr_iterator_save(it, &bytes, &size, &st), &st);
        mr_ok(mr_iterator_restore(other, bytes, size, &st), &st);
        mr_eq_u64(read_lengths(other, 16, rest), 8 - n);
        mr_eq_mem(rest, whole + n, (8 - n) * sizeof *rest);
        mr_free(bytes);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_iterator_close(other);
    mr_dataset_unref(ds);
}
