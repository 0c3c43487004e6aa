/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FEED_H
#define MR_TRAINER_FEED_H
/* The steps of a dataset, one ahead: while the replicas work on one, the next is pulled and staged.
 * The dataset is distributed over workers and replicas by shard/distribute; workers agree on the
 * number of rows of each step, and on the end. An error of the pipeline is reported after the
 * batches before it. */
#include "shard/distribute/distribute.h"
#include "trainer/loop/fit.h"
#include "trainer/strategy/staging.h"

typedef struct mr__feed {
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
    mr__staging *ring;
    bool ahead; /* a batch, an end or an error was fetched and not taken */
    mr_code rc; /* of what was fetched */
    size_t slot;
    mr_status st;
    mr_strategy *s;
    double *of_all; /* numbers of all workers; NULL: this one is alone */
    /* Training shall end after the batch fetched: asked when it is fetched, and what one worker
     * answers holds for all. */
    bool (*asks_stop)(void *ctx);
    void *asks_stop_ctx;
    bool stopping;
} mr__feed;

/* ds NULL: what opts->input makes, also later; its context must outlive the feed. positions:
 * mr__feed_save will be called. */
mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                      bool positions, mr_status *st) MR_NODISCARD;
/* *out (owned) = the data of this process: ds, or where that is NULL what opts->input makes of it.
 * errors   MR_INVALID_ARGUMENT: there is neither · those of the function */
mr_code mr__fit_data(const mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                     mr_dataset **out, mr_status *st) MR_NODISCARD;
void mr__feed_close(mr__feed *f); /* also after a failed open of zeroed memory */
/* Fetches the next batch if that has not been done. */
void mr__feed_fetch(mr__feed *f);
/* The slot of the next batch; MR_END, or the error in its place. */
mr_code mr__feed_take(mr__feed *f, size_t *slot, mr_status *st) MR_NODISCARD;
/* Where the data go on after the batch taken last; nothing may have been fetched since. Bytes are
 * owned. restore: of a feed from which nothing was taken. */
mr_code mr__feed_save(mr__feed *f, void **bytes, size_t *size, mr_status *st) MR_NODISCARD;
mr_code mr__feed_restore(mr__feed *f, const void *bytes, size_t size, mr_status *st) MR_NODISCARD;
/* Takes n batches and does not look at them. */
mr_code mr__feed_skip(mr__feed *f, int64_t n, mr_status *st) MR_NODISCARD;
/* Starts the next pass. */
mr_code mr__feed_rewind(mr__feed *f, mr_status *st) MR_NODISCARD;
#endif
