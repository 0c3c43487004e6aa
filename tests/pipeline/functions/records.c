/* SPDX-License-Identifier: Apache-2.0 */
/* parse_json, parse_csv and read_file. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

MR_TEST(json_objects_become_records)
{
    mr_eq_str(evaluate(1,
                       "x => parse_json('{\"a\": 1, \"b\": [1, 2.5], \"z\": {}}', {\"a\": int64, "
                       "\"b\": float32[]})"),
              "{a: 1, b: [1.0, 2.5]}");
    mr_eq_str(evaluate(1, "x => parse_json('{\"s\": \"\\\\u00e9\", \"t\": true}', s=bytes, t=bool)"
                          "[\"s\"] == \"\\u00e9\""),
              "true");
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": [[1, 2], [3, 4]]}', a=uint8[2, 2])"),
              "{a: [[1, 2], [3, 4]]}");
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": null}', {\"a\": feature(int64, default=-3), "
                          "\"b\": feature(float64, shape=[2], default=[1, 2.5]), "
                          "\"c\": feature(bytes, shape=[2], default=\"d\"), "
                          "\"e\": feature(bool, default=true), \"f\": int32[]})"),
              "{a: -3, b: [1.0, 2.5], c: [\"d\", \"d\"], e: true, f: []}");
    mr_eq_str(evaluate(1,
                       "x => parse_json('{}', {\"a\": feature(int64, shape=[3], default=[1, -(2), "
                       "--3]), \"b\": feature(float32, default=-(0.5)), "
                       "\"c\": feature(int64, default=--9223372036854775808)})"),
              "{a: [1, -2, 3], b: -0.5, c: -9223372036854775808}");
    mr_eq_str(evaluate(1, "x => parse_json('{}', a=feature(float32, shape=[3], "
                          "default=[inf, -inf, 1]))"),
              "{a: [1e999, -1e999, 1.0]}");
    mr_eq_str(evaluate(1, "x => format('{} {}', parse_json('{}', a=feature(float64, "
                          "default=nan))['a'], parse_csv('', [feature(float32, default=nan)]))"),
              "\"nan nan\"");
    mr_eq_str(evaluate(1, "nan => parse_example('', a=feature(float32, default=-inf), "
                          "b=feature(float32, shape=[2], default=[1.5, nan]))['a']"),
              "-1e999");
    mr_eq_str(
        evaluate(1, "x => parse_json('{\"a\": [\"nan\", \"-inf\", 1]}', a=float32[3])[\"a\"][1:]"),
        "[-1e999, 1.0]");
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": [{\"b64\": \"YWI=\"}, {\"b64\": \"YQ==\"}, "
                          "{\"b64\": \"\"}, \"c\"]}', a=bytes[])"),
              "{a: [\"ab\", \"a\", \"\", \"c\"]}");
    mr_has_str(evaluate(1, "x => parse_json([\"{'a': 1}\", \"{}\"], {\"a\": int64})"),
               "!parse_json: it is not JSON: string or '}' expected at column 2");
    mr_eq_str(evaluate(1, "x => parse_json(['{\"a\": 1, \"b\": [\"x\"]}', '{\"a\": 2}'], "
                          "{\"a\": int64, \"b\": bytes[]})"),
              "{a: [1, 2], b: [[\"x\"], []]}");
    mr_eq_str(evaluate(3, "x => parse_json(format('{{\"a\": {}}}', x), a=int64)[\"a\"] * 2"),
              "0; 2; 4");
}

MR_TEST(bad_json_fails_its_element)
{
    static const char *const cases[][2] = {
        {"", "it is not JSON"},
        {"[1]", "not a list"},
        {" [", "write each object of a file that is one list on a separate line"},
        {"1", "expected an object"},
        {"{}", "feature a: it is missing; give it a default"},
        {"{\"a\": 1.5}", "feature a: expected int8, found a float"},
        {"{\"a\": \"1\"}", "feature a: expected int8, found a string"},
        {"{\"a\": true}", "feature a: expected int8, found true"},
        {"{\"a\": 200}", "feature a: 200 does not fit int8"},
        {"{\"a\": [1]}", "feature a: expected int8, found a list"},
        {"{\"a\": 1, \"a\": 2}", "feature a: a duplicate key"},
        {"{\"a\": 1} x", "it is not JSON: end of file expected"},
        {"{\"a\": 99999999999999999999}", "99999999999999999999 does not fit int8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char f[300];
        snprintf(f, sizeof f, "x => parse_json('%s', a=int8)", cases[i][0]);
        mr_has_str(evaluate(1, f), cases[i][1]);
        mr_check(evaluate(1, f)[0] == '!');
    }
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": [1, 2]}', a=int64[3])"),
               "a list of 2, but its shape has 3");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": 1}', a=int64[])"),
               "feature a: expected a list");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": {\"b64\": \"a\"}}', a=bytes)"),
               "is not base64");
    mr_eq_str(evaluate(3, "x => parse_json('{\"a\": [1]}' if x == 1 else '{\"a\": [1, 2]}', "
                          "a=int64[2])[\"a\"]"),
              "[1, 2]; !parse_json: feature a: a list of 1, but its shape has 2 in "
              "parse_json('{\"a\": [1]}' if x == 1 else '{\"a\": [1, 2]}', a=int64[2]); [1, 2]");
}

MR_TEST(unsigned_features_are_not_negative)
{
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": -1}', a=uint8)"), "-1 does not fit uint8");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": -1}', a=uint64)"), "-1 does not fit uint64");
    /* Integers that int64 does not hold, even in members that are not requested. */
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": [18446744073709551615, 1], \"b\": "
                          "-123456789012345678901}', a=uint64[])"),
              "{a: [18446744073709551615, 1]}");
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": 100000000000000000000}', a=float64)"),
              "{a: 1e20}");
    mr_eq_str(evaluate(1, "x => parse_json('{\"9223372036854775808\\\\\\\"\": 1, \"a\": "
                          "9223372036854775808, \"s\": \"12345678901234567890\"}', a=uint64, "
                          "s=bytes)"),
              "{a: 9223372036854775808, s: \"12345678901234567890\"}");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": 18446744073709551616}', a=uint64)"),
               "18446744073709551616 does not fit uint64");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": 18446744073709551615}', a=int8)"),
               "does not fit int8");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": 18446744073709551615}', a=bytes)"),
               "expected bytes, found an integer");
    mr_eq_str(evaluate(1, "x => parse_json('{\"a\": -128}', a=int8)"), "{a: -128}");
    mr_has_str(evaluate(1, "x => parse_json('{\"a\": -129}', a=int8)"), "-129 does not fit int8");
}

MR_TEST(wrong_features_are_refused)
{
    mr_has_str(evaluate(1, "x => parse_json(\"{}\")"), "parse_json expects features");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", int64)"), "features have names");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=5)"), "a feature must be int64");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=float16)"), "read it as float32 and cast it");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=feature(int64, default=1.5))"),
               "the default must be int64 literals");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=feature(int64, default=nan))"),
               "the default must be int64 literals");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=feature(float32, default=x))"),
               "the default must be float32 literals");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=feature(int64, shape=[3], default=[1, 2]))"),
               "the default has 2 values, but its shape 3");
    mr_has_str(evaluate(1, "x => parse_json(\"{}\", a=feature(int64[], default=1))"),
               "takes no default");
    mr_has_str(evaluate(1, "x => parse_json([[\"\"]], a=int64)"),
               "a string or a vector of strings");
    mr_has_str(evaluate(1, "x => parse_csv(\"1\", {\"a\": int64})"), "expects a list of features");
    mr_has_str(evaluate(1, "x => parse_csv(\"1\", [int64[]])"), "field 1 is a single value");
    mr_has_str(evaluate(1, "x => parse_csv(\"1\", [int64], sep=\"ab\")"), "one byte");
}

MR_TEST(csv_rows_become_tuples)
{
    mr_eq_str(evaluate(1, "x => parse_csv(\"1, 2.5 ,a b,true\", [int64, float64, bytes, bool])"),
              "(1, 2.5, \"a b\", true)");
    mr_eq_str(evaluate(1, "x => parse_csv('\"a,\"\"b\"\"\",\"\",', [bytes, bytes, bytes])[0] == "
                          "'a,\"b\"'"),
              "true");
    mr_eq_str(evaluate(1, "x => parse_csv(\"1\\t2\\x0d\\n\", [int8, int8], sep=\"\\t\")"),
              "(1, 2)");
    mr_eq_str(evaluate(1, "x => parse_csv(\",\", [feature(int64, default=7), feature(bytes, "
                          "default=\"d\")])"),
              "(7, \"d\")");
    mr_eq_str(evaluate(1, "x => parse_csv([\"1,a\", \"2,b\"], [int64, bytes])"),
              "([1, 2], [\"a\", \"b\"])");
    mr_eq_str(evaluate(1, "x => parse_csv(\"5\", [int64])"), "5");
    mr_eq_str(evaluate(1, "x => parse_csv('\"a\\nb\",\"1\"', [bytes, int64])[1]"), "1");
    static const char *const cases[][2] = {{"1", "the row has 1 fields, not 2"},
                                           {"1,b,c", "the row has 3 fields, not 2"},
                                           {"x,b", "field 1: \"x\" is not an integer"},
                                           {"300,b", "field 1: \"300\" does not fit int8"},
                                           {",b", "field 1: it is missing; give it a default"},
                                           {"1,\"b", "field 2: its closing quote is missing"},
                                           {"1,\"b\"c", "field 2: text follows its closing quote"},
                                           {"", "field 1: it is missing"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char f[300];
        snprintf(f, sizeof f, "x => parse_csv('%s', [int8, bytes])", cases[i][0]);
        mr_has_str(evaluate(1, f), cases[i][1]);
        mr_check(evaluate(1, f)[0] == '!');
    }
    mr_has_str(evaluate(1, "x => parse_csv(\"yes\", [bool])"), "\"yes\" is neither true nor false");
    mr_eq_str(evaluate(3, "x => parse_csv(format(\"{},b\", x), [int64, bytes])[0]"), "0; 1; 2");
}

MR_TEST(files_are_read_whole)
{
    char a[600], f[1400];
    snprintf(a, sizeof a, "%s", mr_test_file("a.txt", "some\ntext"));
    const char *empty = mr_test_file("empty.txt", "");
    snprintf(f, sizeof f, "x => read_file([\"%s\", \"%s\"])", a, empty);
    mr_eq_str(evaluate(1, f), "[\"some\ntext\", \"\"]");
    mr_eq_str(evaluate(2, "x => read_file(\"/dev/null\")"), "\"\"; \"\"");
    snprintf(f, sizeof f, "x => length(read_file(\"%s\" if x != 1 else \"/nowhere\"))", a);
    mr_has_str(evaluate(3, f), "9; !/nowhere: cannot open the file: No such file");
    mr_has_str(evaluate(1, "x => read_file(\"\")"), "!read_file: a path is empty");
    mr_has_str(evaluate(1, "x => read_file(\"a\\x00b\")"), "NUL byte");
    mr_has_str(evaluate(1, "x => read_file(\"/\")"), "!/: cannot read the file: Is a directory");
    snprintf(f, sizeof f, "x => read_file(\"%s\")", a);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false)
    {
        const char *shown = evaluate(1, f);
        mr_check(strcmp(shown, "\"some\ntext\"") == 0 || strstr(shown, "cannot "));
    }
}
