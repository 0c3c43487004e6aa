/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_SERVICE_H
#define MR_TRANSPORT_SERVICE_SERVICE_H
/* Using the data service from a program (docs/service.md). The service runs the graph below the op
 * `distribute` as streams, each of which yields a part of the elements.
 *
 *     mr_dataset *ds = mr_service_distribute(mr_batch(records, 32, NULL), "local", NULL);
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/rewrite.h"
#include "../wire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_service_opts {
    char *processing_mode; /* NULL: "exactly_once" */
    char *job_name;        /* NULL: anonymous */
    int64_t streams;       /* 0 or MR_AUTO: 8, or the number of files if there are fewer */
    int64_t block_length;  /* consecutive elements read from a stream before the next one; 0: 1 */
    mr_tri deterministic;  /* MR_NO: blocks come from any stream that has one ready */
    int64_t consumer_index, num_consumers; /* with has_consumer_index: this consumer reads the
                                              streams s with
                                              s mod num_consumers == consumer_index */
    bool has_consumer_index;
    char *compression;             /* NULL: none; "ZSTD", "auto" */
    int64_t max_outstanding_bytes; /* 0 or MR_AUTO: 4 blocks of each stream, at least 16 MiB */
    char *target_workers;          /* NULL: "auto"; "any"; "local": only workers on this host, in
                                      the modes exactly_once and dynamic */
    char *transfer;                /* NULL: "auto": shared memory with workers on this host, else
                                      TCP; "tcp"; "shared_memory": no other workers */
    bool resume;                   /* continues after what was acknowledged under job_name */
    char *match;                   /* which side expands file patterns; NULL: "worker"; "client" */
    char *on_missing;              /* a file that a worker cannot see; NULL: "fail"; "move" */
    int64_t seed;                  /* with has_seed: the job's; else drawn at random */
    bool has_seed;
    double connect_timeout; /* seconds, at least 0.001; 0: 60 */
    double stall_timeout;   /* seconds without an element; 0: none */
    double client_timeout;  /* seconds, at least 1; 0: 30 */
    const mr_tls_opts *tls; /* for connections to the service; copied, and no part of the graph.
                               NULL: the environment's (wire/tls.h), else none */
} mr_service_opts;

/* Yields the elements of `input` (taken over, also on failure), which the service runs as streams.
 * The service's dispatcher is at `service`, "HOST:PORT"; "local" is this process. Strings are
 * borrowed during the call. opts NULL: all defaults. The service's token is in the file that
 * MILLRACE_TOKEN_FILE names.
 *
 * order    interleaved over the streams, block_length elements of each; it depends only on graph,
 *          seed, number of streams and block_length; "dynamic" and "parallel_epochs": unordered
 * errors   MR_INVALID_ARGUMENT (carried): an option out of range
 *          MR_FAILED_PRECONDITION, when opened: the graph cannot be sent to other processes or
 *          cannot be run again; another client reads the job
 *          MR_UNAVAILABLE: no dispatcher within connect_timeout, no element within stall_timeout
 *          MR_PERMISSION_DENIED: another token
 *          MR_UNIMPLEMENTED, when opened: a feature that this version does not have yet
 * source   tf.data.experimental.service.distribute */
MR_API mr_dataset *mr_service_distribute(mr_dataset *input, const char *service,
                                         const mr_service_opts *opts);

/* The dataset that 'millrace service register' registered with this id, run as streams by the
 * service. This call requests its graph from the service. Otherwise as mr_service_distribute.
 *
 * errors   MR_NOT_FOUND (carried): no dataset has that id
 * source   tf.data.experimental.service.from_dataset_id */
MR_API mr_dataset *mr_service_dataset(const char *service, const char *dataset_id,
                                      const mr_service_opts *opts);

/* Registers the service's ops, for graphs from text and protobuf. Further calls in the same process
 * do nothing. errors as mr_op_register */
MR_API mr_code mr_service_register_ops(mr_status *st) MR_NODISCARD;

/* *out = the graphs of the *n streams of ds, a distribute op; owned: unref each, mr_free the array.
 * File patterns are expanded on this machine. e (may be NULL) receives the reasons for the cut. In
 * modes whose streams depend on the workers of a service: those of one worker, or of two. *n = 0 if
 * ds is another op.
 * errors   those of opening it */
MR_API mr_code mr_service_streams(mr_dataset *ds, mr_dataset ***out, size_t *n, mr_explanation *e,
                                  mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
