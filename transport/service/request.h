/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_ASK_H
#define MR_TRANSPORT_SERVICE_ASK_H
/* One question to a dispatcher, by a tool that waits for the report.
 *
 * thread   any; waits */
#include "pipeline/wait/cancel.h"
#include "transport/wire/handshake.h"

typedef struct mr__ask_opts {
    const char *dispatcher; /* HOST:PORT */
    mr__token token;
    int64_t timeout_ns; /* for all of it; while nobody listens it is tried again */
    mr_cancel *cancel;  /* NULL: none */
} mr__ask_opts;

/* *report = what the dispatcher says to ask; owned, mr__message_free.
 * errors   MR_UNAVAILABLE: nobody listens, MR_DEADLINE_EXCEEDED: it is silent; both name the
 *          address
 *          MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: another token, another version
 *          MR_CANCELLED; what the dispatcher's report says */
mr_code mr__ask(const mr__ask_opts *opts, const Mr__Wire__Ask *ask, mr__message **report,
                mr_status *st) MR_NODISCARD;
#endif
