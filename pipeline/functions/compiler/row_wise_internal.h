/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_ROW_WISE_INTERNAL_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_ROW_WISE_INTERNAL_H
/* Whether a function of batches treats their rows separately.
 *
 * thread   any */
#include "pipeline/functions/compiler/program.h"

/* p is of batches, and each row of its result depends on the same row of the batch alone. false
 * also if it does, but calls functions that are not known for it. */
bool mr__program_is_row_wise(const mr_program *p);
#endif
