/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_DIST_DATA_INTERNAL_H
#define MR_SHARD_DISTRIBUTE_DIST_DATA_INTERNAL_H
/* What a run must know of its data to decide whether another run, with other numbers of workers and
 * replicas, reads the same in the same order. For the trainer. */
#include "shard/distribute/distribute.h"

typedef struct mr__dist_data {
    char *graph;    /* text of the graph as the user wrote it, shortened as in positions; NULL: an
                    input function */
    uint64_t files; /* a hash of the names of all files that its texts name or match; 0: not
                            known */
    bool has_seed;  /* random ops without a seed draw from `seed` */
    uint64_t seed;
    bool draws;   /* some do */
    bool repeats; /* a pass can be read again: no outside producer, nothing without an order */
    bool passes;  /* what a pass reads depends on whether earlier ones were read: of ops that open
                       their inputs while they run, or remember them */
} mr__dist_data;

/* Looks at the files too. */
mr_code mr__dist_data_of(const mr_dist_dataset *dd, mr__dist_data *out, mr_status *st) MR_NODISCARD;
void mr__dist_data_reset(mr__dist_data *d);
#endif
