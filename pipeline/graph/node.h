/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_NODE_H
#define MR_PIPELINE_GRAPH_NODE_H
/* Internals of a dataset, for graph/ and engine/ only.
 *
 * A graph is immutable, but some ops keep state for all iterators of one dataset *object*:
 * shuffle's seed generator, a memory cache. That state belongs to an instance: opening an iterator
 * makes private copies of the nodes (mr__dataset_instance), and so does each call of a
 * dataset-valued function. Thus two iterators opened by the user share no state, but all epochs of
 * one iterator do.
 *
 * thread   any */
#include "op.h"
#include "pipeline/graph/graph_internal.h"

/* The distinct nodes of a graph in topological order, each after its inputs; ds is the last. Does
 * not include datasets within parameters. */
typedef struct mr__nodes {
    mr_dataset **v; /* borrowed from the graph */
    size_t n;
    size_t *inputs; /* indices in v of the inputs of v[0], then of v[1], ... */
} mr__nodes;
mr_code mr__nodes_of(const mr_dataset *ds, mr__nodes *out, mr_status *st) MR_NODISCARD;
void mr__nodes_reset(mr__nodes *nodes);

/* The parameter table of an op; a compound literal of the enclosing block. */
#define MR__TABLE(op) (&(const mr_param_table){(op)->name, (op)->params, (op)->params_size})

/* Checks a descriptor, as mr_op_register does. */
mr_code mr__op_check(const mr_op *op, mr_status *st) MR_NODISCARD;

/* A private copy of the graph over the same bodies (op, params, spec): shared nodes stay shared
 * within the copy. Datasets that are values (elements, captures) are not copied. Owned; NULL if out
 * of memory. */
mr_dataset *mr__dataset_instance(const mr_dataset *ds);

/* Number of occurrences of sources in the graph's text, those in functions excluded; mod 2^64. */
uint64_t mr__dataset_n_sources(const mr_dataset *ds);
/* Their number in the inputs before input i. */
uint64_t mr__dataset_sources_before(const mr_dataset *ds, size_t i);
/* In mr__dataset_all_props: an op opens a random op more than once. */
#define MR__OPENS_RANDOM (UINT32_C(1) << 31)
/* MR_OP_OPENS_LATER of ds itself, with these parameters. */
bool mr__dataset_opens_later(const mr_dataset *ds);
/* The number of elements that the graph alone determines. Not known where files were counted, which
 * may have changed by the time when they are read, or where it is asserted: an iterator learns the
 * truth from the end only. */
int64_t mr__dataset_fixed_count(const mr_dataset *ds);

/* Check a dataset that is stored as a value: the writer of the store decides what it does.
 * It must not write files; outside of a file that the user trusts, it must not reach what is
 * outside of it either (MR_OP_OUTSIDE, and functions for which `reads` returns true), unless the
 * graph `runs` (NULL: none), which holds the value, does.
 * errors   MR_PERMISSION_DENIED */
mr_code mr__stored_dataset_writes(const mr_dataset *ds, mr_status *st) MR_NODISCARD;
mr_code mr__stored_dataset_reads(const mr_dataset *ds, const mr_dataset *runs,
                                 bool (*reads)(const char *function), mr_status *st) MR_NODISCARD;
bool mr__op_is_built_in(const mr_op *op);

/* Replaces the spec of ds by `spec`, which leaves more unknown; does nothing if `spec` does not
 * cover it. ds is new: no other thread may use it. */
void mr__dataset_widen(mr_dataset *ds, const mr_spec *spec);
/* True if mr__dataset_widen replaced the spec. */
bool mr__dataset_widened(const mr_dataset *ds);

/* In the text of a function: the first argument of ds, the names of a source's files, is a constant
 * there. ds is new, as above. */
void mr__dataset_set_literal(mr_dataset *ds);
bool mr__dataset_is_literal(const mr_dataset *ds);

/* Returns the node's shared state in *out. The first call allocates `size` zeroed bytes and calls
 * init(state) unless NULL; destroy(state) is called when the node is freed. Thread safe. */
mr_code mr__dataset_shared(mr_dataset *ds, size_t size, void (*init)(void *),
                           void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
#endif
