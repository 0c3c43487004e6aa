/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_NODE_H
#define MR_PIPELINE_GRAPH_NODE_H
/* Inside of a dataset; for graph/ and engine/ only.
 *
 * A graph is immutable, but some ops keep state for all iterators of one dataset *object*:
 * shuffle's seed generator, a memory cache. That state lives in instances: opening an iterator
 * makes private copies of the nodes (mr__dataset_instance), and so does each call of a
 * dataset-valued function. So two iterators opened by the user never meet, and the epochs of one
 * share what they must.
 *
 * thread   any */
#include "op.h"

/* The distinct nodes that a graph is made of, each after its inputs; ds is the last. Inputs only:
 * datasets inside parameters are not entered. */
typedef struct mr__nodes {
    mr_dataset **v; /* borrowed from the graph */
    size_t n;
    size_t *inputs; /* indices in v of the inputs of v[0], then of v[1], ... */
} mr__nodes;
mr_code mr__nodes_of(const mr_dataset *ds, mr__nodes *out, mr_status *st) MR_NODISCARD;
void mr__nodes_reset(mr__nodes *nodes);

/* An op's table, for as long as the expression that this stands in. */
#define MR__TABLE(op) (&(const mr_param_table){(op)->name, (op)->params, (op)->params_size})

/* What a descriptor must be, as mr_op_register checks it. */
mr_code mr__op_check(const mr_op *op, mr_status *st) MR_NODISCARD;

/* A private copy of the graph above the same bodies (op, params, spec): shared nodes stay shared
 * within the copy. Datasets that are values (elements, captures) are not copied. Owned; NULL: no
 * memory. */
mr_dataset *mr__dataset_instance(const mr_dataset *ds);

/* How often sources stand in the graph's text, not counting those in functions; modulo 2^64. */
uint64_t mr__dataset_n_sources(const mr_dataset *ds);
/* Of them, those in the inputs before input i. */
uint64_t mr__dataset_sources_before(const mr_dataset *ds, size_t i);
/* The props of its op and of all below, or-ed, and: */
#define MR__OPENS_RANDOM (UINT32_C(1) << 31) /* some op opens a random one more than once */
uint32_t mr__dataset_all_props(const mr_dataset *ds);

/* Of the elements of ds, which is new and nobody else has yet, no more is known from here on
 * than `spec` says; it must cover them, or nothing happens. */
void mr__dataset_widen(mr_dataset *ds, const mr_spec *spec);
/* Is less known of them than was before? */
bool mr__dataset_widened(const mr_dataset *ds);

/* *out = this node's shared state: made at the first call as `size` zeroed bytes, then init(state)
 * if not NULL; destroy(state) runs when the node goes. Thread safe. */
mr_code mr__dataset_shared(mr_dataset *ds, size_t size, void (*init)(void *),
                           void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
#endif
