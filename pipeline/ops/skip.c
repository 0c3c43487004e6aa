/* SPDX-License-Identifier: Apache-2.0 */
/* Skipped elements are produced, so their errors are reported; an error is not counted. Files that
 * are indexed are not read for it; then an element that would fail is counted. With a negative
 * count, which skips all of a possibly endless input, the input is not opened. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/op_iterator.h"

struct params {
    int64_t count; /* negative: everything */
};

struct state {
    uint64_t skipped;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    return p->count >= 0 ? mr_iter_open_input(it, 0, st) : MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->count < 0)
        return MR_END;
    while (s->skipped < (uint64_t)p->count) {
        uint64_t left = (uint64_t)p->count - s->skipped, passed;
        MR_TRY(mr_iter_skip_input(it, 0, left, &passed, st));
        s->skipped += passed;
        left -= passed;
        if (left == 0)
            break;
        MR_TRY(mr_iter_pull(it, 0, left < SIZE_MAX ? (size_t)left : SIZE_MAX, out, st));
        s->skipped += out->rows;
    }
    return mr_iter_pull(it, 0, want, out, st);
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t all, passed;
    if (p->count < 0)
        return MR_OK;
    uint64_t left = s->skipped < (uint64_t)p->count ? (uint64_t)p->count - s->skipped : 0;
    if (__builtin_add_overflow(left, n, &all))
        all = UINT64_MAX;
    mr_code rc = mr_iter_skip_input(it, 0, all, &passed, st);
    s->skipped += passed < left ? passed : left;
    *skipped = passed > left ? passed - left : 0;
    return rc;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    return mr_iter_at_steps(it, (uint64_t)p->count, 1, index, n, out, st);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->skipped, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->skipped, st));
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    if (p->count >= 0 && !it->inputs[0])
        return mr_state_damaged(st, "an input is not open");
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    if (in[0] < 0)
        return in[0];
    return q->count < 0 || q->count > in[0] ? 0 : in[0] - q->count;
}

static const mr_param table[] = {
    MR_ARG(struct params, count, .doc = "Elements to leave out; negative: all."), {0}};

const mr_op mr_op_skip = {
    .abi = MR_ABI_VERSION,
    .name = "skip",
    .doc = "Leaves out the first elements.",
    .example = "range(10).skip(7)",
    .state_doc = "a counter",
    .count_doc = "n less count",
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
    .at = at,
};

mr_dataset *mr_skip(mr_dataset *input, int64_t count)
{
    struct params p = {count};
    return mr_dataset_new(&mr_op_skip, &p, &input, 1);
}
