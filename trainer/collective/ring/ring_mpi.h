/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_RING_RING_MPI_H
#define MR_TRAINER_COLLECTIVE_RING_RING_MPI_H
/* Runs the operations of a ring by MPI, if mpirun started the processes: the world still connects
 * and monitors them. The module is the file that MILLRACE_MPI_MODULE names, else millrace-mpi.so in
 * the folders that are searched for device modules.
 *
 * thread   one at a time */
#include "trainer/collective/processes/world.h"
#include "trainer/collective/mpi/mpi_module.h"

/* Whether the module can be opened; if not, `why` receives the reason, in words that follow "mpi:
 * ". Does not start MPI. */
bool mr__mpi_is_there(char *why, size_t size);
/* Joins MPI, whose ranks must be the world's. Returns the argument for mr__mpi_run. room: two ints
 * for each rank; parts: MR__MPI_ROOM bytes; both must stay valid until it is closed.
 * errors   MR_NOT_FOUND: no module · MR_FAILED_PRECONDITION: MPI counts other processes */
mr_code mr__mpi_open(const mr__mpi **out, const mr__world *w, int *room, void *parts,
                     mr_status *st) MR_NODISCARD;
/* Runs an operation until it ends, or until the world ends (call->same ends it on a mismatch).
 * errors   the error that ended the world · MR_UNAVAILABLE: MPI failed, and the world has not ended
 *          yet */
mr_code mr__mpi_run(const mr__mpi *m, mr__world *w, const mr__mpi_call *call,
                    mr_status *st) MR_NODISCARD;
#endif
