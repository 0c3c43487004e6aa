/* SPDX-License-Identifier: Apache-2.0 */
/* One file of elements for each graph that was run. Its folder is named after the graph's
 * fingerprint, FNV-1a of its protobuf form. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>
#include <stdio.h>

#include "pipeline/engine/fingerprint_internal.h"
#include "pipeline/streams/elements/file_cache.h"

struct params {
    char *path;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    char own[17];
    uint64_t h;
    void *shared;
    MR_TRY(mr_iter_shared(it, sizeof(mr__file_cache_shared), mr__file_cache_init_shared,
                          mr__file_cache_destroy_shared, &shared, st));
    MR_TRY(mr__graph_proto_fingerprint(mr_dataset_input(it->node, 0), &h, st));
    snprintf(own, sizeof own, "%016" PRIx64, h);
    const mr__file_cache_opts opts = {.reuse = true, .pass_if_busy = true, .shared = shared};
    return mr__file_cache_open_folder(it, p->path, own, &opts, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_cache_check_path("snapshot", ((const struct params *)params)->path, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, path, MR_P_POSITIONAL | MR_P_KEEPS_FILE | MR_P_WRITES,
                  .doc = "The folder of the snapshots, one for each graph."),
    {0}};

const mr_op mr_op_snapshot = {
    .abi = MR_ABI_VERSION,
    .name = "snapshot",
    .doc = "Keeps the elements in a file named after their graph; later runs of the same graph "
           "read them.",
    .example = "range(3).snapshot(\"snapshots\")",
    .state_doc = "a counter, and the input's position at its start",
    .params = table,
    .params_size = sizeof(struct params),
    MR__FILE_CACHE_SLOTS,
    .check = check,
    .infer = mr__file_cache_infer,
    .open = open,
};

mr_dataset *mr_snapshot(mr_dataset *input, const char *path)
{
    struct params p = {.path = (char *)(uintptr_t)path};
    return mr_dataset_new(&mr_op_snapshot, &p, &input, 1);
}
