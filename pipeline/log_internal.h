/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_LOG_INTERNAL_H
#define MR_PIPELINE_LOG_INTERNAL_H
/* Messages that were formatted elsewhere, and what limits the log.
 *
 * thread   any */
#include "pipeline/log.h"

/* As mr_log, for a message whose format was `format`. */
void mr__log_line(mr_log_level level, const char *format, const char *line);

/* Called for each message; false: it is left out. May append MR__LOG_MORE - 1 bytes to text. NULL:
 * none. */
enum { MR__LOG_MORE = 64 };
typedef bool (*mr__log_filter)(mr_log_level level, const char *format, char *text);
void mr__log_set_filter(mr__log_filter f);
/* Logs a filter's own message. */
void mr__log_unfiltered(mr_log_level level, const char *text);
#endif
