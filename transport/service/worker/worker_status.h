/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_WORKER_STATUS_H
#define MR_TRANSPORT_SERVICE_WORKER_WORKER_STATUS_H
/* The contents of a worker's status page: the streams that clients read from it, the amount of data
 * sent, and the last events.
 *
 * thread   the loop's */
#include <stdbool.h>
#include "transport/service/status/recent.h"
#include "transport/service/status/status_page.h"
#include "transport/wire/messages.h"

typedef struct mr__worker_status {
    uint64_t elements, bytes; /* sent */
    mr__rate elements_rate, bytes_rate;
    mr__recent_lines lines;
    int64_t started;
} mr__worker_status;

typedef struct mr__worker_now {
    const char *dispatcher; /* its address */
    bool is_connected, is_draining;
    size_t n_clients;
    double busy_ratio;
    size_t queue_bytes;
    int64_t memory_limit; /* in force; 0: none */
    int64_t now;
} mr__worker_now;

/* Adds a stream that `client` reads ("": the client has left), and the number of its next
 * element. */
void mr__worker_status_stream(json_t *streams, const Mr__Wire__Hosted *s, uint64_t next_element,
                              const char *client);
/* The report for the page, with streams (taken over); owned, mr_free. NULL: out of memory. */
char *mr__worker_status_report(mr__worker_status *s, const mr__worker_now *now, json_t *streams);
extern const mr__status_table mr__worker_view[];
#endif
