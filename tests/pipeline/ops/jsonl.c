/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

static void write_objects(void)
{
    mr_drive_file("a",
                  "{\"n\": 1, \"s\": \"one\"}\n\n{\"n\": 2, \"s\": \"two\", \"more\": [{}]}\n");
    mr_drive_file("b", " \t\n{\"s\": \"three\", \"n\": 3}");
    mr_drive_file("none", "\n\n");
}

MR_TEST(reads_the_objects_of_files)
{
    write_objects();
    mr_drive(mr_drive_path("jsonl([\"@/a\", \"@/none\", \"@/b\"], {\"n\": int64, \"s\": bytes})"),
             "(1,\"one\") (2,\"two\") (3,\"three\")");
    mr_drive(mr_drive_path("jsonl(\"@/?\", {\"n\": int64}).map(x => x[\"n\"]).repeat(2).batch(4)"),
             "[1,2,3,1] [2,3]");
    mr_drive(mr_drive_path("jsonl(\"@/nothing*\", {\"n\": uint8})"), "!nothing");
    mr_drive(mr_drive_path("jsonl([\"@/missing\", \"@/b\"], {\"n\": int64})"), "!missing 3");
    mr_drive_alike(mr_drive_path("list_files(\"@/?\").interleave(f => jsonl(f, {\"n\": int64}))"));
}

MR_TEST(values_of_every_kind)
{
    mr_drive_file("v", "{\"v\": [1, 2.5, \"nan\"], \"w\": [[1], [2]], \"t\": [\"a\", {\"b64\": "
                       "\"/w==\"}], \"f\": true}\n"
                       "{\"v\": [\"inf\", \"-inf\", -1e3], \"w\": [[-1], [0]], \"t\": [], \"f\": "
                       "false}\n"
                       "{\"v\": [0, 0, 0], \"w\": null, \"f\": true, \"t\": null}\n");
    mr_drive(mr_drive_path("jsonl(\"@/v\", {\"v\": float32[3], \"w\": feature(int64, shape=[2, 1], "
                           "default=-7), \"t\": bytes[], \"f\": bool})"),
             "(true,[\"a\",\"\xff\"],[1,2.5,nan],[[1],[2]]) "
             "(false,[],[inf,-inf,-1000],[[-1],[0]]) (true,[],[0,0,0],[[-7],[-7]])");
    mr_drive_file("d", "{}\n{\"a\": null}\n");
    mr_drive(mr_drive_path("jsonl(\"@/d\", {\"a\": feature(bytes, default=\"x\"), \"b\": "
                           "feature(float64, default=2), \"c\": feature(bool, default=true)})"),
             "(\"x\",2,true) (\"x\",2,true)");
}

MR_TEST(what_is_not_as_announced_is_an_error_with_its_line_and_field)
{
    static const struct {
        const char *line, *part;
    } bad[] = {{"{}", "line_2:_field_n:_it_is_missing"},
               {"{\"n\": \"1\"}", "line_2:_field_n:_expected_int8,_found_a_string"},
               {"{\"n\": 1.5}", "field_n:_expected_int8,_found_a_float"},
               {"{\"n\": 128}", "field_n:_128_does_not_fit_int8"},
               {"{\"n\": -129}", "-129_does_not_fit"},
               {"{\"n\": true}", "found_true"},
               {"{\"n\": [1]}", "found_a_list"},
               {"{\"n\": 99999999999999999999}", "99999999999999999999_does_not_fit_int8"},
               {"{\"n\": 1", "line_2:_it_is_not_JSON"},
               {"{\"n\": 1} 2", "not_JSON"},
               {"{\"n\": 1, \"n\": 2}", "duplicate"},
               {"[1]", "expected_an_object"},
               {"3", "expected_an_object"},
               {"{\"n\": 1, \"v\": 3}", "field_v:_expected_a_list,_found_an_integer"},
               {"{\"n\": 1, \"v\": [3]}", "field_v:_a_list_of_1"},
               {"{\"n\": 1, \"v\": [3, 4, 5]}", "field_v:_a_list_of_3"},
               {"{\"n\": 1, \"v\": [3, \"x\"]}", "field_v:_expected_float32,_found_a_string"},
               {"{\"n\": 1, \"s\": {\"b64\": \"!\"}}", "field_s:_'!'_is_not_base64"},
               {"{\"n\": 1, \"s\": {\"b64\": \"a===\"}}", "not_base64"},
               {"{\"n\": 1, \"s\": {\"b64\": 1}}", "found_an_object"},
               {"{\"n\": 1, \"s\": 2}", "field_s:_expected_bytes,_found_"},
               {"\xff", "not_JSON"}};
    char text[256], expected[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "{\"n\": 0}\n%s\n{\"n\": 2}\n", bad[i].line);
        mr_drive_file("x", text);
        snprintf(expected, sizeof expected, "0 !%s 2", bad[i].part);
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"n\": int8, \"v\": feature(float32, shape=[2], "
                               "default=0.0), \"s\": feature(bytes, default=\"\")}).map(x => "
                               "cast(x[\"n\"], \"int64\"))"),
                 expected);
    }
    mr_status st;
    mr_drive_error(mr_drive_path("jsonl(\"@/x\", {\"n\": int8})"), &st);
    mr_eq_i64(st.record, 1);
    mr_has_str(st.file, "/x");
}

MR_TEST(features_are_checked_when_the_graph_is_built)
{
    mr_drive_bad("jsonl(\"a\", {\"n\": int65})", "features: n: a feature must be int64");
    mr_drive_bad("jsonl(\"a\", {\"n\": int64[-1]})", "features: n");
    mr_drive_bad("jsonl(\"a\", {\"n\": {\"b\": int64}})", "records cannot be nested here");
    mr_drive_bad("jsonl(\"a\", {\"n\": float16})", "features: n");
    mr_drive_bad("jsonl(\"a\", {\"n\": feature(int64, default=\"x\")})",
                 "n: the default must be int64");
    mr_drive_bad("jsonl(\"a\", {\"n\": feature(int64, defualt=1)})", "features: n");
    mr_drive_bad("jsonl(\"a\", {\"n\": feature(int64[], default=1)})", "of any length");
    mr_drive_bad("jsonl(\"a\", [])", "features must be");
    mr_drive_bad("jsonl(\"a\", [int64])", "record");
    mr_drive_bad("jsonl(\"a\")", "features");
    mr_drive_bad("jsonl(\"a\", {\"n\": int64, \"n\": int64})", "n");
    mr_drive_bad("jsonl(\"a\", 3)", "features");
}

MR_TEST(text_and_calls_make_the_same_graph)
{
    mr_status st;
    char *text = NULL;
    const char *file = "a.jsonl";
    mr_dataset *ds = mr_jsonl(&file, 1, "{\"x\": float32[2]}", NULL);
    mr_ok(mr_dataset_check(ds, &st), &st);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "jsonl(\"a.jsonl\", {\"x\": float32[2]})");
    mr_dataset_unref(mr_drive_build(text));
    mr_free(text);
    mr_dataset_unref(ds);
    ds = mr_jsonl(&file, 1, "{\"x\"", NULL);
    mr_code_is(mr_dataset_check(ds, &st), MR_INVALID_ARGUMENT, &st);
    mr_dataset_unref(ds);
}

MR_TEST(identities_count_lines)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    const mr_iterator_opts o = {.identities = true};
    static const uint64_t want[][2] = {{0, 0}, {0, 2}, {1, 1}};
    write_objects();
    mr_dataset *ds = mr_drive_build(mr_drive_path("jsonl(\"@/?\", {\"n\": int64})"));
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    size_t n = 0;
    while (mr_iterator_next(it, 10, &b, &st) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, n++) {
            mr_eq_u64(b.ids.ids[i].file, want[n][0]);
            mr_eq_u64(b.ids.ids[i].ordinal, want[n][1]);
        }
    mr_eq_u64(n, 3);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}
