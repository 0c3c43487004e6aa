/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/pipeline/ops/drive.h"
#include "tests/harness.h"

/* The graph, each element cut to its last byte. */
static const char *last_bytes(const char *graph)
{
    static char text[8192];
    snprintf(text, sizeof text, "%s.map(x => decode_raw(x, \"uint8\")[-1] - cast(48, \"uint8\"))",
             mr_drive_path(graph));
    return text;
}

MR_TEST(all_matches_are_sorted_together)
{
    mr_test_file("f3", ""), mr_test_file("f1", ""), mr_test_file("f2", ""), mr_test_file("g0", "");
    mr_drive(last_bytes("list_files(\"@/f*\")"), "1 2 3");
    mr_drive(last_bytes("list_files(\"@/g*\", \"@/f[12]\", \"@/f2\")"), "1 2 2 0");
    mr_drive(last_bytes("list_files(\"@/none*\", \"@/g?\")"), "0");
    mr_drive(last_bytes("list_files(\"@/none*\")"), "!");
}

MR_TEST(shuffle_follows_tf_data_and_changes_with_the_epoch)
{
    for (char name[] = "f0"; name[1] <= '9'; name[1]++)
        mr_test_file(name, "");
    /* As range(10).shuffle(10, seed=42), which TensorFlow gives so. */
    mr_drive(last_bytes("list_files(\"@/f*\", shuffle=true, seed=42).repeat(2)"),
             "5 9 6 4 7 1 2 8 3 0 3 7 6 5 8 4 0 1 9 2");
    mr_drive(last_bytes("list_files(\"@/f*\", shuffle=true, seed=42).take(4)"), "5 9 6 4");
}

MR_TEST(without_a_seed_nothing_is_lost)
{
    for (char name[] = "f0"; name[1] <= '5'; name[1]++)
        mr_test_file(name, "");
    char *out = mr_drive_show(last_bytes("list_files(\"@/f*\", shuffle=true).prefetch(2)"));
    mr_eq_u64(strlen(out), 11);
    for (char c = '0'; c <= '5'; c++)
        mr_check(strchr(out, c) != NULL);
    free(out);
}

MR_TEST(an_empty_name_is_refused)
{
    mr_drive_bad("list_files(\"\")", "empty");
    mr_drive_bad("list_files()", "list_files");
}

MR_TEST(no_patterns_and_no_files_are_no_elements)
{
    mr_drive("list_files([])", "");
    mr_drive("list_files([], shuffle=true)", "");
    mr_drive("list_files([]).repeat(2).concatenate(list_files([]))", "");
    mr_drive("tfrecord([])", "");
    mr_drive("list_files([]).flat_map(tfrecord)", "");
}
