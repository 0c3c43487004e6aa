/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_REWRITE_H
#define MR_PIPELINE_GRAPH_REWRITE_H
/* Rewrites of a graph. A pass turns a graph into another one and records its decisions as an
 * explanation. The passes are in shard/passes/.
 *
 * thread   any
 * since    0.1 */
#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Decisions, in the order they were made. */
typedef struct mr_decision {
    char *what;   /* short key: "policy", "sharding", "seed", "prefetching", "warning" */
    char *detail; /* one sentence for people */
    char *op;     /* path of the op that it concerns; may be NULL */
} mr_decision;
typedef struct mr_explanation {
    mr_decision *v;
    size_t n, capacity;
} mr_explanation;

/* Frees all decisions. */
MR_API void mr_explanation_reset(mr_explanation *e);
/* Adds a decision; e NULL: no-op. */
MR_API mr_code mr_explain(mr_explanation *e, const char *what, const char *op, mr_status *st,
                          const char *fmt, ...) MR_PRINTF(5, 6);

/* A pass. run returns the new graph (owned), or a reference to ds if nothing changed. It never
 * modifies ds, and leaves *out and e unchanged on failure. */
typedef struct mr_pass {
    const char *name, *doc;
    mr_code (*run)(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st);
} mr_pass;

/* Runs a pass and checks its result: the new graph carries no error, and its elements have the same
 * types as before. On failure *out is unchanged, and decisions of the pass are removed from e. */
MR_API mr_code mr_pass_run(const mr_pass *pass, void *ctx, mr_dataset *ds, mr_dataset **out,
                           mr_explanation *e, mr_status *st) MR_NODISCARD;

/* Rebuilds ds bottom-up: fn(ctx, node) takes over a node with its new inputs and returns the node
 * that replaces it. A shared node is visited once. The bodies of functions are not visited. */
MR_API mr_dataset *mr_dataset_transform(mr_dataset *ds,
                                        mr_dataset *(*fn)(void *ctx, mr_dataset *node), void *ctx);

/* Sets *out to true if a function among the parameters of ds calls an op of this role at any
 * depth. */
MR_API mr_code mr_dataset_functions_have_role(const mr_dataset *ds, mr_role role, bool *out,
                                              mr_status *st) MR_NODISCARD;

/* *op = an op that keeps elements in a file (MR_P_KEEPS_FILE), in the functions of ds at any depth,
 * or in the datasets among its parameters; NULL: not found. */
MR_API mr_code mr_dataset_functions_keep_files(const mr_dataset *ds, const mr_op **op,
                                               mr_status *st) MR_NODISCARD;

/* *op = an op that writes files (MR_P_WRITES is set), in ds, in its functions at any depth, or in
 * the datasets among its parameters; NULL: not found. since 0.2 */
MR_API mr_code mr_dataset_writes(const mr_dataset *ds, const mr_op **op,
                                 mr_status *st) MR_NODISCARD;

/* Calls fn for every literal file name or pattern that is an argument of an op that reads or lists
 * files, in the graph and in its functions; computed names are skipped. Stops at the first code
 * other than MR_OK and returns it. */
typedef mr_code (*mr_file_name_fn)(void *ctx, const char *name, mr_status *st);
MR_API mr_code mr_dataset_file_names(const mr_dataset *ds, mr_file_name_fn fn, void *ctx,
                                     mr_status *st) MR_NODISCARD;

/* For ds, which reads files (MR_ROLE_FILES): makes the function of a file name that reads this file
 * as ds does, f => tfrecord(f, ...). It has the op and parameters of ds, with f as the parameter
 * MR_P_PATTERN, and without MR_P_READS. A parameter MR_P_OF_SPEC is set to the names or types of
 * the components, whether ds sets it or not. Returns owned in *out. */
MR_API mr_code mr_dataset_read_function(const mr_dataset *ds, mr_fn **out,
                                        mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
