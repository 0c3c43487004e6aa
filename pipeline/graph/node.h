/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_NODE_H
#define MR_PIPELINE_GRAPH_NODE_H
/* Inside of a dataset; for graph/ and engine/ only.
 *
 * A graph is immutable, but some ops keep state for all iterators of one dataset *object*: shuffle's
 * seed generator, a memory cache. That state lives in instances: opening an iterator makes private
 * copies of the nodes (mr__dataset_instance), and so does each call of a dataset-valued function.
 * So two iterators opened by the user never meet, and the epochs of one share what they must.
 *
 * thread   any */
#include "op.h"

/* A private copy of the graph above the same bodies (op, params, spec): shared nodes stay shared
 * within the copy. Datasets that are values (elements, captures) are not copied. Owned; NULL: no
 * memory. */
mr_dataset *mr__dataset_instance(const mr_dataset *ds);

/* *out = this node's shared state: made at the first call as `size` zeroed bytes, then init(state)
 * if not NULL; destroy(state) runs when the node goes. Thread safe. */
mr_code mr__dataset_shared(mr_dataset *ds, size_t size, void (*init)(void *), void (*destroy)(void *),
                           void **out, mr_status *st) MR_NODISCARD;
#endif
