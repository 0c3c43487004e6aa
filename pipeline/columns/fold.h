/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_FOLD_H
#define MR_PIPELINE_COLUMNS_FOLD_H
/* A state that a function updates with each element: for scan and mr_reduce.
 *
 *     state   a -- fn(a, x0) -> b -- fn(b, x1) -> c ...
 *                      `-> out0          `-> out1        scan alone
 *
 * The state keeps its type. If one of its shapes changes, the function is typed for any shape. */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/params/value.h"

typedef struct mr__fold {
    const mr_program *program;
    mr_spec *spec;  /* of the state */
    mr_block state; /* one row */
    mr_block in;    /* the state and an element, while the function runs */
    mr_row_errors errors;
    size_t n; /* columns of the state */
} mr__fold;

/* Types fn for the initial state `init` and elements of `element`. emits: fn returns a pair whose
 * second part has spec *out (owned); else it returns only the state. The results may be NULL.
 * errors   MR_INVALID_ARGUMENT: fn does not return a pair, or returns a state of another type; the
 *          message begins with `who` */
mr_code mr__fold_type(const char *who, mr_fn *fn, const mr_value *init, const mr_spec *element,
                      bool emits, mr_spec **state, mr_spec **out, const mr_program **program,
                      mr_status *st) MR_NODISCARD;
/* The same, and sets the initial state. f must be zeroed. */
mr_code mr__fold_open(mr__fold *f, const char *who, mr_fn *fn, const mr_value *init,
                      const mr_spec *element, bool emits, mr_status *st) MR_NODISCARD;
/* made = the function's result for row `row` of b: the columns of the next state, then those of the
 * output. If the function fails for this row, *failed is set. */
mr_code mr__fold_row(mr__fold *f, const mr_block *b, size_t row, mr_block *made, bool *failed,
                     mr_status *st) MR_NODISCARD;
/* Makes the next state the current one. */
void mr__fold_go_on(mr__fold *f, mr_block *made);
void mr__fold_reset(mr__fold *f);
#endif
