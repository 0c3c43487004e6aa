/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_GRAPH_WALK_H
#define MR_SHARD_PASSES_GRAPH_WALK_H
/* Going over every node of a graph once, inputs before what uses them, without recursion and with
 * the path of each node ("prefetch/zip[1]/range") for explanations. Functions' bodies are not
 * entered. Private to shard/.
 *
 * thread   one at a time per object */
#include "pipeline/graph/op.h"

typedef struct mr__walk mr__walk;

/* Called for each node: old is the node as it stands in the graph, now the same over its new inputs
 * (taken). Returns what replaces it, owned; a dataset that carries an error ends the walk. */
typedef mr_dataset *(*mr__walk_fn)(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w);

/* *out = ds rebuilt (ds itself, with a new reference, where nothing changed). ds is not touched. */
mr_code mr__walk_graph(mr_dataset *ds, mr__walk_fn fn, void *ctx, mr_dataset **out,
                       mr_status *st) MR_NODISCARD;

/* During the call of fn: path of the node, and its number when nodes are counted before their
 * inputs, from the sink. */
void mr__walk_path(const mr__walk *w, char *buf, size_t size);
size_t mr__walk_preorder(const mr__walk *w);

/* Appends a node to a path; input: which of several inputs led on from the last one, or -1. */
void mr__path_append(char *path, size_t size, int64_t input, const char *op);
#endif
