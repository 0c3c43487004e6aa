/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/formats/tfrecord/zstd_records_impl.h"
#include "pipeline/formats/tfrecord/record_index.h"
#include "pipeline/formats/shards/shard_writer.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/graph/op.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/log.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/pipeline/ops/drive.h"
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

MR_TEST(reads_files_in_the_order_given)
{
    write_three();
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/b\", \"@/a\")"),
             "\"c0\" \"c1\" \"c2\" \"c3\" \"c4\" \"a0\" \"a1\" \"a2\"");
    mr_drive(mr_drive_path("tfrecord([\"@/a\", \"@/c\"]).take(4)"), "\"a0\" \"a1\" \"a2\" \"c0\"");
    mr_drive(mr_drive_path("tfrecord(\"@/a\").repeat(2)"),
             "\"a0\" \"a1\" \"a2\" \"a0\" \"a1\" \"a2\"");
}

MR_TEST(a_literal_with_wildcards_is_a_pattern_a_computed_name_is_not)
{
    write_three();
    write_records("[x]", 2, MR_COMPRESSION_NONE);
    mr_drive(mr_drive_path("tfrecord(\"@/[a-c]\")"),
             "\"a0\" \"a1\" \"a2\" \"c0\" \"c1\" \"c2\" \"c3\" \"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/?\")"),
             "\"c0\" \"c1\" \"c2\" \"c3\" \"c4\" \"a0\" \"a1\" \"a2\" \"c0\" \"c1\" \"c2\" \"c3\" "
             "\"c4\"");
    mr_drive(mr_drive_path("from_tensors(\"@/[x]\").flat_map(tfrecord)"), "\"[x]0\" \"[x]1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/nothing*\")"), "!");
}

MR_TEST(parallel_reads_take_a_record_of_each_file_in_turn)
{
    write_three();
    mr_drive(mr_drive_path("tfrecord(\"@/a\", \"@/b\", \"@/c\", num_parallel_reads=2)"),
             "\"a0\" \"a1\" \"c0\" \"a2\" \"c1\" \"c2\" \"c3\" \"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/[a-c]\", num_parallel_reads=auto).prefetch(2)"),
             "\"a0\" \"c0\" \"a1\" \"c1\" \"a2\" \"c2\" \"c3\" \"c4\"");
    mr_drive(mr_drive_path("list_files(\"@/[a-c]\").interleave(tfrecord, cycle_length=2, "
                           "num_parallel_calls=2)"),
             "\"a0\" \"a1\" \"c0\" \"a2\" \"c1\" \"c2\" \"c3\" \"c4\"");
}

MR_TEST(compressed_files_are_read_and_restored)
{
    write_records("g", 4, MR_COMPRESSION_GZIP);
    write_records("z", 3, MR_COMPRESSION_ZLIB);
    write_records("s", 3, MR_COMPRESSION_ZSTD);
    mr_drive(mr_drive_path("tfrecord(\"@/g\", compression=\"GZIP\")"),
             "\"g0\" \"g1\" \"g2\" \"g3\"");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", compression=\"ZLIB\")"), "\"z0\" \"z1\" \"z2\"");
    mr_drive(mr_drive_path("tfrecord(\"@/s\", compression=\"ZSTD\", num_parallel_reads=2)"),
             "\"s0\" \"s1\" \"s2\"");
    mr_drive_bad("tfrecord(\"x\", compression=\"LZ4\")", "compression");
}

MR_TEST(a_damaged_file_is_one_error_and_the_next_is_read)
{
    write_three();
    damage("c", 2 * 18 + 12); /* the data of its third record */
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/a\")"), "\"c0\" \"c1\" ! \"a0\" \"a1\" \"a2\"");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/a\").ignore_errors()"),
             "\"c0\" \"c1\" \"a0\" \"a1\" \"a2\"");
    mr_status last;
    mr_drive_error(mr_drive_path("tfrecord(\"@/c\")"), &last);
    mr_code_is(last.code, MR_DATA_LOSS, &last);
    mr_has_str(last.message, "corrupt");
    mr_has_str(last.file, "/c");
    mr_eq_i64(last.record, 2);
    mr_drive_error(mr_drive_path("tfrecord(\"@/missing\")"), &last);
    mr_code_is(last.code, MR_NOT_FOUND, &last);
    mr_has_str(last.file, "missing");
    mr_eq_i64(last.element, MR_OF_NO_ELEMENT);
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
    mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/[a-z]\")"));
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

/* Reads two records of the pattern, writes a file, and continues as another process would. Returns
 * the records that come then; *st says how it ended. */
static int resume_with(const char *graph, const char *added, const char *removed, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *position;
    size_t size;
    int n = 0;
    const mr_iterator_opts o = {.positions = true};
    write_three();
    unlink(mr_test_path("d"));
    unlink(mr_test_path("aa"));
    mr_dataset *ds = mr_drive_build(mr_drive_path(graph));
    mr_ok(mr_iterator_open(&it, ds, &o, st), st);
    mr_ok(mr_iterator_next(it, 2, &b, st), st);
    mr_ok(mr_iterator_save(it, &position, &size, st), st);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    if (added)
        write_records(added, 2, MR_COMPRESSION_NONE);
    if (removed)
        mr_eq_i64(unlink(mr_test_path(removed)), 0);
    ds = mr_drive_build(mr_drive_path(graph));
    mr_ok(mr_iterator_open(&it, ds, &o, st), st);
    mr_code rc = mr_iterator_restore(it, position, size, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, st)) == MR_OK)
        n++;
    mr_check(rc == MR_END || (rc < 0 && st->code == rc));
    if (rc == MR_END)
        st->code = MR_END;
    mr_free(position);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return n;
}

MR_TEST(a_restored_position_wants_the_files_it_was_saved_with)
{
    static const struct {
        const char *graph;
        int rest; /* after two elements */
    } graphs[] = {{"tfrecord(\"@/*\")", 6},
                  {"tfrecord(\"@/*\", num_parallel_reads=2)", 6},
                  {"list_files(\"@/*\").flat_map(tfrecord)", 6},
                  {"list_files(\"@/*\")", 1}};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        mr_status st;
        mr_test_context("%s", graphs[i].graph);
        mr_eq_i64(resume_with(graphs[i].graph, NULL, NULL, &st), graphs[i].rest);
        mr_eq_i64(st.code, MR_END);
        mr_eq_i64(resume_with(graphs[i].graph, "d", NULL, &st), graphs[i].rest);
        mr_eq_i64(st.code, MR_END);
        mr_eq_i64(resume_with(graphs[i].graph, "aa", NULL, &st), 0);
        mr_code_is(st.code, MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, "saved with 3 files that matched");
        mr_has_str(st.message, "the 4 that match now");
        mr_eq_i64(resume_with(graphs[i].graph, NULL, "b", &st), 0);
        mr_code_is(st.code, MR_FAILED_PRECONDITION, &st);
        mr_eq_i64(resume_with(graphs[i].graph, "d", "b", &st), 0);
        mr_code_is(st.code, MR_FAILED_PRECONDITION, &st);
    }
}

MR_TEST(a_position_in_many_files_is_small)
{
    enum { N = 3000 };
    mr_status st;
    char name[32];
    write_records("r0", 1, MR_COMPRESSION_NONE);
    for (int i = 1; i < N; i++) {
        snprintf(name, sizeof name, "r%d", i);
        mr_eq_i64(link(mr_test_path("r0"), mr_test_path(name)), 0);
    }
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    void *position;
    size_t size;
    mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/r*\").repeat(2).batch(7)"));
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.positions = true}, &st), &st);
    for (int i = 0; i < 100; i++)
        mr_ok(mr_iterator_next(it, 1, &b, &st), &st);
    mr_ok(mr_iterator_save(it, &position, &size, &st), &st);
    mr_check(size < 300);
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
    mr_dataset *ds = mr_drive_build(mr_drive_path("tfrecord(\"@/a\", \"@/b\", \"@/c\")"));
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
    mr_drive_dataset(ds, "\"[x]0\" \"[x]1\"");
}

/* The names read by the function that reads one file as `text` does. */
static mr_dataset *read_by_function(const char *text, const char *const *names, size_t n,
                                    const char *function)
{
    mr_status st;
    mr_fn *fn = NULL;
    char *printed, full[512];
    mr_dataset *ds = mr_drive_build(mr_drive_path(text));
    mr_ok(mr_dataset_read_function(ds, &fn, &st), &st);
    mr_dataset_unref(ds);
    ds = mr_flat_map(mr_from_strings(names, n), fn);
    mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
    snprintf(full, sizeof full, ".flat_map(%s)", function);
    mr_has_str(printed, full);
    mr_free(printed);
    return ds;
}

MR_TEST(the_function_of_one_name_reads_as_the_node_does)
{
    write_three();
    write_records("z", 2, MR_COMPRESSION_ZLIB);
    const char *const three[] = {mr_test_path("c"), mr_test_path("a"), mr_test_path("b")};
    const char *const z[] = {mr_test_path("z")};
    mr_drive_dataset(
        read_by_function("tfrecord(\"@/c\", \"@/[ab]\")", three, 3, "f => tfrecord(f)"),
        "\"c0\" \"c1\" \"c2\" \"c3\" \"c4\" \"a0\" \"a1\" \"a2\"");
    mr_drive_dataset(
        read_by_function("tfrecord(\"@/c\", num_parallel_reads=2)", three, 2, "f => tfrecord(f)"),
        "\"c0\" \"c1\" \"c2\" \"c3\" \"c4\" \"a0\" \"a1\" \"a2\"");
    mr_drive_dataset(read_by_function("tfrecord(\"@/z\", compression=\"ZLIB\")", z, 1,
                                      "f => tfrecord(f, compression=\"ZLIB\")"),
                     "\"z0\" \"z1\"");
}

MR_TEST(every_failing_allocation_is_reported_and_nothing_leaks)
{
    write_three();
    mr_drive_faults(mr_drive_path("list_files(\"@/?\").interleave(tfrecord, "
                                  "cycle_length=2).prefetch(2)"));
    mr_drive_faults(mr_drive_path("tfrecord(\"@/?\", num_parallel_reads=2)"));
}

MR_TEST(an_index_beside_its_file_is_not_matched_as_one)
{
    write_records("a", 2, MR_COMPRESSION_NONE);
    write_records("b.idx", 1, MR_COMPRESSION_NONE); /* of no file */
    mr_drive_file("a.idx", "0 18\n18 18\n");
    mr_drive_file("a.idx2", "");
    mr_drive(mr_drive_path("tfrecord(\"@/*\")"), "\"a0\" \"a1\" \"b.idx0\"");
    mr_drive(mr_drive_path("list_files(\"@/*\").flat_map(f => tfrecord(f))"),
             "\"a0\" \"a1\" \"b.idx0\"");
    mr_drive(mr_drive_path("list_files(\"@/*.idx\").map(x => 1)"), "1 1");
}

static void write_indexes(void)
{
    mr_status st;
    write_three();
    mr_ok(mr_record_index_write(mr_test_path("a"), NULL, NULL, &st), &st);
    mr_ok(mr_record_index_write(mr_test_path("b"), &(mr_record_index_opts){.compact = true}, NULL,
                                &st),
          &st);
    mr_ok(mr_record_index_write(mr_test_path("c"), NULL, NULL, &st), &st);
}

MR_TEST(with_indexes_the_number_of_records_is_known)
{
    write_indexes();
    mr_drive_count(mr_drive_path("tfrecord(\"@/?\")"), 8);
    mr_drive_count(mr_drive_path("tfrecord(\"@/c\", \"@/c\").batch(3).repeat(2)"), 8);
    mr_drive_count(mr_drive_path("tfrecord(\"@/?\", num_parallel_reads=2)"), 8);
    mr_drive_count(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 3])"), 3);
    mr_drive_count(mr_drive_path("tfrecord(\"@/?\", compression=\"GZIP\")"), MR_UNKNOWN_COUNT);
    mr_drive_count(mr_drive_path("tfrecord(\"@/none*\")"), MR_UNKNOWN_COUNT);
    mr_check(unlink(mr_test_path("b.idx")) == 0);
    mr_drive_count(mr_drive_path("tfrecord(\"@/[abc]\")"), MR_UNKNOWN_COUNT);
    mr_drive_count(mr_drive_path("tfrecord(\"@/[ac]\")"), 8);
}

MR_TEST(skip_goes_past_records_by_the_index)
{
    write_indexes();
    for (int i = 0; i < 2; i++) { /* the second time by reading some of them */
        mr_drive(mr_drive_path("tfrecord(\"@/[abc]\").skip(2)"),
                 "\"a2\" \"c0\" \"c1\" \"c2\" \"c3\" \"c4\"");
        mr_drive(mr_drive_path("tfrecord(\"@/[abc]\").skip(3)"),
                 "\"c0\" \"c1\" \"c2\" \"c3\" \"c4\"");
        mr_drive(mr_drive_path("tfrecord(\"@/[abc]\").skip(7).repeat(2)"), "\"c4\" \"c4\"");
        mr_drive(mr_drive_path("tfrecord(\"@/[abc]\").skip(8)"), "");
        mr_drive(mr_drive_path("tfrecord(\"@/[abc]\").skip(9)"), "");
        mr_drive(mr_drive_path("tfrecord(\"@/c\").skip(1).skip(2)"), "\"c3\" \"c4\"");
        mr_drive(mr_drive_path("tfrecord(\"@/[ac]\", num_parallel_reads=2).skip(6)"),
                 "\"c3\" \"c4\"");
        mr_drive(mr_drive_path("tfrecord(\"@/a\", \"@/missing\").skip(2)"), "\"a2\" !missing");
        mr_drive(mr_drive_path("tfrecord(\"@/none*\").skip(2)"), "!none");
        mr_check(i || unlink(mr_test_path("b.idx")) == 0);
    }
}

MR_TEST(what_is_skipped_is_not_read)
{
    write_indexes();
    damage("c", 2 * 18 + 12); /* the data of its third record */
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    mr_check(utimensat(AT_FDCWD, mr_test_path("c"), old, 0) == 0);
    mr_drive(mr_drive_path("tfrecord(\"@/c\").skip(3)"), "\"c3\" \"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/c\").skip(1)"), "\"c1\" !corrupted");
}

MR_TEST(a_stale_index_is_left_alone_where_it_is_not_needed)
{
    write_indexes();
    write_records("c", 6, MR_COMPRESSION_NONE);
    mr_drive(mr_drive_path("tfrecord(\"@/c\").skip(4)"), "\"c4\" \"c5\"");
    mr_drive_count(mr_drive_path("tfrecord(\"@/c\")"), MR_UNKNOWN_COUNT);
    mr_drive(mr_drive_path("tfrecord(\"@/c\", record_range=[0, 1])"), "!stale");
}

MR_TEST(parts_of_the_records_are_all_of_them_once)
{
    write_indexes();
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[0, 3])"), "\"a0\" \"a1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 3])"), "\"a2\" \"c0\" \"c1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[2, 3]).repeat(2)"),
             "\"c2\" \"c3\" \"c4\" \"c2\" \"c3\" \"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[0, 9])"), "");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[8, 9])"), "\"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 3]).skip(2)"), "\"c1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/?\", record_range=[1, 3]).skip(3)"), "");
    mr_drive_bad("tfrecord(\"a\", record_range=[3, 3])", "record_range");
    mr_drive_bad("tfrecord(\"a\", record_range=[1])", "record_range");
    mr_drive_bad("tfrecord(\"a\", record_range=[0, 2], num_parallel_reads=2)", "num_parallel");
    mr_drive_bad("tfrecord(\"a\", record_range=[0, 2], compression=\"ZSTD\")", "compressed");
}

MR_TEST(every_allocation_may_fail_with_indexes)
{
    write_indexes();
    mr_drive_faults(mr_drive_path("tfrecord(\"@/[abc]\").skip(4)"));
    mr_drive_faults(mr_drive_path("tfrecord(\"@/[abc]\", record_range=[1, 2])"));
}

/* Records 1 and 3 of c are damaged, in their data and in their length. */
static void write_damaged(void)
{
    write_three();
    damage("c", 18 + 12);
    damage("c", 3 * 18);
}

MR_TEST(damaged_records_are_skipped_where_asked)
{
    write_damaged();
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/a\", on_corrupt=\"skip\")"),
             "\"c0\" \"c2\" \"c4\" \"a0\" \"a1\" \"a2\"");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\", max_skipped=2).repeat(2)"),
             "\"c0\" \"c2\" \"c4\" \"c0\" \"c2\" \"c4\"");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", \"@/c\", on_corrupt=\"skip\", max_skipped=1)"),
             "\"c0\" \"c2\" !max_skipped=1 \"c0\" !max_skipped=1");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\", max_skipped=0)"),
             "\"c0\" !corrupted");
    mr_drive(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"error\")"), "\"c0\" !corrupted");
    mr_drive(mr_drive_path("tfrecord(\"@/[ac]\", on_corrupt=\"skip\", num_parallel_reads=2)"),
             "\"a0\" \"c0\" \"a1\" \"c2\" \"a2\" \"c4\"");
    mr_drive_bad("tfrecord(\"a\", on_corrupt=\"ignore\")", "on_corrupt");
    mr_drive_bad("tfrecord(\"a\", max_skipped=3)", "on_corrupt");
    mr_drive_bad("tfrecord(\"a\", quarantine=\"q\")", "on_corrupt");
    mr_drive_bad("tfrecord(\"a\", on_corrupt=\"skip\", quarantine=\"\")", "quarantine");
}

/* The numbers of the records that a graph emits, pulled by `want`. */
static void check_ordinals(const char *text, size_t want, const char *expected)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build(text);
    char got[64] = "";
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.identities = true}, &st), &st);
    for (mr_code rc; (rc = mr_iterator_next(it, want, &b, &st)) != MR_END;)
        for (size_t i = 0; rc == MR_OK && i < b.rows; i++)
            sprintf(got + strlen(got), "%d", (int)b.ids.ids[i].ordinal);
    mr_eq_str(got, expected);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(records_after_damage_know_their_number)
{
    write_damaged();
    damage("a", 0);
    for (size_t want = 1; want < 4; want++) {
        check_ordinals(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\")"), want, "024");
        check_ordinals(mr_drive_path("tfrecord(\"@/a\", on_corrupt=\"skip\")"), want, "12");
    }
}

/* The contents of the quarantine's file that ends so. */
static void check_kept(const char *ending, const char *source, off_t from, size_t n)
{
    char name[512] = "", kept[64], whole[256];
    DIR *dir = opendir(mr_test_path("bad"));
    mr_check(dir != NULL);
    for (struct dirent *e; (e = readdir(dir));) {
        size_t size = strlen(e->d_name), end = strlen(ending);
        mr_check(e->d_name[0] != '.' || size < 3); /* no partial file is left */
        if (size > end && strcmp(e->d_name + size - end, ending) == 0)
            snprintf(name, sizeof name, "bad/%s", e->d_name);
    }
    closedir(dir);
    mr_check(strncmp(name, "bad/c-", 6) == 0);
    int fd = open(mr_test_path(name), O_RDONLY);
    mr_eq_i64(read(fd, kept, sizeof kept), n);
    close(fd);
    fd = open(mr_test_path(source), O_RDONLY);
    mr_check(pread(fd, whole, n, from) == (ssize_t)n);
    close(fd);
    mr_eq_mem(kept, whole, n);
}

MR_TEST(the_bytes_of_damaged_records_are_kept_where_asked)
{
    write_damaged();
    const char *text =
        mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\", quarantine=\"@/bad\")");
    mr_drive(text, "\"c0\" \"c2\" \"c4\"");
    check_kept("-18", "c", 18, 18);
    check_kept("-54", "c", 54, 18);
    mr_drive_faults(text);
    /* A folder that cannot be made is an error in the record's place. */
    mr_drive(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\", quarantine=\"@/a/b\")"),
             "\"c0\" !folder");
    /* What is not skipped any more is not kept. */
    mr_drive(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\", max_skipped=0, "
                           "quarantine=\"@/a/b\")"),
             "\"c0\" !max_skipped=0");
}

MR_TEST(damage_in_files_of_one_name_is_kept_apart)
{
    write_damaged();
    mr_check(mkdir(mr_test_path("x"), 0777) == 0);
    mr_check(link(mr_test_path("c"), mr_test_path("x/c")) == 0);
    mr_drive(
        mr_drive_path("tfrecord(\"@/c\", \"@/x/c\", on_corrupt=\"skip\", quarantine=\"@/bad\")"),
        "\"c0\" \"c2\" \"c4\" \"c0\" \"c2\" \"c4\"");
    int n = 0;
    DIR *dir = opendir(mr_test_path("bad"));
    mr_check(dir != NULL);
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, "c-", 2) == 0;
    closedir(dir);
    mr_eq_i64(n, 4); /* two places in each */
}

static void remember(void *ctx, mr_log_level level, const char *message)
{
    if (level == MR_LOG_WARNING)
        snprintf(ctx, 1024, "%s", message);
}

MR_TEST(what_was_skipped_is_reported)
{
    static char last[1024];
    write_damaged();
    mr_log_set(remember, last, MR_LOG_WARNING);
    free(mr_drive_show(mr_drive_path("tfrecord(\"@/c\", on_corrupt=\"skip\")")));
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_has_str(last, "/c: record 3 at byte 54: corrupted record at 54");
    mr_has_str(last, "up to 72 are skipped (damaged place 2 so far)");
}

/* ---- records that are each a zstd frame ---- */

/* "z0", "z1", ... in file z, but where `bad` says so: no frame, one cut short, two in one record,
 * and one that claims a terabyte. */
static void write_frames(const char *name, int n, bool bad)
{
    mr_tfrecord_writer *w = NULL;
    mr__zstd_record_writer *z = NULL;
    mr_status st;
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path(name), NULL, &st), &st);
    mr_ok(mr__zstd_record_writer_open(&z, NULL, 0, &st), &st);
    for (int i = 0; i < n; i++) {
        char record[64], two[256];
        mr_bytes f;
        int size = snprintf(record, sizeof record, "%s%d", name, i);
        mr_ok(mr__zstd_record_write(z, record, (size_t)size, &f, &st), &st);
        memcpy(two, f.data, f.size);
        memcpy(two + f.size, f.data, f.size);
        const mr_bytes damaged[] = {{"", 0},
                                    {f.data, f.size - 1},
                                    {two, 2 * f.size},
                                    {"(\xb5/\xfd\xe0\0\0\0\0\0\1\0\0\1\0\0", 16}};
        if (bad && i % 2)
            f = damaged[i / 2 % 4];
        mr_ok(mr_tfrecord_writer_append(w, f.data, f.size, &st), &st);
    }
    mr__zstd_record_writer_close(z);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
}

static void write_index(const char *name)
{
    mr_status st;
    mr_ok(mr_record_index_write(mr_test_path(name), NULL, NULL, &st), &st);
}

MR_TEST(records_that_are_frames_are_unpacked)
{
    write_frames("z", 4, false);
    write_frames("y", 2, false);
    mr_drive(mr_drive_path("tfrecord(\"@/z\", \"@/y\", record_compression=\"ZSTD\")"),
             "\"z0\" \"z1\" \"z2\" \"z3\" \"y0\" \"y1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/[yz]\", record_compression=\"ZSTD\", "
                           "num_parallel_reads=2).repeat(2)"),
             "\"y0\" \"z0\" \"y1\" \"z1\" \"z2\" \"z3\" \"y0\" \"z0\" \"y1\" \"z1\" \"z2\" \"z3\"");
    write_index("z");
    write_index("y");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", \"@/y\", record_compression=\"ZSTD\").skip(3)"),
             "\"z3\" \"y0\" \"y1\"");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", \"@/y\", record_compression=\"ZSTD\", "
                           "record_range=[1, 3])"),
             "\"z2\" \"z3\"");
    mr_drive_bad("tfrecord(\"a\", record_compression=\"GZIP\")", "record_compression");
    mr_drive_bad("tfrecord(\"a\", dictionary=\"d\")", "record_compression");
    mr_drive_bad("tfrecord(\"a\", record_compression=\"ZSTD\", dictionary=\"\")", "dictionary");
}

MR_TEST(a_damaged_frame_is_the_error_of_its_record)
{
    write_frames("z", 9, true);
    write_three();
    const char *text = mr_drive_path("tfrecord(\"@/z\", \"@/c\", record_compression=\"ZSTD\")");
    mr_drive(text, "\"z0\" !zstd \"z2\" !incorrect \"z4\" !follow \"z6\" !cannot \"z8\" "
                   "!zstd !zstd !zstd !zstd !zstd");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\").ignore_errors()"),
             "\"z0\" \"z2\" \"z4\" \"z6\" \"z8\"");
    mr_status last;
    mr_drive_error(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\")"), &last);
    mr_code_is(last.code, MR_DATA_LOSS, &last);
    mr_has_str(last.file, "/z");
    mr_eq_i64(last.record, 7);
    write_index("z");
    mr_drive_any(
        mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\").global_shuffle(seed=1)"),
        "\"z0\" ! \"z2\" ! \"z4\" ! \"z6\" ! \"z8\"");
}

MR_TEST(damaged_frames_are_skipped_where_asked)
{
    write_frames("z", 9, true);
    damage("z", 12 + 4); /* the first record, which is more than a frame */
    mr_drive(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\", on_corrupt=\"skip\")"),
             "\"z2\" \"z4\" \"z6\" \"z8\"");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\", on_corrupt=\"skip\", "
                           "max_skipped=5)"),
             "\"z2\" \"z4\" \"z6\" \"z8\"");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", \"@/z\", record_compression=\"ZSTD\", "
                           "on_corrupt=\"skip\", max_skipped=3)"),
             "\"z2\" \"z4\" !max_skipped=3 !max_skipped=3");
    for (size_t want = 1; want < 4; want++)
        check_ordinals(
            mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\", on_corrupt=\"skip\")"),
            want, "2468");
    mr_drive(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\", on_corrupt=\"skip\", "
                           "quarantine=\"@/bad\")"),
             "\"z2\" \"z4\" \"z6\" \"z8\"");
}

/* A set of one shard, t-00000-of-00001.tfrecord, whose records are alike, with its dictionary. */
static void write_with_dictionary(void)
{
    mr_shard_writer *w = NULL;
    mr_status st;
    char record[128];
    mr_ok(mr_shard_writer_open(&w, mr_test_path("t"), 1,
                               &(mr_shard_writer_opts){.zstd_records = true}, &st),
          &st);
    for (int i = 0; i < 400; i++) {
        int n = snprintf(record, sizeof record, "{\"name\":\"user%d\",\"city\":\"town%d\"}", i,
                         i * 7919 % 1000);
        mr_ok(mr_shard_writer_append(w, record, (size_t)n, &st), &st);
    }
    mr_ok(mr_shard_writer_close(w, &st), &st);
}

MR_TEST(the_dictionary_is_found_beside_the_shards)
{
    mr_status last;
    write_with_dictionary();
    static const char first[] = "\"{\\\"name\\\":\\\"user0\\\",\\\"city\\\":\\\"town0\\\"}\"";
    mr_eq_i64(access(mr_test_path("t.dict"), F_OK), 0);
    mr_drive(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\").take(1)"), first);
    mr_eq_i64(rename(mr_test_path("t.dict"), mr_test_path("d")), 0);
    mr_drive(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\", "
                           "dictionary=\"@/d\").take(1)"),
             first);
    mr_drive_error(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\")"), &last);
    mr_has_str(last.message, "t.dict");
    mr_drive_file("other", "no dictionary, but what a frame may point into");
    mr_drive_error(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\", "
                                 "dictionary=\"@/other\")"),
                   &last);
    mr_has_str(last.message, "is dictionary 0");
    mr_drive_file("damaged", "7\xa4"
                             "0\xec and nothing else");
    mr_drive_error(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\", "
                                 "dictionary=\"@/damaged\")"),
                   &last);
    mr_has_str(last.message, "is damaged");
    mr_eq_i64(rename(mr_test_path("t-00000-of-00001.tfrecord"), mr_test_path("t")), 0);
    mr_drive_error(mr_drive_path("tfrecord(\"@/t\", record_compression=\"ZSTD\")"), &last);
    mr_has_str(last.message, "give its file");
}

MR_TEST(every_allocation_may_fail_with_frames)
{
    write_with_dictionary();
    mr_drive_faults(mr_drive_path("tfrecord(\"@/t-*\", record_compression=\"ZSTD\").take(5)"));
    write_frames("z", 6, true);
    write_index("z");
    mr_drive_faults(mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\")"));
    mr_drive_faults(
        mr_drive_path("tfrecord(\"@/z\", record_compression=\"ZSTD\").global_shuffle(seed=1)"));
}

static void note_largest(void *ctx, size_t bytes)
{
    size_t *largest = ctx;
    *largest = bytes > *largest ? bytes : *largest;
}

/* Bytes of the largest piece that a graph reads of its files, with all it does in this thread. */
static size_t largest_read(const char *text)
{
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    size_t largest = 0;
    text = mr_drive_path(text);
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    mr_ok(mr_iterator_open(&it, ds,
                           &(mr_iterator_opts){.has_threads = true,
                                               .on_read = note_largest,
                                               .on_read_ctx = &largest},
                           &st),
          &st);
    mr_code rc = MR_OK;
    while (rc == MR_OK)
        rc = mr_iterator_next(it, 1000, &b, &st);
    mr_eq_i64(rc, MR_END);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return largest;
}

MR_TEST(files_read_in_turn_share_the_cache)
{
    write_records("a", 40000, MR_COMPRESSION_NONE);
    write_records("b", 40000, MR_COMPRESSION_NONE);
    size_t whole = 512 << 10, half = 256 << 10, least = 128 << 10;
    mr_eq_u64(largest_read("tfrecord(\"@/a\", \"@/b\")"), whole);
    mr_eq_u64(largest_read("list_files(\"@/*\").interleave(f => tfrecord(f), cycle_length=4)"),
              whole);
    mr_eq_u64(largest_read("list_files(\"@/*\").interleave(f => tfrecord(f), cycle_length=8)"),
              half);
    mr_eq_u64(largest_read("list_files(\"@/*\").interleave(f => tfrecord(f).take(50000), "
                           "cycle_length=1000000)"),
              least);
    mr_eq_u64(largest_read("from_tensors(0).repeat(4).interleave(i => "
                           "list_files(\"@/*\").interleave(f => tfrecord(f), cycle_length=4), "
                           "cycle_length=4)"),
              least);
    /* Two files cannot be read more than two at once. */
    mr_eq_u64(largest_read("tfrecord(\"@/a\", \"@/b\", num_parallel_reads=16)"), whole);
}
