/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_REQUEST_H
#define MR_TRANSPORT_SERVICE_REQUEST_H
/* A synchronous request to the dispatcher (used by the tools).
 *
 * thread   any; waits */
#include "pipeline/wait/cancel.h"
#include "transport/wire/handshake.h"

typedef struct mr__request_opts {
    const char *dispatcher; /* HOST:PORT */
    mr__token token;
    int64_t timeout_ns; /* for the whole request, including retries to connect */
    mr_cancel *cancel;  /* NULL: none */
} mr__request_opts;

/* *report = the dispatcher's answer to ask; owned, mr__message_free.
 * errors   MR_UNAVAILABLE: nothing listens there, MR_DEADLINE_EXCEEDED: it does not answer; both
 *          name the address
 *          MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: another token, another version
 *          MR_CANCELLED; the error in the dispatcher's report */
mr_code mr__request(const mr__request_opts *opts, const Mr__Wire__Ask *ask, mr__message **report,
                    mr_status *st) MR_NODISCARD;
#endif
