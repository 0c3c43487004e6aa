/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring shuffle where many elements have left its buffer: only those that are still there are
 * stored, and long gaps between them are skipped. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord/record_index.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

enum { MOST = 400, LEAST_BYTES = 64 << 10 };

/* mr_drive_alike saves at every place and restores there. */
MR_TEST(every_position_of_a_small_buffer_restores)
{
    mr_drive_alike("range(50).shuffle(3, seed=1)");
    mr_drive_alike("range(50).shuffle(1, seed=1)");
    mr_drive_alike("range(23).shuffle(5, seed=2).repeat(3).batch(4)");
    mr_drive_alike("range(40).repeat(3).shuffle(7, seed=3).take(90).skip(11)");
    mr_drive_alike("range(60).take(41).skip(2).shuffle(8, seed=4).shuffle(3, seed=5)");
    mr_drive_alike("range(40).map(x => format(\"{}.\", x)).shuffle(6, seed=6).batch(3)");
    mr_drive_alike(
        "range(30).map(x => {\"a\": x, \"b\": x * 2}).cache().shuffle(4, seed=7).repeat(2)");
    mr_drive_alike("range(6).flat_map(x => range(x * 3)).shuffle(5, seed=8)");
    mr_drive_alike("range(30).shuffle(4, seed=9).map(x => x + 1).shuffle(2, seed=1).prefetch(2)");
    mr_drive_alike("range(20).window(3).flat_map(w => w.shuffle(2, seed=1)).shuffle(3, seed=2)");
}

MR_TEST(errors_among_the_elements_keep_their_places)
{
    mr_drive_alike("range(40).map(x => 10 // (x % 7)).shuffle(4, seed=2)");
    mr_drive_alike("range(40).map(x => 10 // (x - 39)).shuffle(4, seed=2)");
    mr_drive_alike("range(40).map(x => 10 // (x % 9)).ignore_errors().shuffle(4, seed=2)");
    mr_drive_alike("range(40).map(x => 10 // (x % 5)).shuffle(3, seed=2).ignore_errors()");
}

/* A file of n records of LEAST_BYTES + first, LEAST_BYTES + first + 1, ... bytes. */
static void write_records(const char *name, size_t first, size_t n, bool indexed)
{
    static char record[LEAST_BYTES + MOST];
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name), NULL, &st), &st);
    for (size_t i = first; i < first + n; i++)
        mr_ok(mr_tfrecord_writer_append(w, record, LEAST_BYTES + i, &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    if (indexed)
        mr_ok(mr_record_index_write(mr_test_path(name), NULL, NULL, &st), &st);
}

/* The next n numbers of records, fewer at the end. Returns how many there were. */
static size_t read_numbers(mr_iterator *it, size_t n, size_t *numbers)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t got = 0;
    mr_code rc = MR_OK;
    while (got < n && (rc = mr_iterator_next(it, n - got, &b, &st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++)
            numbers[got++] = ((const mr_bytes *)b.columns[0].data)[i].size - LEAST_BYTES;
    mr_check(rc >= 0);
    mr_block_reset(&b);
    return got;
}

static void count(void *ctx, size_t bytes)
{
    atomic_fetch_add((atomic_size_t *)ctx, bytes);
}

/* Restores at every `step`th position; *most: the most bytes that were read for one. */
static void restore_at(const char *text, size_t step, size_t *most)
{
    static size_t whole[MOST], rest[MOST];
    atomic_size_t bytes = 0;
    mr_dataset *ds = mr_drive_build(mr_drive_path(text));
    mr_iterator_opts o = {
        .has_threads = true, .positions = true, .on_read = count, .on_read_ctx = &bytes};
    mr_iterator *it = NULL, *other = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    size_t n = read_numbers(it, MOST, whole);
    mr_check(n > 100);
    mr_iterator_close(it);
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    *most = 0;
    for (size_t at = 0; at <= n; at += step) {
        void *position;
        size_t size;
        mr_test_context("%s at %zu", text, at);
        mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
        mr_ok(mr_iterator_open(&other, ds, &o, &st), &st);
        bytes = 0;
        mr_ok(mr_iterator_restore(other, position, size, &st), &st);
        *most = bytes > *most ? bytes : *most;
        size_t few = n - at < 2 * step ? MOST : 2 * step;
        size_t got = read_numbers(other, few, rest);
        mr_eq_u64(got, n - at < few ? n - at : few);
        mr_eq_mem(rest, whole + at, got * sizeof *rest);
        mr_iterator_close(other);
        mr_free(position);
        mr_eq_u64(read_numbers(it, step, rest), n - at < step ? n - at : step);
    }
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(indexed_files_are_read_where_the_buffer_has_their_records)
{
    size_t most;
    write_records("a", 0, 150, true);
    write_records("b", 150, 1, true);
    write_records("c", 151, 99, true);
    restore_at("tfrecord(\"@/?\").shuffle(3, seed=1)", 31, &most);
    mr_check(most < (size_t)80 * LEAST_BYTES); /* of 250 */
    restore_at("tfrecord(\"@/?\").skip(7).take(230).shuffle(4, seed=2)", 57, &most);
    restore_at("tfrecord(\"@/?\", record_range=[1, 2]).repeat(2).shuffle(2, seed=3)", 41, &most);
    restore_at("tfrecord(\"@/?\").map(x => x).shuffle(20, seed=4)", 83, &most);
}

MR_TEST(files_without_an_index_are_read_through)
{
    size_t most;
    write_records("a", 0, 100, true);
    write_records("b", 100, 40, false);
    write_records("c", 140, 60, true);
    restore_at("tfrecord(\"@/?\").shuffle(3, seed=1)", 39, &most);
}

MR_TEST(an_input_that_has_lost_elements_is_not_restored)
{
    mr_iterator *it = NULL;
    mr_iterator_opts o = {.has_threads = true, .positions = true};
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    void *position;
    size_t size, done = 0;
    mr_drive_file("lines", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    mr_dataset *ds = mr_drive_build(mr_drive_path("text_line(\"@/lines\").shuffle(2, seed=1)"));
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    for (; done < 6; done += b.rows)
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_drive_file("lines", "1\n2\n3\n4\n5\n");
    mr_eq_i64(mr_iterator_restore(it, position, size, &st), MR_INVALID_ARGUMENT);
    mr_check(strstr(st.message, "elements before it are missing"));
    mr_drive_file("lines", "1\n2\n3\n4\n5\n6\n"); /* as many as were delivered: none are left */
    mr_ok(mr_iterator_restore(it, position, size, &st), &st);
    mr_eq_i64(mr_iterator_next(it, 1, &b, &st), MR_END);
    mr_free(position);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(memory_that_runs_out_while_restoring_is_reported)
{
    static const char *const graphs[] = {
        "range(40).map(x => format(\"{}\", x)).shuffle(3, seed=1)",
        "range(40).map(x => format(\"{}\", x)).shuffle(3, seed=1).take(39)",
    };
    for (size_t g = 0; g < 2; g++) {
        mr_dataset *ds = mr_drive_build(graphs[g]);
        mr_iterator_opts o = {.has_threads = true, .positions = true};
        mr_iterator *it = NULL;
        mr_status st;
        mr_block b = MR_BLOCK_EMPTY;
        void *position;
        size_t size, done = 0, restored = 0;
        mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
        for (; done < 38 + g; done += b.rows) /* the input has ended; it has not, or just so */
            mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
        mr_iterator_close(it);
        mr_fault_each_allocation(n)
        {
            if (mr_fault_expect(mr_iterator_open(&it, ds, &o, &st), &st) != MR_OK)
                continue;
            mr_code rc = mr_fault_expect(mr_iterator_restore(it, position, size, &st), &st);
            size_t left = 0;
            while (rc == MR_OK && mr_fault_expect(rc = mr_iterator_next(it, 1, &b, &st), &st) == 0)
                left += b.rows;
            if (rc == MR_END)
                mr_eq_u64(left, (g ? 39 : 40) - done);
            restored += rc == MR_END;
            mr_iterator_close(it);
        }
        mr_check(restored > 0);
        mr_block_reset(&b);
        mr_free(position);
        mr_dataset_unref(ds);
    }
}
