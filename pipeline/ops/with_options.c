/* SPDX-License-Identifier: Apache-2.0 */
/* Passes everything through; the engine and the sharding rewrite read the parameters. The value
 * nearest the sink wins. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/iterator.h"
#include "pipeline/engine/op_iterator.h"

struct params {
    mr_dataset_opts o;
};

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr_iter_pull(it, 0, want, out, st);
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    return mr_iter_skip_input(it, 0, n, skipped, st);
}

static const char *const policies[] = {"AUTO", "FILE", "DATA", "OFF", "HINT", "RANGE", NULL};

static const mr_param table[] = {
    MR_OPT(struct params, auto_shard_policy, .names = policies,
           .doc = "How a distributed dataset is split over workers."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Keeps the order in ops that do not set deterministic themselves."),
    MR_OPT(struct params, memory_limit, .max.i = INT64_MAX,
           .doc =
               "Maximum resident bytes of the process: near it less is read ahead; 0: no limit."),
    MR_OPT(struct params, elastic_streams, .max.i = 65536,
           .doc = "Number of streams of an elastic job, the maximum number of its replicas; 0: the "
                  "job is not elastic."),
    MR_OPT(struct params, cache_dir,
           .doc = "Directory where pieces of remote files are kept; default: "
                  "MILLRACE_CACHE_DIR."),
    MR_OPT(struct params, remote_connections, .max.i = MR_REMOTE_CONNECTIONS,
           .doc = "Maximum number of connections to each host of URLs, and number of ranges of a "
                  "file read at once (at most 64); 0: up to 64 connections and 16 ranges, chosen "
                  "while reading."),
    MR_OPT(struct params, remote_read_ahead, .max.i = INT64_MAX,
           .doc = "Bytes of the file of a URL that are requested before they are needed; 0: "
                  "chosen while reading."),
    {0}};

const mr_op mr_op_with_options = {
    .abi = MR_ABI_VERSION,
    .name = "with_options",
    .doc = "Sets options for the whole graph.",
    .example = "range(3).with_options(auto_shard_policy=\"DATA\")",
    .params = table,
    .params_size = sizeof(struct params),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT | MR_OP_SHARD_BELOW | MR_OP_HOLDS_OPTIONS | MR_OP_KEEPS_SHARDS,
    .next = next,
    .skip = skip,
    .at = mr_iter_at_same,
};

mr_dataset *mr_with_options(mr_dataset *input, const mr_dataset_opts *opts)
{
    struct params p = {0};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_with_options, &p, &input, 1);
}
