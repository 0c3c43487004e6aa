/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_ELASTIC_SCHEDULE_H
#define MR_SHARD_DISTRIBUTE_ELASTIC_SCHEDULE_H
/* How many rows each stream of an elastic job gives to a step. It depends only on the number of
 * streams, the global batch size, the number of the step, and which streams have ended before it:
 * not on workers or replicas. Step k takes from the n live streams
 *
 *     q = batch / n rows each, and one more from the j-th of them if (j - k t) mod n < t,
 *     t = batch mod n,
 *
 * but from none more than twice its part of a batch with all streams. Stream s belongs to replica
 * floor(s N / S) of N. Private to shard/.
 *
 * thread   one at a time per object */
#include <stdbool.h>
#include <stdint.h>

typedef struct mr__schedule {
    int64_t streams, batch; /* S, the global batch size */
    int64_t step;           /* k, counted in the epoch */
    int64_t n_live;
    bool *live; /* streams of them; the owner's */
} mr__schedule;

/* The rows of the j-th live stream in the current step. */
int64_t mr__schedule_share(const mr__schedule *s, int64_t j);
/* The first stream of replica r of n: replica r has those up to the first of r + 1. */
static inline int64_t mr__schedule_first_stream(int64_t streams, int64_t r, int64_t n)
{
    return r * (streams / n) + (r * (streams % n) + n - 1) / n;
}
#endif
