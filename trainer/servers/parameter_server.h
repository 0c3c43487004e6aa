/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_PARAMETER_SERVER_H
#define MR_TRAINER_PARAMETER_SERVER_H
/* A task of type worker or ps, in training by parameter servers: it does what the coordinator
 * (mr_strategy_parameter_server) asks, until that ends it.
 *
 *     coordinator --steps--> worker --pulls, pushes--> ps
 *
 * thread   one at a time per process
 * since    0.1 */
#include "../../pipeline/wait/cancel.h"
#include "../../shard/cluster/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_server_opts {
    const mr_cluster *cluster; /* says which task this process is, and its address */
    const char *listen; /* "host:port" instead of that address, port 0: a free one; NULL: it */
    const char
        *token_file;   /* the token that callers must know is in it; NULL: MILLRACE_TOKEN_FILE's,
                               or none */
    mr_cancel *cancel; /* ends it, with MR_CANCELLED; NULL: nothing does */
    double gone_s; /* it ends so long after a coordinator was last connected, if there was one; 0:
                      60 */
    /* Called when it listens, with the address. NULL: not wanted. */
    void (*ready)(void *ctx, const char *address);
    void *ctx;
} mr_server_opts;

/* Serves until the coordinator ends it. Who can call it can have it read any file: without a token
 * it listens on loopback addresses alone.
 * errors   MR_INVALID_ARGUMENT: the task is no worker and no ps · MR_FAILED_PRECONDITION: an
 *          address that other hosts reach, and no token · MR_ALREADY_EXISTS: the address is in
 *          use · MR_UNAVAILABLE: the coordinator is gone · MR_CANCELLED */
MR_API mr_code mr_server_run(const mr_server_opts *opts, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
