/* SPDX-License-Identifier: Apache-2.0 */
/* The seed of a job, for random ops that have none: all workers must draw the same, and the same as
 * a single process. */
#include "shard/passes/shard_passes.h"

#include <inttypes.h>

#include "pipeline/graph/origin_internal.h"

typedef struct telling {
    uint64_t seed;
    mr_explanation *e;
} telling;

static mr_code tell(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    telling *t = ctx;
    if (!mr__wants_seed(node))
        return MR_OK;
    char path[256];
    mr__walk_path(w, path, sizeof path);
    return mr_explain(t->e, "seed", path, st,
                      "%s has no seed: it draws from the job's seed %" PRIu64
                      " and its place in the graph, so that all workers draw the same",
                      mr_dataset_op(node)->name, t->seed);
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    telling t = {.seed = *(const uint64_t *)ctx, .e = e};
    if (e)
        MR_TRY(mr__visit_graph(ds, tell, &t, st));
    return mr__dataset_settle(ds, MR__PLACE_ROOT, &t.seed, out, st);
}

static const mr_pass seed_pass = {"job_seed", "random ops without a seed draw from the job's", run};

mr_code mr_seed_random_ops(mr_dataset *ds, uint64_t seed, mr_dataset **out, mr_explanation *e,
                           mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    return mr_pass_run(&seed_pass, &seed, ds, out, e, st);
}
