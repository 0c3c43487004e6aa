/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_GRAPH_WALK_H
#define MR_SHARD_PASSES_GRAPH_WALK_H
/* Visits every node of a graph once, inputs before their users, without recursion and with the path
 * of each node ("prefetch/zip[1]/range") for explanations. Does not enter function bodies. Private
 * to shard/.
 *
 * thread   one at a time per object */
#include "pipeline/graph/op.h"

typedef struct mr__walk mr__walk;

/* Called for each node: old is the node in the graph, now the same node over its new inputs
 * (taken). Returns the replacement, owned; a dataset that carries an error ends the walk. */
typedef mr_dataset *(*mr__walk_fn)(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w);

/* *out = ds rebuilt (ds itself, with a new reference, if nothing changed). ds is unchanged. */
mr_code mr__walk_graph(mr_dataset *ds, mr__walk_fn fn, void *ctx, mr_dataset **out,
                       mr_status *st) MR_NODISCARD;

/* The same for a function that only reads the nodes; an error ends the walk. */
typedef mr_code (*mr__visit_fn)(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st);
mr_code mr__visit_graph(mr_dataset *ds, mr__visit_fn fn, void *ctx, mr_status *st) MR_NODISCARD;

/* During the call of fn: the path of the node, and its number in preorder from the sink (nodes
 * before their inputs). */
void mr__walk_path(const mr__walk *w, char *buf, size_t size);
size_t mr__walk_preorder(const mr__walk *w);

/* Appends a node to a path; input: the index of the input taken from the last node if it has
 * several, else -1. */
void mr__path_append(char *path, size_t size, int64_t input, const char *op);
#endif
