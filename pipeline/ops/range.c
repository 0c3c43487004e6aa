/* SPDX-License-Identifier: Apache-2.0 */
/* Python's range as a source. In text, a single argument is the stop: range(n). */
#include "pipeline/ops/sources.h"

#include "pipeline/system/clones.h"
#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/params/infer.h"

struct params {
    int64_t start, stop, step;
    bool has_stop, has_step; /* a step of 0 must reach the check */
};

struct state {
    uint64_t next, count; /* index of the next number, and how many there are */
};

static uint64_t count_of(const struct params *p)
{
    /* Unsigned arithmetic can represent every distance between two int64 values. */
    uint64_t start = p->has_stop ? (uint64_t)p->start : 0;
    uint64_t stop = (uint64_t)(p->has_stop ? p->stop : p->start), step = (uint64_t)p->step;
    if (p->step > 0)
        return (int64_t)stop > (int64_t)start ? (stop - start - 1) / step + 1 : 0;
    return (int64_t)start > (int64_t)stop ? (start - stop - 1) / (0 - step) + 1 : 0;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    (void)st;
    struct state *s = it->state;
    s->count = count_of(it->params);
    return MR_OK;
}

MR__CLONES static void fill(int64_t *restrict to, size_t n, uint64_t value, uint64_t step)
{
    enum { GROUP = 16 }; /* a constant count, so that compilers vectorise it */
    uint64_t steps[GROUP];
    for (uint64_t k = 0; k < GROUP; k++)
        steps[k] = k * step;
    size_t i = 0;
    for (; i + GROUP <= n; i += GROUP, value += GROUP * step)
        for (size_t k = 0; k < GROUP; k++)
            to[i + k] = (int64_t)(value + steps[k]);
    for (; i < n; i++, value += step)
        to[i] = (int64_t)value;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t left = s->count - s->next;
    if (left == 0)
        return MR_END;
    size_t n = mr_iter_block_rows(it, left < want ? (size_t)left : want, sizeof(int64_t));
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    uint64_t start = p->has_stop ? (uint64_t)p->start : 0;
    fill(out->columns[0].data, n, start + s->next * (uint64_t)p->step, (uint64_t)p->step);
    out->rows = n;
    MR_TRY(mr_iter_set_identities(it, out, 0, s->next, st));
    s->next += n;
    return MR_OK;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    return mr_state_put_u64(w, s->next, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->next, st));
    return s->next <= s->count ? MR_OK : mr_state_damaged(st, "an index is after the end");
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    (void)st;
    *skipped = n < s->count - s->next ? n : s->count - s->next;
    s->next += *skipped;
    return MR_OK;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    uint64_t start = p->has_stop ? (uint64_t)p->start : 0;
    n = mr_iter_block_rows(it, n, sizeof(int64_t));
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    int64_t *to = out->columns[0].data;
    for (size_t i = 0; i < n; i++)
        to[i] = (int64_t)(start + index[i] * (uint64_t)p->step);
    out->rows = n;
    return mr_iter_identify_rows(it, out, index, st);
}

static mr_code check(const void *p, mr_status *st)
{
    const struct params *q = p;
    if (q->step == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "range: step must not be 0");
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    return mr__inferred(mr_spec_scalar(MR_INT64), out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)in;
    uint64_t n = count_of(p);
    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static const mr_param table[] = {
    MR_ARG(struct params, start,
           .doc = "First number; given alone it is the stop, and the first number is 0."),
    MR_PARAM(struct params, stop, .has_at = offsetof(struct params, has_stop),
             .doc = "End of the numbers, exclusive."),
    MR_PARAM(struct params, step, .has_at = offsetof(struct params, has_step), .def.i = 1,
             .doc = "Distance from one number to the next; not 0, may be negative. Default: 1."),
    {0}};

const mr_op mr_op_range = {
    .abi = MR_ABI_VERSION,
    .name = "range",
    .doc = "Counts from start to stop by step, as Python's range.",
    .example = "range(2, 10, 3)",
    .order_doc = "by number",
    .state_doc = "a counter",
    .count_doc = "(stop - start) / step, rounded up",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_SOURCE,
    .props = MR_OP_IS_RANGE,
    .check = check,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_range(int64_t start, int64_t stop, int64_t step)
{
    struct params p = {start, stop, step, .has_stop = true, .has_step = step != 1};
    return mr_dataset_new(&mr_op_range, &p, NULL, 0);
}
