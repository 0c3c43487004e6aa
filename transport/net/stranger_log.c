/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/stranger_log.h"

#include <stdarg.h>
#include <stdio.h>

#include "pipeline/log_internal.h"

#define MINUTE ((int64_t)60000000000)
enum { MOST = 10 };

void mr__stranger_log_end(mr__stranger_log *l)
{
    if (l->left_out)
        mr_log(MR_LOG_WARNING, "%u messages about unknown peers were left out", l->left_out);
    *l = (mr__stranger_log){0};
}

void mr__stranger_log_add(mr__stranger_log *l, int64_t now_ns, mr_log_level level, const char *fmt,
                          ...)
{
    char text[2048];
    va_list ap;
    if (l->said && now_ns - l->since_ns >= MINUTE)
        mr__stranger_log_end(l);
    if (l->said >= MOST) {
        if (!l->left_out++)
            mr_log(MR_LOG_WARNING,
                   "more messages about unknown peers are left out for a minute: there were %d",
                   MOST);
        return;
    }
    if (!l->said++)
        l->since_ns = now_ns;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr__log_line(level, fmt, text);
}
