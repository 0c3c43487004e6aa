/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/distribute/dist_data_internal.h"
#include <string.h>
#include "pipeline/files/glob.h"
#include "pipeline/fnv.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/graph/graph_internal.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/memory/alloc.h"
#include "shard/distribute/dist_impl.h"
#include "shard/passes/shard_passes.h"

static mr_code add_files(void *ctx, const char *name, mr_status *st)
{
    uint64_t *h = ctx;
    char **paths;
    size_t n;
    *h = mr__fnv1a(*h, name, strlen(name) + 1);
    if (strcmp(name, "-") == 0) /* standard input */
        return MR_OK;
    MR_TRY(mr_data_files(&name, 1, &paths, &n, st));
    for (size_t i = 0; i < n; i++)
        *h = mr__fnv1a(*h, paths[i], strlen(paths[i]) + 1);
    mr_glob_free(paths, n);
    return MR_OK;
}

/* A file that cannot be found is reported by the run itself. */
static mr_code hash_files(mr_dataset *ds, uint64_t *out, mr_status *st)
{
    mr_status why;
    uint64_t h = MR__FNV_BASIS;
    mr_code rc = mr_dataset_file_names(ds, add_files, &h, &why);
    *out = rc == MR_OK ? h : 0;
    if (rc != MR_RESOURCE_EXHAUSTED)
        return MR_OK;
    if (st)
        *st = why;
    return rc;
}

static mr_dataset *find_disorder(void *ctx, mr_dataset *node)
{
    if (mr__param_is(node, "deterministic", 0))
        *(bool *)ctx = true;
    return node;
}

/* Its order may be another one each time. */
static bool has_disorder(mr_dataset *ds)
{
    bool any = false;
    mr_dataset_unref(mr_dataset_transform(ds, find_disorder, &any));
    return any;
}

MR_API mr_code mr__dist_data_of(const mr_dist_dataset *dd, mr__dist_data *out, mr_status *st)
{
    *out = (mr__dist_data){.has_seed = dd->has_seed, .seed = dd->seed};
    if (!dd->original)
        return MR_OK;
    uint32_t props = mr__dataset_all_props(dd->original);
    out->draws = mr__any_wants_seed(dd->original);
    out->repeats = !(props & (MR_OP_MAY_BLOCK | MR_OP_NO_REPLAY | MR_OP_OUTSIDE)) &&
                   !has_disorder(dd->original);
    out->passes = props & (MR_OP_REMEMBERS | MR_OP_OPENS_INPUTS | MR_OP_OPENS_LATER);
    MR_TRY(mr__graph_short_signature(dd->original, &out->graph, st));
    mr_code rc = hash_files(dd->original, &out->files, st);
    if (rc != MR_OK)
        mr__dist_data_reset(out);
    return rc;
}

MR_API void mr__dist_data_reset(mr__dist_data *d)
{
    mr_free(d->graph);
    *d = (mr__dist_data){0};
}
