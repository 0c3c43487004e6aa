/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers cannot fill the log: a few lines, one that says so, and their number afterwards. */
#include "transport/net/stranger_log.h"

#include <stdio.h>
#include <string.h>

#include "tests/harness.h"

static const int64_t second = 1000000000;
static int n_said;
static char last[256];

static void take(void *ctx, mr_log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    n_said++;
    snprintf(last, sizeof last, "%s", line);
}

MR_TEST(a_few_are_logged_and_then_counted)
{
    mr__stranger_log l = {0};
    mr_log_set(take, NULL, MR_LOG_INFO);
    for (int i = 0; i < 10; i++) {
        mr__stranger_log_add(&l, 7 * second, MR_LOG_INFO, "stranger %d", i);
        mr_eq_i64(n_said, i + 1);
    }
    mr_eq_str(last, "stranger 9");
    mr__stranger_log_add(&l, 8 * second, MR_LOG_INFO, "one more");
    mr_eq_i64(n_said, 11);
    mr_has_str(last, "left out for a minute");
    for (int i = 0; i < 1000; i++)
        mr__stranger_log_add(&l, 66 * second, MR_LOG_INFO, "one more");
    mr_eq_i64(n_said, 11);
    mr__stranger_log_add(&l, 67 * second, MR_LOG_INFO, "a minute later");
    mr_eq_i64(n_said, 13);
    mr_eq_str(last, "a minute later");
    mr__stranger_log_end(&l); /* nothing was left out since then */
    mr_eq_i64(n_said, 13);
    mr_log_set(NULL, NULL, MR_LOG_INFO);
}

MR_TEST(the_number_of_those_left_out_is_logged_at_the_end)
{
    mr__stranger_log l = {0};
    n_said = 0;
    mr_log_set(take, NULL, MR_LOG_INFO);
    mr__stranger_log_end(&l);
    mr_eq_i64(n_said, 0);
    for (int i = 0; i < 35; i++)
        mr__stranger_log_add(&l, 0, MR_LOG_INFO, "stranger");
    mr__stranger_log_end(&l);
    mr_eq_str(last, "25 messages about unknown peers were left out");
    mr_log_set(NULL, NULL, MR_LOG_INFO);
}
