/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

MR_TEST(rows_end_as_on_any_system)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    char text[128];
    for (size_t e = 0; e < 3; e++)
        for (int mark = 0; mark < 2; mark++) {
            const char *n = ends[e];
            snprintf(text, sizeof text, "%sid,s%s1,x%s%s2,\"a%sb\"%s3,z",
                     mark ? "\xEF\xBB\xBF" : "", n, n, n, n, n);
            mr_drive_file("x", text);
            mr_drive(mr_drive_path("csv(\"@/x\", {\"id\": int64})"), "1 2 3");
            mr_drive(mr_drive_path("csv(\"@/x\", {\"id\": int64, \"s\": bytes}).map(x => "
                                   "length(x[\"s\"]))"),
                     e == 1 ? "1 4 1" : "1 3 1");
            mr_drive(mr_drive_path("csv(\"@/x\", [bytes, bytes], header=false).map(x => "
                                   "length(x[0])).take(2)"),
                     "2 1");
            snprintf(text, sizeof text, "%sid,s%s1,\"a%sb\"%s?,z%s", mark ? "\xEF\xBB\xBF" : "", n,
                     n, n, n);
            mr_drive_file("x", text);
            mr_drive(mr_drive_path("csv(\"@/x\", {\"id\": int64})"), "1 !line_4");
        }
    mr_drive_file("x", "id\r1\r\n2\n\r3");
    mr_drive(mr_drive_path("csv(\"@/x\", {\"id\": int64})"), "1 2 3");
    mr_drive_bytes("x", "\xFF\xFEi\0d\0\n\0", 8);
    mr_drive(mr_drive_path("csv(\"@/x\", {\"id\": int64})"), "!UTF-16");
}

MR_TEST(columns_are_found_by_their_names_in_each_file)
{
    mr_drive_file("a", "id,name\n1,Ann\n2,Bob\n");
    mr_drive_file("b", "name,x,id\r\nCy,9.5,3\r\n\r\nDi,8,4");
    mr_drive(mr_drive_path("csv([\"@/a\", \"@/b\"], {\"id\": int64, \"name\": bytes})"),
             "(1,\"Ann\") (2,\"Bob\") (3,\"Cy\") "
             "(4,\"Di\")");
    mr_drive(mr_drive_path("csv(\"@/?\", {\"id\": int64, \"x\": feature(float32, "
                           "default=0.5)}).map(r => r[\"x\"]).repeat(2)"),
             "0.5 0.5 9.5 8 0.5 0.5 9.5 8");
    mr_drive(mr_drive_path("csv([\"@/a\", \"@/b\"], {\"id\": int64, \"x\": float32})"),
             "!no_column_x,_it_has_id,_name; (3,9.5) (4,8)");
    mr_drive_alike(mr_drive_path("list_files(\"@/?\").interleave(f => csv(f, {\"id\": int64}))"));
}

MR_TEST(without_a_header_columns_have_places)
{
    mr_drive_file("a", "1,x,0.5\n2,y,1\n");
    mr_drive(mr_drive_path("csv(\"@/a\", {\"n\": int64, \"b\": bytes, \"f\": float64}, "
                           "header=false)"),
             "(\"x\",0.5,1) (\"y\",1,2)");
    mr_drive(mr_drive_path("csv(\"@/a\", [int64, bytes, float32], header=false)"),
             "(1,\"x\",0.5) (2,\"y\",1)");
    mr_drive(mr_drive_path("csv(\"@/a\", [int64, bytes, float32])"), "(2,\"y\",1)");
    mr_drive_file("s", "true;1\n0;2\n");
    mr_drive(mr_drive_path("csv(\"@/s\", [bool, int64], header=false, sep=\";\")"),
             "(true,1) (false,2)");
}

MR_TEST(a_header_without_the_column_is_named_by_ten_of_its_own)
{
    mr_drive_file("a", "a,\"b\"\"c\",d,e,f,g,h,i,j,k,l,m\n1,2,3,4,5,6,7,8,9,10,11,12\n");
    mr_drive(mr_drive_path("csv(\"@/a\", {\"x\": int64})"),
             "!column_x,_it_has_a,_b\"c,_d,_e,_f,_g,_h,_i,_j,_k,_...;_is_sep");
}

MR_TEST(a_line_is_no_compressed_file)
{
    mr_drive_file("c", "id\n\x1f\x8b\b\n");
    mr_drive(mr_drive_path("csv(\"@/c\", {\"id\": int64})"), "!line_2:_field_id");
}

MR_TEST(quotes_hold_separators_lines_and_quotes)
{
    mr_drive_file("q",
                  "a,\"b\"\"c\"\n\"x,y\",\"1\"\n\"two\nlines\",2\n\"\",\"3\"\n\"say-\"\"hi\"\"\","
                  "4\nin-\"the\"-middle,5\n\"end\",\"6\"");
    mr_drive(mr_drive_path("csv(\"@/q\", {\"a\": bytes, \"b\\\"c\": int64})"),
             "(\"x,y\",1) (\"two\nlines\",2) (\"\",3) (\"say-\\\"hi\\\"\",4) "
             "(\"in-\\\"the\\\"-middle\",5) (\"end\",6)");
}

MR_TEST(what_is_not_as_announced_is_an_error_with_its_line_and_field)
{
    mr_drive_file("x", "n,s\n1,a\nx,a\n\"2\n\",b\n3\n4,a,b\n300,c\n,d\n1.5,e\n\"5\"6,f\n7,g\n");
    mr_drive(mr_drive_path("csv(\"@/x\", {\"n\": uint8, \"s\": bytes}).map(r => "
                           "cast(r[\"n\"], \"int64\"))"),
             "1 !line_3:_field_n_(column_1):_expected_uint8,_found_'x' "
             "!line_4:_field_n !line_6:_1_fields,_expected_2 !line_7:_3_fields "
             "!line_8:_field_n_(column_1):_expected_uint8,_found_'300' "
             "!line_9:_field_n_(column_1):_it_is_empty "
             "!line_10:_field_n_(column_1):_expected_uint8,_found_'1.5' "
             "!line_11:_column_1:_text_follows 7");
    mr_drive_file("places", "n\n1\n\n");
    mr_drive(mr_drive_path("csv(\"@/places\", [uint8], header=false).map(r => 1)"),
             "!line_1:_column_1:_expected_uint8,_found_'n' 1");
    mr_drive_file("h", "n,\"s\"x\n1,a\n");
    mr_drive(mr_drive_path("csv(\"@/h\", {\"n\": uint8})"), "!line_1:_column_2:_text_follows");
    mr_drive_file("d", "n,n\n1,2\n");
    mr_drive(mr_drive_path("csv(\"@/d\", {\"n\": uint8})"), "!two_columns_are_called_n");
    mr_drive_file("u", "n\n1\n\"open\nto-end");
    mr_drive(mr_drive_path("csv(\"@/u\", {\"n\": bytes})"),
             "\"1\" !line_3:_column_1:_its_closing_quote_is_missing");
    mr_drive_file("v", "n,m\n1,\"x\"\"");
    mr_drive(mr_drive_path("csv(\"@/v\", {\"n\": int64, \"m\": bytes})"),
             "!line_2:_column_2:_its_closing_quote_is_missing");
    mr_drive_file("w", "n,\"m\n1,2\n");
    mr_drive(mr_drive_path("csv(\"@/w\", {\"n\": int64})"),
             "!line_1:_column_2:_its_closing_quote_is_missing");
    mr_drive_file("blank", "\nn\n1\n");
    mr_drive(mr_drive_path("csv(\"@/blank\", {\"n\": int64})"), "!line_1:_the_first_line");
    mr_drive_file("e", "");
    mr_drive(mr_drive_path("csv(\"@/e\", {\"n\": bytes})"), "");
    mr_drive_file("bom", "\xef\xbb\xbfn\n1\n");
    mr_drive(mr_drive_path("csv(\"@/bom\", {\"n\": int64})"), "1");
}

MR_TEST(arguments_are_checked_when_the_graph_is_built)
{
    mr_drive_bad("csv(\"a\", {\"n\": int64[3]})", "scalars");
    mr_drive_bad("csv(\"a\", [bytes[]])", "scalars");
    mr_drive_bad("csv(\"a\", {\"n\": int64}, sep=\"::\")", "sep");
    mr_drive_bad("csv(\"a\", {\"n\": int64}, sep=\"\\\"\")", "sep");
    mr_drive_bad("csv(\"a\", {\"n\": int64}, sep=\"\")", "sep");
    mr_drive_bad("csv(\"a\", bytes)", "features");
}

MR_TEST(text_and_calls_make_the_same_graph)
{
    mr_status st;
    char *text = NULL;
    const char *file = "a.csv";
    char sep[] = ";";
    mr_dataset *ds =
        mr_csv(&file, 1, "[int64, bytes]", &(mr_csv_opts){.header = MR_NO, .sep = sep});
    mr_ok(mr_dataset_check(ds, &st), &st);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "csv(\"a.csv\", [int64, bytes], false, sep=\";\")");
    mr_dataset_unref(mr_drive_build(text));
    mr_free(text);
    mr_dataset_unref(ds);
}
