/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_WORLD_H
#define MR_TRAINER_WORLD_H
/* The processes of a job while it runs: who they are, and whether all of them are well. A thread of
 * its own keeps a connection with each: every side gives signs of life, and whoever ends says so. A
 * peer that dies, hangs or gives up ends the world for all, with an error that names it:
 *
 *     rank 2 (c:5000) closed its connection at step 41 without a word; it was killed or crashed
 *
 * thread   any, but open and close */
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/wait/cancel.h"
#include "shard/cluster/cluster.h"
#include "trainer/collective/processes/rank_messages.h"
#include "trainer/collective/processes/rendezvous.h"

typedef struct mr__world mr__world;

typedef struct mr__world_opts {
    mr__rendezvous_opts rendezvous;
    double peer_timeout_s; /* without a sign of life */
} mr__world_opts;

/* Meets the others (rendezvous.h has the errors), then watches them. Returns owned. */
mr_code mr__world_open(mr__world **out, const mr__world_opts *o, mr_status *st) MR_NODISCARD;
/* Says good-bye, or what it failed of, and closes all. NULL: nothing. */
void mr__world_close(mr__world *w);

uint32_t mr__world_rank(const mr__world *w);
uint32_t mr__world_size(const mr__world *w);
const char *mr__world_address(const mr__world *w, uint32_t rank); /* borrowed until close */

/* The step under way, for messages. */
void mr__world_set_step(mr__world *w, int64_t step);
int64_t mr__world_step(const mr__world *w);

/* MR_OK, or what ended the world; cheap. */
mr_code mr__world_status(mr__world *w, mr_status *st) MR_NODISCARD;
/* Ends the world with a failure of this process, or one that it found; the first counts. What the
 * others get names this process, its address and step, unless `names_all`: it does so already. */
void mr__world_abort(mr__world *w, const mr_status *why, bool names_all);
/* For one who met a broken connection to `rank`: waits a moment for the watching thread to learn
 * what happened, else ends the world with this. Returns the failure. */
mr_code mr__world_lost(mr__world *w, uint32_t rank, const char *what, mr_status *st);

/* Has another rank said good-bye? cheap */
bool mr__world_is_short(const mr__world *w);
/* For one who needs all, and has waited so many seconds since it saw that: ends the world once they
 * are more than a rank may be silent. MR_OK, or what ended the world. */
mr_code mr__world_wait_short(mr__world *w, double seconds, mr_status *st);

/* Gives mine[0..n) to all, and returns when all have given theirs: all[0..n * size), in rank order,
 * this rank's too. The k-th call on a channel belongs to the k-th of the others on it; channels do
 * not wait for each other. n is at most MR__MAX_VALUES, the same on all ranks.
 * errors   MR_FAILED_PRECONDITION: another n on another rank · what ended the world
 * thread   one at a time per channel */
enum { MR__CHANNEL_DATA, MR__CHANNEL_RESULTS, MR__CHANNELS };
mr_code mr__world_exchange(mr__world *w, uint32_t channel, const double *mine, uint32_t n,
                           double *all, mr_status *st) MR_NODISCARD;

/* Announces the next operation that all processes must do alike: "sums 3 values of float32",
 * shorter than MR__MAX_ANNOUNCEMENT. The k-th announcement must be the same on all, at the same
 * step; else the world ends, with an error that names both. Returns when all have announced theirs.
 * `usual`: this operation was compared at this place before; then nothing is sent or awaited unless
 * another process asks.
 * errors   MR_INVALID_ARGUMENT: another operation there · what ended the world
 * thread   one at a time */
mr_code mr__world_announce(mr__world *w, const char *what, bool usual, mr_status *st) MR_NODISCARD;
/* Announces that this process runs no more operations; does not wait. */
void mr__world_announce_end(mr__world *w);

/* The connections to the neighbours, for values; the caller's from then on. Once. */
void mr__world_take_links(mr__world *w, mr__ring_link *next, mr__ring_link *prev);
/* Called (once, from any thread) when the world ends: must wake whoever waits for values, and ask
 * nothing of the world. NULL: nobody any more; returns when it is not running. */
typedef enum mr__world_part { MR__PART_RING, MR__PART_ENGINE, MR__PARTS } mr__world_part;
void mr__world_on_end(mr__world *w, mr__world_part part, void (*fn)(void *ctx), void *ctx);
#endif
