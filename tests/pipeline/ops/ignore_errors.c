/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include "tests/harness.h"

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
