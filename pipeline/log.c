/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "pipeline/hide_secrets.h"
#include "pipeline/log_internal.h"
#include "pipeline/system/fork.h"

enum { RAW_BYTES = 1024 };

/* The lock keeps fn and ctx consistent; messages are rare enough. The level is read without it. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
MR__AROUND_FORK(log_lock, NULL)
static mr_log_fn log_fn;
static void *log_ctx;
static mr__log_filter log_filter; /* NULL: none */
static _Atomic int log_least = MR_LOG_ERROR + 1;

void mr_log_set(mr_log_fn fn, void *ctx, mr_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_ctx = ctx;
    /* Relaxed: a message concurrent with this call may be filtered by either level. */
    atomic_store_explicit(&log_least, fn ? (int)level : MR_LOG_ERROR + 1, memory_order_relaxed);
    pthread_mutex_unlock(&log_lock);
}

static bool is_wanted(mr_log_level level)
{
    return (int)level >= atomic_load_explicit(&log_least, memory_order_relaxed);
}

void mr__log_set_filter(mr__log_filter f)
{
    pthread_mutex_lock(&log_lock);
    log_filter = f;
    pthread_mutex_unlock(&log_lock);
}

void mr__log_unfiltered(mr_log_level level, const char *text)
{
    pthread_mutex_lock(&log_lock);
    mr_log_fn fn = log_fn;
    void *ctx = log_ctx;
    pthread_mutex_unlock(&log_lock);
    if (fn)
        fn(ctx, level, text);
}

/* raw: hidden in place. */
static void say(mr_log_level level, const char *format, char *raw, size_t size)
{
    char text[2 * RAW_BYTES + MR__LOG_MORE];
    mr__hide_secrets(raw, size);
    mr_text_visible(raw, true, text, 2 * RAW_BYTES);
    pthread_mutex_lock(&log_lock);
    mr__log_filter f = log_filter;
    pthread_mutex_unlock(&log_lock);
    if (!f || f(level, format, text))
        mr__log_unfiltered(level, text);
}

void mr_log(mr_log_level level, const char *fmt, ...)
{
    char raw[RAW_BYTES];
    va_list ap;
    if (!is_wanted(level))
        return;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    say(level, fmt, raw, sizeof raw);
}

MR_API void mr__log_line(mr_log_level level, const char *format, const char *line)
{
    char raw[RAW_BYTES];
    if (!is_wanted(level))
        return;
    snprintf(raw, sizeof raw, "%s", line);
    say(level, format, raw, sizeof raw);
}
