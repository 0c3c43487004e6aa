/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/log.h"

#include <stdio.h>
#include <stdlib.h>

#include <string.h>

#include "pipeline/log_internal.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"

MR_ONE_THREAD;

typedef struct heard {
    int n;
    mr_log_level level;
    char message[256];
} heard;

static void hear(void *ctx, mr_log_level level, const char *message)
{
    heard *h = ctx;
    h->n++;
    h->level = level;
    snprintf(h->message, sizeof h->message, "%s", message);
}

MR_TEST(nobody_listens_at_first)
{
    mr_log(MR_LOG_ERROR, "into the void %d", 1);
    heard h = {0};
    mr_log_set(hear, &h, MR_LOG_DEBUG);
    mr_eq_i64(h.n, 0);
}

MR_TEST(messages_below_the_level_are_not_sent)
{
    heard h = {0};
    mr_log_set(hear, &h, MR_LOG_WARNING);
    mr_log(MR_LOG_INFO, "quiet");
    mr_eq_i64(h.n, 0);
    mr_log(MR_LOG_ERROR, "record %d", 7);
    mr_eq_i64(h.n, 1);
    mr_eq_i64(h.level, MR_LOG_ERROR);
    mr_eq_str(h.message, "record 7");
    mr_log_set(NULL, NULL, MR_LOG_DEBUG);
    mr_log(MR_LOG_ERROR, "nobody");
    mr_eq_i64(h.n, 1);
}

/* ---- mr_log_limit ---- */

static int64_t seconds;

static int fixed_clock(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){.tv_sec = seconds};
    return 0;
}

/* A listener that counts, and a clock that stays at 1,000 seconds. */
static void limit(heard *h, mr__system *table)
{
    *table = *mr__system_real();
    table->clock_gettime = fixed_clock;
    mr__system_set(table);
    seconds = 1000;
    mr_log_set(hear, h, MR_LOG_DEBUG);
    mr_log_limit(3);
}

static void end_limit(void)
{
    mr_log_limit(0);
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    mr__system_set(NULL);
}

static void flood(int n)
{
    for (int i = 0; i < n; i++)
        mr_log(MR_LOG_WARNING, "peer %d failed", i);
}

MR_TEST(messages_of_a_kind_are_limited_and_counted)
{
    heard h = {0};
    mr__system table;
    limit(&h, &table);
    flood(3);
    mr_eq_str(h.message, "peer 2 failed (more like this are left out for a minute)");
    flood(5000);
    mr_eq_i64(h.n, 3);
    seconds += 59;
    flood(1);
    mr_eq_i64(h.n, 3);
    seconds += 1;
    mr_log(MR_LOG_INFO, "of another kind");
    mr_eq_i64(h.n, 5);
    mr_eq_str(h.message, "of another kind");
    flood(2);
    mr_eq_str(h.message, "peer 1 failed");
    mr_eq_i64(h.n, 7);
    end_limit();
    mr_eq_i64(h.n, 7); /* nothing was left out since then */
}

MR_TEST(what_was_left_out_is_counted_at_the_end)
{
    heard h = {0};
    mr__system table;
    limit(&h, &table);
    flood(12);
    mr_eq_i64(h.n, 3);
    mr_log_limit(0);
    mr_eq_i64(h.n, 4);
    mr_eq_i64(h.level, MR_LOG_WARNING);
    mr_eq_str(h.message, "9 more messages like this were left out: peer 11 failed");
    flood(100);
    mr_eq_i64(h.n, 104);
    end_limit();
}

MR_TEST(a_flood_hides_no_other_kind)
{
    heard h = {0};
    mr__system table;
    static const char first[] = "a %s", second[] = "the %s";
    limit(&h, &table);
    flood(100);
    mr_eq_i64(h.n, 3);
    for (int i = 0; i < 3; i++)
        mr__log_line(MR_LOG_INFO, first, "a line");
    mr_eq_i64(h.n, 6);
    mr__log_line(MR_LOG_ERROR, second, "the line");
    mr_eq_str(h.message, "the line");
    for (int i = 0; i < 100; i++)
        mr_log(MR_LOG_DEBUG, "step %d", i);
    mr_eq_i64(h.n, 107);
    mr_eq_str(h.message, "step 99");
    end_limit();
}

/* Formats may be strings of the caller: kinds beyond the table share its last place. */
MR_TEST(kinds_without_a_place_are_limited_together)
{
    enum { N = 1000 };
    static char formats[N][8];
    heard h = {0};
    mr__system table;
    limit(&h, &table);
    for (int i = 0; i < N; i++)
        mr__log_line(MR_LOG_INFO, formats[i], "x");
    mr_check(h.n > 100 && h.n < N / 2);
    int n = h.n;
    mr_log_limit(0);
    mr_eq_i64(h.n, n + 1);
    mr_eq_i64(atoi(h.message), N - n);
    end_limit();
}
