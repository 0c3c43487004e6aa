/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds for random ops that have none: with several workers, all must draw the same. */
#include "shard/passes/shard_passes.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/splitmix.h"

typedef struct seeding {
    uint64_t seed;
    mr_explanation *e;
    mr_status status;
} seeding;

static mr_dataset *give_seed(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    seeding *s = ctx;
    if (!mr__shuffles(old, MR_OP_RANDOM))
        return now;
    mr_value seed = {0};
    mr_code rc = mr_dataset_param_named(old, "seed", &seed, &s->status);
    bool given = seed.kind != MR_V_UNSET && seed.kind != MR_V_NONE;
    mr_value_reset(&seed);
    if (rc == MR_OK && given)
        return now;
    char path[256];
    mr__walk_path(w, path, sizeof path);
    /* Positions are counted from the sink: they are equal on every worker, because the graphs only
     * differ in numbers. The seed is short because people read it. */
    uint64_t h = mr__splitmix(s->seed + MR__GOLDEN * (mr__walk_preorder(w) + 1));
    seed = (mr_value){.kind = MR_V_INT, .i = (int64_t)(h >> 33)};
    if (rc == MR_OK)
        rc = mr_explain(s->e, "seed", path, &s->status,
                        "%s has no seed: it gets %" PRId64 ", derived from the job's seed %" PRIu64
                        ", so that all workers draw the same",
                        mr_dataset_op(old)->name, seed.i, s->seed);
    mr_dataset *made =
        rc == MR_OK ? mr_dataset_with_param(now, "seed", &seed) : mr_dataset_fail(&s->status);
    mr_dataset_unref(now);
    return made;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    seeding s = {.seed = *(const uint64_t *)ctx, .e = e};
    return mr__walk_graph(ds, give_seed, &s, out, st);
}

static const mr_pass seed_pass = {"job_seed", "seeds unseeded random ops from the job's seed", run};

mr_code mr_seed_random_ops(mr_dataset *ds, uint64_t seed, mr_dataset **out, mr_explanation *e,
                           mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    return mr_pass_run(&seed_pass, &seed, ds, out, e, st);
}
