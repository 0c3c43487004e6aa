/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_HOST_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_HOST_H
/* Fallback for operations that an engine does not implement: they run in pinned memory on the CPU,
 * which also reaches other processes. All work is submitted to the first rank's stream:
 *
 *     copies of the ranks' inputs --> a host call --> copies of the results
 *
 * thread   one at a time; poll any */
#include "trainer/collective/collective.h"
#include "trainer/collective/ring/ring.h"

typedef struct mr__host_sums mr__host_sums;

/* For n ranks of this process, with the first rank's data on `first`; ring NULL: no other
 * processes; otherwise each has n ranks, and the ring must outlive this. Returns owned. */
mr_code mr__host_sums_new(mr__host_sums **out, mr_device *first, size_t n, mr__ring *ring,
                          mr_status *st) MR_NODISCARD;
/* All submitted work must have run. NULL: nothing. */
void mr__host_sums_free(mr__host_sums *h);
/* Fewer than 64 operations may be in flight. */
mr_code mr__host_sums_submit(mr__host_sums *h, const mr_collective_call *calls, uint64_t number,
                             mr_status *st) MR_NODISCARD;
/* The error of the first operation that failed, or MR_OK. */
mr_code mr__host_sums_poll(mr__host_sums *h, mr_status *st) MR_NODISCARD;
#endif
