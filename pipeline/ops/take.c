/* SPDX-License-Identifier: Apache-2.0 */
/* Never pulls an element after the last one that it emits: an error or a wait there must have no
 * effect. take(0) does not open its input. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/op_iterator.h"

struct params {
    int64_t count; /* negative: everything */
};

struct state {
    uint64_t taken;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    return p->count ? mr_iter_open_input(it, 0, st) : MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->count >= 0) {
        uint64_t left = (uint64_t)p->count - s->taken;
        if (left == 0)
            return MR_END;
        if (want > left)
            want = (size_t)left;
    }
    MR_TRY(mr_iter_pull(it, 0, want, out, st));
    s->taken += out->rows;
    return MR_OK;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->count >= 0 && n > (uint64_t)p->count - s->taken)
        n = (uint64_t)p->count - s->taken;
    if (n == 0) /* take(0) has no input */
        return MR_OK;
    mr_code rc = mr_iter_skip_input(it, 0, n, skipped, st);
    s->taken += *skipped;
    return rc;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->taken, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->taken, st));
    if (p->count >= 0 && s->taken > (uint64_t)p->count)
        return mr_state_damaged(st, "more elements were taken than exist");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    if (p->count && !it->inputs[0])
        return mr_state_damaged(st, "an input is not open");
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    if (in[0] == MR_UNKNOWN_COUNT)
        return MR_UNKNOWN_COUNT;
    if (q->count < 0)
        return in[0];
    return in[0] == MR_INFINITE || q->count < in[0] ? q->count : in[0];
}

static const mr_param table[] = {
    MR_ARG(struct params, count, .doc = "Elements to keep; negative: all."), {0}};

const mr_op mr_op_take = {
    .abi = MR_ABI_VERSION,
    .name = "take",
    .doc = "Emits the first elements and ends.",
    .example = "range(10).take(3)",
    .state_doc = "a counter",
    .count_doc = "count, or n if that is less",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_OPENS_INPUTS | MR_OP_COUNTS_STEPS,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = mr_iter_at_same,
};

mr_dataset *mr_take(mr_dataset *input, int64_t count)
{
    struct params p = {count};
    return mr_dataset_new(&mr_op_take, &p, &input, 1);
}
