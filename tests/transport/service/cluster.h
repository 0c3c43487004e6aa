/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRANSPORT_SERVICE_CLUSTER_H
#define MR_TESTS_TRANSPORT_SERVICE_CLUSTER_H
/* A dispatcher and a worker as they run, each in a thread, and a client of theirs, over
 * loopback. */
#include <pthread.h>

#include "transport/service/dispatcher/dispatcher_run.h"
#include "transport/service/service.h"
#include "transport/service/worker/worker_run.h"

enum { CLUSTER_ELEMENTS = 300, CLUSTER_STREAMS = 3 };

typedef struct cluster {
    mr__dispatcher_run *dispatcher;
    mr__worker_run *worker;
    mr_executor *executor;
    mr_cancel *cancel;
    pthread_t threads[2];
    bool runs[2];
    mr_code rc[2]; /* of the two, when they have ended */
    mr_status st[2];
    char address[128];
} cluster;

/* cluster_stop follows, whatever comes of it. */
mr_code cluster_start(cluster *c, mr__loop_kind loop, mr_status *st);
/* Cancels both and waits for them. */
void cluster_stop(cluster *c);
/* Reads range(CLUSTER_ELEMENTS) through the service, and checks each element; *n: how many came, in
 * the order of the streams. */
mr_code cluster_read(const cluster *c, const mr_service_opts *opts, bool uring, size_t *n,
                     mr_status *st);
#endif
