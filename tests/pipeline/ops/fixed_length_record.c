/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

MR_TEST(gives_the_records_between_header_and_footer)
{
    mr_drive_file("a", "HHaabbccF");
    mr_drive_file("b", "HHF");
    mr_drive_file("c", "HHddF");
    mr_drive(mr_drive_path("fixed_length_record(\"@/?\", 2, header_bytes=2, footer_bytes=1)"),
             "\"aa\" \"bb\" \"cc\" \"dd\"");
}

MR_TEST(a_body_of_another_length_is_an_error_before_its_records)
{
    mr_drive_file("a", "aabbc");
    mr_drive_file("b", "dd");
    const char *text = mr_drive_path("fixed_length_record([\"@/a\", \"@/b\"], 2)");
    mr_drive(text, "! \"dd\"");
    mr_status last;
    mr_drive_error(text, &last);
    mr_code_is(last.code, MR_INVALID_ARGUMENT, &last);
    mr_has_str(last.message, "record");
}

MR_TEST(lengths_are_checked_when_the_graph_is_built)
{
    mr_drive_bad("fixed_length_record(\"a\", 0)", "record_bytes");
    mr_drive_bad("fixed_length_record(\"a\", 2, header_bytes=-1)", "header_bytes");
}
