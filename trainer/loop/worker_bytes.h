/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_WORKER_BYTES_H
#define MR_TRAINER_LOOP_WORKER_BYTES_H
/* What the workers of a job must know of each other's saved states: whether they find the same one,
 * and the bytes that each adds to it. */
#include "trainer/strategy/strategy_impl.h"

typedef struct mr__worker_bytes {
    unsigned char *bytes; /* owned: mr_free */
    size_t size;
} mr__worker_bytes;

/* Every worker calls it after it has looked for a saved state, which an error calls `what`; rc: how
 * that went, *st: its error. Returns rc if it is an error; else an error if another worker failed,
 * if only some found a state, or if their versions differ, so that no worker continues alone. */
mr_code mr__workers_agree(mr_strategy *s, const char *what, mr_code rc, bool found,
                          uint32_t version, mr_status *st) MR_NODISCARD;
/* all[0..workers) = those of every worker, owned; also after a failure. Each worker calls it.
 * channel: as of mr__world_exchange. */
mr_code mr__worker_bytes_exchange(mr__world *w, uint32_t channel, size_t workers,
                                  const mr__worker_bytes *own, mr__worker_bytes *all,
                                  mr_status *st) MR_NODISCARD;
#endif
