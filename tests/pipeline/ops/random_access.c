/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/random_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/engine/permutation.h"
#include "pipeline/graph/op.h"
#include "pipeline/formats/tfrecord/record_index.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/shuffled_order.h"
#include "tests/events.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

static char *look_up(const char *text, const int64_t *numbers, size_t n)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_events e = {0};
    mr_status st;
    mr_ok(mr_random_access_open(&ra, ds, NULL, &st), &st);
    for (size_t done = 0; done < n;) {
        size_t before = e.n;
        mr_events_at(&e, ra, numbers + done, n - done, &b);
        done += e.n - before;
    }
    mr_block_reset(&b);
    mr_random_access_close(ra);
    mr_dataset_unref(ds);
    char *all = mr_events_join(&e);
    mr_events_reset(&e, 0);
    return all;
}

static void finds(const char *text, const int64_t *numbers, size_t n, const char *expected)
{
    char *got = look_up(text, numbers, n);
    mr_eq_str(got, expected);
    free(got);
}

MR_TEST(elements_come_in_the_order_that_was_asked_for)
{
    static const int64_t numbers[] = {4, 0, 4, -1, 2};
    finds("range(10, 20)", numbers, 5, "14 10 14 19 12");
    finds("from_tensor_slices([5, 6, 7, 8, 9])", numbers, 5, "9 5 9 9 7");
    finds("range(3).concatenate(range(10, 14))", numbers, 5, "11 0 11 13 2");
    finds("range(100).skip(7).shard(3, 1).take(9)", numbers, 5, "20 8 20 32 14");
    finds("zip(range(5), range(10, 17)).enumerate(start=1)", numbers, 5,
          "(5,4,14) (1,0,10) (5,4,14) (5,4,14) (3,2,12)");
    finds("range(15).batch(4).concatenate(range(2).batch(2))", numbers, 5,
          "[0,1] [0,1,2,3] [0,1] [0,1] [8,9,10,11]");
}

/* No input is asked for nothing. */
MR_TEST(many_numbers_of_the_second_input_are_looked_up)
{
    int64_t numbers[20];
    for (int64_t i = 0; i < 20; i++)
        numbers[i] = 21 - i;
    finds("range(2).concatenate(range(10, 40))", numbers, 20,
          "29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14 13 12 11 10");
}

MR_TEST(an_element_that_fails_takes_the_place_of_no_other)
{
    static const int64_t numbers[] = {0, 1, 2};
    char *got = look_up("range(6).map(x => 6 // (x - 1)).skip(1)", numbers, 3);
    mr_check(strncmp(got, "!", 1) == 0 && strstr(got, " 6 3"));
    free(got);
    got = look_up("range(6).map(x => 6 // (x - 1)).batch(2)", numbers, 3);
    mr_check(strncmp(got, "!", 1) == 0 && strstr(got, " [6,3] [2,1]"));
    free(got);
}

MR_TEST(a_number_beyond_the_end_is_out_of_range)
{
    static const int64_t beyond[] = {3, -4, INT64_MAX, INT64_MIN};
    mr_dataset *ds = mr_range(0, 3, 1), *empty = mr_range(0, 0, 1);
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    for (size_t i = 0; i < 4; i++) {
        mr_code_is(mr_dataset_at(ds, beyond[i], &b, &st), MR_OUT_OF_RANGE, &st);
        mr_eq_i64((int64_t)b.rows, 0);
    }
    mr_check(strstr(st.message, "the dataset has 3"));
    mr_code_is(mr_dataset_at(empty, 0, &b, &st), MR_OUT_OF_RANGE, &st);
    mr_ok(mr_dataset_at(ds, -1, &b, &st), &st);
    mr_eq_i64(*(const int64_t *)b.columns[0].data, 2);
    mr_block_reset(&b);
    mr_dataset_unref(ds);
    mr_dataset_unref(empty);
}

MR_TEST(the_op_that_is_not_indexed_is_named)
{
    static const char *const cases[][2] = {
        {"range(9).shuffle(3).batch(2)", "shuffle is not"},
        {"text_line(\"f\").map(x => x)", "text_line is not"},
        {"zip(range(3), range(3).filter(x => true))", "filter is not"},
        {"range(3).repeat(2).enumerate()", "repeat is not"},
        {"tfrecord(\"f\", num_parallel_reads=2)", "omit num_parallel_reads"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_dataset *ds = mr_drive_build(cases[i][0]);
        mr_random_access *ra = NULL;
        mr_status st;
        mr_code_is(mr_random_access_open(&ra, ds, NULL, &st), MR_FAILED_PRECONDITION, &st);
        mr_check(!ra && strstr(st.message, cases[i][1]));
        mr_code_is(mr_dataset_indexed(ds, &st), MR_FAILED_PRECONDITION, &st);
        mr_dataset_unref(ds);
    }
}

/* Of 3,000 records in two files, those looked up alone are read. */
static void count_bytes(void *ctx, size_t bytes)
{
    *(size_t *)ctx += bytes;
}

static void write_file(const char *name, int n)
{
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    char record[100] = "";
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name), NULL, &st), &st);
    for (int i = 0; i < n; i++) {
        snprintf(record, sizeof record, "%s%d", name, i);
        mr_ok(mr_tfrecord_writer_append(w, record, sizeof record, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    mr_ok(mr_record_index_write(mr_test_path(name), NULL, NULL, &st), &st);
}

MR_TEST(only_what_is_looked_up_is_read)
{
    write_file("a", 1000);
    write_file("b", 2000);
    mr_dataset *ds =
        mr_drive_build(mr_drive_path("tfrecord(\"@/a\", \"@/b\").map(x => length(x)).skip(5)"));
    size_t bytes = 0;
    const mr_iterator_opts o = {.on_read = count_bytes, .on_read_ctx = &bytes};
    static const int64_t numbers[] = {2000, -1, 0, 994, 995};
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    int64_t n;
    mr_ok(mr_random_access_open(&ra, ds, &o, &st), &st);
    mr_ok(mr_random_access_count(ra, &n, &st), &st);
    mr_eq_i64(n, 2995);
    mr_ok(mr_random_access_at(ra, numbers, 5, &b, &st), &st);
    mr_eq_i64((int64_t)b.rows, 5);
    mr_eq_i64((int64_t)bytes, 5 * 116);
    mr_random_access_close(ra);
    /* So does a pass that skips. */
    mr_iterator *it = NULL;
    mr_dataset *rest = mr_skip(mr_dataset_ref(ds), 2990);
    bytes = 0;
    mr_ok(mr_iterator_open(&it, rest, &o, &st), &st);
    n = 0;
    while (mr_iterator_next(it, 9, &b, &st) == MR_OK)
        n += (int64_t)b.rows;
    mr_eq_i64(n, 5);
    mr_check(bytes < 4096);
    mr_iterator_close(it);
    mr_block_reset(&b);
    mr_dataset_unref(rest);
    mr_dataset_unref(ds);
}

MR_TEST(a_cancelled_handle_looks_nothing_up)
{
    mr_dataset *ds = mr_range(0, 3, 1);
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    const int64_t first = 0;
    mr_ok(mr_random_access_open(&ra, ds, NULL, &st), &st);
    mr_random_access_cancel(ra);
    mr_code_is(mr_random_access_at(ra, &first, 1, &b, &st), MR_CANCELLED, &st);
    mr_random_access_close(ra);
    mr_random_access_close(NULL);
    mr_dataset_unref(ds);
}

static void look_up_all(mr_dataset *ds)
{
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    int64_t numbers[] = {7, 2, 5, 0, 3};
    mr_code rc = mr_fault_expect(mr_random_access_open(&ra, ds, NULL, &st), &st);
    for (size_t done = 0; rc == MR_OK && done < 5; done += b.rows)
        rc = mr_fault_expect(mr_random_access_at(ra, numbers + done, 5 - done, &b, &st), &st);
    mr_block_reset(&b);
    mr_random_access_close(ra);
}

MR_TEST(every_allocation_may_fail)
{
    write_file("a", 20);
    mr_dataset *ds = mr_drive_build(mr_drive_path(
        "zip(tfrecord(\"@/a\"), range(9).concatenate(range(11)).map(x => x + 1)).enumerate()"
        ".batch(2)"));
    mr_fault_each_allocation(n) look_up_all(ds);
    mr_dataset_unref(ds);
}

/* ---- orders with a window ---- */

MR_TEST(the_inverse_of_a_permutation_finds_its_places)
{
    for (uint64_t n = 1; n < 5000; n = n * 3 / 2 + 1) {
        mr__permutation p;
        mr__permutation_init(&p, (const uint64_t[]){n, 3}, n);
        for (uint64_t i = 0; i < n; i += n / 50 + 1)
            mr_check(mr__permutation_find(&p, mr__permutation_at(&p, i)) == i);
    }
}

MR_TEST(with_a_window_blocks_of_neighbours_stay_together)
{
    for (uint64_t n = 0; n < 400; n = n * 2 + 1)
        for (uint64_t window = 1; window < 500; window = window * 3 + 1) {
            mr__shuffled_order o;
            char seen[400] = {0};
            uint64_t in_block = 0, block = UINT64_MAX;
            mr__shuffled_order_init(&o, (const uint64_t[]){n, window}, n, window);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = mr__shuffled_order_at(&o, i);
                mr_check(at < n && !seen[at]);
                seen[at] = 1;
                if (in_block == 0) {
                    block = at / window;
                    in_block = (block + 1) * window > n ? n - block * window : window;
                }
                mr_check(at / window == block);
                in_block--;
            }
            /* in any order of places */
            uint64_t last = n ? mr__shuffled_order_at(&o, n - 1) : 0;
            if (n > 1)
                mr_check(mr__shuffled_order_at(&o, 0) != last);
            if (n)
                mr_check(mr__shuffled_order_at(&o, n - 1) == last);
        }
}

MR_TEST(the_quality_of_a_window_is_its_share)
{
    double whole = mr__shuffled_order_quality(100000, 0);
    mr_check(whole > 0.95 && whole < 1.05);
    double small = mr__shuffled_order_quality(100000, 100);
    mr_check(small > 0.005 && small < 0.03); /* 100 / 100000, and a jump at each end of a block */
    mr_check(mr__shuffled_order_quality(100000, 10000) > 0.08);
    mr_check(mr__shuffled_order_quality(100000, 10000) < 0.15);
    mr_check(mr__shuffled_order_quality(1, 0) == 1 && mr__shuffled_order_quality(0, 5) == 1);
}

MR_TEST(the_quality_is_noted_where_there_is_a_window)
{
    static const char *const cases[][2] = {
        {"range(100000).global_shuffle(seed=1, window=100)", "mixing quality 0.0"},
        {"range(100).global_shuffle(seed=1, window=100)", "mixing quality "},
        {"range(100).global_shuffle(seed=1)", ""},
        {"range(100)", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[80];
        mr_dataset *ds = mr_drive_build(cases[i][0]);
        mr_dataset_note(ds, text, sizeof text);
        mr_check(strncmp(text, cases[i][1], strlen(cases[i][1])) == 0 && !*text == !*cases[i][1]);
        mr_dataset_unref(ds);
    }
}

MR_TEST(windows_of_every_source_are_the_same_everywhere)
{
    write_file("a", 30);
    mr_drive_alike("range(50).global_shuffle(seed=5, window=7).repeat(2)");
    mr_drive_alike(mr_drive_path("tfrecord(\"@/a\").global_shuffle(1, window=4).batch(3)"));
    mr_drive_alike("range(9).concatenate(range(20, 60)).global_shuffle(seed=1)");
    mr_drive_alike("range(30).map(x => 60 // (x - 7)).global_shuffle(seed=2, window=10)");
    mr_drive_alike("zip(range(30), range(40)).global_shuffle(seed=2).skip(3)");
    mr_drive("range(0).map(x => x).global_shuffle(window=3)", "");
    mr_drive("range(1).map(x => x).global_shuffle(window=3)", "0");
    mr_drive_bad("range(9).global_shuffle(window=0)", "window");
}
