/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_REWRITE_H
#define MR_PIPELINE_GRAPH_REWRITE_H
/* Passes over a graph: graph in, graph out, each with an explanation of its decisions as data. The
 * passes themselves live above (shard/).
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
    char *detail; /* one sentence for a person */
    char *op;     /* path of the op it is about; NULL: none */
} mr_decision;
typedef struct mr_explanation {
    mr_decision *v;
    size_t n, capacity;
} mr_explanation;

/* Frees all decisions. */
MR_API void mr_explanation_reset(mr_explanation *e);
/* Adds a decision; e NULL: nothing. */
MR_API mr_code mr_explain(mr_explanation *e, const char *what, const char *op, mr_status *st,
                          const char *fmt, ...) MR_PRINTF(5, 6);

/* A pass. run returns the new graph (owned; a reference to ds if nothing changed), never touches
 * ds, and changes nothing on failure: all or nothing. */
typedef struct mr_pass {
    const char *name, *doc;
    mr_code (*run)(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st);
} mr_pass;

/* Runs a pass and checks what it made: the graph carries no error and its element types are those
 * of the input. */
MR_API mr_code mr_pass_run(const mr_pass *pass, void *ctx, mr_dataset *ds, mr_dataset **out,
                           mr_explanation *e, mr_status *st) MR_NODISCARD;

/* Rebuilds ds bottom-up: fn(ctx, node with its new inputs (taken)) returns what replaces it. A node
 * reached twice is visited once. Functions' bodies are not entered. */
MR_API mr_dataset *mr_dataset_transform(mr_dataset *ds,
                                        mr_dataset *(*fn)(void *ctx, mr_dataset *node), void *ctx);

/* *out = a function among ds's parameters calls an op of this role, however deep inside it. */
MR_API mr_code mr_dataset_functions_have_role(const mr_dataset *ds, mr_role role, bool *out,
                                              mr_status *st) MR_NODISCARD;

/* Calls fn for every name or pattern of a file that the graph's text has, also in functions, as the
 * argument of an op that reads or lists files; names that are computed are left out. Ends with the
 * first code that is not MR_OK, which it returns. */
typedef mr_code (*mr_file_name_fn)(void *ctx, const char *name, mr_status *st);
MR_API mr_code mr_dataset_file_names(const mr_dataset *ds, mr_file_name_fn fn, void *ctx,
                                     mr_status *st) MR_NODISCARD;

/* For ds, which reads files (MR_ROLE_FILES): the function of one name that reads that file as ds
 * does, f => tfrecord(f, ...): its op and parameters, but those that are MR_P_PATTERN, in whose
 * place f stands, and MR_P_READS. One that is MR_P_OF_SPEC has the names of the components, or
 * their types, also where it was not given. Returns owned in *out. */
MR_API mr_code mr_dataset_read_function(const mr_dataset *ds, mr_fn **out,
                                        mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
