/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_CLUSTER_ENV_VALUES_H
#define MR_SHARD_CLUSTER_ENV_VALUES_H
/* Environment variables as text and numbers, and the cluster that they describe. Private to
 * shard/cluster/. */
#include "shard/cluster/cluster.h"

/* The value; NULL if the variable is unset or empty. */
const char *mr__env_text(const char *name);
/* An integer from lo to hi. errors MR_INVALID_ARGUMENT: unset or invalid; the message names it */
mr_code mr__env_int(const char *name, int64_t lo, int64_t hi, int64_t *out,
                    mr_status *st) MR_NODISCARD;
/* *out = the value of MILLRACE_PORT; `port` if it is unset. errors as mr__env_int */
mr_code mr__env_port(int64_t port, int64_t *out, mr_status *st) MR_NODISCARD;
/* *c = `world` workers that meet at host:port, this process being `rank`; a single process if
 * `world` is 1. rank_name and world_name are the variables, for messages. */
mr_code mr__env_workers(mr_cluster *c, mr_cluster_source source, int64_t rank, int64_t world,
                        const char *rank_name, const char *world_name, const char *host,
                        int64_t port, mr_status *st) MR_NODISCARD;
#endif
