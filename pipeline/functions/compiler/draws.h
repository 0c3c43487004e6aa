/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_DRAWS_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_DRAWS_H
/* What functions of MR_FUNCTION_DRAWS draw. The words of a call are a function of
 *
 *     its seed, the job's seed, the number of the call within its function, and the identities of
 *     the records that the element was made of
 *
 * and hence the same for any threads, blocks and workers, and whatever ops come after; and others
 * in each epoch. Iterators of graphs with such functions keep identities (mr__graph_draws); where
 * there are none, as outside of functions of elements, the seeds alone decide.
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
/* The same for part `part` of the `parts` that the row consists of, as the elements of a batch: by
 * its share of the row's identities, so that it draws what it would have alone. Where the
 * identities cannot be shared out evenly, by all of them and its number. */
mr__draws mr__draws_of_part(const struct mr_rows *r, size_t row, size_t part, size_t parts,
                            int64_t seed);

/* 0 to n - 1 (n > 0), each equally likely; from 0 to less than 1, of 53 bits. */
uint64_t mr__draw_below(mr__draws *d, uint64_t n);
double mr__draw_uniform(mr__draws *d);

/* *out: a function in ds, at any depth, calls one that draws. */
mr_code mr__graph_draws(const mr_dataset *ds, bool *out, mr_status *st) MR_NODISCARD;
/* fn itself, or a function in it, draws. */
bool mr__fn_draws(const mr_fn *fn);
#endif
