/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the format of streams/elements/element_file.h, which load reads. */
#include "pipeline/ops/sequence.h"

#include "pipeline/streams/elements/file_cache.h"

struct params {
    char *path;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    return mr__file_cache_open_folder(it, p->path, NULL, &(mr__file_cache_opts){0}, st);
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__file_cache_check_path("save", ((const struct params *)params)->path, st);
}

static const mr_param table[] = {MR_PARAM_WITH(struct params, path,
                                               MR_P_POSITIONAL | MR_P_KEEPS_FILE | MR_P_WRITES,
                                               .doc = "The folder to write the elements to."),
                                 {0}};

const mr_op mr_op_save = {
    .abi = MR_ABI_VERSION,
    .name = "save",
    .doc = "Passes elements through and writes them to a folder, for load.",
    .example = "range(3).save(\"saved\")",
    .state_doc = "a counter, and the input's position at its start",
    .params = table,
    .params_size = sizeof(struct params),
    MR__FILE_CACHE_SLOTS,
    .check = check,
    .open = open,
};

mr_dataset *mr_save(mr_dataset *input, const char *path)
{
    struct params p = {.path = (char *)(uintptr_t)path};
    return mr_dataset_new(&mr_op_save, &p, &input, 1);
}
