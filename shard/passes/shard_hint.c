/* SPDX-License-Identifier: Apache-2.0 */
/* HINT: shard(-1, i), or another op that shards, becomes shard(W, I). */
#include "shard/passes/shard_passes.h"

#include <inttypes.h>
#include <string.h>

typedef struct hints {
    const mr_auto_shard_opts *opts;
    mr_explanation *e;
    size_t found;
    mr_status status;
} hints;

/* The optional parameter of ops that shard: fail if a worker would have no element. */
#define REQUIRE "require_non_empty"

static bool has_param(const mr_dataset *ds, const char *name)
{
    const mr_param *p = mr_dataset_op(ds)->params;
    while (p->name && strcmp(p->name, name) != 0)
        p++;
    return p->name;
}

/* ds (taken) with its parameter `name` being v. */
static mr_dataset *with_number(mr_dataset *ds, const char *name, mr_value_kind kind, int64_t v)
{
    mr_dataset *made = mr_dataset_with_param(ds, name, &(mr_value){.kind = kind, .i = v});
    mr_dataset_unref(ds);
    return made;
}

static mr_dataset *replace_hint(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    hints *h = ctx;
    if (!(mr_dataset_op(old)->props & MR_OP_SHARDS) || !mr__param_is(old, "num_shards", -1))
        return now;
    h->found++;
    char path[256];
    mr__walk_path(w, path, sizeof path);
    if (mr_explain(h->e, "sharding", path, &h->status,
                   "the hint becomes %s(%" PRId64 ", %" PRId64 ")", mr_dataset_op(old)->name,
                   h->opts->num_workers, h->opts->index) != MR_OK) {
        mr_dataset_unref(now);
        return mr_dataset_fail(&h->status);
    }
    /* Set the index first: it is checked against the number of shards. */
    now = with_number(now, "index", MR_V_INT, h->opts->index);
    now = with_number(now, "num_shards", MR_V_INT, h->opts->num_workers);
    return has_param(old, REQUIRE) ? with_number(now, REQUIRE, MR_V_BOOL, 1) : now;
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
