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
    mr_drive(mr_drive_path("jsonl([\"@/b\", \"@/missing\"], {\"n\": int64})"), "3 !missing");
    mr_drive_alike(mr_drive_path("list_files(\"@/?\").interleave(f => jsonl(f, {\"n\": int64}))"));
}

MR_TEST(lines_end_as_on_any_system)
{
    mr_drive_file("x",
                  "\xEF\xBB\xBF{\"n\": 1}\r{\"n\": 2}\r\n\r\n{\"n\": 3}\n\xEF\xBB\xBF{\"n\": 4}\r");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"n\": int64})"), "1 2 3 4");
    mr_drive_file("x", "\xEF\xBB\xBF");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"n\": int64})"), "");
    mr_drive_bytes("x", "\xFF\xFE{\0", 4);
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"n\": int64})"), "!UTF-16");
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

/* What RFC 8259 and Python allow, under a key that is not requested. */
MR_TEST(what_nobody_asks_for_is_only_checked)
{
    static const char *const good[] = {"{\"a\": 1, \"a\": 2}",
                                       "{\"foo\\u0000bar\": 42}",
                                       "1.5e+9999",
                                       "-1e-9999",
                                       "\"\\uDADA\"",
                                       "[\"\\uD800\\u0041\", \"\\uDC00\"]",
                                       "\"\\uD834\\uDd1e\"",
                                       "\"\xff\"",
                                       "\"\x7f\"",
                                       "NaN",
                                       "[Infinity, -Infinity]",
                                       "-0",
                                       "0e1",
                                       "1E+2",
                                       "[[], {}, [[{}]]]",
                                       "123456789012345678901234567890",
                                       "{\"\": {\"\": null}}",
                                       "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""};
    static const char *const bad[] = {
        "01",      "-",         "-a",          "1.",        ".5",     "+1",        "1e",
        "1e+",     "0x1",       "- 1",         "nan",       "inf",    "-NaN",      "Infinit",
        "tru",     "nul",       "True",        "[1,]",      "[,1]",   "[1 2]",     "[1",
        "{\"b\"}", "{\"b\": }", "{\"b\": 1,}", "{b: 1}",    "{1: 1}", "{\"b\" 1}", "{\"b\": 1",
        "\"",      "\"\\x\"",   "\"\\u12g4\"", "\"\\u12\"", "\"\t\"", "'a'",       "1 2",
        "]",       "}",         "//",          "\xff",      ""};
    char text[256];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(text, sizeof text, "{\"v\": %s, \"k\": %zu}\n", good[i], i);
        mr_drive_file("x", text);
        snprintf(text, sizeof text, "%zu", i);
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64})"), text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "{\"v\": %s, \"k\": 1}\n{\"k\": 2}\n", bad[i]);
        mr_drive_file("x", text);
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64})"), "!it_is_not_JSON 2");
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64, \"v\": feature(json, default=\"\")})"
                               ".map(x => x[\"k\"])"),
                 "!it_is_not_JSON 2");
    }
    /* A mistake in the text is the error, also after one in a value. */
    mr_drive_file("x", "{\"k\": \"s\", \"v\": [}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64})"), "!it_is_not_JSON:_a_value_expected");
}

MR_TEST(a_byte_of_zero_is_no_json)
{
    static const char *const texts[] = {"{\"v\": 1~, \"k\": 1}\n",   "{\"v\": 1.5~, \"k\": 1}\n",
                                        "{\"v\": \"~\", \"k\":1}\n", "{\"v\": 15,~\"k\": 1}\n",
                                        "{\"v\": 1, \"k\":1~}\n",    "{\"v\": 1, \"k\":1}~\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[64];
        strcpy(text, texts[i]);
        *strchr(text, '~') = '\0';
        mr_drive_bytes("x", text, strlen(texts[i]));
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64})"), "!it_is_not_JSON");
    }
}

MR_TEST(lists_of_any_depth_are_skipped)
{
    enum { DEEP = 2047, BEYOND = 100000 };
    static char text[2 * BEYOND + 100];
    for (size_t deep = DEEP; deep <= BEYOND; deep += BEYOND - DEEP) {
        int n = sprintf(text, "{\"v\": ");
        memset(text + n, '[', deep);
        memset(text + n + deep, ']', deep);
        strcpy(text + n + 2 * deep, ", \"k\": 5}\n");
        mr_drive_file("x", text);
        mr_drive(mr_drive_path("jsonl(\"@/x\", {\"k\": int64})"),
                 deep == DEEP ? "5" : "!more_than_2048_deep");
    }
}

MR_TEST(numbers_are_rounded_once)
{
    /* By way of a double the first is 1, and the second 16777216. */
    mr_drive_file("x", "{\"v\": 1.00000005960464477540, \"w\": 16777217.0000000001}\n"
                       "{\"v\": 3.4028235e38, \"w\": 9007199791611905}\n");
    mr_drive(
        mr_drive_path("jsonl(\"@/x\", {\"v\": float32, \"w\": float32})"
                      ".map(x => (x[\"v\"] == cast(1.00000011920929, \"float32\"), x[\"w\"]))"),
        "(true,16777218) (false,9007200328482816)");
    mr_drive_file("x", "{\"v\": 1e39}\n{\"v\": -1e400}\n{\"v\": 1e-400}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"v\": float32})"),
             "!1e39_does_not_fit_float32 !does_not_fit 0");
}

MR_TEST(nan_and_infinity_as_python_writes_them)
{
    mr_drive_file("x",
                  "{\"v\": [NaN, Infinity, -Infinity]}\n{\"v\": [\"nan\", \"inf\", \"-inf\"]}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"v\": float32[]})"), "[nan,inf,-inf] [nan,inf,-inf]");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"v\": int64[]})"),
             "!expected_int64,_found_a_float !expected_int64,_found_a_string");
}

MR_TEST(strings_that_are_asked_for_are_unicode)
{
    mr_drive_file("x",
                  "{\"s\": \"\\uD834\\uDD1E\\u00e9\\/\"}\n{\"s\": \"\\uDADA\"}\n{\"s\": \"\xff\"}\n"
                  "{\"\\u0073\": \"key\"}\n{\"s\\u0000\": \"no\"}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"s\": bytes})"),
             "\"\xf0\x9d\x84\x9e\xc3\xa9/\" !not_Unicode !not_Unicode \"key\" !it_is_missing");
}

MR_TEST(json_gives_the_text_of_a_value)
{
    mr_drive_file("x", "{\"v\": {\"a\":[1,\t2.50]}, \"k\": [1, \"x\"]}\n{\"v\":\"s\", \"k\": []}\n"
                       "{\"v\": null, \"k\": [null]}\n{}\n");
    mr_drive(
        mr_drive_path("jsonl(\"@/x\", {\"v\": feature(json, default=\"none\"), \"k\": json[]})"),
        "([\"1\",\"\\\"x\\\"\"],\"{\\\"a\\\":[1,\t2.50]}\") ([],\"\\\"s\\\"\") "
        "([\"null\"],\"null\") "
        "([],\"none\")");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"v\": json}).skip(3)"), "!it_is_missing");
}

MR_TEST(records_in_records)
{
    mr_drive_file(
        "x", "{\"u\": {\"name\": \"a\", \"at\": {\"x\": 1, \"y\": [2, 3]}, \"z\": {\"name\": 1}}}\n"
             "{\"u\": {\"at\": {\"x\": 4}}}\n{\"u\": null}\n{}\n{\"u\": 5}\n"
             "{\"u\": {\"at\": [], \"name\": \"b\"}}\n");
    mr_drive(
        mr_drive_path("jsonl(\"@/x\", {\"u\": {\"name\": feature(bytes, default=\"?\"), \"at\": "
                      "{\"x\": feature(int64, default=-1), \"y\": int64[]}}})"),
        "(1,[2,3],\"a\") (4,[],\"?\") (-1,[],\"?\") (-1,[],\"?\") "
        "!field_u:_expected_an_object,_found_an_integer "
        "!field_u.at:_expected_an_object,_found_a_list");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"u\": {\"at\": {\"x\": int64}}})"),
             "1 4 !field_u.at.x:_it_is_missing !it_is_missing !found_an_integer !found_a_list");
}

MR_TEST(lists_of_records_become_records_of_lists)
{
    mr_drive_file(
        "chat", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
                "{\"content\": \"yo\", \"role\": \"bot\", \"id\": 3}]}\n"
                "{\"messages\": []}\n{\"messages\": null}\n{}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"bot\"}]}\n"
                "{\"messages\": [null]}\n{\"messages\": {\"role\": \"x\"}}\n"
                "{\"messages\": [{\"role\": \"last\", \"content\": \"\"}]}\n");
    mr_drive(
        mr_drive_path("jsonl(\"@/chat\", {\"messages\": [{\"role\": bytes, \"content\": bytes}]})"),
        "([\"hi\",\"yo\"],[\"user\",\"bot\"]) ([],[]) ([],[]) ([],[]) "
        "!field_messages.content:_item_1:_it_is_missing "
        "!field_messages:_item_0:_expected_an_object,_found_null "
        "!field_messages:_expected_a_list,_found_an_object ([\"\"],[\"last\"])");
    /* The form of tables says the same. */
    mr_drive(mr_drive_path("jsonl(\"@/chat\", {\"messages\": {\"role\": bytes[], \"content\": "
                           "bytes[]}})"),
             "([\"hi\",\"yo\"],[\"user\",\"bot\"]) ([],[]) ([],[]) ([],[]) "
             "!field_messages.content:_it_is_missing !expected_an_object,_found_null "
             "!field_messages.role:_expected_a_list,_found_a_string ([\"\"],[\"last\"])");
    mr_drive_alike(mr_drive_path("jsonl(\"@/chat\", {\"messages\": [{\"role\": bytes, \"content\": "
                                 "feature(bytes, default=\"\")}]}).repeat(3)"));
}

MR_TEST(shapes_and_lists_within_lists_of_records)
{
    mr_drive_file("x", "{\"b\": [{\"at\": [1, 2], \"tags\": [\"p\", \"q\"]}, {\"at\": [3, 4]}], "
                       "\"g\": [[{\"v\": 1}, {\"v\": 2}], [], [{\"v\": 3}]]}\n"
                       "{\"b\": [], \"g\": []}\n"
                       "{\"b\": [{\"at\": [5, 6], \"tags\": []}], \"g\": [[{\"v\": 4}]]}\n"
                       "{\"b\": [{\"at\": [5]}], \"g\": []}\n"
                       "{\"b\": [{\"at\": [7, 8], \"tags\": [\"r\"]}], \"g\": [[{\"v\": \"s\"}]]}\n"
                       "{\"b\": [{\"at\": [9, 9], \"tags\": [\"t\"]}], \"g\": null}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"b\": [{\"at\": int64[2], \"tags\": bytes[]}], \"g\": "
                           "[[{\"v\": int64}]]})"),
             "([[1,2],[3,4]],[[\"p\",\"q\"],[]],[[1,2],[],[3]]) ([],[],[]) ([[5,6]],[[]],[[4]]) "
             "!field_b.at:_item_0:_a_list_of_1,_but_its_shape_has_2 "
             "!field_g.v:_item_0:_item_0:_expected_int64,_found_a_string ([[9,9]],[[\"t\"]],[])");
    /* The first feature by name is in two lists, the second in one. */
    mr_drive_file("x", "{\"m\": [{\"a\": [{\"c\": 1}, {\"c\": 2}], \"z\": 3}, {\"z\": 4}]}\n");
    mr_drive(mr_drive_path("jsonl(\"@/x\", {\"m\": [{\"a\": [{\"c\": int64}], \"z\": int64}]})"),
             "([[1,2],[]],[3,4])");
}

MR_TEST(features_are_checked_when_the_graph_is_built)
{
    mr_drive_bad("jsonl(\"a\", {\"n\": int65})", "features: n: a feature must be int64");
    mr_drive_bad("jsonl(\"a\", {\"n\": int64[-1]})", "features: n");
    mr_drive_bad("jsonl(\"a\", {\"n\": {\"b\": int65}})", "n.b: a feature must be int64");
    mr_drive_bad("jsonl(\"a\", {\"n\": [{\"b\": int64}, int64]})", "[{...}], a list of records");
    mr_drive_bad("jsonl(\"a\", {\"n\": [[[{\"b\": int64}]]]})", "n.b: lists more than 2 deep");
    mr_drive_bad("jsonl(\"a\", {\"n\": [{\"b\": [{\"c\": bytes[]}]}]})",
                 "n.b.c: lists more than 2");
    mr_drive_bad("jsonl(\"a\", {\"n\": [{\"b\": int64[0]}]})", "at least 1");
    mr_drive_bad("jsonl(\"a\", {\"n\": {\"b\": int64, \"b\": int8}})", "expected each name once");
    mr_drive_bad("csv(\"a\", {\"n\": json})", "n: a feature must be int64");
    mr_drive_bad("csv(\"a\", {\"n\": {\"b\": int64}})", "records cannot be nested here");
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
