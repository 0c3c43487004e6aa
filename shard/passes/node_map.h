/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_NODE_MAP_H
#define MR_SHARD_PASSES_NODE_MAP_H
/* Data of a rewrite about each node of a graph: a hash table by address. Start it zeroed. Private
 * to shard/.
 *
 * thread   one at a time per object */
#include "pipeline/graph/op.h"

typedef struct mr__node_map {
    struct mr__node_entry {
        const mr_dataset *node; /* NULL: free */
        uintptr_t value;
    } * slots;
    size_t size, used;
} mr__node_map;

/* The node's value, which may be changed in place until the next set; NULL: it has none. */
uintptr_t *mr__node_map_get(const mr__node_map *m, const mr_dataset *node);
mr_code mr__node_map_set(mr__node_map *m, const mr_dataset *node, uintptr_t value,
                         mr_status *st) MR_NODISCARD;
void mr__node_map_reset(mr__node_map *m);
#endif
