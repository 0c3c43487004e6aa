/* SPDX-License-Identifier: Apache-2.0 */
/* Counts without end; wraps around at the ends of int64. */
#include "pipeline/ops/sources.h"

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/params/infer.h"

struct params {
    int64_t start, step;
    bool has_step; /* a step of 0 is legal */
};

struct state {
    uint64_t next; /* index of the next number */
};

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t n = mr_iter_block_rows(it, want, sizeof(int64_t));
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st));
    int64_t *to = out->columns[0].data;
    uint64_t value = (uint64_t)p->start + s->next * (uint64_t)p->step;
    for (size_t i = 0; i < n; i++, value += (uint64_t)p->step)
        to[i] = (int64_t)value;
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
    return mr_state_get_u64(r, &s->next, st);
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
    (void)p;
    (void)in;
    return MR_INFINITE;
}

static const mr_param table[] = {
    MR_PARAM(struct params, start, .doc = "First number."),
    MR_PARAM(struct params, step, .has_at = offsetof(struct params, has_step), .def.i = 1,
             .doc = "Distance from one number to the next. Default: 1."),
    {0}};

const mr_op mr_op_counter = {
    .abi = MR_ABI_VERSION,
    .name = "counter",
    .doc = "Counts from start by step, without end.",
    .example = "counter(5, step=2).take(3)",
    .order_doc = "by number",
    .state_doc = "a counter",
    .count_doc = "without end",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_BARRIER,
    .infer = infer,
    .cardinality = cardinality,
    .next = next,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_counter(int64_t start, int64_t step)
{
    struct params p = {.start = start, .step = step, .has_step = true};
    return mr_dataset_new(&mr_op_counter, &p, NULL, 0);
}
