/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_PROCESSES_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_PROCESSES_H
/* Engines that span processes: whether all processes can use one, how they find each other, and how
 * their operations end when a process is lost.
 *
 * thread   one at a time */
#include "trainer/collective/collective.h"
#include "trainer/collective/ring/ring.h"

/* *out = the engine of that name if it suits the ranks of all processes; NULL: use the ring. name:
 * "nccl" · NULL, "auto": nccl if it suits · another: *out is NULL. n devices of this process; all
 * processes have the same number. All get the same result.
 * errors   MR_INVALID_ARGUMENT: "nccl" does not suit; names the process and why · the world's */
mr_code mr__engine_agree(mr__ring *ring, const char *name, mr_device *const *devices, size_t n,
                         const mr_collective_backend **out, mr_status *st) MR_NODISCARD;

/* Opens an engine for this process's part, *self, and aborts its operations when the world ends:
 * otherwise they would wait forever for a lost process. Owned; free it before closing the engine.
 * The ring must outlive both. A failure ends the world.
 * errors   the engine's · the world's */
typedef struct mr__engine_guard mr__engine_guard;
mr_code mr__engine_guard_new(mr__engine_guard **out, const mr_collective_backend *b, mr__ring *ring,
                             mr_device *const *devices, size_t n, void **self,
                             mr_status *st) MR_NODISCARD;
void mr__engine_guard_free(mr__engine_guard *l); /* NULL: nothing */
#endif
