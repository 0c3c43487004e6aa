/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/cluster/env_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *mr__env_text(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

mr_code mr__env_int(const char *name, int64_t lo, int64_t hi, int64_t *out, mr_status *st)
{
    const char *v = mr__env_text(name);
    if (!v)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s is not set; the launcher sets it for each task",
                       name);
    char *end;
    errno = 0;
    long long x = strtoll(v, &end, 10);
    bool digits = (v[0] >= '0' && v[0] <= '9') || (v[0] == '-' && v[1] >= '0' && v[1] <= '9');
    if (!digits || *end || errno || x < lo || x > hi)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s must be a number from %" PRId64 " to %" PRId64 ", found '%.64s'", name,
                       lo, hi, v);
    *out = x;
    return MR_OK;
}

mr_code mr__env_port(int64_t port, int64_t *out, mr_status *st)
{
    *out = port;
    return mr__env_text("MILLRACE_PORT") ? mr__env_int("MILLRACE_PORT", 1, 65535, out, st) : MR_OK;
}

mr_code mr__env_workers(mr_cluster *c, mr_cluster_source source, int64_t rank, int64_t world,
                        const char *rank_name, const char *world_name, const char *host,
                        int64_t port, mr_status *st)
{
    char address[300];
    if (rank >= world)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s is %" PRId64 ", but %s is %" PRId64 " (tasks 0 to %" PRId64 ")",
                       rank_name, rank, world_name, world, world - 1);
    if (world == 1)
        return MR_OK;
    bool v6 = strchr(host, ':') && host[0] != '[';
    int n = snprintf(address, sizeof address, "%s%s%s:%" PRId64, v6 ? "[" : "", host, v6 ? "]" : "",
                     port);
    if (n >= (int)sizeof address)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the host '%.64s...' has %zu characters, at most 255", host, strlen(host));
    mr_code rc = MR_OK;
    for (int64_t i = 0; i < world && rc == MR_OK; i++)
        rc = mr_cluster_add(c, MR_TASK_WORKER, i ? "" : address, st);
    if (rc == MR_OK)
        rc = mr_cluster_set_task(c, MR_TASK_WORKER, rank, st);
    if (rc == MR_OK)
        c->source = source;
    else
        mr_cluster_reset(c);
    return rc;
}
