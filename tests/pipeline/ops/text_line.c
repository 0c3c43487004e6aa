/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

MR_TEST(gives_the_lines_of_all_files)
{
    mr_drive_file("a", "x\ny\r\nlast");
    mr_drive_file("b", "");
    mr_drive_file("c", "z\n");
    mr_drive(mr_drive_path("text_line([\"@/a\", \"@/b\", \"@/c\"])"), "\"x\" \"y\" \"last\" \"z\"");
    mr_drive(mr_drive_path("text_line(\"@/?\").prefetch(2)"), "\"x\" \"y\" \"last\" \"z\"");
    mr_drive(mr_drive_path("list_files(\"@/?\").flat_map(f => text_line(f).take(1))"),
             "\"x\" \"z\"");
}

MR_TEST(a_missing_file_ends_it)
{
    mr_drive_file("a", "x\n");
    mr_drive(mr_drive_path("text_line([\"@/a\", \"@/none\", \"@/a\"])"), "\"x\" !");
}
