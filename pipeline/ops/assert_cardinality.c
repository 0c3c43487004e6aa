/* SPDX-License-Identifier: Apache-2.0 */
/* An error in the input is not counted. */
#include "pipeline/ops/sequence.h"

#include <inttypes.h>

#include "pipeline/engine/op_iterator.h"

struct params {
    int64_t cardinality; /* -1: infinite */
};

struct state {
    uint64_t seen;
    uint64_t reported; /* the input ended too soon */
};

static mr_code too_few(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->reported = 1;
    if (p->cardinality < 0)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "expected a dataset without end, found that it ends after %" PRIu64
                       " elements",
                       s->seen);
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "expected %" PRId64 " elements, found that the input ends after %" PRIu64,
                   p->cardinality, s->seen);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (s->reported)
        return MR_END;
    bool full = p->cardinality >= 0 && s->seen >= (uint64_t)p->cardinality;
    if (full)
        want = 1;
    else if (p->cardinality > 0 && want > (uint64_t)p->cardinality - s->seen)
        want = (size_t)((uint64_t)p->cardinality - s->seen);
    mr_code rc = mr_iter_pull(it, 0, want, out, st);
    if (rc == MR_END)
        return full ? MR_END : too_few(it, st);
    if (rc != MR_OK)
        return rc;
    s->seen += out->rows;
    if (!full)
        return MR_OK;
    return mr_fail(st, MR_FAILED_PRECONDITION,
                   "expected %" PRId64 " elements, found one more (the input's element %" PRIu64
                   ")",
                   p->cardinality, s->seen);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->seen, st));
    MR_TRY(mr_state_put_u64(w, s->reported, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->seen, st));
    MR_TRY(mr_state_get_u64(r, &s->reported, st));
    return mr_iter_restore_input(it, 0, r, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    const struct params *q = p;
    return q->cardinality;
}

static const mr_param table[] = {
    MR_ARG(struct params, cardinality, .min.i = MR_INFINITE, .max.i = INT64_MAX,
           .doc = "The number of elements of the input; -1: without end."),
    {0}};

const mr_op mr_op_assert_cardinality = {
    .abi = MR_ABI_VERSION,
    .name = "assert_cardinality",
    .doc = "Fails unless the input has that many elements, which makes their number known.",
    .example = "range(9).filter(x => x % 2 == 0).assert_cardinality(5)",
    .state_doc = "a counter",
    .count_doc = "cardinality",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_WHOLE_INPUT,
    .cardinality = cardinality,
    .next = next,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_assert_cardinality(mr_dataset *input, int64_t cardinality_)
{
    struct params p = {cardinality_};
    return mr_dataset_new(&mr_op_assert_cardinality, &p, &input, 1);
}
