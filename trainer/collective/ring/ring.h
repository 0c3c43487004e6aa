/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_RING_RING_H
#define MR_TRAINER_COLLECTIVE_RING_RING_H
/* Collective operations over the processes of a job, on host memory. Values travel around a ring:
 * each rank sends to the next and receives from the previous one, over TCP (by TLS if the processes
 * have certificates), or through shared memory if both are on one machine.
 *
 *     rank 0 --> rank 1 --> rank 2 --> rank 0 ...
 *
 * An all-reduce divides the values into one segment per rank. A rank first sends its own segment,
 * then forwards all that it receives, as soon as it has added its own values to it (first round) or
 * stored it (second round); so all links are busy all the time. A value's position determines the
 * order in which the ranks are summed: all ranks get the same bits, in every run.
 *
 * All ranks must call the same operations in the same order. A rank that does not fails the job, as
 * does a lost peer: every rank gets an error that names the cause, and can only close the ring.
 *
 * thread   one at a time; a call returns when its result is available */
#include <stddef.h>
#include "pipeline/memory/dtype.h"
#include "trainer/collective/processes/world.h"

typedef struct mr__ring mr__ring;
typedef enum mr__ring_op { MR__RING_SUM, MR__RING_MEAN, MR__RING_MAX, MR__RING_MIN } mr__ring_op;

/* Takes over the world's connections for values; w must outlive the ring. Returns when all ranks
 * have opened theirs. Returns owned. */
mr_code mr__ring_open(mr__ring **out, mr__world *w, mr_status *st) MR_NODISCARD;
/* The same over MPI, which must have started all ranks: MPI then transfers the values, and short
 * sums are computed pairwise, see mpi_module.c. errors: also those of mr__mpi_open */
mr_code mr__ring_open_mpi(mr__ring **out, mr__world *w, mr_status *st) MR_NODISCARD;
void mr__ring_close(mr__ring *r); /* NULL: nothing */
mr__world *mr__ring_world(const mr__ring *r);
/* How this rank is connected: "TCP", "TLS", "shared memory", one of the first two "and shared
 * memory", or "MPI". */
const char *mr__ring_transport(const mr__ring *r);
/* "ring (TCP)" and so on; "mpi". */
const char *mr__ring_description(const mr__ring *r);

/* data[0..count) = the values of all ranks, reduced. Sums of integers wrap; float16 and bfloat16
 * are rounded after each addition; NaN wins over every number.
 * errors   MR_INVALID_ARGUMENT: not float16, bfloat16, float32, float64, int32 or int64; MEAN of
 *          integers; another count, dtype or operation on another rank, both named · those of the
 *          world */
mr_code mr__ring_all_reduce(mr__ring *r, mr__ring_op op, mr_dtype dtype, void *data, size_t count,
                            mr_status *st) MR_NODISCARD;
/* The same; step must be equal on all ranks. */
mr_code mr__ring_all_reduce_at(mr__ring *r, int64_t step, mr__ring_op op, mr_dtype dtype,
                               void *data, size_t count, mr_status *st) MR_NODISCARD;
/* data[0..bytes) = root's. */
mr_code mr__ring_broadcast(mr__ring *r, uint32_t root, void *data, size_t bytes,
                           mr_status *st) MR_NODISCARD;
/* Rank i's sizes[i] bytes, concatenated in rank order; this rank's bytes are already in place.
 * sizes must be the same on every rank. */
mr_code mr__ring_all_gather(mr__ring *r, void *data, const size_t *sizes,
                            mr_status *st) MR_NODISCARD;
/* Returns when all ranks have called it. */
mr_code mr__ring_barrier(mr__ring *r, mr_status *st) MR_NODISCARD;
#endif
