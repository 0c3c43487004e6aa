/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_H
/* A function bound to the spec of its input: typed, compiled, ready to run over blocks. This is the
 * form that ops use.
 *
 *     const mr_program *p;                                   in infer (for the spec) and in open
 *     MR_TRY(mr_program_get(fn, input_spec, &p, st));
 *     mr_program_run(p, &in, &out, &errors, st);             in next or in a task
 *
 * thread   programs are immutable: any number of threads may run one at once
 * since    0.1 */
#include "function.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_program mr_program;

/* Types fn for elements of `in`. The result is cached in fn, so further calls are cheap. *out is
 * owned.
 * errors   MR_INVALID_ARGUMENT: type errors and unknown names, with their place */
MR_API mr_code mr_program_get(mr_fn *fn, const mr_spec *in, const mr_program **out,
                              mr_status *st) MR_NODISCARD;
MR_API void mr_program_unref(const mr_program *p);
/* The spec of its results. If its body is a dataset: one MR_DATASET leaf. */
MR_API const mr_spec *mr_program_output(const mr_program *p);
/* true: it may wait for a long time (mr_fn_opts.may_block). */
MR_API bool mr_program_may_block(const mr_program *p);

/* Errors of single rows, in ascending order of rows. */
typedef struct mr_row_error {
    size_t row; /* of the input block */
    mr_status status;
} mr_row_error;
struct mr_row_errors {
    mr_row_error *v;
    size_t n, capacity;
};
#define MR_ROW_ERRORS_EMPTY                                                                        \
    {                                                                                              \
        0                                                                                          \
    }
MR_API void mr_row_errors_reset(mr_row_errors *e);
MR_API mr_code mr_row_errors_add(mr_row_errors *e, size_t row, const mr_status *status,
                                 mr_status *st) MR_NODISCARD;

/* Runs p over all rows of `in`. out (earlier content is released) receives the in->rows - errors->n
 * rows that succeeded, in order, with their identities. A column whose rows have different shapes
 * is RAGGED. errors must be empty. Fails as a whole only for lack of memory. */
MR_API mr_code mr_program_run(const mr_program *p, const mr_block *in, mr_block *out,
                              mr_row_errors *errors, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
