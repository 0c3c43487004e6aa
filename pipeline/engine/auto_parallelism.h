/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_AUTO_PARALLELISM_H
#define MR_PIPELINE_ENGINE_AUTO_PARALLELISM_H
/* How many blocks to work at, or to read ahead, where a graph says auto: as few as the consumer's
 * rate needs.
 *
 *     consumer   | own work |wait| own work |        interval: its own work between two blocks
 *     producers  | a block ......... |               service: one block's way
 *
 * service / interval blocks must be under way for the consumer never to wait, and one more for what
 * varies. A consumer that had to wait raises the depth at once, to that or by half; after many
 * blocks that were all ready it falls by one, down to that. The order of elements does not depend
 * on it.
 *
 * thread   the consumer's */
#include "pipeline/engine/op_iterator.h"

typedef enum mr__supply {
    MR_SUPPLY_LATE,   /* the consumer came before the block, and more depth can help */
    MR_SUPPLY_READY,  /* the block was there */
    MR_SUPPLY_NEITHER /* it says nothing of the depth */
} mr__supply;

/* Zeroed memory is one that is not tuned. */
typedef struct mr__auto_parallelism {
    mr_iter *it;           /* NULL: not tuned */
    const char *parameter; /* that was auto */
    size_t now, least, most;
    unsigned ready; /* blocks in a row that were */
    double service, interval;
    double got; /* when the consumer had its last block; 0: it had none */
} mr__auto_parallelism;

/* Begins at `now`, between `least` and `most`. */
void mr__auto_parallelism_start(mr__auto_parallelism *d, mr_iter *it, const char *parameter,
                                size_t least, size_t now, size_t most);
/* The consumer, which asked for a block at `asked` (mr_iter_now), has one that took `service`
 * seconds to make. */
void mr__auto_parallelism_took(mr__auto_parallelism *d, double asked, double service,
                               mr__supply supply);
#endif
