/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_STRANGER_LOG_H
#define MR_TRANSPORT_NET_STRANGER_LOG_H
/* The log of what unknown peers do. Anyone who reaches the port can cause these messages, so their
 * number is limited: 10 in a minute, then one that says so; the number of those left out is logged
 * with the first message after that minute, or at the end.
 *
 * thread   one at a time per object */
#include <stdint.h>
#include "pipeline/log.h"

/* {0}: nothing was logged yet. */
typedef struct mr__stranger_log {
    int64_t since_ns; /* the minute began; valid if said */
    unsigned said, left_out;
} mr__stranger_log;

/* now_ns: of a monotonic clock. */
void mr__stranger_log_add(mr__stranger_log *l, int64_t now_ns, mr_log_level level, const char *fmt,
                          ...) MR_PRINTF(4, 5);
/* Logs how many messages were left out, if any. */
void mr__stranger_log_end(mr__stranger_log *l);
#endif
