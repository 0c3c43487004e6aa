/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_DATASET_H
#define MR_PIPELINE_GRAPH_DATASET_H
/* A dataset: an immutable, reference-counted node of a graph, which consists of an op, its
 * parameters and its inputs.
 *
 *     mr_dataset *ds = mr_batch(mr_shuffle(mr_range(0, 100, 1), 10, NULL), 32, NULL);
 *
 * A constructor (pipeline/ops: sources.h, sequence.h, batch.h, apply.h) takes its inputs over, also
 * on failure, and always returns a dataset. After an error, the dataset carries the error, and so
 * does every op above it. mr_iterator_open and mr_dataset_check return it, so that calls need no
 * checks in between.
 *
 * A dataset has three equivalent forms, C calls, text and protobuf, which can be converted into
 * each other.
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
MR_API void mr_dataset_unref(mr_dataset *ds);      /* NULL: no-op */

/* The same for functions (functions/compiler/function.h). */
MR_API mr_fn *mr_fn_ref(mr_fn *fn);
MR_API void mr_fn_unref(mr_fn *fn);

/* MR_OK, or the error that ds carries. */
MR_API mr_code mr_dataset_check(const mr_dataset *ds, mr_status *st) MR_NODISCARD;
/* The spec of its elements; NULL if ds carries an error. Borrowed from ds. */
MR_API const mr_spec *mr_dataset_spec(const mr_dataset *ds);
/* Number of elements, MR_INFINITE, or MR_UNKNOWN_COUNT. */
MR_API int64_t mr_dataset_cardinality(const mr_dataset *ds);
/* MR_OK: the dataset is indexed: its elements can be looked up by number (engine/random_access.h),
 * because its sources allow it and every op makes one element of one. Files are not looked at: a
 * TFRecord file without an index is noticed when it is needed. since 0.2
 * errors   the error that ds carries; MR_FAILED_PRECONDITION: the op that is not indexed, by name
 *          */
MR_API mr_code mr_dataset_indexed(const mr_dataset *ds, mr_status *st) MR_NODISCARD;

/* Names and functions that a text may use besides those of the grammar. */
typedef struct mr_env {
    const char *const *names; /* names[i] has the value values[i] */
    const mr_value *values;
    size_t n;
    /* Evaluates a call of function `name` in an argument when the graph is built. Returns
     * MR_NOT_FOUND for an unknown function. NULL: no functions. */
    mr_code (*call)(void *ctx, const char *name, const mr_value *args, size_t n_args, mr_value *out,
                    mr_status *st);
    void *ctx;
} mr_env;

/* Parses text to a graph. env NULL: only names of the grammar, and functions registered with
 * mr_fn_register.
 * errors   MR_INVALID_ARGUMENT: syntax, unknown op, argument of a wrong type or out of range, types
 *          that never fit; the message shows line and caret. *out is unchanged */
MR_API mr_code mr_dataset_from_text(const char *text, size_t size, const mr_env *env,
                                    mr_dataset **out, mr_status *st) MR_NODISCARD;
/* Prints a graph as text that parses to an equal graph; defaults are omitted. Owned: mr_free.
 * URLs keep their secrets: see mr_text_drop_secrets.
 * errors   MR_FAILED_PRECONDITION: a C function without a registered name, a C array as source */
MR_API mr_code mr_dataset_to_text(const mr_dataset *ds, char **out, mr_status *st) MR_NODISCARD;

/* Converts a graph to and from its protobuf form (graph.proto). bytes owned: mr_free.
 * errors   MR_INVALID_ARGUMENT: malformed, unknown op or parameter (names it and the versions) */
MR_API mr_code mr_dataset_to_proto(const mr_dataset *ds, void **bytes, size_t *size,
                                   mr_status *st) MR_NODISCARD;
MR_API mr_code mr_dataset_from_proto(const void *bytes, size_t size, mr_dataset **out,
                                     mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
