/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce of float32 by the engine mpi, against MPI_Allreduce alone in the same processes:
 *
 *     mpirun -n 2 allreduce_mpi [MIB]     sizes from 4 bytes to this, default 64 */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

#include "bench/ceiling.h"
#include "trainer/collective/ring/ring.h"

typedef struct job {
    mr__ring *ring;
    size_t bytes;
    float *data;
} job;

/* Both start together, so that one process waiting for the other is not measured. */
static double by_millrace(void *ctx)
{
    job *j = ctx;
    mr_status st;
    MPI_Barrier(MPI_COMM_WORLD);
    bench_must(mr__ring_all_reduce(j->ring, MR__RING_SUM, MR_FLOAT32, j->data, j->bytes / 4, &st),
               &st);
    return (double)j->bytes;
}

static double by_mpi(void *ctx)
{
    job *j = ctx;
    MPI_Barrier(MPI_COMM_WORLD);
    if (MPI_Allreduce(MPI_IN_PLACE, j->data, (int)(j->bytes / 4), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD) != MPI_SUCCESS)
        bench_die("MPI_Allreduce failed");
    return (double)j->bytes;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4,       1 << 10, 16 << 10, 64 << 10, 256 << 10,
                                   1 << 20, 4 << 20, 16 << 20, 64 << 20};
    size_t most = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    mr_status st;
    mr_cluster c = {0};
    mr__world *w = NULL;
    job j = {.data = calloc(most, 1)};
    mr__world_opts opts = {.rendezvous = {.cluster = &c, .connect_timeout_s = 30},
                           .peer_timeout_s = 30};
    if (!j.data)
        bench_die("no memory");
    if (access(MR_MPI_MODULE, R_OK) == 0) /* the module is not next to this program */
        setenv("MILLRACE_MPI_MODULE", MR_MPI_MODULE, 0);
    bench_must(mr_cluster_from_launcher(&c, &st), &st);
    bench_must(mr__world_open(&w, &opts, &st), &st);
    bench_must(mr__ring_open_mpi(&j.ring, w, &st), &st);
    if (mr__world_rank(w))
        fclose(stdout); /* all measure, one prints */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        char name[64];
        j.bytes = sizes[i];
        snprintf(name, sizeof name, "mpi, %zu bytes", j.bytes);
        bench_in_turns(name, "GB/s", 1e-9, j.bytes < 16 << 20 ? 63 : 15, by_millrace, by_mpi, &j);
    }
    mr__ring_close(j.ring);
    mr__world_close(w);
    mr_cluster_reset(&c);
    free(j.data);
    return 0;
}
