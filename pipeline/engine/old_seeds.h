/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OLD_SEEDS_H
#define MR_PIPELINE_ENGINE_OLD_SEEDS_H
/* In version 0.1 the graphs of a job's workers and streams had a seed in each random op, derived
 * from the job's and from the op's position among all of the rewritten graph. Runs that began there
 * continue with these seeds, which are in the texts of their positions.
 *
 * thread   any */
#include "pipeline/graph/dataset.h"

/* *out = ds with the seeds that `text` has, if it is the text of ds but for seeds of ops that draw
 * from a job's seed in ds; else NULL. */
mr_code mr__with_old_seeds(mr_dataset *ds, const char *text, size_t n, mr_dataset **out,
                           mr_status *st) MR_NODISCARD;
#endif
