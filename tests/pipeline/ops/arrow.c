/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/arrow_file.h"
#include "tests/pipeline/ops/drive.h"

/* What pyarrow wrote (tests/fuzz/pyarrow_files.py). */
static void fixture(const char *name)
{
    char path[512];
    size_t n;
    snprintf(path, sizeof path, MR_CORPUS "/arrow_ipc/%s", name);
    unsigned char *v = table_read(path, &n);
    table_write(name, v, n);
    free(v);
}

static void refused(const char *graph, mr_code code, const char *part)
{
    table_refused(mr_drive_path(graph), code, part);
}

/* Elements of every kind, a batch for each few of them. */
#define ROWS                                                                                       \
    "range(11).map(n => {\"n\": n, \"s\": format(\"s{}\", n), \"f\": cast(n, \"float32\") / 4.0, " \
    "\"b\": n % 3 == 0, \"l\": ones([n % 3]), \"d\": [[n, 1], [2, n]]})"

static void drive_same(const char *graph, const char *as)
{
    char *expected = mr_drive_show(as);
    mr_drive(mr_drive_path(graph), expected);
    free(expected);
}

MR_TEST(files_and_streams_give_what_was_written)
{
    arrow_file("a.arrow", ROWS, 100);
    arrow_file_packed("z.arrow", ROWS, 100);
    arrow_stream("a.stream", "a.arrow");
    arrow_stream("z.stream", "z.arrow");
    arrow_file("one.arrow", ROWS, 1);
    arrow_file("whole.arrow", ROWS, 1 << 20);
    static const char *const names[] = {"a.arrow",  "z.arrow",   "a.stream",
                                        "z.stream", "one.arrow", "whole.arrow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char graph[200];
        snprintf(graph, sizeof graph, "arrow(\"@/%s\")", names[i]);
        drive_same(graph, ROWS);
        mr_drive_count(mr_drive_path(graph), 11);
    }
    drive_same("arrow([\"@/a.arrow\", \"@/z.stream\"]).repeat(2).batch(4).map(r => r[\"n\"])",
               ROWS ".repeat(4).batch(4).map(r => r[\"n\"])");
    drive_same("arrow(\"@/?.arrow\", columns=[\"s\", \"d\"])",
               ROWS ".map(r => {\"s\": r[\"s\"], \"d\": r[\"d\"]}).repeat(2)");
    mr_drive_count(mr_drive_path("arrow(\"@/?.*\")"), 44);
    static const char deep[] =
        "range(6).map(i => ones([i % 3, 2]) * cast(i, \"float32\")).ragged_batch(2)"
        ".map(x => {\"x\": x})";
    arrow_file("deep.arrow", deep, 100);
    drive_same("arrow(\"@/deep.arrow\")", deep);
}

static char logged[512];
static void keep_log(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level == MR_LOG_WARNING)
        snprintf(logged, sizeof logged, "%s", message);
}

/* As two streams that `cat` joined. */
MR_TEST(bytes_after_the_end_of_a_stream_are_warned_of)
{
    arrow_file("a.arrow", "range(5).map(n => {\"n\": n})", 16);
    arrow_stream("a.stream", "a.arrow");
    size_t n;
    unsigned char *v = table_bytes("a.stream", &n);
    unsigned char *two = malloc(2 * n);
    memcpy(two, v, n);
    memcpy(two + n, v, n);
    table_write("two.stream", two, 2 * n);
    table_write("more.stream", two, n + 1);
    static const struct {
        const char *name;
        bool more;
    } files[] = {
        {"a.stream", false}, {"two.stream", true}, {"more.stream", true}, {"a.arrow", false}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char graph[80], text[80];
        snprintf(graph, sizeof graph, "arrow(\"@/%s\").map(r => r[\"n\"])", files[i].name);
        logged[0] = '\0';
        mr_log_set(keep_log, NULL, MR_LOG_WARNING);
        mr_drive(mr_drive_path(graph), "0 1 2 3 4");
        mr_drive_count(mr_drive_path(graph), 5);
        mr_log_set(NULL, NULL, MR_LOG_WARNING);
        snprintf(text, sizeof text, "%s: the %zu byte", files[i].name, i == 1 ? n : (size_t)1);
        mr_has_str(logged, files[i].more ? text : "");
        mr_check(files[i].more || !logged[0]);
        mr_reader *r = NULL;
        int64_t skipped;
        mr_status st;
        mr_ok(mr_reader_open(&r, &mr__format_arrow, mr_test_path(files[i].name),
                             &(mr_file_opts){.strict = true}, &st),
              &st);
        mr_array a = {0};
        mr_ok(mr_reader_skip(r, 5, &skipped, &st), &st);
        mr_code rc = mr_reader_read(r, 1, 1, &a, &st);
        mr_code_is(rc, files[i].more ? MR_DATA_LOSS : MR_END, &st);
        if (rc == MR_DATA_LOSS)
            mr_eq_i64(st.offset, n);
        mr_reader_close(r);
    }
    free(v);
    free(two);
}

MR_TEST(rows_are_skipped_and_ranges_of_files_taken)
{
    arrow_file("a.arrow", "range(100).map(n => {\"n\": n})", 56);
    arrow_stream("b.arrow", "a.arrow");
    static const int64_t skips[] = {0, 1, 6, 7, 8, 99, 100, 101, 150, 199, 200, 201};
    for (size_t i = 0; i < sizeof skips / sizeof *skips; i++) {
        char graph[200], as[200];
        snprintf(graph, sizeof graph, "arrow(\"@/?.arrow\").map(r => r[\"n\"]).skip(%d).take(9)",
                 (int)skips[i]);
        snprintf(as, sizeof as, "range(100).repeat(2).skip(%d).take(9)", (int)skips[i]);
        drive_same(graph, as);
    }
}

/* Of a file with a footer only metadata is read on the way to a row, and of a batch only the
 * requested columns. */
static size_t bytes_read;
static void count_bytes(void *ctx, size_t n)
{
    (void)ctx;
    bytes_read += n;
}

static size_t bytes_of(const char *graph, size_t rows)
{
    mr_dataset *ds = mr_drive_build(mr_drive_path(graph));
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc;
    size_t got = 0;
    bytes_read = 0;
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.on_read = count_bytes}, &st), &st);
    while ((rc = mr_iterator_next(it, 1000, &b, &st)) == MR_OK)
        got += b.rows;
    mr_code_is(rc, MR_END, &st);
    mr_eq_u64(got, rows);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return bytes_read;
}

MR_TEST(only_what_is_wanted_is_read)
{
    arrow_file("a.arrow", "range(1000).map(n => {\"n\": n, \"x\": ones([500])})", 200000);
    size_t all = bytes_of("arrow(\"@/a.arrow\")", 1000);
    size_t n = bytes_of("arrow(\"@/a.arrow\", columns=[\"n\"])", 1000);
    size_t last = bytes_of("arrow(\"@/a.arrow\").skip(999)", 1);
    mr_check(all > 2000000);
    mr_check(n > 8000 && n < 20000);
    mr_check(last > 200000 && last < 230000);
}

MR_TEST(dictionaries_are_decoded)
{
    fixture("deltas");
    fixture("replaced");
    mr_drive(mr_drive_path("arrow(\"@/deltas\", columns=[\"s\"]).map(r => r[\"s\"])"),
             "\"b\" \"a\" !column_'s':_the_row_has_a_null \"b\" \"c\" \"b\"");
    mr_drive(mr_drive_path("arrow(\"@/deltas\").map(r => (r[\"n\"], r[\"s\"]))"),
             "(0,\"b\") !column_'n':_the_row_has_a_null !column_'s':_the_row_has_a_null (3,\"b\") "
             "(4,\"c\") (5,\"b\")");
    mr_drive(mr_drive_path("arrow(\"@/replaced\").map(r => r[\"s\"])"),
             "\"a\" \"b\" \"x\" \"x\" \"y\" !column_'s':_the_row_has_a_null");
    mr_drive_count(mr_drive_path("arrow(\"@/replaced\")"), 6);
}

static void *malloc_noted(void *most, size_t bytes)
{
    if (bytes > *(size_t *)most)
        *(size_t *)most = bytes;
    return malloc(bytes);
}

static void *realloc_plain(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    return realloc(old, bytes);
}

static void *aligned_plain(void *ctx, size_t alignment, size_t bytes)
{
    (void)ctx;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void free_plain(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

/* A batch of numbers of a dictionary's values says that it has 2^39 + 2 rows; its column has 2. */
MR_TEST(huge_numbers_of_rows_are_not_believed)
{
    enum { ROWS_AT = 0x1a8 };
    size_t n, most = 0;
    fixture("replaced");
    unsigned char *v = table_bytes("replaced", &n);
    mr_eq_i64(v[ROWS_AT], 2);
    v[ROWS_AT + 4] = 0x80;
    table_write("changed", v, n);
    free(v);
    const mr_allocator noted = {.malloc = malloc_noted,
                                .realloc = realloc_plain,
                                .aligned_alloc = aligned_plain,
                                .free = free_plain,
                                .ctx = &most};
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_drive_build(mr_drive_path("arrow(\"@/changed\")"));
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){0}, &st), &st);
    mr_allocator_set(&noted);
    mr_code_is(mr_iterator_next(it, 10, &b, &st), MR_DATA_LOSS, &st);
    mr_allocator_set(NULL);
    mr_has_str(st.message, "it has fewer rows than its batch");
    mr_check(most > 0 && most < (size_t)1 << 30);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(compressed_buffers_are_unpacked)
{
    fixture("lz4");
    fixture("zstd");
    drive_same("arrow(\"@/lz4\").map(r => (r[\"s\"], r[\"x\"]))",
               "range(100).map(n => (\"same\", 7))");
    drive_same("arrow(\"@/zstd\").map(r => r[\"x\"])",
               "range(100).map(n => cast(n // 10, \"int16\"))");
}

MR_TEST(old_streams_and_times_are_read)
{
    fixture("legacy");
    mr_drive(mr_drive_path("arrow(\"@/legacy\").map(r => (r[\"days\"], r[\"seconds\"], r[\"ts\"], "
                           "cast(r[\"half\"], \"float32\"), r[\"bits\"], r[\"fixed\"]))"),
             "(-1,1,-5,0.5,true,\"abc\") (20000,2,1099511627776,-2.0,false,\"xyz\")");
    mr_dataset *ds = mr_drive_build(mr_drive_path("arrow(\"@/legacy\")"));
    char spec[200];
    mr_spec_format(mr_dataset_spec(ds), spec, sizeof spec);
    mr_eq_str(spec, "{bits: bool[], days: int64[], fixed: string[], half: float16[], seconds: "
                    "int64[], ts: int64[]}");
    mr_dataset_unref(ds);
}

MR_TEST(a_row_with_a_null_is_one_error)
{
    fixture("nulls");
    mr_drive(
        mr_drive_path("arrow(\"@/nulls\", columns=[\"l\"]).map(r => cast(r[\"l\"], \"int64\"))"),
        "[1] !batch_0,_column_'l':_the_row_has_a_null !batch_0,_column_'l':_the_row_has_a_null "
        "[3]");
    mr_drive(mr_drive_path("arrow(\"@/nulls\", columns=[\"q\"]).map(r => r[\"q\"][\"x\"])"),
             "1 !column_'q.x':_the_row_has_a_null !column_'q.x':_the_row_has_a_null 4");
    mr_drive(mr_drive_path("arrow(\"@/nulls\", columns=[\"p\"]).map(r => r[\"p\"][\"x\"])"),
             "1 2 3 4");
    mr_status error;
    mr_drive_error(mr_drive_path("arrow(\"@/nulls\", columns=[\"q\"]).take(2)"), &error);
    mr_eq_i64(error.code, MR_INVALID_ARGUMENT);
    mr_eq_i64(error.record, 2);
    mr_eq_str(error.file, mr_test_path("nulls"));
    mr_has_str(error.message, "batch 0, column 'q.x': the row has a null");
}

MR_TEST(types_that_elements_cannot_have_are_named)
{
    static const char *const bad[][2] = {
        {"decimal", "column 'decimal' cannot be read: it is of Arrow's type decimal"},
        {"none",
         "column 'none' cannot be read: its type is null: it has no other values; a schema"},
        {"union", "column 'union' cannot be read: it is of Arrow's type union"},
        {"runs", "it is of Arrow's type run_end_encoded"},
        {"missing", "there is no column 'missing'; the file has the columns "}};
    fixture("odd");
    mr_drive_bad(mr_drive_path("arrow(\"@/odd\")"), "cannot be read: it ");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char graph[200];
        snprintf(graph, sizeof graph, "arrow(\"@/odd\", columns=[\"a\", \"%s\"])", bad[i][0]);
        mr_drive_bad(mr_drive_path(graph), bad[i][1]);
    }
    mr_drive(
        mr_drive_path("arrow(\"@/odd\", columns=[\"z\", \"a\"]).map(r => (r[\"a\"], r[\"z\"]))"),
        "(1,3) (2,4)");
    mr_drive(mr_drive_path("arrow(\"@/odd\", columns=[\"view\"]).map(r => length(r[\"view\"]))"),
             "5 24");
    mr_drive_bad(mr_drive_path("arrow(\"@/odd\", columns=[\"a\", \"a\"])"), "requested twice");
}

MR_TEST(a_schema_gives_defaults_for_nulls_and_missing_columns)
{
    fixture("nulls");
    fixture("structs");
    mr_drive(mr_drive_path(
                 "arrow(\"@/nulls\", schema={\"q\": {\"x\": feature(int64, default=-1), \"new\": "
                 "feature(bytes, default=\"?\")}, \"more\": {\"y\": feature(float32, shape=[2], "
                 "default=[0.5, inf])}}).map(r => (r[\"q\"][\"x\"], r[\"q\"][\"new\"], "
                 "r[\"more\"][\"y\"]))"),
             "(1,\"?\",[0.5,inf]) (-1,\"?\",[0.5,inf]) (-1,\"?\",[0.5,inf]) (4,\"?\",[0.5,inf])");
    mr_drive(
        mr_drive_path("arrow(\"@/structs\", schema={\"x\": {\"a\": feature(int64[], default=[])}})"
                      ".map(r => r[\"x\"][\"a\"])"),
        "[1,2] [] [3] [4] !column_'x.a':_the_row_has_a_null_within_a_list []");
    mr_drive(mr_drive_path("arrow(\"@/nulls\", schema={\"q\": {\"x\": int64, \"new\": int64}})"),
             "!column_'q'_has_no_field_'new',_which_the_first_file_or_the_schema_has;_a_schema_may_"
             "give");
    mr_drive(
        mr_drive_path("arrow(\"@/nulls\", schema={\"n\": {\"x\": feature(int64, default=0), \"y\": "
                      "int64}})"),
        "!there_is_no_column_'n'");
    mr_drive_alike(
        mr_drive_path("arrow(\"@/nulls\", schema={\"q\": {\"x\": feature(int64, default=7)}})"
                      ".repeat(2)"));
    /* A copy that reads part of the files keeps the defaults. */
    mr_drive(mr_drive_path("list_files(\"@/nulls\").flat_map(f => arrow(f, schema={\"z\": "
                           "feature(uint8, default=3)})).map(r => cast(r[\"z\"], \"int64\"))"),
             "3 3 3 3");
    mr_drive_bad("arrow(\"a\", schema={\"x\": feature(int8, default=300)})",
                 "schema: x: the default: 300");
    mr_drive_bad("arrow(\"a\", schema={\"x\": {\"y\": feature(int8, default=\"s\")}})",
                 "schema: x/y: the default must be int8 literals");
    mr_drive_bad("arrow(\"a\", schema={\"x\": feature(int8[], default=0)})",
                 "the default of a list is []");
    mr_drive_bad("arrow(\"a\", schema={\"x\": feature(int8[2], default=[1, 2, 3])})",
                 "has 3 values");
    mr_drive_bad("arrow(\"a\", schema={\"x\": feature(int8, preset=0)})",
                 "feature(int64, default=0)");
    mr_drive_bad("arrow(\"a\", schema={\"x\": feature()})", "expected a type such as");
}

/* As a column that the file lacks: pandas writes a column without any value so. */
MR_TEST(a_column_of_the_type_null_needs_a_default)
{
    fixture("odd");
    fixture("all_null");
    mr_drive(mr_drive_path("arrow(\"@/all_null\", schema={\"a\": int64, \"n\": feature(bytes, "
                           "default=\"-\"), \"s\": {\"n\": feature(float32[], default=[]), \"x\": "
                           "feature(int64, default=0)}})"
                           ".map(r => (r[\"a\"], r[\"n\"], r[\"s\"][\"n\"], r[\"s\"][\"x\"]))"),
             "(1,\"-\",[],4) (2,\"-\",[],0) (3,\"-\",[],0)");
    mr_drive_alike(
        mr_drive_path("arrow([\"@/all_null\", \"@/odd\"], schema={\"a\": int64, \"none\": "
                      "feature(uint8, default=3)})"));
    mr_drive_bad(mr_drive_path("arrow(\"@/all_null\", columns=[\"s\"])"),
                 "column 'n' cannot be read: its type is null");
    mr_drive(mr_drive_path("arrow(\"@/all_null\", schema={\"n\": int32})"),
             "!column_'n'_cannot_be_read:_its_type_is_null:");
    mr_drive(mr_drive_path("arrow(\"@/all_null\", schema={\"l\": feature(int32[], default=[])})"),
             "!column_'l'_cannot_be_read:_it_holds_lists_of_the_type_null,_which_have_no");
}

MR_TEST(a_list_of_structs_is_a_record_of_lists)
{
    fixture("structs");
    fixture("odd");
    mr_drive(mr_drive_path("arrow(\"@/structs\", columns=[\"x\"]).map(r => (r[\"x\"][\"a\"], "
                           "r[\"x\"][\"b\"]))"),
             "([1,2],[\"p\",\"q\"]) ([],[]) ([3],[\"r\"]) "
             "!column_'x.b':_the_row_has_a_null_within_a_list "
             "!column_'x.a':_the_row_has_a_null_within_a_list !column_'x.a':_the_row_has_a_null");
    mr_drive(
        mr_drive_path("arrow(\"@/structs\", schema={\"x\": {\"a\": int64[]}})"
                      ".map(r => r[\"x\"][\"a\"])"),
        "[1,2] [] [3] [4] !column_'x.a':_the_row_has_a_null !column_'x.a':_the_row_has_a_null");
    mr_drive(
        mr_drive_path("arrow(\"@/structs\", columns=[\"x.a\"]).map(r => r[\"x\"][\"a\"])"),
        "[1,2] [] [3] [4] !column_'x.a':_the_row_has_a_null !column_'x.a':_the_row_has_a_null");
    mr_drive_bad(mr_drive_path("arrow(\"@/structs\", columns=[\"x.a\"]).map(r => r[\"x\"][\"b\"])"),
                 "there is no component");
    static const char *const none[] = {"x.c", "x.", "x.a.b", "d.a", ".a", "x.A"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char graph[128], message[64];
        snprintf(graph, sizeof graph, "arrow(\"@/structs\", columns=[\"%s\"])", none[i]);
        snprintf(message, sizeof message, "there is no column '%s'; the file has the columns d, ",
                 none[i]);
        mr_drive_bad(mr_drive_path(graph), message);
    }
    mr_drive(mr_drive_path("arrow(\"@/structs\", columns=[\"m\"]).map(r => (r[\"m\"][\"key\"], "
                           "r[\"m\"][\"value\"]))"),
             "([\"k\"],[1]) ([],[]) ([\"l\",\"m\"],[2,3]) ([],[]) ([],[]) "
             "!column_'m.value':_the_row_has_a_null");
    mr_drive(
        mr_drive_path("arrow(\"@/structs\", columns=[\"y\"]).map(r => r[\"y\"][\"s\"]).take(3)"),
        "[[[\"t\"]],[]] [] [[]]");
    mr_drive(mr_drive_path("arrow(\"@/odd\", columns=[\"map\", \"structs\"]).map(r => "
                           "(r[\"map\"][\"key\"], r[\"structs\"][\"x\"]))"),
             "([\"k\"],[1]) ([],[])");
    mr_drive(mr_drive_path("arrow(\"@/structs\", schema={\"x\": {\"a\": float32[]}})"),
             "!column_'x'_is_int64[?]_here_in_field_a,_and_float32[?]");
}

MR_TEST(lists_more_than_two_deep_have_one_length_from_the_third_level_on)
{
    fixture("structs");
    mr_drive(mr_drive_path("arrow(\"@/structs\", columns=[\"d\"]).map(r => r[\"d\"])"),
             "[[[1,2],[3,4]],[],[[5,6]]] [] [[[]]] "
             "!column_'d':_the_row's_lists_from_the_third_level_on_differ "
             "!column_'d':_the_row's_lists_from_the_third_level_on_differ [[[7]],[[8],[9]]]");
}

MR_TEST(a_file_that_differs_from_the_first_is_an_error)
{
    arrow_file("1.arrow", "range(2).map(n => {\"n\": n, \"s\": \"x\"})", 100);
    arrow_file("2.arrow", "range(2).map(n => {\"n\": cast(n, \"int32\"), \"s\": \"x\"})", 100);
    arrow_file("3.arrow", "range(2).map(n => {\"n\": n, \"s\": \"x\", \"more\": n})", 100);
    arrow_file("4.arrow", "range(2).map(n => {\"n\": n})", 100);
    mr_drive(mr_drive_path("arrow(\"@/?.arrow\").map(r => r[\"n\"])"),
             "0 1 !column_'n'_is_int32[]_here,_and_int64[]_in_the_first_file_or "
             "!column_'more'_is_not_in_the_first_file;_columns=[...] !there_is_no_column_'s'");
    mr_drive(mr_drive_path("arrow([\"@/1.arrow\", \"@/3.arrow\", \"@/4.arrow\"], "
                           "columns=[\"n\"]).map(r => r[\"n\"])"),
             "0 1 0 1 0 1");
    arrow_file("s-1.arrow", "range(2).map(n => {\"g\": {\"n\": n}})", 100);
    arrow_file("s-2.arrow", "range(2).map(n => {\"g\": {\"n\": n, \"more\": n}})", 100);
    mr_drive(mr_drive_path("arrow(\"@/s-?.arrow\").map(r => r[\"g\"][\"n\"])"),
             "0 1 !column_'g'_is_");
    mr_drive(mr_drive_path("arrow(\"@/s-?.arrow\", columns=[\"g\"]).map(r => r[\"g\"][\"n\"])"),
             "0 1 0 1");
    mr_status error;
    mr_drive_error(mr_drive_path("arrow([\"@/1.arrow\", \"@/2.arrow\"])"), &error);
    mr_eq_i64(error.code, MR_INVALID_ARGUMENT);
    mr_eq_str(error.file, mr_test_path("2.arrow"));
}

MR_TEST(files_without_rows_are_empty)
{
    arrow_file("none.arrow", "range(0).map(n => {\"n\": n, \"l\": ones([n])})", 100);
    arrow_stream("none.stream", "none.arrow");
    mr_drive(mr_drive_path("arrow([\"@/none.arrow\", \"@/none.stream\"])"), "");
    mr_drive_count(mr_drive_path("arrow(\"@/none.*\")"), 0);
    mr_drive_bad("arrow([])", "at least one file");
}

/* Cut at every byte: what is read is the rows of the batches that are whole, then an error, but for
 * a stream that ends between two messages. */
static void drive_cut(const char *name, size_t step)
{
    size_t n, errors = 0;
    unsigned char *v = table_bytes(name, &n);
    char *all = mr_drive_show(mr_drive_path("arrow(\"@/a.arrow\")"));
    for (size_t cut = 0; cut < n; cut += step) {
        table_write("cut.arrow", v, cut);
        char *part = mr_drive_show(mr_drive_path("arrow(\"@/cut.arrow\", "
                                                 "schema={\"n\": int64, \"s\": bytes})"));
        size_t good = strcspn(part, "!"), rows = good && part[good] ? good - 1 : good;
        if (strncmp(part, all, rows) != 0)
            mr_fail_test("%s cut at %zu: %s", name, cut, part);
        errors += part[good] == '!';
        if (part[good] == '!' && !strstr(part, "data_loss"))
            mr_fail_test("%s cut at %zu: %s", name, cut, part);
        free(part);
    }
    free(all);
    free(v);
    mr_check(errors > n / step * 8 / 10);
}

MR_TEST_SLOW(truncated_files_end_with_an_error)
{
    arrow_file("a.arrow", "range(5).map(n => {\"n\": n, \"s\": \"text\"})", 16);
    arrow_stream("a.stream", "a.arrow");
    drive_cut("a.arrow", 7);
    drive_cut("a.stream", 7);
    mr_drive_file("text.arrow", "this is no Arrow file at all, whatever its name says");
    mr_drive_file("empty.arrow", "");
    mr_drive(mr_drive_path("arrow([\"@/text.arrow\", \"@/empty.arrow\", \"@/a.arrow\", "
                           "\"@/missing\", \"@/a.arrow\"], schema={\"n\": int64, \"s\": "
                           "bytes}).map(r => r[\"n\"])"),
             "!it_begins_with_\"this_is_\",_where_a_file_has_\"ARROW1\" "
             "!not_an_Arrow_IPC_file_or_stream:_it_is_empty 0 1 2 3 4 !not_found");
    refused("arrow(\"@/empty.arrow\")", MR_DATA_LOSS, "it is empty");
}

/* A file that lost its end gives its rows, then the error. */
MR_TEST(a_file_without_a_footer_is_read_as_the_stream_in_it)
{
    size_t n;
    arrow_file("a.arrow", "range(5).map(n => {\"n\": n})", 16);
    unsigned char *v = table_bytes("a.arrow", &n);
    table_write("cut.arrow", v, n - 4);
    mr_drive(mr_drive_path("arrow(\"@/cut.arrow\").map(r => r[\"n\"])"),
             "0 1 2 3 4 !it_has_no_footer;_it_is_truncated");
    mr_drive_count(mr_drive_path("arrow(\"@/cut.arrow\")"), MR_UNKNOWN_COUNT);
    memset(v + n - 10, 0xff, 4);
    table_write("cut.arrow", v, n);
    mr_drive(mr_drive_path("arrow(\"@/cut.arrow\").map(r => r[\"n\"])"),
             "0 1 2 3 4 !its_footer_would_be_longer_than_the_file");
    free(v);
}

/* Damage of the body of the third batch: the rows before it come first. */
MR_TEST(damage_is_an_error_in_its_place)
{
    size_t n, at = 0;
    arrow_file("a.arrow", "range(5).map(n => {\"s\": format(\"<{}>\", n)})", 1);
    unsigned char *v = table_bytes("a.arrow", &n);
    while (memcmp(v + at, "<2>", 3) != 0)
        at++;
    v[at - 64 + 8] = 99; /* the end of the string, in the offsets before it */
    table_write("b.arrow", v, n);
    free(v);
    mr_drive(mr_drive_path("arrow([\"@/b.arrow\", \"@/a.arrow\"]).map(r => r[\"s\"])"),
             "\"<0>\" \"<1>\" !batch_2:_column_'s':_its_strings_extend_past_the_end_of_their_bytes "
             "\"<0>\" \"<1>\" \"<2>\" \"<3>\" \"<4>\"");
    mr_status error;
    mr_drive_error(mr_drive_path("arrow(\"@/b.arrow\")"), &error);
    mr_eq_i64(error.code, MR_DATA_LOSS);
    mr_eq_i64(error.record, 2);
    mr_check(error.offset > 0 && error.offset < (int64_t)at);
    mr_eq_str(error.file, mr_test_path("b.arrow"));
}

/* Where the third batch should be is what ends a stream, or nothing at all. */
MR_TEST(a_footer_that_leads_to_no_batch_is_an_error)
{
    size_t n, at = 0;
    arrow_file("a.arrow", "range(5).map(n => {\"s\": format(\"<{}>\", n)})", 1);
    unsigned char *v = table_bytes("a.arrow", &n);
    while (memcmp(v + at, "<2>", 3) != 0)
        at++;
    while (memcmp(v + at, "\xff\xff\xff\xff", 4) != 0)
        at--;
    memset(v + at, 0, 8);
    table_write("b.arrow", v, n);
    free(v);
    mr_drive(mr_drive_path("arrow([\"@/b.arrow\", \"@/a.arrow\"]).map(r => r[\"s\"])"),
             "\"<0>\" \"<1>\" !its_footer_does_not_point_to_a_batch "
             "\"<0>\" \"<1>\" \"<2>\" \"<3>\" \"<4>\"");
}

/* Pulls the rows of the graph one at a time; after the fourth the file is cut to `size` bytes. */
static mr_code pull_and_cut(const char *graph, const char *name, off_t size, size_t *rows,
                            mr_status *st)
{
    mr_dataset *ds = mr_drive_build(mr_drive_path(graph));
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    *rows = 0;
    mr_ok(mr_iterator_open(&it, ds, NULL, st), st);
    while ((rc = mr_iterator_next(it, 1, &b, st)) == MR_OK) {
        *rows += b.rows;
        if (*rows == 4)
            mr_check(truncate(mr_test_path(name), size) == 0);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

MR_TEST(a_file_that_is_cut_while_it_is_read_does_not_end_in_silence)
{
    /* A batch is more than is read ahead. */
    static const char graph[] =
        "range(40).map(n => {\"d\": zeros([100000]) + cast(n, \"float32\")})";
    static const char *const names[] = {"a.arrow", "a.stream"};
    for (size_t i = 0; i < 2; i++) {
        char text[100];
        size_t rows;
        mr_status st;
        arrow_file("a.arrow", graph, 800000);
        arrow_stream("a.stream", "a.arrow");
        snprintf(text, sizeof text, "arrow(\"@/%s\").map(r => r[\"d\"][0])", names[i]);
        mr_code rc = pull_and_cut(text, names[i], 100000, &rows, &st);
        mr_code_is(rc, MR_DATA_LOSS, &st);
        mr_check(rows < 40);
    }
}

static void *write_stream(void *name)
{
    size_t n;
    unsigned char *v = table_bytes("a.stream", &n);
    FILE *f = fopen(mr_test_path(name), "wb");
    bool whole = f && fwrite(v, 1, n, f) == n && fclose(f) == 0;
    free(v);
    return whole ? name : NULL;
}

/* Its first bytes say that it has no footer, and cannot be read a second time. */
MR_TEST(a_pipe_gives_a_stream_of_a_known_schema)
{
    static char name[] = "pipe";
    pthread_t writer;
    void *written;
    arrow_file("a.arrow", "range(5).map(n => {\"n\": n})", 16);
    arrow_stream("a.stream", "a.arrow");
    mr_check(mkfifo(mr_test_path(name), 0600) == 0);
    mr_check(pthread_create(&writer, NULL, write_stream, name) == 0);
    char *shown =
        mr_drive_show(mr_drive_path("arrow(\"@/pipe\", schema={\"n\": int64}).map(r => r[\"n\"])"));
    mr_check(pthread_join(writer, &written) == 0 && written);
    mr_eq_str(shown, "0 1 2 3 4");
    free(shown);
}

/* A schema alone, as a stream, with one number of its table set. */
static void write_schema(const char *name, int endianness, int version)
{
    mr__flat_writer f = {0};
    mr_bytes v;
    mr_status st;
    size_t fields = mr__flat_put_places(&f, NULL, 0);
    mr__flat_begin_table(&f);
    mr__flat_put_place(&f, 1, fields);
    mr__flat_put_int(&f, 0, 2, endianness);
    size_t schema = mr__flat_end_table(&f);
    mr__flat_begin_table(&f);
    mr__flat_put_place(&f, 2, schema);
    mr__flat_put_int(&f, 1, 1, MR__ARROW_IS_SCHEMA);
    mr__flat_put_int(&f, 0, 2, version);
    mr_ok(mr__flat_finish(&f, mr__flat_end_table(&f), &v, &st), &st);
    FILE *file = fopen(mr_test_path(name), "wb");
    const uint32_t head[] = {UINT32_MAX, (uint32_t)v.size};
    mr_check(file && fwrite(head, 1, 8, file) == 8 && fwrite(v.data, 1, v.size, file) == v.size);
    fclose(file);
    mr__flat_writer_reset(&f);
}

MR_TEST(big_endian_and_old_versions_are_refused)
{
    write_schema("big", 1, 4);
    write_schema("old", 0, 2);
    write_schema("bare", 0, 4);
    refused("arrow(\"@/big\")", MR_UNIMPLEMENTED, "the file is big-endian");
    refused("arrow(\"@/old\")", MR_UNIMPLEMENTED, "version V3");
    mr_drive_bad(mr_drive_path("arrow(\"@/bare\")"), "no columns");
}

/* The text of the schema is read again, whatever the types. */
MR_TEST(the_function_of_one_file_has_the_types_of_the_node)
{
    static const char *const types[][2] = {
        {"{\"n\": n, \"s\": \"x\"}", "{\"n\": int64, \"s\": bytes}"},
        {"{\"a\": ones([2, 3]), \"b\": ones([n]), \"c\": ones([n, 2])}",
         "{\"a\": float32[2, 3], \"b\": float32[], \"c\": float32[none, 2]}"},
        {"{\"a\": ones([n, n])}", "{\"a\": float32[none, none]}"},
        {"{\"a\": ones([3])}", "{\"a\": float32[3]}"}};
    const char *const files[] = {mr_test_path("1.arrow"), mr_test_path("1.arrow")};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char graph[300], part[300];
        char *printed = NULL;
        mr_status st;
        mr_fn *fn = NULL;
        snprintf(graph, sizeof graph, "range(1, 3).map(n => %s)", types[i][0]);
        arrow_file("1.arrow", graph, 100);
        char *expected = mr_drive_show(graph);
        mr_dataset *ds = mr_drive_build(mr_drive_path("arrow(\"@/1.arrow\")"));
        mr_ok(mr_dataset_read_function(ds, &fn, &st), &st);
        mr_dataset_unref(ds);
        ds = mr_take(mr_flat_map(mr_from_strings(files, 2), fn), 2);
        mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
        snprintf(part, sizeof part, ".flat_map(f => arrow(f, schema=%s))", types[i][1]);
        mr_has_str(printed, part);
        mr_drive(printed, expected);
        mr_free(printed);
        free(expected);
        mr_dataset_unref(ds);
    }
}

MR_TEST(a_schema_stands_for_the_first_file)
{
    arrow_file("1.arrow", "range(2).map(n => {\"n\": n, \"l\": [[n]]})", 100);
    fixture("nulls");
    mr_drive(mr_drive_path("arrow(\"@/1.arrow\", schema={\"n\": int64}).map(r => r[\"n\"])"),
             "0 1");
    mr_drive(mr_drive_path("arrow(\"@/1.arrow\", schema={\"z\": int64})"),
             "!there_is_no_column_'z',_which_the_first_file_or_the_schema_has");
    mr_drive(mr_drive_path("arrow(\"@/1.arrow\", schema={\"n\": int64[]})"),
             "!column_'n'_is_int64[]_here,_and_int64[?]_in_the_first_file_or_the_schema");
    arrow_file("struct.arrow",
               "range(2).map(n => {\"g\": {\"a\": n, \"h\": {\"b\": [n], \"c\": \"x\"}}})", 100);
    mr_drive(mr_drive_path("arrow(\"@/struct.arrow\", schema={\"g\": {\"h\": {\"b\": int64[1]}}})"
                           ".map(r => r[\"g\"][\"h\"][\"b\"])"),
             "[0] [1]");
    mr_drive(
        mr_drive_path("arrow(\"@/struct.arrow\", schema={\"g\": {\"a\": int64, \"z\": int64}})"),
        "!column_'g'_has_no_field_'z',_which_the_first_file_or_the_schema_has");
    mr_drive(mr_drive_path("arrow(\"@/struct.arrow\", schema={\"g\": {\"a\": float32}})"),
             "!column_'g'_is_int64[]_here_in_field_a,_and_float32[]_in_the_first_file");
    arrow_file("inner.arrow",
               "range(2).map(n => {\"g\": {\"a\": {\"b\": \"x\", \"i\": n}, \"b\": n}})", 100);
    mr_drive(mr_drive_path("arrow(\"@/inner.arrow\", schema={\"g\": {\"b\": int64}})"
                           ".map(r => r[\"g\"][\"b\"])"),
             "0 1");
    mr_drive(mr_drive_path("arrow(\"@/inner.arrow\", schema={\"g\": {\"i\": int64}})"),
             "!column_'g'_has_no_field_'i'");
    arrow_file("twice.arrow", "range(2).map(n => {\"g\": {\"n1\": n, \"n2\": n}})", 100);
    size_t n;
    unsigned char *v = table_bytes("twice.arrow", &n);
    for (size_t i = 0; i + 2 <= n; i++)
        if (memcmp(v + i, "n1", 2) == 0)
            v[i + 1] = '2';
    table_write("twice.arrow", v, n);
    free(v);
    mr_drive(mr_drive_path("arrow(\"@/twice.arrow\", schema={\"g\": {\"n2\": int64}})"),
             "!column_'g'_has_two_fields_that_are_called_'n2'");
    mr_drive_bad("arrow(\"x\", schema={\"n\": {\"a\": 3}})", "expected a type such as int64");
    mr_drive_bad("arrow(\"x\", schema={\"n\": int64}, columns=[\"y\"])", "not among columns");
    mr_drive_bad("list_files(\"*.arrow\").flat_map(f => arrow(f))", "schema must be given");
    arrow_file("2.arrow", "range(2, 4).map(n => {\"n\": n, \"l\": [[n]]})", 100);
    mr_drive(mr_drive_path("list_files(\"@/?.arrow\", shuffle=false).interleave(f => arrow(f, "
                           "schema={\"n\": int64}), cycle_length=2).map(r => r[\"n\"])"),
             "0 2 1 3");
}

MR_TEST(every_failed_allocation_is_reported)
{
    arrow_file_packed("a.arrow", ROWS ".take(4)", 60);
    fixture("deltas");
    fixture("nulls");
    mr_drive_faults(mr_drive_path("arrow(\"@/a.arrow\").batch(2, drop_remainder=true)"));
    mr_drive_faults(mr_drive_path("arrow(\"@/deltas\")"));
    mr_drive_faults(mr_drive_path("arrow(\"@/nulls\")"));
}

MR_TEST(the_constructor_is_the_text)
{
    const char *names[] = {mr_test_path("a.arrow")};
    mr_bytes columns[] = {{"n", 1}};
    char *text = NULL, expected[600];
    mr_status st;
    arrow_file("a.arrow", "range(2).map(n => {\"n\": n})", 100);
    mr_dataset *ds = mr_arrow(names, 1, &(mr_table_opts){.columns = {.v = columns, .n = 1}});
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    snprintf(expected, sizeof expected, "arrow(\"%s\", columns=\"n\")", names[0]);
    mr_eq_str(text, expected);
    mr_free(text);
    mr_dataset_unref(ds);
}
