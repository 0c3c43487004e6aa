/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_DRAWS_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_DRAWS_H
/* Random draws of functions with MR_FUNCTION_DRAWS. The words of a call are a function of
 *
 *     its seed, the job's seed, the number of the call within its function, and the identities of
 *     the records that the element was made of
 *
 * So they do not depend on threads, blocks, workers and later ops, and differ in each epoch.
 * Iterators of graphs with such functions keep identities (mr__graph_draws); if an element has no
 * identities, as outside of functions of elements, the seeds alone determine the words.
 *
 *     mr__draws d = mr__draws_of(r, row, p->seed);
 *     for (size_t i = 0; i < n; i++)
 *         to[i] = mr__draw_uniform(&d);
 *
 * Private to pipeline/.
 *
 * thread   one at a time per mr__draws */
#include "pipeline/functions/compiler/program.h"
#include "pipeline/graph/dataset.h"

struct mr_rows;

typedef struct mr__draws {
    uint64_t key, n; /* words drawn */
} mr__draws;

mr__draws mr__draws_of(const struct mr_rows *r, size_t row, int64_t seed);
/* The same for one of the `parts` parts of the row, such as an element of a batch: uses its
 * share of the row's identities, so that it draws the same words as it would alone. If the
 * identities cannot be divided evenly, uses all of them and the part's number. */
mr__draws mr__draws_of_part(const struct mr_rows *r, size_t row, size_t part, size_t parts,
                            int64_t seed);

/* A uniform integer in 0..n - 1 (n > 0); a uniform number in [0, 1) with 53 bits. */
uint64_t mr__draw_below(mr__draws *d, uint64_t n);
double mr__draw_uniform(mr__draws *d);

/* *out = whether a function in ds, at any depth, calls one that draws. */
mr_code mr__graph_draws(const mr_dataset *ds, bool *out, mr_status *st) MR_NODISCARD;
/* true: fn itself, or a function in it, draws. */
bool mr__fn_draws(const mr_fn *fn);
#endif
