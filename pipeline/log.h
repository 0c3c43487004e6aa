/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_LOG_H
#define MR_PIPELINE_LOG_H
/* Logging through one callback per process, unset by default. The library itself never prints.
 * Failures are reported through mr_status; the log is for events that are not failures (io_uring is
 * not permitted, an unfinished cache was discarded).
 *
 * thread   any
 * since    0.1 */
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARNING, MR_LOG_ERROR } mr_log_level;

/* message is printable text without a trailing newline, valid during the call. May be called from
 * several threads at once; must not call back into Millrace. */
typedef void (*mr_log_fn)(void *ctx, mr_log_level level, const char *message);

/* Sends messages of at least `level` to fn; NULL disables logging. Call it before other threads use
 * Millrace, or with a ctx that outlives them. */
MR_API void mr_log_set(mr_log_fn fn, void *ctx, mr_log_level level);

/* Formats and logs one message. Costs a load and a compare if no callback is set. */
MR_API void mr_log(mr_log_level level, const char *fmt, ...) MR_PRINTF(2, 3);

/* Limits each kind of message to `most` a minute, so that a peer whose input causes messages cannot
 * fill the log; 0, the default: no limit. A kind has one format, and its first message is always
 * logged. The last one that the limit admits says so; the number of those left out is logged with
 * the next message of any kind after that minute, or by another call of this function. MR_LOG_DEBUG
 * is not limited.
 * since    0.2 */
MR_API void mr_log_limit(unsigned most);

#ifdef __cplusplus
}
#endif
#endif
