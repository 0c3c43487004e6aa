/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "replay.h"
#include "tests/harness.h"

static void put(const char *name, const char *text)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f && fputs(text, f) >= 0);
    fclose(f);
}

MR_TEST(gives_the_records_between_header_and_footer)
{
    char text[4096];
    put("a", "HHaabbccF");
    put("b", "HHF");
    put("c", "HHddF");
    snprintf(text, sizeof text, "fixed_length_record(\"%s/?\", 2, header_bytes=2, footer_bytes=1)",
             mr_test_dir());
    check_graph(text, "aa bb cc dd");
}

MR_TEST(a_body_of_another_length_is_an_error_before_its_records)
{
    char text[4096];
    put("a", "aabbc");
    put("b", "dd");
    snprintf(text, sizeof text, "fixed_length_record([\"%s\", \"%s\"], 2)", mr_test_path("a"),
             mr_test_path("b"));
    check_graph(text, "! dd");
    mr_status last;
    mr_free(run_graph(text, NULL, &last));
    mr_code_is(last.code, MR_INVALID_ARGUMENT, &last);
    mr_has_str(last.message, "record");
}

MR_TEST(lengths_are_checked_when_the_graph_is_built)
{
    check_refused("fixed_length_record(\"a\", 0)", "record_bytes");
    check_refused("fixed_length_record(\"a\", 2, header_bytes=-1)", "header_bytes");
}
