/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_IMPL_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_IMPL_H
/* What the engine and ops do with a program besides running it. Private to pipeline/. */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/wait/cancel.h"

/* Sets the job's seed for p's random functions (0: none), and what ends its waits for a pipe (NULL:
 * nothing; borrowed as long as p runs). p must not be in use yet. */
void mr__program_bind(const mr_program *p, uint64_t seed, mr_cancel *cancel);

/* ---- memory of a row on its way through, intermediate values included ---- */

/* Bytes of the widest value of a row, as far as shapes are known when the graph is built; 0: they
 * are not. Values that do not depend on the row do not count. */
size_t mr__program_row_bytes(const mr_program *p);
/* mr_program_run; *bytes = the most that one intermediate value took, for all rows of `in`. */
mr_code mr__program_run_measured(const mr_program *p, const mr_block *in, mr_block *out,
                                 mr_row_errors *errors, size_t *bytes, mr_status *st) MR_NODISCARD;
#endif
