/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_CLUSTER_ENV_LAUNCHER_H
#define MR_SHARD_CLUSTER_ENV_LAUNCHER_H
/* The launchers whose variables describe a job. Private to shard/. */
#include "shard/cluster/cluster.h"

/* *found: this launcher started the process. */
mr_code mr__cluster_from_slurm(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;
mr_code mr__cluster_from_torchrun(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;
mr_code mr__cluster_from_mpi(mr_cluster *c, bool *found, mr_status *st) MR_NODISCARD;

/* Calls fn with each name of a list of hosts in Slurm's format, in order, such as
 * "a,n[1-3,07],r[0-1]s[0-1]". Stops at the first error of fn.
 * errors   MR_INVALID_ARGUMENT: not such a list; the message has the position */
mr_code mr__slurm_hosts(const char *list, mr_code (*fn)(void *ctx, const char *name, mr_status *),
                        void *ctx, mr_status *st) MR_NODISCARD;
#endif
