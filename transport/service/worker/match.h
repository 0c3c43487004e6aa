/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_MATCH_H
#define MR_TRANSPORT_SERVICE_WORKER_MATCH_H
/* Expands the file patterns of a job in a thread: directories may be large or remote.
 *
 * thread   the loop's */
#include "transport/net/errand.h"
#include "transport/wire/messages.h"

/* lists: the files found, or the error, with the worker's name in its message. */
typedef void (*mr__match_done)(void *ctx, uint64_t job_id, const Mr__Wire__Lists *lists);

/* Calls done later; worker is borrowed until then. errors MR_RESOURCE_EXHAUSTED: done is not
 * called */
mr_code mr__match_start(mr__loop *l, uint64_t job_id, const Mr__Wire__Job *job, const char *worker,
                        mr__match_done done, void *ctx, mr_status *st) MR_NODISCARD;
#endif
