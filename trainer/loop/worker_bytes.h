/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_WORKER_BYTES_H
#define MR_TRAINER_LOOP_WORKER_BYTES_H
/* What each worker adds to a saved state: bytes, exchanged so that the first can write them. */
#include "trainer/strategy/strategy_impl.h"

typedef struct mr__worker_bytes {
    unsigned char *bytes; /* owned: mr_free */
    size_t size;
} mr__worker_bytes;

/* all[0..workers) = those of every worker, owned; also after a failure. Each worker calls it. */
mr_code mr__worker_bytes_exchange(mr__world *w, size_t workers, const mr__worker_bytes *own,
                                  mr__worker_bytes *all, mr_status *st) MR_NODISCARD;
#endif
