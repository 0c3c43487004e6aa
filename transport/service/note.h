/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_NOTE_H
#define MR_TRANSPORT_SERVICE_NOTE_H
/* Log lines of a state machine: it does no I/O, so it passes the line to its driver. format: the
 * one that the line was printed with (mr__log_line). */
#include <stdarg.h>
#include <stdio.h>
#include "pipeline/log.h"

typedef void (*mr__note_fn)(void *ctx, mr_log_level level, const char *format, const char *line);

/* Formats a line of at most 511 bytes for `to`. */
MR_PRINTF(4, 5)
static inline void mr__note(mr__note_fn to, void *ctx, mr_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    to(ctx, level, fmt, line);
}
#endif
