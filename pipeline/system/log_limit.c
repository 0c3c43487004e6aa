/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the messages of a kind: those of one format. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pipeline/log_internal.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/system.h"

#define MINUTE ((int64_t)60000000000)
enum { MOST_KINDS = 256, SAMPLE_BYTES = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
MR__AROUND_FORK(lock, NULL)

/* The messages of one format within a minute. Formats are compared as pointers. */
typedef struct kind {
    const char *format;
    mr_log_level level; /* of the last one left out */
    int64_t since_ns;
    unsigned said;
    uint64_t left_out;
    char sample[SAMPLE_BYTES]; /* the last one left out */
} kind;

/* Guarded by the lock. The last one also stands for the kinds that have no place. */
static kind kinds[MOST_KINDS];
static size_t n_kinds;
static unsigned most_of_kind;

static kind *kind_of(const char *format)
{
    for (size_t i = 0; i < n_kinds; i++)
        if (kinds[i].format == format)
            return &kinds[i];
    if (n_kinds == MOST_KINDS)
        return &kinds[MOST_KINDS - 1];
    kinds[n_kinds].format = format;
    return &kinds[n_kinds++];
}

/* Writes how many of a kind were left out by `now`; false: no kind remains. */
static bool next_summary(int64_t now, mr_log_level *level, char *text, size_t size)
{
    for (size_t i = 0; i < n_kinds; i++) {
        kind *k = &kinds[i];
        if (!k->left_out || now - k->since_ns < MINUTE)
            continue;
        *level = k->level;
        snprintf(text, size, "%" PRIu64 " more messages like this were left out: %s", k->left_out,
                 k->sample);
        k->said = 0;
        k->left_out = 0;
        return true;
    }
    return false;
}

/* Logs the summaries that are due by `now`. */
static void summarize(int64_t now)
{
    char text[SAMPLE_BYTES + 80];
    mr_log_level level;
    for (;;) {
        pthread_mutex_lock(&lock);
        bool any = next_summary(now, &level, text, sizeof text);
        pthread_mutex_unlock(&lock);
        if (!any)
            return;
        mr__log_unfiltered(level, text);
    }
}

/* Counts a message; false: it is left out. */
static bool admit(mr_log_level level, const char *format, char *text)
{
    if (level == MR_LOG_DEBUG)
        return true;
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
    summarize(now);
    pthread_mutex_lock(&lock);
    kind *k = kind_of(format);
    if (now - k->since_ns >= MINUTE)
        k->said = 0;
    if (k->said == 0)
        k->since_ns = now;
    bool is_admitted = k->said < most_of_kind || !most_of_kind; /* it was just switched off */
    if (is_admitted) {
        if (++k->said == most_of_kind)
            strcat(text, " (more like this are left out for a minute)");
    } else {
        k->level = level;
        k->left_out++;
        snprintf(k->sample, sizeof k->sample, "%s", text);
    }
    pthread_mutex_unlock(&lock);
    return is_admitted;
}

void mr_log_limit(unsigned most)
{
    mr__log_set_filter(NULL);
    summarize(INT64_MAX);
    pthread_mutex_lock(&lock);
    most_of_kind = most;
    n_kinds = 0;
    memset(kinds, 0, sizeof kinds);
    pthread_mutex_unlock(&lock);
    if (most)
        mr__log_set_filter(admit);
}
