/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_GRAPH_BRANCHES_H
#define MR_SHARD_PASSES_GRAPH_BRANCHES_H
/* A rewrite that follows each branch of a graph, from the sink towards the sources, to a node at
 * which the input can be divided. The walk only looks at nodes and marks them; if it succeeds on
 * every branch, the graph is rebuilt according to the marks. So if one branch cannot be divided,
 * the others stay unchanged too. Private to shard/.
 *
 * thread   one at a time per object */
#include "pipeline/memory/id_map.h"
#include "shard/passes/shard_passes.h"

/* Marks of nodes; values from MR__OWN_MARK on belong to the rewrite. */
enum {
    MR__WALKED = 1, /* unchanged: the walk continued to its inputs */
    MR__DROP,       /* removed: it asserts something that is false for a part of the data */
    MR__OWN_MARK
};

typedef struct mr__branches {
    const mr_auto_shard_opts *opts;
    /* Looks at a node during the walk. *ends: the branch ends here, and a mark was set on this node
     * or another. An error ends the rewrite. */
    mr_code (*look)(struct mr__branches *k, mr_dataset *ds, const char *path, bool *ends,
                    mr_status *st);
    /* Returns the replacement of a node with a mark of the rewrite, whose inputs have been rebuilt:
     * `now` is taken. */
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
