/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/note.h"

#include <stdarg.h>
#include <stdio.h>

void mr__note(mr__note_fn to, void *ctx, mr_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    to(ctx, level, line);
}
