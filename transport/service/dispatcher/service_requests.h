/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_SERVICE_REQUESTS_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_SERVICE_REQUESTS_H
/* Requests of tools to a dispatcher: reports, cancelling jobs, draining workers, registering
 * datasets. 'millrace service' makes them. Each connects, waits for the answer and closes.
 *
 *     char *json;
 *     mr_service_report("127.0.0.1:5050", "jobs", NULL, NULL, &json, &st);
 *     mr_free(json);
 *
 * thread   any; waits
 * since    0.2 */
#include "../../../pipeline/graph/dataset.h"
#include "../../../pipeline/wait/cancel.h"
#include "../../wire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: the defaults. */
typedef struct mr_service_request_opts {
    const char *token_file; /* file with the service's token; NULL: the file that
                               MILLRACE_TOKEN_FILE names, if it is set, else no token */
    const mr_tls_opts *tls; /* for the connection; NULL: the environment's, else none */
    double timeout;         /* seconds for the whole request, including retries to connect; 0: 5,
                               for mr_service_drain 30 */
    mr_cancel *cancel;      /* ends the wait when triggered; NULL: none */
} mr_service_request_opts;

/* Errors of all requests to the dispatcher at `service`, "HOST:PORT"; opts NULL: all defaults.
 *
 * errors   MR_INVALID_ARGUMENT: not an address, or a token file that cannot be read
 *          MR_UNAVAILABLE: no dispatcher listens there; MR_DEADLINE_EXCEEDED: it does not answer
 *          MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: another token, another version
 *          MR_CANCELLED; MR_RESOURCE_EXHAUSTED */

/* *json = a report; owned, mr_free. what: "status" (an object), "jobs", "workers" (arrays of
 * objects), "streams" (an array; name: a job's name, or the number of a job without one), "page":
 * all of these with the last events, as on the status page. name NULL: none.
 *
 * errors   MR_NOT_FOUND: no such report, or no such job; those above */
MR_API mr_code mr_service_report(const char *service, const char *what, const char *name,
                                 const mr_service_request_opts *opts, char **json,
                                 mr_status *st) MR_NODISCARD;
/* *text = the report "page" as human-readable text; owned, mr_free. It is cut to `lines` lines and
 * `columns` columns; 0: not cut. errors: those above */
MR_API mr_code mr_service_status_text(const char *service, size_t lines, size_t columns,
                                      const mr_service_request_opts *opts, char **text,
                                      mr_status *st) MR_NODISCARD;
/* Ends a job: all its repetitions if `job` is a name, that repetition if it is a number. Its
 * clients fail with MR_CANCELLED.
 *
 * errors   MR_NOT_FOUND: no such job; those above */
MR_API mr_code mr_service_cancel(const char *service, const char *job,
                                 const mr_service_request_opts *opts, mr_status *st) MR_NODISCARD;
/* Makes the worker at that HOST:PORT return its streams and end; waits until it has ended. The
 * drain continues if the wait times out.
 *
 * errors   MR_NOT_FOUND: no such worker; those above */
MR_API mr_code mr_service_drain(const char *service, const char *worker,
                                const mr_service_request_opts *opts, mr_status *st) MR_NODISCARD;
/* *id = the id by which mr_service_dataset reads ds (borrowed); owned, mr_free. Relative names of
 * files in it belong to this process's working directory, also for those who read it elsewhere. An
 * equal graph from the same directory has the same id.
 *
 * errors   the error that ds carries; a graph that cannot be sent to other processes;
 *          MR_INVALID_ARGUMENT: it names standard input; those above */
MR_API mr_code mr_service_register(const char *service, const mr_dataset *ds,
                                   const mr_service_request_opts *opts, char **id,
                                   mr_status *st) MR_NODISCARD;

/* Checks the form of an address; listens: port 0 is allowed. Nothing is looked up.
 * errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_service_check_address(const char *address, bool listens,
                                        mr_status *st) MR_NODISCARD;

/* The dispatchers and workers of this process read their certificates again, within a second.
 * thread   any, and a signal handler */
MR_API void mr_service_reload_certificates(void);

#ifdef __cplusplus
}
#endif
#endif
