/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster from the variables of the launcher that started this process. */
#include "shard/cluster/env_launcher.h"
#include "shard/cluster/env_values.h"

const char *mr_cluster_source_name(mr_cluster_source source)
{
    static const char *const names[] = {"nowhere", "TF_CONFIG", "Slurm", "torchrun", "MPI"};
    return source <= MR_CLUSTER_MPI ? names[source] : "nowhere";
}

mr_code mr_cluster_from_launcher(mr_cluster *c, mr_status *st)
{
    static mr_code (*const readers[])(mr_cluster *, bool *, mr_status *) = {
        mr__cluster_from_slurm, mr__cluster_from_torchrun, mr__cluster_from_mpi};
    if (mr__env_text("TF_CONFIG"))
        return mr_cluster_from_env(c, st);
    bool found = false;
    for (size_t i = 0; i < sizeof readers / sizeof *readers && !found; i++)
        MR_TRY(readers[i](c, &found, st));
    return MR_OK;
}
