/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_FEED_H
#define MR_TRAINER_LOOP_FEED_H
/* The steps of a dataset, one ahead: while the replicas work on one, the next is pulled and staged.
 * shard/distribute distributes the dataset over workers and replicas; workers agree on the number
 * of rows of each step, and on the end. An error of the pipeline is reported after the batches
 * before it. */
#include "shard/distribute/dist_data_internal.h"
#include "trainer/loop/fit.h"
#include "trainer/strategy/staging.h"

/* How far the data were read. */
typedef struct mr__feed_place {
    int64_t pass; /* number of earlier passes */
    int64_t step; /* taken in this pass */
    int64_t rows; /* of them, of all workers; -1: not known */
} mr__feed_place;

typedef struct mr__feed {
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
    mr__staging *ring;
    mr__feed_place at;
    /* What dd and `it` are made of. */
    mr_dataset *ds; /* owned; NULL: the input function makes it */
    mr_input_fn input;
    void *input_ctx;
    mr_distribute_opts how;
    mr_dist_iterator_opts run;
    int64_t slots; /* taken from the iterator */
    bool seed_given;
    mr__dist_data data;               /* with positions */
    struct mr__step_records *records; /* set after the opening; NULL: there is no ledger */
    bool ahead; /* a batch, an end or an error was fetched and not yet taken */
    mr_code rc; /* of the fetch */
    size_t slot;
    mr_status st;
    mr_strategy *s;
    double *of_all;        /* numbers of all workers; NULL: a single worker */
    int64_t *rows, *first; /* of all replicas in sync: how many rows, number of the first */
    /* Whether training ends after the fetched batch: called when it is fetched; if one worker
     * returns true, all end. */
    bool (*asks_stop)(void *ctx);
    void *asks_stop_ctx;
    bool stopping;
    /* The source of the steps, instead of `it`; NULL: it. As mr_dist_iterator_next. */
    mr_code (*next)(void *ctx, mr_step *out, mr_status *st);
    void *next_ctx;
} mr__feed;

/* ds NULL: opts->input makes it, also later; its context must outlive the feed. positions:
 * mr__feed_save will be called; random ops of a single process then have a seed too, so that
 * another number of processes can continue. */
mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                      bool positions, mr_status *st) MR_NODISCARD;
/* *out (owned) = the data of this process: ds, or if that is NULL the result of opts->input.
 * errors   MR_INVALID_ARGUMENT: both are missing · those of the function */
mr_code mr__fit_data(const mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts,
                     mr_dataset **out, mr_status *st) MR_NODISCARD;
void mr__feed_close(mr__feed *f); /* also after a failed open of zeroed memory */
/* Fetches the next batch if that has not been done. */
void mr__feed_fetch(mr__feed *f);
/* The slot of the next batch; MR_END, or the error that occurred instead. */
mr_code mr__feed_take(mr__feed *f, size_t *slot, mr_status *st) MR_NODISCARD;
/* The position of the data after the last batch taken; nothing may have been fetched since. Bytes
 * are owned. restore: only before the first take. */
mr_code mr__feed_save(mr__feed *f, void **bytes, size_t *size, mr_status *st) MR_NODISCARD;
mr_code mr__feed_restore(mr__feed *f, const void *bytes, size_t size, mr_status *st) MR_NODISCARD;
/* Whether all replicas of a step have slices of one batch: not with policies under which each
 * worker has separate batches. */
bool mr__feed_is_of_one_batch(const mr__feed *f);
/* Takes n batches and discards them. */
mr_code mr__feed_skip(mr__feed *f, int64_t n, mr_status *st) MR_NODISCARD;
/* Begins again, with a seed for random ops that have none; NULL: each draws its own. given: random
 * functions draw from it too. Only before the first take, and if this run's user gave none. */
mr_code mr__feed_reseed(mr__feed *f, const uint64_t *seed, bool given, mr_status *st) MR_NODISCARD;
/* Starts the next pass. */
mr_code mr__feed_rewind(mr__feed *f, mr_status *st) MR_NODISCARD;
#endif
