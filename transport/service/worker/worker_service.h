/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_WORKER_SERVICE_H
#define MR_TRANSPORT_SERVICE_WORKER_WORKER_SERVICE_H
/* A worker of the data service, embedded in your program; 'millrace worker' is a program that does
 * nothing else. It registers with a dispatcher, runs the streams assigned to it, and sends their
 * elements to clients.
 *
 *     mr_service_worker *w;
 *     mr_service_worker_open(&w, &(mr_service_worker_opts){.dispatcher = "127.0.0.1:5050"}, &st);
 *     mr_service_worker_start(w, &st);
 *     ...
 *     mr_service_worker_close(w);
 *
 * It runs once, in the caller's thread (run) or in its own (start, wait), until it is stopped or a
 * tool drains it. Then it returns its streams to the dispatcher with their positions, and closes
 * its connections within 2 s. Several workers can run in one process.
 *
 * After fork it works only in the process that opened it. In the child every function with a status
 * fails with MR_FAILED_PRECONDITION, and close returns at once; its memory and sockets remain until
 * the child ends or calls exec.
 *
 * thread   mr_service_worker_stop any; the rest one at a time per object
 * since    0.2 */
#include "../../../pipeline/engine/iterator.h"
#include "../../../pipeline/wait/cancel.h"
#include "../../wire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_service_worker mr_service_worker;

/* All zero except dispatcher: the defaults. */
typedef struct mr_service_worker_opts {
    const char
        *dispatcher;    /* HOST:PORT; required. It may start later, and may be away temporarily */
    const char *listen; /* HOST:PORT for clients; port 0: a free one; NULL: "127.0.0.1:0". Not
                               on loopback: needs mr_service_restrict_files */
    const char *status; /* HOST:PORT of the status page, by HTTPS if there is a certificate; port 0:
                           a free one; NULL: no page. It must be on loopback unless `listen` is
                           not */
    const char *token_file;        /* file with the service's token; NULL: the file that
                               MILLRACE_TOKEN_FILE names, if it is set, else no token */
    const char *status_token_file; /* file with the token that the status page requires, as
                                      Authorization: Bearer, except for /healthz; NULL: none */
    const mr_tls_opts *tls;        /* its certificate, for clients and, if that asks for one, the
                               dispatcher; and the CA of the dispatcher's. NULL: the environment's,
                               else none. Not on loopback: `listen` needs one, or insecure */
    bool insecure; /* other hosts may connect without TLS: anyone who controls the network can read
                      and alter graphs and data */
    bool any_user; /* without a token: serve every user and host that can connect, with this
                      process's rights, and trust any dispatcher; else only processes of the same
                      user on this host */
    double weight; /* its share of the streams, compared with other workers: 0.001 to 1e6; 0: the
                      number of CPUs that it may use */
    const char *const *tags; /* names of this worker, besides its address */
    size_t n_tags;
    mr_executor *executor; /* runs the streams' tasks, besides a thread for each stream; borrowed
                              until close; NULL: its own, with a thread for each usable CPU */
    int64_t memory_limit;  /* bytes, at least 16 MiB: limit of the process's resident memory. Near
                              it, the worker reads less ahead; a stream that does not fit is
                              refused. 0: no limit */
    bool watch;            /* 'millrace top' can look at the streams (mr_iterator_opts.watch) */
    bool no_uring;         /* wait for connections without io_uring */
    mr_cancel *cancel;     /* stops it when triggered; NULL: none. Borrowed until close */
    void (*draining)(void *ctx); /* called once when it begins to stop, in the thread that runs it;
                                    NULL: none */
    void (*ready)(void *ctx);    /* called once when the dispatcher has first accepted it, in the
                                    thread that runs it; NULL: none */
    void *ctx;                   /* for draining and ready */
} mr_service_worker_opts;

/* Listens; clients can connect, and are served once it runs. Strings are borrowed during the call.
 *
 * errors   MR_INVALID_ARGUMENT: an option is wrong, including a token file that cannot be read
 *          MR_FAILED_PRECONDITION: `listen` is open to other hosts, and files are not restricted
 *          MR_ALREADY_EXISTS: an address is in use; MR_RESOURCE_EXHAUSTED
 *          MR_NOT_FOUND, MR_UNAVAILABLE: the host of an address */
MR_API mr_code mr_service_worker_open(mr_service_worker **out, const mr_service_worker_opts *opts,
                                      mr_status *st) MR_NODISCARD;
/* HOST:PORT at which clients reach it, with the port that it listens on. Borrowed until close. */
MR_API const char *mr_service_worker_address(const mr_service_worker *w);
/* HOST:PORT of the status page; NULL: no page. Borrowed until close. */
MR_API const char *mr_service_worker_status_address(const mr_service_worker *w);

/* Serves in this thread until it is stopped or drained.
 *
 * errors   MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: the dispatcher refuses it (token, version)
 *          MR_FAILED_PRECONDITION: it has run already; else the failure that ended it */
MR_API mr_code mr_service_worker_run(mr_service_worker *w, mr_status *st) MR_NODISCARD;
/* Serves in its own thread, until it is stopped or drained.
 *
 * errors   MR_RESOURCE_EXHAUSTED: no thread; MR_FAILED_PRECONDITION: it has run already */
MR_API mr_code mr_service_worker_start(mr_service_worker *w, mr_status *st) MR_NODISCARD;
/* Waits until the thread of mr_service_worker_start ends; does not stop it.
 *
 * errors   as mr_service_worker_run; MR_FAILED_PRECONDITION: it was not started */
MR_API mr_code mr_service_worker_wait(mr_service_worker *w, mr_status *st) MR_NODISCARD;
/* Stops it, and returns at once; further calls do nothing. Called before run or start, it makes
 * them end soon.
 *
 * thread   any, and a signal handler */
MR_API void mr_service_worker_stop(mr_service_worker *w);
/* Stops it, waits for its thread and frees it. NULL: nothing. */
MR_API void mr_service_worker_close(mr_service_worker *w);

/* From now on all graphs and functions of Millrace in this process open, list, rename and remove
 * files only below these directories; symbolic links and ".." are resolved first. Use it if other
 * hosts can reach the worker: clients choose the files that it reads. At most 256 directories;
 * n 0: no restriction.
 *
 * errors   MR_INVALID_ARGUMENT: too many directories, or one of them does not exist or is a file
 * thread   before other threads use Millrace */
MR_API mr_code mr_service_restrict_files(const char *const *directories, size_t n,
                                         mr_status *st) MR_NODISCARD;

/* From now on graphs of clients may write files (cache in a file, save, snapshot, the quarantine of
 * tfrecord), below these directories, which they may then read too. Otherwise a worker refuses
 * such graphs. It affects all workers of this process, and none of its other graphs. At most 256;
 * n 0: nothing may be written.
 *
 * errors   MR_INVALID_ARGUMENT: too many directories, or one of them does not exist, is a file or a
 *          URL
 * thread   before a worker of this process runs
 * since    0.2 */
MR_API mr_code mr_service_allow_writes(const char *const *directories, size_t n,
                                       mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
