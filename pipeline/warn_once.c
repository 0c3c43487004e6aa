/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/warn_once.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/log_internal.h"
#include "pipeline/system/fork.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
MR__AROUND_FORK(lock, NULL)

void mr__warn_once(const char *fmt, ...)
{
    enum { MOST = 64 }; /* later warnings are logged each time */
    static uint64_t said[MOST];
    static size_t n;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    uint64_t h = mr__fnv1a(MR__FNV_BASIS, text, strlen(text));
    bool is_new = true;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < n && is_new; i++)
        is_new = said[i] != h;
    if (is_new && n < MOST)
        said[n++] = h;
    pthread_mutex_unlock(&lock);
    if (is_new)
        mr__log_line(MR_LOG_WARNING, fmt, text);
}
