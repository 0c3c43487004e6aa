/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "pipeline/hide_secrets.h"
#include "pipeline/system/fork.h"

/* The lock keeps fn and ctx consistent; messages are rare enough. The level is read without it. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
MR__AROUND_FORK(log_lock, NULL)
static mr_log_fn log_fn;
static void *log_ctx;
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

void mr_log(mr_log_level level, const char *fmt, ...)
{
    if ((int)level < atomic_load_explicit(&log_least, memory_order_relaxed))
        return;
    char raw[1024], text[2 * sizeof raw];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    mr__hide_secrets(raw, sizeof raw);
    mr_text_visible(raw, true, text, sizeof text);
    pthread_mutex_lock(&log_lock);
    mr_log_fn fn = log_fn;
    void *ctx = log_ctx;
    pthread_mutex_unlock(&log_lock);
    if (fn)
        fn(ctx, level, text);
}
