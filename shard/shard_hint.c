/* SPDX-License-Identifier: Apache-2.0 */
/* HINT: shard(-1, i) becomes shard(W, I). */
#include "shard/shard_passes.h"

#include <inttypes.h>

typedef struct hints {
    const mr_auto_shard_opts *opts;
    mr_explanation *e;
    size_t found;
    mr_status status;
} hints;

static mr_dataset *replace_hint(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    hints *h = ctx;
    if (mr_dataset_op(old)->role != MR_ROLE_SHARD || !mr__param_is(old, "num_shards", -1))
        return now;
    h->found++;
    mr_dataset *input = mr_dataset_ref(mr_dataset_input(now, 0));
    mr_dataset_unref(now);
    char path[256];
    mr__walk_path(w, path, sizeof path);
    if (mr_explain(h->e, "sharding", path, &h->status,
                   "the hint becomes shard(%" PRId64 ", %" PRId64 ")", h->opts->num_workers,
                   h->opts->index) != MR_OK) {
        mr_dataset_unref(input);
        return mr_dataset_fail(&h->status);
    }
    return mr__insert_shard(input, h->opts);
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    hints h = {.opts = ctx, .e = e};
    mr_dataset *made = NULL;
    MR_TRY(mr__walk_graph(ds, replace_hint, &h, &made, st));
    mr_code rc = MR_OK;
    if (h.found == 0)
        rc = mr_explain(e, "sharding", NULL, st,
                        "there is no shard(-1, i) to replace: every worker uses every example");
    if (rc == MR_OK)
        *out = made;
    else
        mr_dataset_unref(made);
    return rc;
}

const mr_pass mr__shard_hint_pass = {"shard_hint",
                                     "puts the worker's shard where the user marked it", run};
