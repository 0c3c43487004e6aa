/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_IMPL_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_IMPL_H
/* The interface of collectives for strategies: every rank starts the same operations in a step. */
#include "trainer/collective/collective.h"

/* This rank starts no further operation in this step: a rank that waits for one fails. */
void mr__collective_leave(mr_collective *c, size_t rank);
/* Call after all ranks have left, before the next step.
 * errors   MR_FAILED_PRECONDITION: some rank started fewer operations than another · those of the
 *          engine */
mr_code mr__collective_end_step(mr_collective *c, mr_status *st) MR_NODISCARD;
/* Returns when all ranks have called it in this step: then all of them have started their earlier
 * operations, and those sums will complete. errors: of the two above */
mr_code mr__collective_commit(mr_collective *c, size_t rank, mr_stream *stream,
                              mr_status *st) MR_NODISCARD;

/* NULL: not found. */
const mr_collective_backend *mr__collective_find(const char *name);

/* Logs which engine "auto" chose; a warning if a GPU is present that nccl does not support. who:
 * "replicas", "processes". */
void mr__say_engine(const mr_device *first, const char *who, const char *engine, const char *why);
/* Whether all devices are of one kind; otherwise `why` names two that differ. */
bool mr__devices_of_one_kind(mr_device *const *devices, size_t n, char *why, size_t size);

/* "hierarchical_copy" and "reduction_to_one_device". */
extern const mr_collective_backend mr__collective_local, mr__collective_one_device;
#endif
