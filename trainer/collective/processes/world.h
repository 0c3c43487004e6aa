/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_PROCESSES_WORLD_H
#define MR_TRAINER_COLLECTIVE_PROCESSES_WORLD_H
/* The running processes of a job: their identities, and liveness. A separate thread keeps a
 * connection with each: all sides send heartbeats, and a process that ends says so. A peer that
 * dies, hangs or fails ends the world for all, with an error that names it:
 *
 *     rank 2 (c:5000) closed its connection at step 41 without a word; it was killed or crashed
 *
 * thread   any, except open and close */
#include <stdbool.h>
#include <stdint.h>
#include "pipeline/wait/cancel.h"
#include "shard/cluster/cluster.h"
#include "trainer/collective/processes/rank_messages.h"
#include "trainer/collective/processes/rendezvous.h"

typedef struct mr__world mr__world;

typedef struct mr__world_opts {
    mr__rendezvous_opts rendezvous;
    double peer_timeout_s; /* maximum silence of a peer */
} mr__world_opts;

/* Connects to the others (rendezvous.h has the errors), then monitors them. Returns owned. */
mr_code mr__world_open(mr__world **out, const mr__world_opts *o, mr_status *st) MR_NODISCARD;
/* Sends a good-bye, or the error of this process, and closes all connections. NULL: nothing. */
void mr__world_close(mr__world *w);

uint32_t mr__world_rank(const mr__world *w);
uint32_t mr__world_size(const mr__world *w);
const char *mr__world_address(const mr__world *w, uint32_t rank); /* borrowed until close */

/* The current step, for messages. */
void mr__world_set_step(mr__world *w, int64_t step);
int64_t mr__world_step(const mr__world *w);

/* MR_OK, or the error that ended the world; cheap. */
mr_code mr__world_status(mr__world *w, mr_status *st) MR_NODISCARD;
/* Ends the world with a failure that this process had or detected; the first one counts. The error
 * that the others get also names this process, its address and step, unless `names_all`: then the
 * message includes them already. */
void mr__world_abort(mr__world *w, const mr_status *why, bool names_all);
/* Called when a connection to `rank` is found broken: waits a moment for the monitoring thread to
 * learn the cause, else ends the world with this error. Returns the failure. */
mr_code mr__world_lost(mr__world *w, uint32_t rank, const char *what, mr_status *st);

/* Whether the world ended because a peer died, hangs or cannot be reached, and not by an error. */
bool mr__world_has_lost(mr__world *w);
/* Whether another rank has said good-bye; cheap. */
bool mr__world_is_short(const mr__world *w);
/* Called by a waiter that needs all ranks, `seconds` after it saw that one has left: ends the world
 * once that exceeds the peer timeout. MR_OK, or the error that ended the world. */
mr_code mr__world_wait_short(mr__world *w, double seconds, mr_status *st);

/* Sends mine[0..n) to all, and returns when all have sent theirs: all[0..n * size), in rank order,
 * including this rank. The k-th call on a channel matches the k-th of the others on it; channels do
 * not wait for each other. n is at most MR__MAX_VALUES, the same on all ranks.
 * errors   MR_FAILED_PRECONDITION: another n on another rank · the error that ended the world
 * thread   one at a time per channel */
enum { MR__CHANNEL_DATA, MR__CHANNEL_RESULTS, MR__CHANNELS };
mr_code mr__world_exchange(mr__world *w, uint32_t channel, const double *mine, uint32_t n,
                           double *all, mr_status *st) MR_NODISCARD;

/* Announces the next operation that all processes must run alike: "sums 3 values of float32",
 * shorter than MR__MAX_ANNOUNCEMENT. The k-th announcement must be the same on all, at the same
 * step; otherwise the world ends, with an error that names both. Returns when all have announced
 * theirs. `usual`: this operation was compared at this position before; then nothing is sent or
 * awaited unless another process asks.
 * errors   MR_INVALID_ARGUMENT: another operation there · the error that ended the world
 * thread   one at a time */
mr_code mr__world_announce(mr__world *w, const char *what, bool usual, mr_status *st) MR_NODISCARD;
/* Announces that this process runs no more operations; does not wait. */
void mr__world_announce_end(mr__world *w);

/* Moves the connections to the neighbours, for values, to the caller. Call once. */
void mr__world_take_links(mr__world *w, mr__ring_link *next, mr__ring_link *prev);
/* Called (once, from any thread) when the world ends: must wake all waits for values, and must not
 * call the world. NULL: removes it; returns when it is not running. */
typedef enum mr__world_part { MR__PART_RING, MR__PART_ENGINE, MR__PARTS } mr__world_part;
void mr__world_on_end(mr__world *w, mr__world_part part, void (*fn)(void *ctx), void *ctx);
#endif
