/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_ORIGIN_INTERNAL_H
#define MR_PIPELINE_GRAPH_ORIGIN_INTERNAL_H
/* Where a node stood in the graph that the user wrote. Random ops without a seed draw from the
 * job's seed and from their place, so a rewrite, which moves nodes and inserts others, must not
 * change what they draw: before the first one, every node is given its place, which its copies
 * keep.
 *
 *     place(root)     = a constant
 *     place(input i)  = hash(place(node), i, name of the node's op)
 *
 * Nodes of a graph that was not rewritten store no place: their iterators compute it as they are
 * opened. Text does not contain places; protobuf does.
 *
 * thread   any */
#include <string.h>

#include "op.h"
#include "pipeline/fnv.h"
#include "pipeline/splitmix.h"

typedef struct mr__origin {
    bool has_place, has_seed;
    bool in_stream; /* an op of one stream of an elastic job, which has a part of the elements */
    uint64_t place;
    uint64_t seed; /* of the job, or of one of its streams; without it, that of the run */
} mr__origin;

/* The origin of ds; nodes that a rewrite inserted have none. */
mr__origin mr__dataset_origin(const mr_dataset *ds);
/* ds is new: no other thread may use it. Does nothing if ds carries an error. */
void mr__dataset_set_origin(mr_dataset *ds, mr__origin origin);

/* *out = a copy of the graph whose nodes have their places, ds that of `root`; if ds has one, all
 * below have theirs already. seed: nodes that have no seed get this one; NULL: they remain
 * without. */
mr_code mr__dataset_settle(const mr_dataset *ds, uint64_t root, const uint64_t *seed,
                           mr_dataset **out, mr_status *st) MR_NODISCARD;

/* The place of input i of ds, which has the place `place`. */
uint64_t mr__dataset_input_place(const mr_dataset *ds, uint64_t place, size_t i);

/* The protobuf form without origins, which is that of the graph as its user wrote it, and without
 * the secrets of its URLs. */
mr_code mr__dataset_to_bare_proto(const mr_dataset *ds, void **bytes, size_t *size,
                                  mr_status *st) MR_NODISCARD;

#define MR__PLACE_ROOT UINT64_C(0x6d696c6c72616365)

static inline uint64_t mr__mix(uint64_t h, uint64_t v)
{
    return mr__splitmix(h + v + MR__GOLDEN);
}
static inline uint64_t mr__mix_text(uint64_t h, const char *text)
{
    return mr__mix(h, mr__fnv1a(MR__FNV_BASIS, text, strlen(text)));
}
/* Of input i of a node of this op. */
static inline uint64_t mr__place_of_input(uint64_t place, size_t i, const char *op)
{
    return mr__mix_text(mr__mix(place, i + 1), op);
}
/* Of datasets that its functions return. */
static inline uint64_t mr__place_of_values(uint64_t place, const char *op)
{
    return mr__mix_text(place, op);
}
/* What an op without a seed draws from. */
static inline uint64_t mr__seed_at(uint64_t job_seed, uint64_t place, const char *op)
{
    return mr__mix_text(mr__mix(job_seed, place), op);
}
#endif
