/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_H
#define MR_TRAINER_COLLECTIVE_H
/* Sums over replicas. Each rank starts operations in the same order; the k-th of one rank belongs
 * to the k-th of the others. An operation runs beside the ranks, on streams of the collective's
 * own, as soon as the last rank has started it, so that gradients are summed while the backward
 * pass goes on. The sum is taken in rank order, once, and written to every rank: the bits are the
 * same everywhere and in every run.
 *
 * This engine serves the replicas of one process.
 *
 * thread   any, one at a time per rank
 * since    0.1 */
#include <stddef.h>
#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_collective mr_collective;

/* A collective of n >= 1 ranks, rank i living on devices[i], which must outlive it. Returns owned.
 */
MR_API mr_code mr_collective_local_new(mr_collective **out, mr_device *const *devices, size_t n,
                                       mr_status *st) MR_NODISCARD;
/* No operation may be under way; NULL: nothing. */
MR_API void mr_collective_free(mr_collective *c);

/* Starts summing data[0..n) over all ranks, in place, and gives its number in *ticket. The values
 * must not be touched until mr_collective_wait has returned. Waits while too many are under way.
 * errors   MR_INVALID_ARGUMENT: n is not what the other ranks gave · MR_ABORTED */
MR_API mr_code mr_collective_start(mr_collective *c, size_t rank, float *data, size_t n,
                                   uint64_t *ticket, mr_status *st) MR_NODISCARD;
/* Returns when operation `ticket` of this rank is done. errors MR_ABORTED */
MR_API mr_code mr_collective_wait(mr_collective *c, size_t rank, uint64_t ticket,
                                  mr_status *st) MR_NODISCARD;

/* Ends every wait with MR_ABORTED, from now until mr_collective_reset: for a rank that cannot go on
 * and would leave the others waiting. */
MR_API void mr_collective_abort(mr_collective *c);
/* Forgets all operations, finished or not. No rank may be inside a call. */
MR_API void mr_collective_reset(mr_collective *c);

#ifdef __cplusplus
}
#endif
#endif
