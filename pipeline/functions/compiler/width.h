/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_WIDTH_H
#define MR_PIPELINE_FUNCTIONS_WIDTH_H
/* How much memory a row takes on its way through a function, intermediate values included: what
 * ops bound their blocks by. Private to pipeline/. */
#include "program.h"

/* Bytes of the widest value of a row, as far as shapes are known when the graph is built; 0: they
 * are not. Values that do not depend on the row do not count. */
size_t mr__program_row_bytes(const mr_program *p);
/* mr_program_run; *bytes = the most that one intermediate value took, for all rows of `in`. */
mr_code mr__program_run_measured(const mr_program *p, const mr_block *in, mr_block *out,
                                 mr_row_errors *errors, size_t *bytes, mr_status *st) MR_NODISCARD;
#endif
