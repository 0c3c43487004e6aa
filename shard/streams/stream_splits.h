/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_STREAM_SPLITS_H
#define MR_SHARD_STREAMS_STREAM_SPLITS_H
/* The splits of a graph are parts of its sources. Streams ask for them, and each split is given to
 * one stream. A stream runs the graph over its own list of splits, in order:
 *
 *     tfrecord(files).map(f).batch(32)   a file is a split
 *     list_files(p).flat_map(tfrecord)   the name of a file is one
 *     range(10000).batch(32)             a range of the numbers, or of slices
 *     range(10).take(7).batch(2)         all of take's result is one
 *
 * Sources are looked for past the same ops as in mr_cut_stream. At any other op with inputs the
 * search stops, and all of that op's result is one split. So every element of the graph comes once,
 * whichever stream has which split. A zip whose first input reads files can be split if its other
 * inputs read the same files in step with it.
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_RANGE_SPLITS = 256 }; /* of a range, or of slices that name no files */

typedef enum mr_split_kind {
    MR_SPLIT_FILES,
    MR_SPLIT_NUMBERS,
    MR_SPLIT_SLICES,
    MR_SPLIT_WHOLE
} mr_split_kind;

/* A node that has splits of its own. */
typedef struct mr_split_source {
    mr_dataset *ds; /* borrowed */
    mr_split_kind kind;
    int64_t first, n; /* its splits are numbers first to first + n - 1 of the graph's */
    int64_t each;     /* elements of one, where it is a range of them */
} mr_split_source;

/* *n = how many splits ds has. Patterns of files must have been replaced by the names that they
 * match.
 * errors   MR_FAILED_PRECONDITION: a zip whose inputs would come apart; what ds carries */
MR_API mr_code mr_count_splits(mr_dataset *ds, int64_t *n, mr_status *st) MR_NODISCARD;

/* The elements of split number k of s, from 0 to s->n - 1; owned, may carry an error. */
MR_API mr_dataset *mr_split_dataset(const mr_split_source *s, int64_t k);

/* *out (owned) = ds with each source replaced by what feed returns for it: a dataset of the same
 * element types, taken over, which may carry an error.
 * errors   as mr_count_splits; what feed's results carry */
MR_API mr_code mr_feed_splits(mr_dataset *ds,
                              mr_dataset *(*feed)(void *ctx, const mr_split_source *s), void *ctx,
                              mr_dataset **out, mr_explanation *e, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
