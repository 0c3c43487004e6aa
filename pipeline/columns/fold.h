/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_COLUMNS_FOLD_H
#define MR_PIPELINE_COLUMNS_FOLD_H
/* A state that a function makes anew with each element: of scan and of mr_reduce.
 *
 *     state   a -- fn(a, x0) -> b -- fn(b, x1) -> c ...
 *                      `-> out0          `-> out1        scan alone
 *
 * The state keeps its type; where a shape of it changes, the function is typed for all shapes. */
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

/* Types fn for states that begin with `init` and for elements `element`. emits: it returns a pair,
 * whose second is *out (owned); else it returns the state alone. The results may be NULL.
 * errors   MR_INVALID_ARGUMENT: it returns no pair, or a state of another type; `who` says it */
mr_code mr__fold_type(const char *who, mr_fn *fn, const mr_value *init, const mr_spec *element,
                      bool emits, mr_spec **state, mr_spec **out, const mr_program **program,
                      mr_status *st) MR_NODISCARD;
/* The same, and puts the first state in place. f is zeroed. */
mr_code mr__fold_open(mr__fold *f, const char *who, mr_fn *fn, const mr_value *init,
                      const mr_spec *element, bool emits, mr_status *st) MR_NODISCARD;
/* made = what the function returns for row `row` of b: the columns of the next state, then those of
 * `out`. An error of the function is this row's: *failed is set. */
mr_code mr__fold_row(mr__fold *f, const mr_block *b, size_t row, mr_block *made, bool *failed,
                     mr_status *st) MR_NODISCARD;
/* The next state becomes the state. */
void mr__fold_go_on(mr__fold *f, mr_block *made);
void mr__fold_reset(mr__fold *f);
#endif
