/* SPDX-License-Identifier: Apache-2.0 */
/* Each epoch is a new iterator of the input, opened as soon as the previous one has ended.
 * Without a count it ends after an epoch without elements, so that it does not spin over an
 * empty input. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/op_iterator.h"

struct params {
    int64_t count; /* negative: without end */
    bool has_count;
};

struct state {
    uint64_t epoch;
    bool any;    /* this epoch emitted an element */
    bool failed; /* or returned an error, which the next one may return too */
};

enum { ANY = 1, FAILED = 2 }; /* in positions */

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    return p->count ? mr_iter_open_input(it, 0, st) : MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (p->count == 0)
        return MR_END;
    for (;;) {
        if (!it->inputs[0]) { /* an earlier try to open it failed */
            MR_TRY(mr_iter_open_input(it, 0, st));
        }
        mr_code rc = mr_iter_pull(it, 0, want, out, st);
        if (rc == MR_OK)
            s->any = true;
        if (rc != MR_END) {
            s->failed |= rc < 0;
            return rc;
        }
        if (p->count < 0 ? !s->any : s->epoch + 1 == (uint64_t)p->count)
            return MR_END;
        /* Every epoch is like this one: do not count down a large count. */
        if (!s->any && !s->failed && mr_dataset_cardinality(mr_dataset_input(it->node, 0)) == 0)
            return MR_END;
        s->epoch++;
        s->any = s->failed = false;
        mr_iter_close_input(it, 0);
        if (mr_iter_cancelled(it))
            return mr_iter_fail_cancelled(st);
    }
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->epoch, st));
    MR_TRY(mr_state_put_u64(w, (s->any ? ANY : 0) | (s->failed ? FAILED : 0), st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t flags;
    MR_TRY(mr_state_get_u64(r, &s->epoch, st));
    MR_TRY(mr_state_get_u64(r, &flags, st));
    if (flags > (ANY | FAILED) || (p->count > 0 && s->epoch >= (uint64_t)p->count))
        return mr_state_damaged(st, "an epoch is out of range");
    s->any = flags & ANY;
    s->failed = flags & FAILED;
    return mr_iter_restore_input(it, 0, r, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    if (q->count == 0 || in[0] == 0)
        return 0;
    if (q->count < 0)
        return MR_INFINITE;
    int64_t n;
    if (in[0] < 0)
        return in[0];
    return __builtin_mul_overflow(in[0], q->count, &n) ? INT64_MAX : n;
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, count, MR_P_OPTIONAL | MR_P_NONE,
                  .has_at = offsetof(struct params, has_count), .def.i = -1,
                  .doc = "Number of epochs; absent or negative: without end; 0: no elements."),
    {0}};

const mr_op mr_op_repeat = {
    .abi = MR_ABI_VERSION,
    .name = "repeat",
    .doc = "Repeats the input, with a new iterator for each pass.",
    .example = "range(3).repeat(2)",
    .state_doc = "which pass",
    .count_doc = "n times count",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_OPENS_INPUTS | MR_OP_OPENS_LATER | MR_OP_KEEPS_SHARDS | MR_OP_COUNTS_STEPS,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_repeat(mr_dataset *input, int64_t count)
{
    struct params p = {.count = count, .has_count = true};
    return mr_dataset_new(&mr_op_repeat, &p, &input, 1);
}
