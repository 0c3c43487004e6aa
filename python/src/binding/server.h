/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MRPY_SERVER_H
#define MRPY_SERVER_H
/* What a Dispatcher or a Worker of Python owns. Python has it, with its destructor, before anything
 * is opened, and the functions here put what they open into it: the handler of a signal, which can
 * raise between any two instructions of Python, then leaves nothing without an owner. */
#include <sys/types.h>

#include <millrace/millrace-transport.h>

typedef struct mrpy_server {
    mr_service_dispatcher *dispatcher;
    mr_service_worker *worker;
    mr_executor *executor; /* that the worker runs on; NULL: the process's */
    pid_t limits;          /* the process whose limits it has a part in; 0: none */
} mrpy_server;

/* What the graphs of this process may read, and those of clients may write: lists of folders. */
typedef struct mrpy_limits {
    const char *const *read, *const *write;
    size_t n_read, n_write;
} mrpy_limits;

/* How many servers have a part in the limits of this process. Those of the process that forked it
 * count as one, which stays. */
size_t mrpy_limits_users(void);
/* Gives the server a part in the limits of this process, which are these from the first user to the
 * last one. If one fails, both are removed.
 * errors   as mr_service_restrict_files, mr_service_allow_writes */
mr_code mrpy_server_limit(mrpy_server *s, const mrpy_limits *limits, mr_status *st) MR_NODISCARD;
/* Opens the worker, on a separate executor with *threads; NULL: on the process's.
 * errors   as mr_executor_new, mr_service_worker_open */
mr_code mrpy_server_open_worker(mrpy_server *s, mr_service_worker_opts *opts, const int *threads,
                                mr_status *st) MR_NODISCARD;
/* Closes and frees what the server owns, in the order in which it is used. In another process than
 * the one that opened it: nothing, as the functions that it calls do. */
void mrpy_server_free(mrpy_server *s);
#endif
