/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_ENV_LAUNCHER_H
#define MR_SHARD_ENV_LAUNCHER_H
/* What the readers of launchers' variables share. Private to shard/. */
#include "shard/cluster/cluster.h"

/* An unset variable and an empty one are the same: NULL. */
const char *mr__env_text(const char *name);
/* A whole number from lo to hi. errors MR_INVALID_ARGUMENT: not set, or not one; names it */
mr_code mr__env_int(const char *name, int64_t lo, int64_t hi, int64_t *out,
                    mr_status *st) MR_NODISCARD;
/* port, or what MILLRACE_PORT says. errors as mr__env_int */
mr_code mr__env_port(int64_t port, int64_t *out, mr_status *st) MR_NODISCARD;
/* c = `world` workers, of which this is `rank`, who meet at host:port; a process alone where world
 * is 1. rank_name and world_name are the variables, for messages. */
mr_code mr__env_workers(mr_cluster *c, mr_cluster_source source, int64_t rank, int64_t world,
                        const char *rank_name, const char *world_name, const char *host,
                        int64_t port, mr_status *st) MR_NODISCARD;

/* *found: this launcher started the process. */
mr_code mr__cluster_from_slurm(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;
mr_code mr__cluster_from_torchrun(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;
mr_code mr__cluster_from_mpi(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;

/* Calls fn with each name of a list of hosts as Slurm writes it, in order, such as
 * "a,n[1-3,07],r[0-1]s[0-1]". An error of fn ends it.
 * errors   MR_INVALID_ARGUMENT: not such a list; says where */
mr_code mr__slurm_hosts(const char *list, mr_code (*fn)(void *ctx, const char *name, mr_status *),
                        void *ctx, mr_status *st) MR_NODISCARD;
#endif
