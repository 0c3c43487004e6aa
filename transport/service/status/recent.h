/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_RECENT_H
#define MR_TRANSPORT_SERVICE_STATUS_RECENT_H
/* Recent activity for the status page: the rate at which a count grows, and the last log lines. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "pipeline/log.h"
#include "transport/service/status/status_page.h"

typedef struct mr__rate {
    double per_second;
    uint64_t measured;
    int64_t at, since; /* 0: not yet */
} mr__rate;
/* The count is n now; calls within a second of the last measurement are ignored. */
void mr__rate_measure(mr__rate *r, uint64_t n, int64_t now);

enum { MR__RECENT_LINES = 32 };
typedef struct mr__recent_lines {
    struct {
        int64_t at;
        mr_log_level level;
        char line[256];
    } v[MR__RECENT_LINES]; /* a ring: the next line is stored at n % MR__RECENT_LINES */
    size_t n;
} mr__recent_lines;
void mr__recent_add(mr__recent_lines *r, mr_log_level level, const char *line, int64_t now);
/* The lines, newest first: [{"seconds_ago": t, "level": "info", "event": line}, ...]; owned. NULL:
 * out of memory. */
json_t *mr__recent_json(const mr__recent_lines *r, int64_t now);
extern const mr__status_field mr__recent_fields[]; /* of such a line */
/* A JSON string from s, which may contain any bytes that a peer sent, while JSON must be UTF-8.
 * Owned. NULL: out of memory. */
json_t *mr__json_text(const char *s);
/* j (taken over; NULL: NULL) as text; owned, mr_free. NULL: out of memory. */
char *mr__json_print(json_t *j);
#endif
