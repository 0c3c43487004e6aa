/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SERVERS_PARAMETER_SERVER_H
#define MR_TRAINER_SERVERS_PARAMETER_SERVER_H
/* Runs a worker or parameter server task: it serves the requests of the coordinator
 * (mr_strategy_parameter_server) until the coordinator ends it.
 *
 *     coordinator --steps--> worker --pulls, pushes--> ps
 *
 * thread   one at a time per process
 * since    0.1 */
#include "../../pipeline/wait/cancel.h"
#include "../../shard/cluster/cluster.h"
#include "../../transport/wire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_server_opts {
    const mr_cluster *cluster; /* defines this process's task and its address */
    const char *listen; /* "host:port" instead of that address, port 0: any free port; NULL: use
                           it */
    /* Files with the token that callers must present; NULL: those of MILLRACE_CLUSTER_TOKEN_FILE
     * and MILLRACE_TOKEN_FILE, or no token. Of two the first counts. */
    const char *cluster_token_file, *token_file;
    const mr_tls_opts *tls; /* its certificate, for callers and the servers that it calls, and the
                               CA of theirs; NULL: the environment's, else none */
    bool insecure;          /* an address that other hosts reach may be without TLS */
    bool any_user;     /* without a token: serve every user and host that can connect, with this
                      process's rights; else only processes of the same user on this host */
    mr_cancel *cancel; /* ends the server with MR_CANCELLED; NULL: cannot be cancelled */
    /* The server exits this many seconds after it lost its last coordinator; 0: 60. */
    double gone_s;
    /* Called with the address when the server listens. May be NULL. */
    void (*ready)(void *ctx, const char *address);
    void *ctx;
} mr_server_opts;

/* Serves until the coordinator ends it. Its callers can make it read any file: without a token it
 * listens on loopback addresses only, and serves its own user only, unless any_user.
 * errors   MR_INVALID_ARGUMENT: the task is neither worker nor ps · MR_FAILED_PRECONDITION: an
 *          address that other hosts reach, and neither a token, nor a client_ca, nor any_user ·
 *          MR_ALREADY_EXISTS: the address is in use · MR_UNAVAILABLE: the coordinator is gone ·
 *          MR_CANCELLED */
MR_API mr_code mr_server_run(const mr_server_opts *opts, mr_status *st) MR_NODISCARD;

/* The server of this process reads its certificates again, within a second.
 * thread   any, and a signal handler */
MR_API void mr_server_reload_certificates(void);

#ifdef __cplusplus
}
#endif
#endif
