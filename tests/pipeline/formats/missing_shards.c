/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/missing_shards.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/log.h"
#include "tests/harness.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

static void take(void *ctx, mr_log_level level, const char *message)
{
    char *text = ctx;
    if (level == MR_LOG_WARNING)
        strcat(strcat(text, message), "\n");
}

/* What is logged of these paths, which are separated by blanks and match the pattern. */
static const char *logged(const char *pattern, const char *list)
{
    static char text[2048], names[2048];
    char *paths[64];
    size_t n = 0;
    text[0] = '\0';
    snprintf(names, sizeof names, "%s", list);
    for (char *at = strtok(names, " "); at; at = strtok(NULL, " "))
        paths[n++] = at;
    mr_log_set(take, text, MR_LOG_WARNING);
    mr__warn_of_missing_shards(&pattern, 1, paths, n);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    return text;
}

MR_TEST(a_missing_file_of_a_set_is_named)
{
    mr_eq_str(logged("d/s-*", "d/s-00000-of-00003.tfrecord d/s-00002-of-00003.tfrecord"),
              "d/s-*-of-00003 is incomplete: 1 of its 3 files is missing, first "
              "d/s-00001-of-00003.tfrecord\n");
    mr_eq_str(logged("*", "s-3-of-4 s-00001-of-00004"),
              "s-*-of-00004 is incomplete: 3 of its 4 files are missing, first "
              "s-00000-of-00004\n");
    /* the last ones; an ending that differs from file to file */
    mr_eq_str(logged("t-*", "t-00-of-03-ab.parquet t-01-of-03-cd.parquet"),
              "t-*-of-03 is incomplete: 1 of its 3 files is missing, first "
              "t-02-of-03-ab.parquet\n");
}

MR_TEST(complete_sets_and_other_names_are_not)
{
    mr_eq_str(logged("*", ""), "");
    mr_eq_str(logged("*", "a b-of-c 00000-of b-00000-of-001 c-1-of-2 d-0x-of-02"), "");
    mr_eq_str(logged("*", "s-00000-of-00001"), "");
    mr_eq_str(logged("*", "s-00001-of-00002 s-00000-of-00002 s-00000-of-00002"), "");
    mr_eq_str(logged("*", "s-00001-of-00002 s-00002-of-00002"), "");       /* counted from 1 */
    mr_eq_str(logged("*/*", "a-00000-of-00002/x a-00000-of-00002/y"), ""); /* of folders */
}

MR_TEST(each_set_is_taken_by_itself)
{
    mr_eq_str(logged("*", "a-00000-of-00002 ab-00000-of-00002 ab-00001-of-00002 "
                          "b-00000-of-00001 b-00001-of-00003 b-00002-of-00003"),
              "a-*-of-00002 is incomplete: 1 of its 2 files is missing, first a-00001-of-00002\n"
              "b-*-of-00003 is incomplete: 1 of its 3 files is missing, first "
              "b-00000-of-00003\n");
}

MR_TEST(what_the_pattern_leaves_out_is_intended)
{
    mr_eq_str(logged("s-0000[0-2]-of-00009", "s-00000-of-00009 s-00001-of-00009 s-00002-of-00009"),
              "");
    mr_eq_str(logged("s-0000[0-2]-of-00009", "s-00000-of-00009 s-00002-of-00009"),
              "s-*-of-00009 is incomplete: 1 of its 9 files is missing, first "
              "s-00001-of-00009\n");
}

MR_TEST(without_memory_nothing_is_said)
{
    for (size_t nth = 0; fail_nth_next(nth); nth++) {
        (void)logged("s-*", "s-00000-of-00003 s-00002-of-00003");
        fail_nth_end();
    }
    mr_has_str(logged("s-*", "s-00000-of-00003 s-00002-of-00003"), "1 of its 3");
}
