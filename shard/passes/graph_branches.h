/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_GRAPH_BRANCHES_H
#define MR_SHARD_PASSES_GRAPH_BRANCHES_H
/* A rewrite that follows each branch of a graph, from the sink towards the sources, to where it can
 * divide what is read. First the walk, which only looks and marks; then, if every branch ended
 * well, the graph is rebuilt with what was marked. So a branch that cannot be divided leaves the
 * others as they were. Private to shard/.
 *
 * thread   one at a time per object */
#include "pipeline/memory/id_map.h"
#include "shard/passes/shard_passes.h"

/* Marks of nodes; others, from MR__OWN_MARK on, are the rewrite's. */
enum {
    MR__WALKED = 1, /* nothing is to be done: the walk went on from here */
    MR__DROP,       /* it says what does not hold for a part */
    MR__OWN_MARK
};

typedef struct mr__branches {
    const mr_auto_shard_opts *opts;
    /* Looks at a node on the way. *ends: the branch ends here, and the node's mark, or another's,
     * is set. An error ends the rewrite. */
    mr_code (*look)(struct mr__branches *k, mr_dataset *ds, const char *path, bool *ends,
                    mr_status *st);
    /* What becomes of a node with a mark of the rewrite's, whose inputs have been rebuilt: `now` is
     * taken. */
    mr_dataset *(*act)(struct mr__branches *k, mr_dataset *old, mr_dataset *now, uintptr_t mark,
                       const char *path);
    /* the rest starts zeroed */
    mr_explanation *e;
    mr__id_map marks;
    struct mr__branch *todo;
    size_t n, capacity;
    mr_status status; /* for act */
} mr__branches;

mr_code mr__branches_mark(mr__branches *k, const mr_dataset *node, uintptr_t mark, mr_status *st);
/* Walks and rebuilds. */
mr_code mr__branches_run(mr__branches *k, mr_dataset *ds, mr_dataset **out, mr_explanation *e,
                         mr_status *st) MR_NODISCARD;
#endif
