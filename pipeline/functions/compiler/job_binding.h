/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_BINDING_H
#define MR_PIPELINE_FUNCTIONS_BINDING_H
/* What a program takes from the job that runs it. Private to pipeline/. */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/wait/cancel.h"

/* The job's seed for what p draws (0: none), and what ends its waits for a pipe (NULL: nothing;
 * borrowed as long as p runs). p must be in use by nobody else yet. */
void mr__program_bind(const mr_program *p, uint64_t seed, mr_cancel *cancel);
#endif
