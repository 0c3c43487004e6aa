/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/log.h"

MR_TEST(drops_what_failed)
{
    mr_drive("from_tensor_slices([2, 0, 1, 0]).map(x => 2 // x).ignore_errors()", "1 2");
    mr_drive("from_tensor_slices([8, 0, 4, 2, 1]).map(x => 8 // x).batch(2).ignore_errors()",
             "[2,4] [8]");
    mr_drive("range(0).ignore_errors()", "");
    mr_drive_count("range(3).ignore_errors()", MR_UNKNOWN_COUNT);
}

static void count_lines(void *ctx, mr_log_level level, const char *message)
{
    *(int *)ctx += level == MR_LOG_WARNING && strstr(message, "zero");
}

MR_TEST(logs_each_if_asked)
{
    int lines = 0;
    mr_log_set(count_lines, &lines, MR_LOG_WARNING);
    mr_dataset *ds = mr_drive_build(
        "from_tensor_slices([2, 0, 1, 0]).map(x => 2 // x).ignore_errors(log_warning=true)");
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    while (mr_iterator_next(it, 10, &b, &st) == MR_OK)
        ;
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr_eq_i64(lines, 2);
}

/* Every error, and every number of them, in every place of a pass. */
MR_TEST(at_most_max_errors_are_dropped)
{
    mr_drive("range(6).map(x => 6 // (x % 2)).ignore_errors(max=3)", "6 6 6");
    mr_drive("range(6).map(x => 6 // (x % 2)).ignore_errors(max=2)", "6 6 !(max=2) 6");
    mr_drive("range(6).map(x => 6 // (x % 2)).ignore_errors(max=0)",
             "!(max=0):_integer_division 6 !(max=0) 6 !(max=0) 6");
    mr_drive("range(6).map(x => 6 // (x % 2)).ignore_errors(max=none)", "6 6 6");
    mr_drive("range(0).ignore_errors(max=0)", "");
    mr_drive("range(1).map(x => 1 // x).ignore_errors(max=1)", "");
    mr_drive("range(3).map(x => 1 // 0).ignore_errors(max=2)", "!(max=2)");
    mr_drive("range(8).map(x => 6 // (x % 2), num_parallel_calls=2).ignore_errors(max=2)"
             ".prefetch(2).batch(3)",
             "! ! [6]");
    mr_drive_bad("range(3).ignore_errors(max=-1)", "max");
}

MR_TEST(each_repetition_counts_anew)
{
    mr_drive("range(4).map(x => 6 // (x % 2)).ignore_errors(max=2).repeat(3)", "6 6 6 6 6 6");
    mr_drive("range(4).map(x => 6 // (x % 2)).repeat(2).ignore_errors(max=3)", "6 6 6 !(max=3) 6");
    mr_drive("range(2).flat_map(i => range(4).map(x => 6 // (x % 2)).ignore_errors(max=1))",
             "6 !(max=1) 6 6 !(max=1) 6");
}

static void note_skipped(void *ctx, mr_log_level level, const char *message)
{
    if (level == MR_LOG_WARNING && strstr(message, "skipped"))
        snprintf(ctx, 128, "%s", message);
}

/* What is logged of the skipped elements, after `pulls` pulls. *dropped: of the statistics. */
static const char *skipped_of(const char *graph, int pulls, int64_t *dropped)
{
    static char line[128];
    line[0] = '\0';
    mr_log_set(note_skipped, line, MR_LOG_WARNING);
    mr_dataset *ds = mr_drive_build(graph);
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_op_stats ops[8];
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    while (pulls-- && mr_iterator_next(it, 1, &b, &st) != MR_END)
        ;
    size_t n = mr_iterator_stats(it, ops, 8);
    *dropped = 0;
    for (size_t i = 0; i < n; i++)
        *dropped += ops[i].dropped;
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    return line;
}

MR_TEST(the_number_of_skipped_elements_is_logged_and_counted)
{
    int64_t dropped;
    mr_eq_str(skipped_of("range(6).map(x => 6 // (x % 2)).ignore_errors()", 100, &dropped),
              "ignore_errors: 3 elements failed and were skipped");
    mr_eq_i64(dropped, 3);
    mr_eq_str(skipped_of("range(2).map(x => 6 // x).ignore_errors()", 100, &dropped),
              "ignore_errors: 1 element failed and was skipped");
    mr_eq_i64(dropped, 1);
    /* closed early, or by an error that is one too many */
    mr_eq_str(skipped_of("range(6).map(x => 6 // (x % 2)).ignore_errors()", 2, &dropped),
              "ignore_errors: 2 elements failed and were skipped");
    mr_eq_i64(dropped, 2);
    mr_eq_str(skipped_of("range(6).map(x => 6 // (x % 2)).ignore_errors(max=1)", 100, &dropped),
              "ignore_errors: 1 element failed and was skipped");
    mr_eq_i64(dropped, 1);
    mr_eq_str(skipped_of("range(6).ignore_errors()", 100, &dropped), "");
    mr_eq_i64(dropped, 0);
}

MR_TEST(a_cancelled_iterator_ends)
{
    mr_dataset *ds = mr_drive_build("range(3).ignore_errors()");
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    mr_iterator_cancel(it);
    mr_code_is(mr_iterator_next(it, 10, &b, &st), MR_CANCELLED, &st);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_allocation_may_fail)
{
    mr_drive_faults("from_tensor_slices([2, 0, 1, 0]).map(x => 2 // x).ignore_errors()");
}
