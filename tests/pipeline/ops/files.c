/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

MR_TEST(gives_whole_files_in_order)
{
    mr_drive_file("a", "xy");
    mr_drive_file("b", "");
    mr_drive_file("c", "z");
    mr_drive(mr_drive_path("files(\"@/?\").map(f => f[\"contents\"])"), "\"xy\" \"\" \"z\"");
    mr_drive(
        mr_drive_path("files([\"@/c\", \"@/a\"]).map(f => length([f[\"path\"], f[\"contents\"]]))"),
        "2 2");
    mr_drive(mr_drive_path("files(\"@/c\", \"@/b\").batch(2).map(f => f[\"contents\"])"),
             "[\"z\",\"\"]");
    mr_drive(mr_drive_path("list_files(\"@/?\").flat_map(f => files(f)).map(f => f[\"contents\"])"
                           ".skip(1)"),
             "\"\" \"z\"");
    mr_drive(mr_drive_path("files(\"@/?\").shuffle(3, seed=1).repeat(2).map(f => f[\"contents\"])"
                           ".take(0)"),
             "");
    mr_drive_count("files(\"a\")", -2);
}

MR_TEST(the_path_is_as_it_was_given)
{
    mr_drive_file("a", "x");
    char *shown = mr_drive_show(mr_drive_path("files(\"@/*\").map(f => f[\"path\"])"));
    mr_has_str(shown, mr_test_path("a"));
    free(shown);
}

MR_TEST(what_cannot_be_read_is_one_error)
{
    mr_drive_file("a", "x");
    mr_drive_file("huge", "");
    mr_check(truncate(mr_test_path("huge"), (off_t)5 << 30) == 0); /* none of it is read */
    mr_drive(mr_drive_path("files([\"@/huge\", \"@/a\", \"@/none\"]).map(f => f[\"contents\"])"),
             "!huge: \"x\" !none:_byte_0:_not_found");
    mr_drive(mr_drive_path("files([\"@/a\", \"@\", \"@/a\"]).map(f => f[\"contents\"])"),
             "\"x\" !Is_a_directory");
    mr_drive(mr_drive_path("files(\"@/none-*\").map(f => f[\"contents\"])"), "!no_file_matches");
    mr_drive_bad("files(\"\")", "empty");
}

/* An error in the bytes of a file names it, and nothing of a record. */
MR_TEST(a_damaged_image_names_its_file)
{
    mr_status error;
    mr_drive_file("a.jpg", "\xFF\xD8\xFFnothing");
    mr_drive_error(mr_drive_path("files(\"@/*.jpg\").map(f => decode_jpeg(f[\"contents\"]))"),
                   &error);
    mr_eq_str(error.file, mr_test_path("a.jpg"));
    mr_eq_i64(error.record, -1);
    mr_eq_i64(error.offset, -1);
    mr_drive_file("b.jpg", ""); /* that of no bytes too */
    mr_drive_error(mr_drive_path("files(\"@/*.jpg\").map(f => decode_jpeg(f[\"contents\"]))"),
                   &error);
    mr_has_str(error.message, "found an empty string");
    mr_eq_str(error.file, mr_test_path("b.jpg"));
    static const char *const names[] = {"a.jpg", "b.jpg"};
    for (int i = 0; i < 2; i++) { /* and one that a function reads */
        char graph[80];
        snprintf(graph, sizeof graph, "list_files(\"@/%s\").map(f => decode_jpeg(read_file(f)))",
                 names[i]);
        mr_drive_error(mr_drive_path(graph), &error);
        mr_eq_str(error.file, mr_test_path(names[i]));
        mr_eq_i64(error.offset, -1);
    }
}

MR_TEST(every_failed_allocation_is_reported)
{
    mr_drive_file("a", "x\n");
    mr_drive_file("b", "y\n");
    mr_drive_faults(mr_drive_path("files(\"@/?\").batch(2)"));
}

MR_TEST(the_constructor_is_the_text)
{
    const char *names[] = {"a-*", "b"};
    mr_dataset *ds = mr_files(names, 2, &(mr_files_opts){.compression = (char[]){"GZIP"}});
    char *text = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "files(\"a-*\", \"b\", compression=\"GZIP\")");
    mr_free(text);
    mr_dataset_unref(ds);
}
