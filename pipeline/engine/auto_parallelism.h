/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_AUTO_PARALLELISM_H
#define MR_PIPELINE_ENGINE_AUTO_PARALLELISM_H
/* Tunes the number of blocks processed at once, or read ahead, if the graph says auto: as few as
 * the consumer's rate requires.
 *
 *     consumer   | own work |wait| own work |        interval: its own work between two blocks
 *     producers  | a block ......... |               service: time to produce a block
 *
 * service / interval blocks must be in progress for the consumer never to wait, plus one to absorb
 * variation. When the consumer had to wait, the depth rises at once, to that number or by half;
 * after many blocks that were all ready it falls by one, but not below that number. The order of
 * elements does not depend on it.
 *
 * thread   the consumer's */
#include "pipeline/engine/op_iterator.h"

typedef enum mr__supply {
    MR_SUPPLY_LATE,   /* the consumer had to wait, and more depth can help */
    MR_SUPPLY_READY,  /* the block was ready */
    MR_SUPPLY_NEITHER /* does not affect the depth */
} mr__supply;

/* Zeroed memory: not tuned. */
typedef struct mr__auto_parallelism {
    mr_iter *it;           /* NULL: not tuned */
    const char *parameter; /* the one that was auto */
    size_t now, least, most;
    unsigned ready; /* number of consecutive blocks that were ready */
    double service, interval;
    double got; /* when the consumer received its last block; 0: not yet */
} mr__auto_parallelism;

/* Starts at depth `now`, between `least` and `most`. */
void mr__auto_parallelism_start(mr__auto_parallelism *d, mr_iter *it, const char *parameter,
                                size_t least, size_t now, size_t most);
/* The consumer, which requested a block at time `asked` (mr_iter_now), received one that took
 * `service` seconds to produce. */
void mr__auto_parallelism_took(mr__auto_parallelism *d, double asked, double service,
                               mr__supply supply);
#endif
