/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_CLIENT_RUN_H
#define MR_TRANSPORT_SERVICE_CLIENT_CLIENT_RUN_H
/* The streams of a remote service's job: the state machine of job_reader.h on a loop in its own
 * thread, with a connection to the dispatcher and one to each worker that it reads from.
 *
 *     consumer --next--> | queues of arrivals     | <--deliver-- | job_reader.h | <--> dispatcher
 *              --news (consumed, waits, flush)--posted-->        |              | <--> workers
 *
 * thread   as stream_source.h */
#include "pipeline/engine/op_iterator.h"
#include "transport/service/client_connections.h"
#include "transport/service/client/stream_source.h"

typedef struct mr__remote_opts {
    const char *service; /* HOST:PORT */
    const char *name;    /* of the job; NULL: anonymous */
    uint32_t consumer;   /* index of this consumer, below job->consumers */
    bool resume;         /* continue after the elements acknowledged under the name */
    bool begins;         /* the places are the beginning of a repetition */
    bool restores;       /* they are from a restored position, even if the list is empty */
    bool missing_moves;  /* a file that a worker cannot see may be visible to another one */
    double connect_timeout, stall_timeout, client_timeout; /* seconds; stall 0: none */
    uint64_t most_bytes;                                   /* outstanding; 0: auto */
    uint32_t compression;                                  /* level of zstd; 0: none */
    bool measured; /* compress only if the link is slower than compressing */
    mr__transfer transfer;
    bool local_workers; /* with MR__TRANSFER_SHARED_MEMORY: read only from workers on this host */
    const mr_tls_opts *tls; /* NULL: the environment's */
    mr_iter *it;            /* the op's iterator: spec, cancel, statistics */
} mr__remote_opts;

/* Joins or creates the job (taken over, also on failure), with its streams at the given places (of
 * any streams; none: the job's own places). Waits until a dispatcher has admitted this client; the
 * source's job is final. The token is that of MILLRACE_TOKEN_FILE.
 * errors   MR_UNAVAILABLE: no dispatcher within connect_timeout; the message has the address
 *          MR_PERMISSION_DENIED, MR_FAILED_PRECONDITION: another token, another version; another
 *          client reads the job
 *          MR_INVALID_ARGUMENT: the job of this name differs; the message says how
 *          MR_CANCELLED; errors of matching its files */
mr_code mr__remote_source_open(mr__stream_source **out, Mr__Wire__Job *job,
                               Mr__Wire__Place *const *places, size_t n_places,
                               const mr__remote_opts *opts, mr_status *st) MR_NODISCARD;
#endif
