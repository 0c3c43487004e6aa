/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_STREAMS_STREAM_CUT_H
#define MR_SHARD_STREAMS_STREAM_CUT_H
/* Cuts a graph into S streams. Each is a graph; together they yield every element exactly once:
 *
 *     tfrecord(files).map(f).batch(32)  ->  (names).shard(S, s).flat_map(tfrecord).map(f).batch(32)
 *     range(10).map(f).batch(32)        ->  range(10).shard(S, s).map(f).batch(32)
 *     range(10).take(7).batch(2)        ->  range(10).take(7).shard(S, s).batch(2)
 *
 * The shard is placed as close to the sources as possible. It moves past an op if a shard of the
 * op's input yields a shard of its output (MR_OP_KEEPS_SHARDS, op.h). File patterns must already
 * be replaced by the names that they match, because files are assigned by name.
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_MOST_STREAMS = 65536, MR_AUTO_STREAMS = 8 };

typedef struct mr_stream_cut_opts {
    int64_t streams; /* S, 1 to MR_MOST_STREAMS */
    int64_t stream;  /* number of this stream, 0 to S - 1 */
    uint64_t seed;   /* seed of the job. A random op without a seed gets one that is derived from
                        this seed alone if the op runs identically in every stream, and from this
                        seed and `stream` otherwise */
    /* Returns how many names a source of file names (MR_OP_FILE_NAMES) yields, or
     * MR_UNKNOWN_COUNT. NULL: unknown */
    int64_t (*count_names)(void *ctx, const mr_dataset *source);
    void *ctx;
    /* For an elastic job: a shuffle of n records becomes one of ceil(n / S) in each stream, and a
     * shuffle of the names of files that are read above it runs identically in every stream. The
     * inputs of a mixture are cut, and each stream draws its own one; so are those of a zip of the
     * same files. */
    bool elastic;
    /* Returns what takes the place of a shard of `whole` (taken over), which cannot be cut. NULL:
     * every stream runs it, and keeps its elements. place: of `whole` in the graph
     * (graph/origin_internal.h). */
    mr_dataset *(*deal)(void *ctx, mr_dataset *whole, uint64_t place);
    void *deal_ctx;
} mr_stream_cut_opts;

/* *out = the graph of one stream, owned by the caller; e (may be NULL) receives the decisions.
 * *run_seed (may be NULL) = the value of mr_iterator_opts.seed with which to run the stream: random
 * ops inside functions draw from it.
 * errors   MR_INVALID_ARGUMENT: an option is out of range; the error that ds carries;
 *          MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_cut_stream(mr_dataset *ds, const mr_stream_cut_opts *opts, mr_dataset **out,
                             uint64_t *run_seed, mr_explanation *e, mr_status *st) MR_NODISCARD;

/* *out = a suitable number of streams for ds: MR_AUTO_STREAMS, or the number of files that ds reads
 * if it reads fewer, but at least 1. Of opts (may be NULL) only count_names and ctx are used.
 * errors   the error that ds carries; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_count_streams(mr_dataset *ds, const mr_stream_cut_opts *opts, int64_t *out,
                                mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
