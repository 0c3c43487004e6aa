/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch: a read-ahead queue between its input and its consumer. With a pool of 0 threads it is
 * transparent. */
#include "pipeline/ops/apply.h"

#include "pipeline/engine/op_buffering.h"
#include "pipeline/streams/read_ahead_queue.h"

enum { AUTO_LEAST = 2, AUTO_FIRST = 8, AUTO_MOST = 16, AUTO_BYTES = 1 << 20 };

struct params {
    int64_t buffer_size;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    bool automatic = p->buffer_size == MR_AUTO || p->buffer_size <= 0;
    mr__ahead ahead = {.entries = SIZE_MAX,
                       .rows = automatic ? SIZE_MAX : (size_t)p->buffer_size,
                       .bytes = SIZE_MAX};
    if (automatic)
        ahead = (mr__ahead){AUTO_LEAST, AUTO_FIRST, SIZE_MAX, AUTO_BYTES, AUTO_MOST};
    ((mr__queue *)it->state)->gives_way = true;
    return mr__queue_open_ahead(it->state, it, it->inputs[0], mr_iter_executor(it), &ahead, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr_code rc = mr__queue_next(it->state, want, out, st);
    mr__queue_start(it->state);
    return rc;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    return mr__queue_idle(it->state) ? mr_iter_skip_input(it, 0, n, skipped, st) : MR_OK;
}

static void close(mr_iter *it)
{
    mr__queue_reset(it->state);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__queue_save(it->state, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr__queue_restore(it->state, it->spec, r, st);
}

/* ---- the graph ---- */

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, buffer_size, MR_P_POSITIONAL | MR_P_AUTO | MR_P_HOLDS, .min.i = -1,
                  .max.i = INT64_MAX,
                  .doc = "Elements read ahead; auto, 0 or -1: blocks as the consumer needs."),
    {0}};

const mr_op mr_op_prefetch = {
    .abi = MR_ABI_VERSION,
    .name = "prefetch",
    .doc = "Reads ahead on another thread; passes its input through.",
    .example = "range(5).map(x => x + 1).prefetch(2)",
    .memory_doc = "buffer_size elements",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__queue),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_COUNT | MR_OP_SHARD_BELOW | MR_OP_READS_AHEAD | MR_OP_KEEPS_SHARDS,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = mr_iter_at_same,
};

mr_dataset *mr_prefetch(mr_dataset *input, int64_t buffer_size)
{
    struct params p = {.buffer_size = buffer_size};
    return mr_dataset_new(&mr_op_prefetch, &p, &input, 1);
}
