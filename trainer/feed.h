/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FEED_H
#define MR_TRAINER_FEED_H
/* Batches one step ahead: while the replicas work on one, the next is pulled and staged. An error
 * of the pipeline stands behind the batches before it, and is told when its turn comes. */
#include "pipeline/engine/iterator.h"
#include "trainer/staging.h"

typedef struct mr__feed {
    mr_iterator *it;
    mr__staging *ring;
    mr_block block;
    bool ahead; /* a batch, an end or an error was fetched and not taken */
    mr_code rc; /* of what was fetched */
    size_t slot;
    mr_status st;
} mr__feed;

mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_iterator_opts *opts,
                      size_t depth, mr_status *st) MR_NODISCARD;
void mr__feed_close(mr__feed *f); /* also after a failed open of zeroed memory */
/* Fetches the next batch if that has not been done. */
void mr__feed_fetch(mr__feed *f);
/* The slot of the next batch; MR_END, or the error in its place. */
mr_code mr__feed_take(mr__feed *f, size_t *slot, mr_status *st) MR_NODISCARD;
/* Starts the next pass. */
mr_code mr__feed_rewind(mr__feed *f, mr_status *st) MR_NODISCARD;
#endif
