/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_HOST_H
#define MR_TRAINER_COLLECTIVE_HOST_H
/* Operations that an engine has no code of its own for: by way of pinned memory, where the
 * processor does them, and where other processes are reached. All is submitted to the first rank's
 * stream:
 *
 *     copies of what the ranks give --> a call of the host --> copies of what they get
 *
 * thread   one at a time; poll any */
#include "trainer/collective/collective.h"
#include "trainer/collective/ring/ring.h"

typedef struct mr__host_sums mr__host_sums;

/* For n ranks of this process, the first one's data on `first`; ring NULL: there are no other
 * processes, else they have n ranks each, and it must outlive this. Returns owned. */
mr_code mr__host_sums_new(mr__host_sums **out, mr_device *first, size_t n, mr__ring *ring,
                          mr_status *st) MR_NODISCARD;
/* What was submitted has run. NULL: nothing. */
void mr__host_sums_free(mr__host_sums *h);
/* Fewer than 64 operations may be under way. */
mr_code mr__host_sums_submit(mr__host_sums *h, const mr_collective_call *calls, uint64_t number,
                             mr_status *st) MR_NODISCARD;
/* The error of the first operation that failed; MR_OK: none. */
mr_code mr__host_sums_poll(mr__host_sums *h, mr_status *st) MR_NODISCARD;
#endif
