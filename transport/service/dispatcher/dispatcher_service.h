/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_SERVICE_H
#define MR_TRANSPORT_SERVICE_DISPATCHER_DISPATCHER_SERVICE_H
/* The dispatcher of the data service, embedded in your program; 'millrace dispatcher' is a program
 * that does nothing else. It assigns streams to workers and keeps the account of what was read.
 *
 *     mr_service_dispatcher *d;
 *     mr_service_dispatcher_open(&d, &(mr_service_dispatcher_opts){.state = "account"}, &st);
 *     mr_service_dispatcher_start(d, &st);
 *     ... clients and workers connect to mr_service_dispatcher_address(d)
 *     mr_service_dispatcher_close(d);
 *
 * It runs once, in the caller's thread (run) or in its own (start, wait), until it is stopped. Then
 * it makes all acknowledgements durable, sends the messages that waited for that, and closes its
 * connections within 2 s.
 *
 * After fork it works only in the process that opened it. In the child every function with a status
 * fails with MR_FAILED_PRECONDITION, and close returns at once; its memory and sockets remain until
 * the child ends or calls exec.
 *
 * thread   mr_service_dispatcher_stop any; the rest one at a time per object
 * since    0.2 */
#include "../../../pipeline/wait/cancel.h"
#include "../../wire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_service_dispatcher mr_service_dispatcher;

/* All zero: the defaults. */
typedef struct mr_service_dispatcher_opts {
    const char *listen; /* HOST:PORT for clients and workers; port 0: a free one; NULL:
                           "127.0.0.1:5050" */
    const char *state;  /* directory of the account, created if only its last part is missing; NULL:
                           in memory, lost when the dispatcher ends */
    const char *status; /* HOST:PORT of the status page, by HTTPS if there is a certificate; port 0:
                           a free one; NULL: no page. It must be on loopback unless `listen` is
                           not */
    const char *token_file; /* file with the token that peers must know, or with several: after
                               a line "# names", each line is a name and its token; NULL: the file
                               that MILLRACE_TOKEN_FILE names, if it is set, else no token */
    const char *status_token_file; /* file with the token that the status page requires, as
                                      Authorization: Bearer, except for /healthz; NULL: none */
    const mr_tls_opts *tls; /* its certificate; NULL: the environment's, else none. Not on loopback:
                               needs one, or insecure */
    bool insecure; /* other hosts may connect without TLS: anyone who controls the network can read
                      and alter graphs and data */
    bool any_user; /* without a token: serve every user and host that can connect; else only
                      processes of the same user on this host */
    const char *const *workers; /* static modes: addresses of the workers; others are refused. NULL:
                                   any worker */
    size_t n_workers;           /* of `workers`; if that is NULL, 1 to 65536: the static modes use
                                   the first n_workers that register, in that order; 0: no static
                                   modes */
    int64_t min_workers, max_workers; /* bounds of the number of workers that it recommends
                                         (millrace_target_workers); max_workers 0: none */
    bool no_balance; /* streams stay where they are until their worker is lost, drained,
                                   or mr_service_rebalance is called */
    /* A job belongs to the name of the client that began it, and clients of other names can neither
     * read, see nor cancel it: the names of a token file with names, or the common names of
     * certificates, if tls requires them. `operators` are the names of workers, and of tools that
     * see and change everything. The status page then needs status_token_file. */
    bool jobs_of_name_only;
    const char *const *operators; /* with jobs_of_name_only, and only then */
    size_t n_operators;
    bool no_uring;               /* wait for connections without io_uring */
    mr_cancel *cancel;           /* stops it when triggered; NULL: none. Borrowed until close */
    void (*draining)(void *ctx); /* called once when it begins to stop, in the thread that runs it;
                                    NULL: none */
    void *ctx;                   /* for draining */
} mr_service_dispatcher_opts;

/* Reads the account and listens; peers can connect, and are served once it runs. opts NULL: all
 * defaults; strings are borrowed during the call.
 *
 * errors   MR_INVALID_ARGUMENT: an option is wrong, including a token file that cannot be read
 *          MR_ALREADY_EXISTS: an address is in use
 *          MR_FAILED_PRECONDITION: another dispatcher uses the state directory, or a later version
 *          wrote the account
 *          MR_DATA_LOSS: the account is damaged; MR_RESOURCE_EXHAUSTED
 *          MR_NOT_FOUND, MR_UNAVAILABLE: the host of an address; the system's error for `state` */
MR_API mr_code mr_service_dispatcher_open(mr_service_dispatcher **out,
                                          const mr_service_dispatcher_opts *opts,
                                          mr_status *st) MR_NODISCARD;
/* HOST:PORT with the port that it listens on. Borrowed until close. */
MR_API const char *mr_service_dispatcher_address(const mr_service_dispatcher *d);
/* The same for the status page; NULL: no page. */
MR_API const char *mr_service_dispatcher_status_address(const mr_service_dispatcher *d);

/* Serves in this thread until it is stopped.
 *
 * errors   the failure that ended it; the account's, if it could not be made durable
 *          MR_FAILED_PRECONDITION: it has run already */
MR_API mr_code mr_service_dispatcher_run(mr_service_dispatcher *d, mr_status *st) MR_NODISCARD;
/* Serves in its own thread, until it is stopped.
 *
 * errors   MR_RESOURCE_EXHAUSTED: no thread; MR_FAILED_PRECONDITION: it has run already */
MR_API mr_code mr_service_dispatcher_start(mr_service_dispatcher *d, mr_status *st) MR_NODISCARD;
/* Waits until the thread of mr_service_dispatcher_start ends; does not stop it.
 *
 * errors   as mr_service_dispatcher_run; MR_FAILED_PRECONDITION: it was not started */
MR_API mr_code mr_service_dispatcher_wait(mr_service_dispatcher *d, mr_status *st) MR_NODISCARD;
/* Stops it, and returns at once; further calls do nothing. Called before run or start, it makes
 * them end soon.
 *
 * thread   any, and a signal handler */
MR_API void mr_service_dispatcher_stop(mr_service_dispatcher *d);
/* Stops it, waits for its thread and frees it. Connections are dropped if it never ran. NULL:
 * nothing. */
MR_API void mr_service_dispatcher_close(mr_service_dispatcher *d);

#ifdef __cplusplus
}
#endif
#endif
