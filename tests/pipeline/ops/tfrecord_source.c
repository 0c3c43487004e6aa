/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord.h"
#include "pipeline/graph/op.h"
#include "pipeline/ops/source.h"
#include "replay.h"
#include "tests/harness.h"

/* File `name` with records "<name>0", "<name>1", ... */
static void write_records(const char *name, int n, mr_compression compression)
{
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    char record[64];
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name),
                                  &(mr_tfrecord_writer_opts){.compression = compression}, &st),
          &st);
    for (int i = 0; i < n; i++) {
        int size = snprintf(record, sizeof record, "%s%d", name, i);
        mr_ok(mr_tfrecord_writer_append(w, record, (size_t)size, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
}

static void write_three(void)
{
    write_records("a", 3, MR_COMPRESSION_NONE);
    write_records("b", 0, MR_COMPRESSION_NONE);
    write_records("c", 5, MR_COMPRESSION_NONE);
}

/* Flips a bit of byte `at`. */
static void damage(const char *name, off_t at)
{
    int fd = open(mr_test_path(name), O_RDWR);
    char c;
    mr_check(pread(fd, &c, 1, at) == 1);
    c ^= 1;
    mr_check(pwrite(fd, &c, 1, at) == 1);
    close(fd);
}

/* A graph in which every @ is the test's directory. */
static const char *in_dir(const char *graph)
{
    static char text[8192];
    size_t n = 0;
    for (; *graph; graph++)
        n += (size_t)snprintf(text + n, sizeof text - n, *graph == '@' ? "%s" : "%.1s",
                              *graph == '@' ? mr_test_dir() : graph);
    return text;
}

MR_TEST(reads_files_in_the_order_given)
{
    write_three();
    check_graph(in_dir("tfrecord(\"@/c\", \"@/b\", \"@/a\")"), "c0 c1 c2 c3 c4 a0 a1 a2");
    check_graph(in_dir("tfrecord([\"@/a\", \"@/c\"]).take(4)"), "a0 a1 a2 c0");
    check_graph(in_dir("tfrecord(\"@/a\").repeat(2)"), "a0 a1 a2 a0 a1 a2");
}

MR_TEST(a_literal_with_wildcards_is_a_pattern_a_computed_name_is_not)
{
    write_three();
    write_records("[x]", 2, MR_COMPRESSION_NONE);
    check_graph(in_dir("tfrecord(\"@/[a-c]\")"), "a0 a1 a2 c0 c1 c2 c3 c4");
    check_graph(in_dir("tfrecord(\"@/c\", \"@/?\")"), "c0 c1 c2 c3 c4 a0 a1 a2 c0 c1 c2 c3 c4");
    check_graph(in_dir("from_tensors(\"@/[x]\").flat_map(tfrecord)"), "[x]0 [x]1");
    check_graph(in_dir("tfrecord(\"@/nothing*\")"), "!");
}

MR_TEST(parallel_reads_take_a_record_of_each_file_in_turn)
{
    write_three();
    check_graph(in_dir("tfrecord(\"@/a\", \"@/b\", \"@/c\", num_parallel_reads=2)"),
                "a0 a1 c0 a2 c1 c2 c3 c4");
    check_graph(in_dir("tfrecord(\"@/[a-c]\", num_parallel_reads=auto).prefetch(2)"),
                "a0 c0 a1 c1 a2 c2 c3 c4");
    check_graph(in_dir("list_files(\"@/[a-c]\").interleave(tfrecord, cycle_length=2, "
                       "num_parallel_calls=2)"),
                "a0 a1 c0 a2 c1 c2 c3 c4");
}

MR_TEST(compressed_files_are_read_and_restored)
{
    write_records("g", 4, MR_COMPRESSION_GZIP);
    write_records("z", 3, MR_COMPRESSION_ZLIB);
    write_records("s", 3, MR_COMPRESSION_ZSTD);
    check_graph(in_dir("tfrecord(\"@/g\", compression=\"GZIP\")"), "g0 g1 g2 g3");
    check_graph(in_dir("tfrecord(\"@/z\", compression=\"ZLIB\")"), "z0 z1 z2");
    check_graph(in_dir("tfrecord(\"@/s\", compression=\"ZSTD\", num_parallel_reads=2)"),
                "s0 s1 s2");
    check_refused("tfrecord(\"x\", compression=\"LZ4\")", "compression");
}

MR_TEST(a_damaged_or_missing_file_is_one_error_and_the_next_is_read)
{
    write_three();
    damage("c", 2 * 18 + 12); /* the data of its third record */
    check_graph(in_dir("tfrecord(\"@/c\", \"@/missing\", \"@/a\")"), "c0 c1 ! ! a0 a1 a2");
    check_graph(in_dir("tfrecord(\"@/c\", \"@/missing\", \"@/a\").ignore_errors()"),
                "c0 c1 a0 a1 a2");
    mr_status last;
    mr_free(run_graph(in_dir("tfrecord(\"@/c\")"), NULL, &last));
    mr_code_is(last.code, MR_DATA_LOSS, &last);
    mr_has_str(last.message, "corrupt");
    mr_has_str(last.file, "/c");
    mr_eq_i64(last.record, 2);
    mr_free(run_graph(in_dir("tfrecord(\"@/missing\")"), NULL, &last));
    mr_code_is(last.code, MR_NOT_FOUND, &last);
    mr_has_str(last.file, "missing");
}

MR_TEST(a_position_keeps_the_list_that_was_matched)
{
    write_three();
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *position;
    size_t size;
    const mr_iterator_opts o = {.positions = true};
    mr_dataset *ds = parse_graph(in_dir("tfrecord(\"@/[a-z]\")"));
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(it, 2, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_iterator_close(it);
    write_records("0", 1, MR_COMPRESSION_NONE); /* not of the pattern */
    write_records("aa", 1, MR_COMPRESSION_NONE);
    write_records("b", 2, MR_COMPRESSION_NONE); /* was there, empty */
    write_records("d", 2, MR_COMPRESSION_NONE); /* is new */
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_restore(it, position, size, &st), &st);
    int n = 0;
    while (mr_iterator_next(it, 1, &b, &st) == MR_OK) {
        mr_check(((const mr_bytes *)b.columns[0].data)->data[0] != 'd');
        n++;
    }
    mr_eq_i64(n, 1 + 2 + 5);
    mr_free(position);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(records_know_file_and_number)
{
    write_three();
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = parse_graph(in_dir("tfrecord(\"@/a\", \"@/b\", \"@/c\")"));
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.identities = true}, &st), &st);
    for (int i = 0; i < 8; i++) {
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
        mr_check(b.ids.ids && !b.ids.offsets);
        mr_eq_u64(b.ids.ids[0].file, i < 3 ? 0 : 2);
        mr_eq_u64(b.ids.ids[0].ordinal, i < 3 ? i : i - 3);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(names_given_as_paths_are_no_patterns)
{
    write_records("[x]", 2, MR_COMPRESSION_NONE);
    const char *name = mr_test_path("[x]");
    mr_dataset *ds = mr_tfrecord(&name, 1, &(mr_tfrecord_opts){.paths = true});
    check_dataset(ds, "[x]0 [x]1", IN_ORDER);
}

static mr_dataset *only_first(void *ctx, mr_dataset *names)
{
    (*(int *)ctx)++;
    return names;
}

MR_TEST(splits_into_names_and_a_function)
{
    write_three();
    int calls = 0;
    mr_dataset *ds = parse_graph(in_dir("tfrecord(\"@/c\", \"@/[ab]\")"));
    mr_dataset *split = mr_dataset_op(ds)->split_files(ds, only_first, &calls);
    mr_eq_i64(calls, 1);
    check_dataset(split, "c0 c1 c2 c3 c4 a0 a1 a2", IN_ORDER);
    mr_dataset_unref(ds);
    ds = parse_graph(in_dir("tfrecord(\"@/c\", \"@/a\", num_parallel_reads=2)"));
    split = mr_dataset_op(ds)->split_files(ds, only_first, &calls);
    check_dataset(split, "c0 a0 c1 a1 c2 a2 c3 c4", IN_ORDER);
    mr_dataset_unref(ds);
}

MR_TEST(every_failing_allocation_is_told_and_nothing_leaks)
{
    write_three();
    char text[1024];
    snprintf(text, sizeof text, "%s",
             in_dir("list_files(\"@/?\").interleave(tfrecord, "
                    "cycle_length=2).prefetch(2)"));
    check_faults(text);
    snprintf(text, sizeof text, "%s", in_dir("tfrecord(\"@/?\", num_parallel_reads=2)"));
    check_faults(text);
}
