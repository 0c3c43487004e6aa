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

MR_TEST(gives_the_lines_of_all_files)
{
    char text[4096];
    put("a", "x\ny\r\nlast");
    put("b", "");
    put("c", "z\n");
    snprintf(text, sizeof text, "text_line([\"%s\", \"%s\", \"%s\"])", mr_test_path("a"),
             mr_test_path("b"), mr_test_path("c"));
    check_graph(text, "x y last z");
    snprintf(text, sizeof text, "text_line(\"%s/?\").prefetch(2)", mr_test_dir());
    check_graph(text, "x y last z");
    snprintf(text, sizeof text, "list_files(\"%s/?\").flat_map(f => text_line(f).take(1))",
             mr_test_dir());
    check_graph(text, "x z");
}

MR_TEST(a_missing_file_is_one_error)
{
    char text[4096];
    put("a", "x\n");
    snprintf(text, sizeof text, "text_line([\"%s\", \"%s\"])", mr_test_path("none"),
             mr_test_path("a"));
    check_graph(text, "! x");
}
