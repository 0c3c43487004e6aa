/* SPDX-License-Identifier: Apache-2.0 */
/* An element whose components differ in axis 0 is an error in its place. */
#include "pipeline/ops/batch.h"

#include "pipeline/streams/unbatcher.h"
#include "pipeline/columns/batch_builder.h"

static mr_code open(mr_iter *it, mr_status *st)
{
    mr__unbatcher *f = it->state;
    mr_spec *rows = NULL;
    MR_TRY(mr__unbatched_spec(mr_iter_input_spec(it, 0), &f->size, &rows, st));
    mr_spec_unref(rows);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__unbatcher *f = it->state;
    MR_TRY(mr__unbatcher_fill(it, f, want, st));
    size_t n = mr__unbatcher_left(f) < want ? mr__unbatcher_left(f) : want;
    MR_TRY(mr_block_slice(out, &f->rows, f->at, n, st));
    mr__unbatcher_use(f, n);
    return MR_OK;
}

static void close(mr_iter *it)
{
    mr__unbatcher_reset(it->state);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr__unbatcher_save(it, it->state, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr__unbatcher_restore(it, it->state, r, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    return mr__unbatched_spec(mr_dataset_spec(mr_dataset_input(self, 0)), NULL, out, st);
}

/* Rows of all batches of ds, which an op may make of each of its input's elements. */
static int64_t count_rows(const mr_dataset *ds)
{
    mr_value drop = {0};
    const uint32_t both = MR_P_HOLDS | MR_P_DIMENSION;
    bool batches = false;
    for (const mr_param *p = mr_dataset_op(ds)->params; p && p->name; p++)
        batches = batches || (p->flags & both) == both;
    if (!batches || mr_dataset_param_named(ds, "drop_remainder", &drop, NULL) != MR_OK)
        return MR_UNKNOWN_COUNT;
    bool keeps_all = drop.kind == MR_V_UNSET || (drop.kind == MR_V_BOOL && !drop.i);
    mr_value_reset(&drop);
    return keeps_all ? mr_dataset_cardinality(mr_dataset_input(ds, 0)) : MR_UNKNOWN_COUNT;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)p;
    const mr_spec *spec = mr_dataset_spec(mr_dataset_input(self, 0));
    if (in[0] < 0)
        return in[0];
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        int64_t n;
        if (leaf->rank > 0 && leaf->shape[0] >= 0)
            return __builtin_mul_overflow(in[0], leaf->shape[0], &n) ? INT64_MAX : n;
    }
    return count_rows(mr_dataset_input(self, 0));
}

const mr_op mr_op_unbatch = {
    .abi = MR_ABI_VERSION,
    .name = "unbatch",
    .doc = "Splits each element along axis 0.",
    .example = "range(10).batch(4).unbatch()",
    .memory_doc = "an element",
    .state_doc = "the rows taken of the current element",
    .count_doc = "n times axis 0 if known; right after a batch, as many as before it",
    .iter_size = sizeof(mr__unbatcher),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS | MR_OP_UNBATCHES,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_unbatch(mr_dataset *input)
{
    return mr_dataset_new(&mr_op_unbatch, NULL, &input, 1);
}
