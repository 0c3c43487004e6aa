/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_RING_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_RING_H
/* The collective of a strategy over several processes. */
#include "trainer/collective/collective_impl.h"
#include "trainer/collective/ring/ring.h"

extern const mr_collective_backend mr__collective_ring;
/* *self = the engine over ring, which must outlive it, for the replicas of this process. */
mr_code mr__collective_ring_engine(mr__ring *ring, mr_device *const *devices, size_t n, void **self,
                                   mr_status *st) MR_NODISCARD;
/* A collective of n ranks in this process and n in every other. name: "nccl" (or another engine
 * that spans processes); NULL, "auto": nccl if it suits all ranks, else the ring; any other name:
 * the ring. Every process calls it. Returns owned.
 * errors   MR_INVALID_ARGUMENT: it does not suit; names the process and the reason · the engine's ·
 *          the world's */
mr_code mr__collective_over_processes(mr_collective **out, mr__ring *ring, const char *name,
                                      mr_device *const *devices, size_t n,
                                      mr_status *st) MR_NODISCARD;
#endif
