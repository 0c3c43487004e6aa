/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_STREAM_SPLITS_H
#define MR_SHARD_STREAMS_STREAM_SPLITS_H
/* The splits of a graph are parts of its sources. Streams request them, and each split is assigned
 * to one stream. A stream runs the graph over its list of splits, in order:
 *
 *     tfrecord(files).map(f).batch(32)   a file is a split
 *     list_files(p).flat_map(tfrecord)   a file name is a split
 *     range(10000).batch(32)             a range of the numbers (or slices) is a split
 *     range(10).take(7).batch(2)         the whole result of take is one split
 *
 * The search for sources passes the same ops as mr_cut_stream. It stops at any other op with
 * inputs, and the whole result of that op is one split. Every element of the graph is therefore
 * read once, whichever stream has which split. A zip whose first input reads files can be split if
 * its other inputs read the same files in step with it.
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_RANGE_SPLITS = 256 }; /* splits of a range, or of slices that are not file names */

typedef enum mr_split_kind {
    MR_SPLIT_FILES,
    MR_SPLIT_NUMBERS,
    MR_SPLIT_SLICES,
    MR_SPLIT_WHOLE
} mr_split_kind;

/* A node that is divided into splits. */
typedef struct mr_split_source {
    mr_dataset *ds; /* borrowed */
    mr_split_kind kind;
    int64_t first, n; /* its splits have the numbers first to first + n - 1 in the graph */
    int64_t each;     /* elements in a split, if a split is a range of elements */
} mr_split_source;

/* *n = the number of splits of ds. File patterns must already be replaced by the names that they
 * match.
 * errors   MR_FAILED_PRECONDITION: a zip whose inputs would get out of step; the error that ds
 *          carries */
MR_API mr_code mr_count_splits(mr_dataset *ds, int64_t *n, mr_status *st) MR_NODISCARD;

/* The elements of split number k of s, from 0 to s->n - 1; owned, may carry an error. */
MR_API mr_dataset *mr_split_dataset(const mr_split_source *s, int64_t k);

/* *out (owned) = ds with each source replaced by what feed returns for it: a dataset of the same
 * element types, taken over, which may carry an error.
 * errors   as mr_count_splits; the errors that feed's results carry */
MR_API mr_code mr_feed_splits(mr_dataset *ds,
                              mr_dataset *(*feed)(void *ctx, const mr_split_source *s), void *ctx,
                              mr_dataset **out, mr_explanation *e, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
