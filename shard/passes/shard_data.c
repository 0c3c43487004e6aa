/* SPDX-License-Identifier: Apache-2.0 */
/* DATA: the worker keeps every W-th element, right below the prefetches and options at the sink. */
#include "shard/passes/shard_passes.h"

#include <inttypes.h>

static bool trails(const mr_dataset *ds)
{
    return mr_dataset_op(ds)->props & MR_OP_SHARD_BELOW;
}

mr_dataset *mr__below_trailing(mr_dataset *ds)
{
    while (trails(ds))
        ds = mr_dataset_input(ds, 0);
    return ds;
}

/* Replaces one node anywhere in the graph. */
typedef struct place {
    const mr_dataset *at;
    const mr_auto_shard_opts *opts;
} place;

static mr_dataset *shard_above(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)w;
    const place *p = ctx;
    return old == p->at ? mr__insert_shard(now, p->opts) : now;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    place p = {ds, ctx};
    char path[256] = "";
    mr__path_append(path, sizeof path, -1, mr_dataset_op(p.at)->name);
    while (trails(p.at)) {
        p.at = mr_dataset_input(p.at, 0);
        mr__path_append(path, sizeof path, -1, mr_dataset_op(p.at)->name);
    }
    MR_TRY(mr_explain(e, "sharding", path, st,
                      "shard(%" PRId64 ", %" PRId64 ") goes after %s: the worker keeps element "
                      "%" PRId64 " of every %" PRId64,
                      p.opts->num_workers, p.opts->index, mr_dataset_op(p.at)->name, p.opts->index,
                      p.opts->num_workers));
    return mr__walk_graph(ds, shard_above, &p, out, st);
}

const mr_pass mr__shard_data_pass = {"shard_data",
                                     "keeps this worker's slices of every global batch", run};

/* ---- order that DATA cannot keep ---- */

static mr_code warn_of_node(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    const mr_op *op = mr_dataset_op(node);
    char path[256];
    mr__walk_path(w, path, sizeof path);
    if (mr__param_is(node, "deterministic", 0))
        return mr__warn(ctx, path, st,
                        "%s with deterministic=false precedes a DATA shard: workers may see "
                        "different orders, so that elements are lost and repeated",
                        op->name);
    if (op->props & MR_OP_NO_REPLAY)
        return mr__warn(ctx, path, st,
                        "%s precedes a DATA shard and may not produce the same on every worker: "
                        "elements may be lost and repeated",
                        op->name);
    return MR_OK;
}

mr_code mr__warn_of_disorder(mr_dataset *ds, mr_explanation *e, mr_status *st)
{
    return mr__visit_graph(ds, warn_of_node, e, st);
}
