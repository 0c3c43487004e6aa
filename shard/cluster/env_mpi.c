/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster from the variables that mpirun sets. They number the processes but do not say where
 * rank 0 is. */
#include "shard/cluster/env_launcher.h"
#include "shard/cluster/env_values.h"
#include "pipeline/fnv.h"

#include <inttypes.h>
#include <string.h>

typedef struct mpi_names {
    const char *rank, *size, *local_size;
    const char *job[2]; /* equal for the processes of one job, different for other jobs */
} mpi_names;

static const mpi_names kinds[] = {
    {"OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {"PMI_JOBID", "HYDRA_JOBID"}},
};

/* A port from 20000 to 39999, derived from the job's name. */
static int64_t port_of_job(const mpi_names *k)
{
    uint64_t h = MR__FNV_BASIS;
    for (size_t i = 0; i < 2; i++) {
        const char *name = mr__env_text(k->job[i]);
        h = mr__fnv1a(h, name, name ? strlen(name) : 0);
    }
    return 20000 + (int64_t)(h % 20000);
}

static mr_code find_place(const mpi_names *k, int64_t world, const char **host, int64_t *port,
                          mr_status *st)
{
    *host = mr__env_text("MASTER_ADDR");
    *port = port_of_job(k);
    if (*host && mr__env_text("MASTER_PORT"))
        MR_TRY(mr__env_int("MASTER_PORT", 1, 65535, port, st));
    MR_TRY(mr__env_port(*port, port, st));
    if (*host)
        return MR_OK;
    int64_t local = 0;
    if (mr__env_text(k->local_size))
        MR_TRY(mr__env_int(k->local_size, 1, 65536, &local, st));
    if (local != world)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "mpirun started %" PRId64 " tasks, %" PRId64
                       " of them on this machine; set MASTER_ADDR to the host of rank 0 (mpirun -x "
                       "MASTER_ADDR=...)",
                       world, local);
    *host = "127.0.0.1";
    return MR_OK;
}

mr_code mr__cluster_from_mpi(mr_cluster *c, bool *found, mr_status *st)
{
    const mpi_names *k = &kinds[0];
    if (!mr__env_text(k->rank) && !mr__env_text(k->size))
        k = &kinds[1];
    *found = mr__env_text(k->rank) || mr__env_text(k->size);
    if (!*found)
        return MR_OK;
    int64_t rank, world, port = 0;
    const char *host = "";
    MR_TRY(mr__env_int(k->size, 1, 65536, &world, st));
    MR_TRY(mr__env_int(k->rank, 0, 65535, &rank, st));
    if (world > 1)
        MR_TRY(find_place(k, world, &host, &port, st));
    return mr__env_workers(c, MR_CLUSTER_MPI, rank, world, k->rank, k->size, host, port, st);
}
