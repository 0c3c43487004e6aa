/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_BUILTIN_H
#define MR_PIPELINE_FUNCTIONS_BUILTIN_H
/* The functions that expressions may call: one descriptor each, listed in builtins.def. What knows
 * record formats (parse_example, decode_raw) is implemented in ops/, above.
 *
 * thread   descriptors are static; run may be called from several threads at once */
#include <stdint.h>
#include "../graph/expr.h"
#include "../graph/spec.h"

/* An argument as typing sees it. */
typedef struct mr_builtin_arg {
    const char *key; /* NULL: by position */
    const mr_expr
        *expr; /* as it was written; record-form arguments and features are read from it */
    const mr_spec *spec; /* NULL: not an expression by itself (dtype names, features) */
} mr_builtin_arg;

/* Where run reports the errors of single rows. */
typedef struct mr_row_sink mr_row_sink;
void mr__row_fail(mr_row_sink *sink, size_t row, mr_code code, const char *fmt, ...)
    MR_PRINTF(4, 5);

typedef struct mr_builtin {
    const char *name, *doc;
    /* How many of the arguments are expressions to evaluate (from the first one); the others are
     * read from their text by `type`. -1: all. */
    int n_values;
    /* Types a call: *out the result's spec (owned), *plan what run needs (NULL: nothing). The
     * message of an error needs no place: the caller adds it. */
    mr_code (*type)(const mr_builtin_arg *args, size_t n, mr_spec **out, void **plan,
                    mr_status *st);
    void (*free_plan)(void *plan);
    /* Evaluates `rows` rows: args[i] is the column of argument i, of `rows` rows and never RAGGED
     * (rows of several shapes come one at a time). columns: one for each leaf of the result, to be
     * filled. Rows that fail are reported and may hold anything. */
    mr_code (*run)(const void *plan, const mr_array *args, size_t n, size_t rows, mr_array *columns,
                   mr_row_sink *errors, mr_status *st);
} mr_builtin;

/* By name; NULL: none. */
const mr_builtin *mr__builtin_find(const char *name);
/* A dtype written as text ("float32") or as a bare name (float32). */
mr_code mr__builtin_dtype(const mr_builtin_arg *arg, mr_dtype *out, mr_status *st);
#endif
