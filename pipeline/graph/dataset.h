/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_DATASET_H
#define MR_PIPELINE_GRAPH_DATASET_H
/* A dataset: an immutable, reference-counted node of a graph: an op, its parameters, its inputs.
 *
 *     mr_dataset *ds = mr_batch(mr_shuffle(mr_range(0, 100, 1), 10, NULL), 32, NULL);
 *
 * A constructor (pipeline/ops: sources.h, sequence.h, batch.h, apply.h) takes over its inputs,
 * also on failure, and always returns a dataset. A bad call returns one that carries its error.
 * Every op above it carries the same error, which mr_iterator_open (or mr_dataset_check) returns,
 * so that not every line needs a check.
 *
 * A dataset has three equal forms: C calls, text and protobuf, each convertible into the others.
 *
 * thread   any
 * since    0.1 */
#include "../params/param.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_INFINITE      (-1)
#define MR_UNKNOWN_COUNT (-2)

MR_API mr_dataset *mr_dataset_ref(mr_dataset *ds); /* returns ds */
MR_API void mr_dataset_unref(mr_dataset *ds);      /* NULL: nothing */

/* The same for functions, which functions/compiler/function.h makes. */
MR_API mr_fn *mr_fn_ref(mr_fn *fn);
MR_API void mr_fn_unref(mr_fn *fn);

/* MR_OK, or the error that ds carries. */
MR_API mr_code mr_dataset_check(const mr_dataset *ds, mr_status *st) MR_NODISCARD;
/* What its elements look like; NULL if it carries an error. Borrowed from ds. */
MR_API const mr_spec *mr_dataset_spec(const mr_dataset *ds);
/* Number of elements, MR_INFINITE, or MR_UNKNOWN_COUNT. */
MR_API int64_t mr_dataset_cardinality(const mr_dataset *ds);

/* Names and functions that an expression may use besides the grammar's own. */
typedef struct mr_env {
    const char *const *names; /* names[i] stands for values[i] */
    const mr_value *values;
    size_t n;
    /* Calls function `name` in a plain argument; MR_NOT_FOUND: there is none. NULL: none at all. */
    mr_code (*call)(void *ctx, const char *name, const mr_value *args, size_t n_args, mr_value *out,
                    mr_status *st);
    void *ctx;
} mr_env;

/* Text to graph. env NULL: nothing but the grammar's names (and functions registered through
 * mr_fn_register).
 * errors   MR_INVALID_ARGUMENT: syntax, unknown op, argument of a wrong type or out of range, types
 *          that never fit; the message shows line and caret. *out is untouched */
MR_API mr_code mr_dataset_from_text(const char *text, size_t size, const mr_env *env,
                                    mr_dataset **out, mr_status *st) MR_NODISCARD;
/* Graph to text that gives the same graph again; defaults are left out. Owned: mr_free.
 * errors   MR_FAILED_PRECONDITION: a C function without a registered name, a C array as source */
MR_API mr_code mr_dataset_to_text(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;

/* Graph to and from its protobuf form (graph.proto). bytes owned: mr_free.
 * errors   MR_INVALID_ARGUMENT: malformed, unknown op or parameter (names it and the versions) */
MR_API mr_code mr_dataset_to_proto(const mr_dataset *ds, void **bytes, size_t *size,
                                   mr_status *st) MR_NODISCARD;
MR_API mr_code mr_dataset_from_proto(const void *bytes, size_t size, mr_dataset **out,
                                     mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
