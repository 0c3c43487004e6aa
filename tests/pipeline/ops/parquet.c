/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pipeline/formats/parquet/parquet_file.h"
#include "pipeline/formats/parquet/thrift_compact.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/parquet_table.h"

/* What pyarrow wrote (tests/fuzz/pyarrow_files.py). */
static const char *const known_files[] = {"nulls",    "nulls_v2", "dictionary", "plain",  "delta",
                                          "delta_v2", "lists",    "lists_v2",   "groups", "refused",
                                          "no_rows",  "structs",  "structs_v2", "deep",   "deep_v2",
                                          "unlike",   "all_null"};
enum { N_KNOWN_FILES = sizeof known_files / sizeof *known_files };

static unsigned char *known_file(const char *name, size_t *n)
{
    char path[512];
    snprintf(path, sizeof path, MR_CORPUS "/parquet/%s", name);
    return table_read(path, n);
}

static void write_known_files(void)
{
    for (size_t i = 0; i < N_KNOWN_FILES; i++) {
        char name[64];
        size_t n;
        unsigned char *v = known_file(known_files[i], &n);
        snprintf(name, sizeof name, "%s.parquet", known_files[i]);
        table_write(name, v, n);
        free(v);
    }
}

/* A codec whose library is not there is an error that says so, and no test. */
static bool reads(const char *name)
{
    char graph[128];
    mr_status error;
    snprintf(graph, sizeof graph, "parquet(\"@/%s.parquet\")", name);
    mr_drive_error(mr_drive_path(graph), &error);
    if (error.code != MR_NOT_FOUND)
        return true;
    mr_has_str(error.message, "; install lib");
    fprintf(stderr, "%s: not tried: %s\n", name, error.message);
    return false;
}

/* ---- what other writers write ---- */

MR_TEST(every_encoding_codec_and_version_of_pages_is_read)
{
    static const char *const names[] = {"dictionary", "plain", "delta", "delta_v2"};
    write_known_files();
    for (size_t i = 0; i < 4; i++) {
        char graph[256];
        if (!reads(names[i]))
            continue;
        snprintf(graph, sizeof graph,
                 "parquet(\"@/%s.parquet\").map(r => (cast(r[\"i\"], \"int64\"), r[\"f\"], "
                 "r[\"s\"], r[\"x\"], "
                 "r[\"t\"], r[\"l\"]))",
                 names[i]);
        mr_drive(mr_drive_path(graph), "(7,0.5,\"abc\",\"12345\",true,[\"x\",\"y\"]) "
                                       "(-1,-1.5,\"abd\",\"12346\",true,[]) "
                                       "(1048576,2,\"\",\"12346\",true,[\"x\"]) "
                                       "(5,0,\"abdominal\",\"00000\",false,[\"zz\",\"zz\",\"zz\"]) "
                                       "(5,1.0000000000000000199e+30,\"b\",\"abcde\",true,[]) "
                                       "(-2147483648,3.25,\"bc\",\"abcdf\",true,[\"y\"])");
    }
}

MR_TEST(a_row_with_a_null_is_one_error)
{
    static const char *const names[] = {"nulls", "nulls_v2"};
    write_known_files();
    for (size_t i = 0; i < 2; i++) {
        char graph[256];
        snprintf(graph, sizeof graph,
                 "parquet(\"@/%s.parquet\").map(r => (cast(r[\"a\"], \"int64\"), r[\"b\"]))",
                 names[i]);
        mr_drive(mr_drive_path(graph),
                 "(1,[1]) !column_'a':_the_row_has_a_null "
                 "!column_'b':_the_row_has_a_null !column_'b':_the_row_has_a_null "
                 "!column_'a':_the_row_has_a_null (6,[4])");
        snprintf(graph, sizeof graph,
                 "parquet(\"@/%s.parquet\", columns=[\"a\"]).ignore_errors()"
                 ".map(r => cast(r[\"a\"], \"int64\"))",
                 names[i]);
        mr_drive(mr_drive_path(graph), "1 3 4 6");
    }
    mr_status error;
    mr_drive_error(mr_drive_path("parquet(\"@/nulls.parquet\", columns=[\"a\"]).skip(4)"), &error);
    mr_eq_i64(error.record, 4);
    mr_eq_str(error.file, mr_test_path("nulls.parquet"));
    mr_has_str(error.message, "row group 1, column 'a': ");
}

MR_TEST(a_schema_gives_defaults_for_nulls_and_missing_columns)
{
    static const char *const names[] = {"nulls", "nulls_v2"};
    write_known_files();
    for (size_t i = 0; i < 2; i++) {
        char graph[400];
        snprintf(
            graph, sizeof graph,
            "parquet(\"@/%s.parquet\", schema={\"a\": feature(int32, default=-9), \"b\": "
            "feature(int64[], default=[]), \"c\": {\"d\": feature(bytes, default=\"none\"), \"e\": "
            "feature(float32[none, none], default=[])}}).map(r => (cast(r[\"a\"], \"int64\"), "
            "r[\"b\"], r[\"c\"][\"d\"], r[\"c\"][\"e\"]))",
            names[i]);
        mr_drive(mr_drive_path(graph),
                 "(1,[1],\"none\",[]) (-9,[],\"none\",[]) (3,[],\"none\",[]) "
                 "!column_'b':_the_row_has_a_null_within_a_list (-9,[2,3],\"none\",[]) "
                 "(6,[4],\"none\",[])");
        snprintf(graph, sizeof graph,
                 "parquet(\"@/%s.parquet\", schema={\"z\": feature(int64, default=5)})", names[i]);
        mr_drive(mr_drive_path(graph), "5 5 5 5 5 5");
        mr_drive_alike(mr_drive_path(graph));
        snprintf(graph, sizeof graph, "parquet(\"@/%s.parquet\", schema={\"z\": int64})", names[i]);
        mr_drive(mr_drive_path(graph),
                 "!there_is_no_column_'z',_which_the_first_file_or_the_schema_has;");
    }
    mr_drive_bad("parquet(\"a\", schema={\"x\": feature(bool, default=1)})",
                 "schema: x: the default");
}

/* As a column that the file lacks: pandas writes a column without any value so. */
MR_TEST(a_column_of_the_type_null_needs_a_default)
{
    write_known_files();
    mr_drive(mr_drive_path("parquet(\"@/all_null.parquet\", schema={\"a\": int64, \"n\": "
                           "feature(bytes, default=\"-\"), \"s\": {\"n\": feature(float32[], "
                           "default=[]), \"x\": feature(int64, default=0)}})"
                           ".map(r => (r[\"a\"], r[\"n\"], r[\"s\"][\"n\"], r[\"s\"][\"x\"]))"),
             "(1,\"-\",[],4) (2,\"-\",[],0) (3,\"-\",[],0)");
    mr_drive_alike(mr_drive_path(
        "parquet([\"@/all_null.parquet\", \"@/nulls.parquet\"], schema={\"n\": feature(uint8, "
        "default=3)})"));
    mr_drive(mr_drive_path("parquet(\"@/all_null.parquet\", columns=[\"a\"]).map(r => r[\"a\"])"),
             "1 2 3");
    mr_drive_bad(mr_drive_path("parquet(\"@/all_null.parquet\")"),
                 "column 'n' cannot be read: its type is null: it has no other values; a schema");
    mr_drive_bad(mr_drive_path("parquet(\"@/all_null.parquet\", columns=[\"s\"])"),
                 "column 's.n' cannot be read: its type is null");
    mr_drive(mr_drive_path("parquet(\"@/all_null.parquet\", schema={\"n\": int32})"),
             "!column_'n'_cannot_be_read:_its_type_is_null:");
    mr_drive(mr_drive_path(
                 "parquet(\"@/all_null.parquet\", schema={\"l\": feature(int32[], default=[])})"),
             "!column_'l'_cannot_be_read:_it_holds_lists_of_the_type_null,_which_have_no");
}

MR_TEST(groups_are_records)
{
    write_known_files();
    mr_drive(
        mr_drive_path("parquet(\"@/groups.parquet\")"
                      ".map(r => (r[\"g\"][\"a\"], r[\"g\"][\"b\"], cast(r[\"h\"], \"int64\")))"),
        "(1,\"p\",3) (2,\"q\",4)");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", columns=[\"g\"])"
                           ".map(r => (r[\"g\"][\"a\"], r[\"g\"][\"b\"]))"),
             "(1,\"p\") (2,\"q\")");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", schema={\"g\": {\"b\": bytes}})"
                           ".map(r => r[\"g\"][\"b\"])"),
             "\"p\" \"q\"");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", columns=[\"h\", \"g.b\"])"
                           ".map(r => (r[\"g\"][\"b\"], cast(r[\"h\"], \"int64\")))"),
             "(\"p\",3) (\"q\",4)");
    static const char *const none[] = {"g.c", "g.", "g.a.b", "h.a", ".a", "g.A"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char graph[128], message[64];
        snprintf(graph, sizeof graph, "parquet(\"@/groups.parquet\", columns=[\"%s\"])", none[i]);
        snprintf(message, sizeof message, "there is no column '%s'; the file has the columns g, h",
                 none[i]);
        mr_drive_bad(mr_drive_path(graph), message);
    }
    mr_drive_bad(mr_drive_path("parquet(\"@/groups.parquet\", columns=[\"g.a\"])"
                               ".map(r => r[\"g\"][\"b\"])"),
                 "there is no component");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", schema={\"g\": int64})"),
             "!there_is_no_column_'g'");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", schema={\"g\": {\"a\": float32}})"),
             "!column_'g.a'_is_int64[]_here,_and_float32[]");
    mr_drive(mr_drive_path("parquet(\"@/groups.parquet\", schema={\"h\": {\"a\": int64}})"),
             "!there_is_no_column_'h/a'");
}

MR_TEST(what_cannot_be_a_column_is_refused_by_name)
{
    write_known_files();
    table_refused(mr_drive_path("parquet(\"@/refused.parquet\")"), MR_INVALID_ARGUMENT,
                  "column 'd' cannot be read");
    mr_drive(mr_drive_path("parquet(\"@/refused.parquet\", columns=[\"n\"])"
                           ".map(r => 5)"),
             "5");
    table_refused(mr_drive_path("parquet(\"@/refused.parquet\", columns=[\"d\"])"),
                  MR_INVALID_ARGUMENT, "column 'd' cannot be read: it holds decimal numbers");
    mr_drive_bad(mr_drive_path("parquet(\"@/refused.parquet\", columns=[\"none\"])"),
                 "there is no column 'none'; the file has the columns ");
    mr_drive(mr_drive_path("parquet(\"@/refused.parquet\", columns=[\"k\"]).map(r => r[\"k\"])"),
             "1");
}

/* A node of a schema: the root, a group of the nodes that follow it, or a column of int64. */
typedef struct node {
    const char *name;
    int repetition, children; /* required, optional, repeated */
    bool is_list;
} node;

/* File `name` has no rows, and the schema of these nodes. */
static void schema_file(const char *name, const node *v, size_t n)
{
    mr__thrift_w w = {0};
    mr__thrift_put_int(&w, 1, MR__THRIFT_I32, 2);
    mr__thrift_put_list(&w, 2, MR__THRIFT_STRUCT, n);
    for (size_t i = 0; i < n; i++) {
        mr__thrift_item_struct(&w);
        if (!v[i].children)
            mr__thrift_put_int(&w, 1, MR__THRIFT_I32, MR__PARQUET_INT64);
        mr__thrift_put_int(&w, 3, MR__THRIFT_I32, v[i].repetition);
        mr__thrift_put_bytes(&w, 4, v[i].name, strlen(v[i].name));
        if (v[i].children)
            mr__thrift_put_int(&w, 5, MR__THRIFT_I32, v[i].children);
        if (v[i].is_list)
            mr__thrift_put_int(&w, 6, MR__THRIFT_I32, 3);
        mr__thrift_put_end(&w);
    }
    mr__thrift_put_int(&w, 3, MR__THRIFT_I64, 0);
    mr__thrift_put_list(&w, 4, MR__THRIFT_STRUCT, 0);
    mr__thrift_put_end(&w);
    mr_check(w.failed == MR_OK);
    const uint32_t size = (uint32_t)w.n;
    FILE *f = fopen(mr_test_path(name), "wb");
    mr_check(f && fwrite(MR__PARQUET_MAGIC, 1, 4, f) == 4 && fwrite(w.v, 1, w.n, f) == w.n &&
             fwrite(&size, 1, 4, f) == 4 && fwrite(MR__PARQUET_MAGIC, 1, 4, f) == 4 &&
             fclose(f) == 0);
    mr__thrift_w_reset(&w);
}

/* "(1,[2])", of the columns that are asked for, from files of both versions of pages. */
static void drive_both(const char *name, const char *part, const char *want)
{
    static const char *const versions[] = {"", "_v2"};
    char graph[512];
    write_known_files();
    for (size_t i = 0; i < 2; i++) {
        snprintf(graph, sizeof graph, "parquet(\"@/%s%s.parquet\", %s", name, versions[i], part);
        mr_drive(mr_drive_path(graph), want);
    }
}

MR_TEST(a_list_of_groups_is_a_group_of_lists)
{
    drive_both("structs",
               "columns=[\"x\"]).map(r => (cast(r[\"x\"][\"a\"], \"int64\"), r[\"x\"][\"b\"]))",
               "([1,2],[\"p\",\"q\"]) ([],[]) ([3],[\"r\"]) "
               "!column_'x.b':_the_row_has_a_null !column_'x.a':_the_row_has_a_null "
               "!column_'x.a':_the_row_has_a_null ([5,5,5],[\"s\",\"s\",\"s\"])");
    drive_both("structs", "columns=[\"m\"]).map(r => (r[\"m\"][\"key\"], r[\"m\"][\"value\"]))",
               "([\"k\"],[1]) ([],[]) ([\"l\",\"m\"],[2,3]) ([],[]) ([],[]) ([],[]) ([\"n\"],[4])");
    drive_both(
        "structs", "columns=[\"y\"]).map(r => r[\"y\"][\"b\"])",
        "[[\"p\"],[]] [] [[]] [[\"q\",\"q\"],[\"r\"]] [] [] !column_'y.a':_the_row_has_a_null");
    drive_both("structs",
               "columns=[\"x.a\"]).skip(2).take(1).map(r => cast(r[\"x\"][\"a\"], \"int64\"))",
               "[3]");
    drive_both("structs", "columns=[\"m.value\"]).take(1).map(r => r[\"m\"][\"value\"])", "[1]");
    drive_both("structs",
               "schema={\"x\": {\"a\": int32[]}}).skip(2).take(1).map(r => cast(r[\"x\"][\"a\"], "
               "\"int64\"))",
               "[3]");
}

MR_TEST(lists_of_one_list_are_as_long_in_all_columns)
{
    mr_status error;
    write_known_files();
    static const char one[] = "parquet(\"@/unlike.parquet\", schema={\"x\": {\"b\": int64[]}})"
                              ".map(r => r[\"x\"][\"b\"])";
    mr_drive(mr_drive_path(one), "[1] [2,3] [4]");
    mr_drive_error(mr_drive_path("parquet(\"@/unlike.parquet\")"), &error);
    mr_code_is(error.code, MR_DATA_LOSS, &error);
    mr_eq_i64(error.record, 0);
    mr_eq_str(error.file, mr_test_path("unlike.parquet"));
    mr_has_str(error.message, "row group 0, column 'x.b': damaged pages: its lists differ in "
                              "length from those of column 'x.a'");
    mr_drive(mr_drive_path("parquet(\"@/unlike.parquet\").skip(1).map(r => 1)"),
             "!differ_in_length_from_those_of_column_'x.a'");
    mr_drive(mr_drive_path("parquet(\"@/unlike.parquet\").skip(2).map(r => r[\"x\"][\"a\"])"),
             "[4]");
}

MR_TEST(lists_more_than_two_deep_have_one_length_from_the_third_level_on)
{
    drive_both("deep", "columns=[\"x\"]).map(r => r[\"x\"])",
               "[[[1,2],[3,4]],[],[[5,6]]] [] [[[]]] "
               "!column_'x':_the_row's_lists_from_the_third_level_on_differ "
               "!column_'x':_the_row's_lists_from_the_third_level_on_differ [[[7]],[[8],[9]]]");
    drive_both(
        "deep", "columns=[\"s\"]).map(r => r[\"s\"][\"l\"])",
        "[[[[\"a\"]],[[\"b\"]]]] [] [[[]]] [[[[\"c\"],[\"d\"]]]] [[],[[]]] [[[[\"e\",\"f\"]]]]");
}

MR_TEST(names_within_lists_and_names_twice)
{
    enum { NO, MAYBE, MANY };
    static const node list[] = {
        {"s", NO, 1, false}, {"x", MAYBE, 1, true}, {"list", MANY, 1, false}, {"e", NO, 0, false}};
    schema_file("a.parquet", list, 4);
    mr_drive(mr_drive_path("parquet(\"@/a.parquet\", schema={\"x\": int64[none]})"), "");
    static const node groups[] = {{"s", NO, 1, false},      {"x", MAYBE, 1, true},
                                  {"list", MANY, 1, false}, {"element", NO, 2, false},
                                  {"a", NO, 0, false},      {"b", NO, 0, false}};
    schema_file("b.parquet", groups, 6);
    mr_drive(mr_drive_path("parquet(\"@/b.parquet\", schema={\"x\": {\"a\": int64[]}})"), "");
    static const node once[] = {{"s", NO, 1, false},
                                {"x", MAYBE, 1, true},
                                {"list", MANY, 1, false},
                                {"element", NO, 1, true},
                                {"value", NO, 0, false}}; /* not repeated */
    schema_file("c.parquet", once, 5);
    mr_drive(mr_drive_path("parquet(\"@/c.parquet\", schema={\"x\": {\"value\": int64[]}})"), "");
    static const node old[] = {
        {"s", NO, 3, false},   {"x", MAYBE, 1, true},   {"array", MANY, 1, false},
        {"a", NO, 0, false},   {"y", MAYBE, 1, true},   {"y_tuple", MANY, 1, false},
        {"b", MAYBE, 1, true}, {"bag", MANY, 1, false}, {"i", NO, 0, false},
        {"z", MANY, 2, false}, {"c", NO, 0, false},     {"d", MANY, 0, false}};
    schema_file("f.parquet", old, sizeof old / sizeof *old);
    mr_drive(
        mr_drive_path("parquet(\"@/f.parquet\", schema={\"x\": {\"a\": int64[]}, \"y\": {\"b\": "
                      "int64[none, none]}, \"z\": {\"c\": int64[], \"d\": int64[none, none]}})"),
        "");
    static const node lists[] = {{"s", NO, 2, false},      {"x", MAYBE, 1, true},
                                 {"array", MANY, 1, true}, {"array", MANY, 0, false},
                                 {"y", MAYBE, 1, true},    {"list", MANY, 1, false},
                                 {"z", MANY, 0, false}};
    schema_file("g.parquet", lists, sizeof lists / sizeof *lists);
    mr_drive(mr_drive_path("parquet(\"@/g.parquet\", schema={\"x\": int64[none, none], \"y\": "
                           "{\"z\": int64[none, none]}})"),
             "");
    node deep[11] = {{"s", NO, 1, false}};
    for (size_t i = 1; i < 11; i++)
        deep[i] = (node){"x", MANY, i < 10, false};
    schema_file("h.parquet", deep, 11);
    table_refused(mr_drive_path("parquet(\"@/h.parquet\")"), MR_INVALID_ARGUMENT,
                  "column 'x.x.x.x.x.x.x.x.x.x' cannot be read: it holds lists more than 8 deep");
    static const node group[] = {
        {"s", NO, 2, false}, {"x", NO, 1, false}, {"a", NO, 0, false}, {"x", NO, 0, false}};
    schema_file("d.parquet", group, 4);
    table_refused(mr_drive_path("parquet(\"@/d.parquet\")"), MR_INVALID_ARGUMENT,
                  "two columns are called 'x'");
    static const node twice[] = {{"s", NO, 2, false}, {"x", NO, 0, false}, {"x", NO, 0, false}};
    schema_file("e.parquet", twice, 3);
    mr_drive(mr_drive_path("parquet(\"@/e.parquet\", schema={\"x\": int64})"),
             "!two_columns_are_called_'x'");
}

MR_TEST(files_without_rows_are_empty)
{
    write_known_files();
    mr_drive(mr_drive_path("parquet(\"@/no_rows.parquet\")"), "");
    mr_drive_count(mr_drive_path("parquet(\"@/no_rows.parquet\")"), 0);
    mr_drive(mr_drive_path("parquet([\"@/no_rows.parquet\", \"@/dictionary.parquet\"], "
                           "columns=[\"i\"]).take(2).map(r => cast(r[\"i\"], \"int64\"))"),
             reads("dictionary") ? "7 -1" : "!install");
}

/* ---- what the writer writes ---- */

static const char rows[] =
    "range(40).map(i => {\"i8\": cast(i - 20, \"int8\"), \"u8\": cast(i * 6, \"uint8\"), "
    "\"i16\": cast(i * -800, \"int16\"), \"u16\": cast(i * 1600, \"uint16\"), "
    "\"i32\": cast(i * -50000000, \"int32\"), \"u32\": cast(i * 100000000, \"uint32\"), "
    "\"i64\": i * -200000000000000000, \"u64\": cast(i, \"uint64\"), "
    "\"f16\": cast(i, \"float16\"), \"f32\": cast(i, \"float32\") / 7.0, "
    "\"f64\": cast(i, \"float64\") / 7.0, \"b\": i % 3 == 0, \"s\": format(\"row{}\", i), "
    "\"l\": where(ones([i % 5]) > 0.0, 1, 0), \"t\": [\"a\", format(\"{}\", i)]})";

static const char all_as_int64[] =
    ".map(r => (cast(r[\"i8\"], \"int64\"), cast(r[\"u8\"], \"int64\"), cast(r[\"i16\"], "
    "\"int64\"), cast(r[\"u16\"], \"int64\"), cast(r[\"i32\"], \"int64\"), cast(r[\"u32\"], "
    "\"int64\"), r[\"i64\"], cast(r[\"u64\"], \"int64\"), cast(r[\"f16\"], \"float32\"), "
    "r[\"f32\"], r[\"f64\"], r[\"b\"], r[\"s\"], r[\"l\"], r[\"t\"]))";

MR_TEST_SLOW(what_was_written_is_read_again)
{
    static const mr_compression codecs[] = {MR_COMPRESSION_NONE, MR_COMPRESSION_GZIP,
                                            MR_COMPRESSION_ZSTD};
    char graph[2048];
    snprintf(graph, sizeof graph, "%s%s", rows, all_as_int64);
    char *expected = mr_drive_show(graph);
    snprintf(graph, sizeof graph, "parquet(\"@/rows.parquet\")%s", all_as_int64);
    for (size_t i = 0; i < 3; i++) {
        parquet_file("rows.parquet", rows, i == 0 ? 400 : 1 << 20, codecs[i]);
        mr_drive(mr_drive_path(graph), expected);
    }
    free(expected);
}

MR_TEST(lists_of_lists_and_records_are_read_again)
{
    static const char nested[] =
        "range(30).map(i => ones([i % 4])).ragged_batch(5)"
        ".map(x => {\"x\": x, \"g\": {\"s\": [\"a\", \"b\"], \"n\": {\"n\": "
        "7, \"d\": [[1, 2], [3, 4]]}}, \"g.s\": 1})";
    static const char parts[] = ".map(r => (r[\"x\"], r[\"g\"][\"s\"], r[\"g\"][\"n\"][\"n\"], "
                                "r[\"g\"][\"n\"][\"d\"], r[\"g.s\"]))";
    char graph[2048];
    snprintf(graph, sizeof graph, "%s%s", nested, parts);
    char *expected = mr_drive_show(graph);
    snprintf(graph, sizeof graph, "parquet(\"@/nested.parquet\")%s", parts);
    for (size_t bytes = 1; bytes < 1 << 20; bytes *= 100) {
        parquet_file("nested.parquet", nested, bytes, MR_COMPRESSION_NONE);
        mr_drive(mr_drive_path(graph), expected);
    }
    free(expected);
    mr_drive(mr_drive_path("parquet(\"@/nested.parquet\", schema={\"g\": {\"n\": {\"d\": "
                           "int64[none, none]}}}).map(r => r[\"g\"][\"n\"][\"d\"]).take(1)"),
             "[[1,2],[3,4]]");
    mr_drive_bad("parquet(\"n\", schema={\"x\": {\"y\": int64[none, 2]}})", "x/y: columns are");
    parquet_file("deep.parquet", "range(3).map(x => {\"t\": ones([x, 1, 2]), \"n\": x})", 1 << 20,
                 MR_COMPRESSION_NONE);
    mr_drive(mr_drive_path("parquet(\"@/deep.parquet\").map(r => (r[\"n\"], r[\"t\"]))"),
             "(0,[]) (1,[[[1,1]]]) (2,[[[1,1]],[[1,1]]])");
}

static void write_numbers(void)
{
    parquet_file("n-0.parquet", "range(7).map(x => {\"x\": x, \"s\": format(\"{}\", x)})", 20,
                 MR_COMPRESSION_NONE);
    parquet_file("n-1.parquet", "range(0).map(x => {\"x\": x, \"s\": format(\"{}\", x)})", 20,
                 MR_COMPRESSION_NONE);
    parquet_file("n-2.parquet", "range(7, 10).map(x => {\"x\": x, \"s\": format(\"{}\", x)})", 20,
                 MR_COMPRESSION_ZSTD);
}

MR_TEST(several_files_are_one_table)
{
    write_numbers();
    mr_drive(mr_drive_path("parquet(\"@/n-?.parquet\").map(r => (r[\"x\"], r[\"s\"]))"),
             "(0,\"0\") (1,\"1\") (2,\"2\") (3,\"3\") (4,\"4\") (5,\"5\") (6,\"6\") (7,\"7\") "
             "(8,\"8\") (9,\"9\")");
    mr_drive_count(mr_drive_path("parquet(\"@/n-?.parquet\")"), 10);
    mr_drive_count(mr_drive_path("parquet(\"@/n-0.parquet\").skip(3)"), 4);
    mr_drive(mr_drive_path("parquet(\"@/n-2.parquet\", \"@/n-0.parquet\", columns=[\"x\"])"
                           ".skip(5).repeat(2).map(r => r[\"x\"])"),
             "2 3 4 5 6 2 3 4 5 6");
    mr_drive(mr_drive_path("parquet(\"@/n-?.parquet\").skip(10)"), "");
    mr_drive(mr_drive_path("parquet([\"@/n-0.parquet\", \"@/none.parquet\", \"@/n-2.parquet\"], "
                           "columns=[\"x\"]).map(r => r[\"x\"])"),
             "0 1 2 3 4 5 6 !not_found");
    mr_drive(mr_drive_path("list_files(\"@/n-?.parquet\", shuffle=false)"
                           ".flat_map(f => parquet(f, schema={\"x\": int64}).take(2))"
                           ".map(r => r[\"x\"])"),
             "0 1 7 8");
    mr_drive_bad("list_files(\"*.parquet\").flat_map(f => parquet(f))", "schema must be given");
    table_refused(mr_drive_path("parquet(\"@/none.parquet\")"), MR_NOT_FOUND,
                  "cannot open the file");
}

MR_TEST(the_function_of_one_file_has_the_types_of_the_node)
{
    write_numbers();
    const char *const paths[] = {mr_test_path("n-0.parquet"), mr_test_path("n-2.parquet")};
    mr_status st;
    mr_fn *fn = NULL;
    char *printed = NULL;
    mr_dataset *ds =
        mr_drive_build(mr_drive_path("parquet(\"@/n-0.parquet\", columns=[\"x\", \"s\"])"));
    mr_ok(mr_dataset_read_function(ds, &fn, &st), &st);
    mr_dataset_unref(ds);
    ds = mr_flat_map(mr_from_strings(paths, 2), fn);
    mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
    mr_has_str(printed, ".flat_map(f => parquet(f, schema={\"s\": bytes, \"x\": int64}))");
    mr_free(printed);
    mr_drive_dataset(mr_map(ds, mr_fn_text("r => r[\"x\"]"), NULL), "0 1 2 3 4 5 6 7 8 9");
}

MR_TEST(a_file_of_another_schema_is_an_error_of_its_own)
{
    write_numbers();
    parquet_file("text.parquet", "range(2).map(x => {\"x\": \"a\", \"s\": \"b\"})", 1000,
                 MR_COMPRESSION_NONE);
    parquet_file("more.parquet", "range(2).map(x => {\"x\": x, \"s\": \"b\", \"y\": 1})", 1000,
                 MR_COMPRESSION_NONE);
    parquet_file("list.parquet", "range(2).map(x => {\"x\": [x], \"s\": \"b\"})", 1000,
                 MR_COMPRESSION_NONE);
    mr_drive(mr_drive_path("parquet(\"@/n-2.parquet\", \"@/text.parquet\", \"@/more.parquet\", "
                           "\"@/list.parquet\", \"@/n-2.parquet\").map(r => r[\"x\"])"),
             "7 8 9 !column_'x'_is_string[]_here,_and_int64[]_in_the_first_file "
             "!column_'y'_is_not_in_the_first_file "
             "!column_'x'_is_int64[?]_here,_and_int64[]_in_the_first_file 7 8 9");
    mr_drive(mr_drive_path("parquet(\"@/n-2.parquet\", \"@/more.parquet\", columns=[\"x\"])"
                           ".map(r => r[\"x\"])"),
             "7 8 9 0 1");
    mr_drive(mr_drive_path("parquet(\"@/n-2.parquet\", schema={\"x\": int64, \"z\": bytes})"),
             "!there_is_no_column_'z'");
    mr_drive_bad("parquet(\"n\", schema={\"x\": int64[2]})", "lists of any length");
    mr_drive_bad("parquet(\"n\", schema={\"x\": 3})", "expected a type such as int64");
    mr_drive_bad("parquet(\"n\", schema=[int64])", "schema must be {\"name\": dtype");
    mr_drive_bad("parquet(\"n\", schema={\"x\": int64}, columns=[\"y\"])", "not among columns");
    mr_drive_bad("parquet(\"n\", schema={\"x\": {\"a\": int64, \"b\": int64}}, columns=[\"x.a\"])",
                 "the schema has column 'x/b', which is not among columns");
    mr_drive_bad("parquet(\"n\", schema={\"x.a\": int64}, columns=[\"x\"])", "not among columns");
}

/* As polars names the index that pandas wrote to CSV. */
MR_TEST(names_may_be_empty)
{
    parquet_file("e.parquet", "range(3).map(x => {\"\": x, \"a\": {\"\": x + 5}})", 1 << 20,
                 MR_COMPRESSION_NONE);
    mr_drive(mr_drive_path("parquet(\"@/e.parquet\").map(r => (r[\"\"], r[\"a\"][\"\"]))"),
             "(0,5) (1,6) (2,7)");
    mr_drive(mr_drive_path("parquet(\"@/e.parquet\", columns=[\"\"]).map(r => r[\"\"])"), "0 1 2");
    mr_drive(mr_drive_path("parquet(\"@/e.parquet\", schema={\"\": int64}).map(r => r[\"\"])"),
             "0 1 2");
}

MR_TEST(damage_comes_after_the_rows_before_it)
{
    size_t n;
    parquet_file("good.parquet", "range(9).map(x => {\"x\": x, \"y\": -x})", 48,
                 MR_COMPRESSION_NONE);
    unsigned char *v = table_bytes("good.parquet", &n);
    for (size_t i = 0; i + 8 < n; i++) /* y of row 4: -4 */
        if (memcmp(v + i, "\xfc\xff\xff\xff\xff\xff\xff\xff", 8) == 0)
            v[i] = 0;
    table_write("bad.parquet", v, n);
    free(v);
    mr_drive(mr_drive_path("parquet(\"@/bad.parquet\", \"@/good.parquet\").map(r => r[\"x\"])"),
             "0 1 2 !checksum_does_not_match 0 1 2 3 4 5 6 7 8");
    mr_drive(mr_drive_path("parquet(\"@/bad.parquet\", columns=[\"x\"]).map(r => r[\"x\"])"),
             "0 1 2 3 4 5 6 7 8");
    mr_drive(mr_drive_path("parquet(\"@/bad.parquet\").skip(6).map(r => r[\"x\"])"), "6 7 8");
    mr_status error;
    mr_drive_error(mr_drive_path("parquet(\"@/bad.parquet\")"), &error);
    mr_code_is(error.code, MR_DATA_LOSS, &error);
    mr_eq_i64(error.record, 3);
    mr_check(error.offset > 0);
    mr_eq_str(error.file, mr_test_path("bad.parquet"));
    mr_has_str(error.message, "row group 1, column 'y': ");
}

/* The numbers of a column of two pages, and those of a list of two rows; where their footers count
 * the rows of the file, those of the row group, and the values of the column. */
/* clang-format off */
static const unsigned char flat_counts[] = {
    80, 65, 82, 49, 21, 0, 21, 16, 21, 16, 44, 21, 4, 21, 0, 21, 6, 21, 6, 0, 0, 1, 0, 0, 0, 2, 0,
    0, 0, 21, 0, 21, 8, 21, 8, 44, 21, 2, 21, 0, 21, 6, 21, 6, 0, 0, 3, 0, 0, 0, 21, 4, 25, 44,
    72, 1, 109, 21, 2, 0, 21, 2, 37, 0, 24, 1, 120, 0, 22, 6, 25, 28, 25, 28, 38, 8, 28, 21, 2,
    25, 37, 0, 6, 25, 24, 1, 120, 21, 0, 22, 6, 22, 92, 22, 92, 38, 8, 0, 0, 22, 92, 22, 6, 0, 0,
    55, 0, 0, 0, 80, 65, 82, 49
};
static const unsigned char list_counts[] = {
    80, 65, 82, 49, 21, 0, 21, 64, 21, 64, 44, 21, 6, 21, 0, 21, 6, 21, 6, 0, 0, 6, 0, 0, 0, 2, 0,
    2, 1, 2, 0, 6, 0, 0, 0, 2, 2, 2, 2, 2, 2, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 21, 4, 25, 76,
    72, 1, 109, 21, 2, 0, 53, 2, 24, 1, 120, 21, 2, 21, 6, 0, 53, 4, 24, 4, 108, 105, 115, 116,
    21, 2, 0, 21, 2, 37, 0, 24, 7, 101, 108, 101, 109, 101, 110, 116, 0, 22, 4, 25, 28, 25, 28,
    38, 8, 28, 21, 2, 25, 37, 0, 6, 25, 56, 1, 120, 4, 108, 105, 115, 116, 7, 101, 108, 101, 109,
    101, 110, 116, 21, 0, 22, 6, 22, 98, 22, 98, 38, 8, 0, 0, 22, 98, 22, 4, 0, 0, 95, 0, 0, 0,
    80, 65, 82, 49
};
/* clang-format on */
enum { FLAT_ROWS = 69, FLAT_GROUP = 102, FLAT_VALUES = 90 };
enum { LIST_ROWS = 99, LIST_GROUP = 145, LIST_VALUES = 133 };

/* The rows of the file, where `n_rows` and `values` (below 64) are written in its footer. */
static void drive_counts(bool list, int n_rows, int values, const char *want)
{
    unsigned char v[sizeof list_counts];
    size_t n = list ? sizeof list_counts : sizeof flat_counts;
    memcpy(v, list ? list_counts : flat_counts, n);
    v[list ? LIST_ROWS : FLAT_ROWS] = v[list ? LIST_GROUP : FLAT_GROUP] =
        (unsigned char)(2 * n_rows);
    v[list ? LIST_VALUES : FLAT_VALUES] = (unsigned char)(2 * values);
    table_write("counts.parquet", v, n);
    mr_drive(mr_drive_path("parquet(\"@/counts.parquet\").map(r => cast(r[\"x\"], \"int64\"))"),
             want);
}

MR_TEST(counts_that_differ_are_damage)
{
    drive_counts(false, 3, 3, "1 2 3");
    drive_counts(false, 2, 3, "!3_values,_but_the_row_group_2_rows");
    drive_counts(false, 3, 4, "!4_values,_but_the_row_group_3_rows");
    drive_counts(false, 3, 0, "!0_values,_but_the_row_group_3_rows");
    drive_counts(false, 2, 2, "1 !more_values_than_the_rows"); /* the second page */
    drive_counts(true, 2, 3, "[1,2] [3]");
    drive_counts(true, 1, 3, "!more_values_than_the_rows");
    drive_counts(true, 2, 4, "[1,2] !more_values_than_the_rows"); /* which are nowhere */
    drive_counts(true, 3, 3, "[1,2] [3] !fewer_rows");
    drive_counts(true, 2, 2, "!more_values_than_its_column_chunk");
    drive_counts(true, 1, 3, "!more_values_than_the_rows");
    mr_status error;
    mr_drive_error(mr_drive_path("parquet(\"@/counts.parquet\")"), &error);
    mr_code_is(error.code, MR_DATA_LOSS, &error);
    mr_eq_str(error.file, mr_test_path("counts.parquet"));
    mr_has_str(error.message, "row group 0, column 'x': ");
    mr_check(error.offset > 0);
}

MR_TEST(a_list_that_is_empty_does_not_go_on)
{
    enum { DEFINITION = 36 }; /* of the first value; the second one's is two bytes on */
    unsigned char v[sizeof list_counts];
    memcpy(v, list_counts, sizeof v);
    mr_eq_u64(v[DEFINITION], 2);
    v[DEFINITION] = 1; /* an empty list, and then its second value */
    table_write("levels.parquet", v, sizeof v);
    mr_drive(mr_drive_path("parquet(\"@/levels.parquet\")"), "!levels_contradict_each_other");
    v[DEFINITION] = 2;
    v[DEFINITION + 2] = 1; /* a list continues without a value */
    table_write("levels.parquet", v, sizeof v);
    mr_drive(mr_drive_path("parquet(\"@/levels.parquet\")"), "!levels_contradict_each_other");
}

/* The CRC-32 of n bytes as the head of a page has it: five bytes, where it is large. */
static void put_checksum(unsigned char to[5], const unsigned char *v, size_t n)
{
    uint32_t crc = ~UINT32_C(0);
    for (size_t i = 0; i < n; i++) {
        crc ^= v[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    crc = ~crc;
    uint32_t zigzag = crc << 1 ^ (crc >> 31 ? ~UINT32_C(0) : 0);
    for (int i = 0; i < 5; i++, zigzag >>= 7)
        to[i] = (unsigned char)(zigzag & 0x7f) | (i < 4 ? 0x80 : 0);
    mr_check(to[4] != 0);
}

MR_TEST(levels_that_cannot_be_are_damage)
{
    enum { REPETITION = 28, DEFINITIONS = 12, PAGE = 30 };
    unsigned char v[sizeof list_counts];
    memcpy(v, list_counts, sizeof v);
    mr_eq_u64(v[REPETITION], 1);
    v[REPETITION] = 2; /* of lists in lists, which these are not */
    table_write("deep.parquet", v, sizeof v);
    mr_drive(mr_drive_path("parquet(\"@/deep.parquet\")"), "!fewer_levels");
    /* Levels of both axes, and two values; then the outer list is empty, yet it continues. */
    size_t n, i = 0;
    parquet_file("two.parquet", "range(1).map(x => {\"x\": [[5, 6]]})", 100, MR_COMPRESSION_NONE);
    unsigned char *file = table_bytes("two.parquet", &n);
    while (i + PAGE < n && memcmp(file + i, "\3\0\0\0\3\x8\0\3\0\0\0\3\xa\0\5", 15) != 0)
        i++;
    unsigned char before[5], after[5];
    mr_check(i + PAGE < n);
    put_checksum(before, file + i, PAGE);
    file[i + DEFINITIONS] = 8;
    put_checksum(after, file + i, PAGE);
    for (i = 0; memcmp(file + i, before, 5) != 0; i++)
        mr_check(i + 5 < n);
    memcpy(file + i, after, 5);
    table_write("two.parquet", file, n);
    free(file);
    mr_drive(mr_drive_path("parquet(\"@/two.parquet\")"), "!levels_contradict_each_other");
}

/* The columns of a file whatever its bytes; no call fails without a message. */
static void read_anything(const char *name)
{
    mr__parquet *f = NULL;
    mr_status st;
    size_t leaves[64], n = 0, got = 0;
    if (mr__parquet_open(&f, mr_test_path(name), NULL, &st) != MR_OK) {
        mr_check(st.message[0] != '\0');
        return;
    }
    const mr__parquet_footer *footer = mr__parquet_footer_of(f);
    for (size_t i = 0; i < footer->n_leaves && n < 64; i++)
        if (!footer->leaves[i].refusal && !mr__parquet_footer_refusal(footer, i))
            leaves[n++] = i;
    mr_ok(mr__parquet_select(f, leaves, n, NULL, &st), &st);
    for (int pulls = 0; pulls < 100 && n; pulls++) {
        mr_array columns[64] = {{0}};
        mr_code rc = mr__parquet_read(f, 7, columns, &got, &st);
        for (size_t i = 0; i < n && rc == MR_OK; i++)
            mr_array_reset(&columns[i]);
        if (rc == MR_END)
            break;
        mr_check(rc == MR_OK || st.message[0] != '\0');
    }
    mr__parquet_close(f);
}

MR_TEST_SLOW(files_cut_anywhere_and_with_any_byte_changed_are_errors_or_rows)
{
    enum { MOST = 1600 }; /* larger ones are the fuzzer's */
    uint64_t random = mr_test_seed();
    for (size_t i = 0; i < N_KNOWN_FILES; i++) {
        size_t size;
        unsigned char *v = known_file(known_files[i], &size);
        for (size_t n = 0; n < size && size <= MOST; n += mr_test_step(&random, 19)) {
            unsigned char whole = v[n];
            table_write("cut.parquet", v, n);
            read_anything("cut.parquet");
            v[n] ^= (unsigned char)(1 << n % 8);
            table_write("changed.parquet", v, size);
            read_anything("changed.parquet");
            v[n] = 0xff;
            table_write("changed.parquet", v, size);
            read_anything("changed.parquet");
            v[n] = whole;
        }
        free(v);
    }
}

/* Its page's head ends early; what comes then says that it is of version 1. The size of the levels
 * of version 2, below 0, was taken off the page. */
MR_TEST(a_head_of_two_types_is_damaged)
{
    static const unsigned char changed[] = {0xff, 0xff, 0xff, 0xff};
    size_t n;
    unsigned char *v = known_file("delta_v2", &n);
    memcpy(v + 262, changed, sizeof changed);
    table_write("changed.parquet", v, n);
    free(v);
    mr_drive(mr_drive_path("parquet(\"@/changed.parquet\", columns=[\"s\"])"), "!BROTLI");
}

MR_TEST(what_is_no_parquet_file_is_said_with_its_name)
{
    mr_drive_file("empty.parquet", "");
    mr_drive_file("text.parquet", "this is text, and no table");
    mr_drive_file("cut.parquet", "PAR1 and no end to it");
    mr_drive_file("encrypted.parquet", "PARE1234\x04\x01\x01\x01PARE");
    mr_drive_file("short.parquet", "PAR1 and no"); /* 11 bytes */
    table_refused(mr_drive_path("parquet(\"@/empty.parquet\")"), MR_DATA_LOSS,
                  "not a Parquet file: it is empty");
    table_refused(mr_drive_path("parquet(\"@/short.parquet\")"), MR_DATA_LOSS,
                  "not a Parquet file: it is too short");
    table_refused(mr_drive_path("parquet(\"@/text.parquet\")"), MR_DATA_LOSS,
                  "not a Parquet file: it does not begin");
    mr_drive(mr_drive_path("parquet([\"@/text.parquet\", \"@/short.parquet\"], "
                           "schema={\"x\": int64})"),
             "!text.parquet:_data_loss:_not_a_Parquet_file !data_loss");
    table_refused(mr_drive_path("parquet(\"@/cut.parquet\")"), MR_DATA_LOSS,
                  "the file is cut short");
    table_refused(mr_drive_path("parquet(\"@/encrypted.parquet\")"), MR_UNIMPLEMENTED,
                  "the file is encrypted");
    table_refused(mr_drive_path("parquet(\"@\")"), MR_FAILED_PRECONDITION, "directory");
    mr_drive_bad("parquet(\"/dev/null\")", "not a regular file");
    mr_drive_bad("parquet(\"/dev/zero\")", "not a regular file");
    mr_check(mkfifo(mr_test_path("pipe"), 0600) == 0);
    mr_drive_bad(mr_drive_path("parquet(\"@/pipe\")"), "a pipe cannot seek");
}

static void count(void *ctx, size_t bytes)
{
    *(size_t *)ctx += bytes;
}

MR_TEST(only_the_columns_asked_for_are_read)
{
    size_t bytes = 0, n;
    parquet_file("wide.parquet",
                 "range(2000).map(x => {\"x\": cast(x, \"int32\"), \"y\": zeros([500])})", 1 << 22,
                 MR_COMPRESSION_NONE);
    free(table_bytes("wide.parquet", &n));
    mr_check(n > 3 << 20);
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts opts = {.on_read = count, .on_read_ctx = &bytes};
    mr_dataset *ds = mr_drive_build(mr_drive_path("parquet(\"@/wide.parquet\", columns=[\"x\"])"));
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    size_t got = 0;
    while (mr_iterator_next(it, 1000, &b, &st) == MR_OK)
        got += b.rows;
    mr_eq_u64(got, 2000);
    mr_check(bytes > 8000 && bytes < 100000); /* the chunk, and 64 KiB at the end of the file */
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(rows_before_a_position_are_not_read)
{
    size_t bytes = 0, got = 0;
    mr_status st;
    mr__parquet *f = NULL;
    mr_array a = {0};
    parquet_file("long.parquet", "range(100000).map(x => {\"x\": x})", 100000, MR_COMPRESSION_NONE);
    const mr_file_opts opts = {.on_read = count, .on_read_ctx = &bytes};
    mr_ok(mr__parquet_open(&f, mr_test_path("long.parquet"), &opts, &st), &st);
    mr_ok(mr__parquet_select(f, (const size_t[]){0}, 1, NULL, &st), &st);
    mr__parquet_seek(f, 99999);
    bytes = 0;
    mr_ok(mr__parquet_read(f, 10, &a, &got, &st), &st);
    mr_eq_u64(got, 1);
    mr_eq_i64(*(const int64_t *)a.data, 99999);
    mr_check(bytes <= 100100);
    mr_array_reset(&a);
    mr_code_is(mr__parquet_read(f, 10, &a, &got, &st), MR_END, &st);
    mr__parquet_close(f);
}

MR_TEST_SLOW(pages_are_gone_past_without_being_decoded)
{
    parquet_file("pages.parquet",
                 "range(300).map(x => {\"x\": x, \"y\": zeros([3000]), \"s\": format(\"{}\", x)})",
                 1 << 30, MR_COMPRESSION_ZSTD);
    mr_drive(mr_drive_path("parquet(\"@/pages.parquet\").skip(297)"
                           ".map(r => (r[\"x\"], length(r[\"y\"]), r[\"s\"]))"),
             "(297,3000,\"297\") (298,3000,\"298\") (299,3000,\"299\")");
}

MR_TEST(every_failed_allocation_is_reported)
{
    write_numbers();
    mr_drive_faults(mr_drive_path("parquet(\"@/n-?.parquet\").batch(2)"));
    parquet_file("l.parquet",
                 "range(6).map(i => ones([i % 3])).ragged_batch(2)"
                 ".map(x => {\"g\": {\"x\": x}})",
                 16, MR_COMPRESSION_NONE);
    mr_drive_faults(mr_drive_path("parquet(\"@/l.parquet\")"));
}

MR_TEST(the_constructor_is_the_text)
{
    const char *names[] = {"a-*.parquet"};
    mr_bytes columns[] = {{"x", 1}};
    mr_dataset *ds = mr_parquet(
        names, 1,
        &(mr_table_opts){.columns = {.v = columns, .n = 1}, .schema = (char[]){"{\"x\": int64}"}});
    char *text = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "parquet(\"a-*.parquet\", columns=\"x\", schema={\"x\": int64})");
    mr_free(text);
    mr_dataset_unref(ds);
}
