/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster from the variables set by torchrun and by scripts that imitate it. */
#include "shard/cluster/env_launcher.h"
#include "shard/cluster/env_values.h"

#include <inttypes.h>
#include <string.h>

mr_code mr__cluster_from_torchrun(mr_cluster *c, bool *found, mr_status *st)
{
    int64_t rank, world, port;
    *found = mr__env_text("RANK") && mr__env_text("WORLD_SIZE");
    if (!*found)
        return MR_OK;
    MR_TRY(mr__env_int("WORLD_SIZE", 1, 65536, &world, st));
    MR_TRY(mr__env_int("RANK", 0, 65535, &rank, st));
    const char *host = mr__env_text("MASTER_ADDR");
    if (!host && world > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "RANK and WORLD_SIZE are set, but not MASTER_ADDR, the host of rank 0");
    port = 0;
    if (world > 1 && (mr__env_text("MASTER_PORT") || !mr__env_text("MILLRACE_PORT"))) {
        const char *agent = mr__env_text("TORCHELASTIC_USE_AGENT_STORE");
        bool taken = agent && strcmp(agent, "True") == 0;
        MR_TRY(mr__env_int("MASTER_PORT", 1, taken ? 65534 : 65535, &port, st));
        port += taken;
    }
    MR_TRY(mr__env_port(port, &port, st));
    return mr__env_workers(c, MR_CLUSTER_TORCHRUN, rank, world, "RANK", "WORLD_SIZE", host, port,
                           st);
}
