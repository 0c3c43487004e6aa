/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/log.h"

#include <stdio.h>

#include "tests/harness.h"

MR_ONE_THREAD;

typedef struct heard {
    int n;
    mr_log_level level;
    char message[64];
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
