/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_IMPL_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_PROGRAM_IMPL_H
/* Functions on programs for the engine and ops. Private to pipeline/. */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/wait/cancel.h"

/* A further reference to p. */
const mr_program *mr__program_ref(const mr_program *p);

/* Sets the job's seed for p's random functions (0: no seed) and the cancel that ends its waits
 * for a pipe (may be NULL; borrowed as long as p runs). p must not be in use yet. */
void mr__program_bind(const mr_program *p, uint64_t seed, mr_cancel *cancel);

/* The callbacks of a program of mr_fn_rows, else NULL; the `run` that its calls get. */
const mr_rows_fn *mr__program_rows(const mr_program *p);
void mr__program_set_run(const mr_program *p, void *run);

/* For a function that makes datasets: the number of elements of each; MR_UNKNOWN_COUNT: they may
 * differ, or their files would have to be read. */
int64_t mr__program_dataset_count(const mr_program *p);

/* ---- memory of a row while p runs, intermediate values included ---- */

/* Bytes of the widest value of a row, from the shapes known when the graph is built; 0: not known.
 * Values that do not depend on the row do not count. */
size_t mr__program_row_bytes(const mr_program *p);
/* mr_program_run; *bytes = the size of the largest intermediate value, for all rows of `in`. */
mr_code mr__program_run_measured(const mr_program *p, const mr_block *in, mr_block *out,
                                 mr_row_errors *errors, size_t *bytes, mr_status *st) MR_NODISCARD;
#endif
