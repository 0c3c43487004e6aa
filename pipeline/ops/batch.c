/* SPDX-License-Identifier: Apache-2.0 */
/* If a block of the input contains whole batches of dense rows, a batch is a view with another
 * shape. Multiples of batch_size are pulled, so this is the common case. Otherwise rows are
 * collected, one batch at a time.
 *
 * An error of the input in the middle of a batch drops the rows collected for it; so does a row of
 * another shape, which is reported when the batch is full. */
#include "pipeline/ops/batch.h"

#include "pipeline/streams/collect.h"
#include "pipeline/params/infer.h"

struct params {
    int64_t batch_size;
    mr_batch_opts o;
};

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    mr__collected *s = it->state;
    size_t n = (size_t)p->batch_size;
    for (;;) {
        if (mr__cursor_left(&s->input) == 0) {
            mr_code rc = mr__collect_pull(it, want, n, out->destination, st);
            if (rc == MR_END && s->stack.n && !p->o.drop_remainder)
                return mr__batch_builder_finish(&s->stack, out, st);
            if (rc != MR_OK)
                return mr__collect_failed(&s->stack, &s->input, mr__batch_builder_take, rc, st);
        }
        size_t left = mr__cursor_left(&s->input);
        const mr_block *rows = mr__cursor_rows(&s->input);
        size_t at = mr__cursor_at(&s->input);
        if (s->stack.n == 0 && left >= n && mr__can_group(rows)) {
            size_t groups = left / n < want ? left / n : want;
            MR_TRY(mr__group(out, rows, at, groups, n, st));
            mr__cursor_use(&s->input, groups * n);
            mr__place(out);
            return MR_OK;
        }
        size_t k = n - s->stack.n < left ? n - s->stack.n : left;
        const mr_destination *destination = want == 1 ? out->destination : NULL;
        mr_code rc = mr__batch_builder_add(&s->stack, rows, at, k, n, destination, st);
        mr__cursor_use(&s->input, k);
        if (rc != MR_OK) {
            mr__batch_builder_drop(&s->stack);
            return rc;
        }
        if (s->stack.n == n)
            return mr__batch_builder_finish(&s->stack, out, st);
    }
}

/* Whole batches; rows that the input cannot skip are read. */
static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    const struct params *p = it->params;
    mr__collected *s = it->state;
    uint64_t size = (uint64_t)p->batch_size, all, passed;
    if (s->stack.n || !mr__queue_idle(&s->input.queue))
        return MR_OK;
    if (__builtin_mul_overflow(n, size, &all))
        all = UINT64_MAX;
    MR_TRY(mr_iter_skip_input(it, 0, all, &passed, st));
    *skipped = passed / size;
    uint64_t left = passed % size ? size - passed % size : 0;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (left && rc == MR_OK) {
        rc = mr_iter_pull(it, 0, (size_t)left, &b, st);
        left -= rc == MR_OK ? b.rows : 0;
    }
    mr_block_reset(&b);
    *skipped += passed % size && (rc == MR_OK || (rc == MR_END && !p->o.drop_remainder));
    return rc == MR_END ? MR_OK : rc;
}

/* One batch. An error of one of its elements is the batch's. */
static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    enum { MOST = 1024 };
    const struct params *p = it->params;
    uint64_t size = (uint64_t)p->batch_size, all;
    (void)n;
    MR_TRY(mr_iter_count_input(it, 0, &all, st));
    uint64_t first = index[0] * size, end = all - first < size ? all : first + size;
    mr__batch_builder stack = {.spec = it->spec, .most = (size_t)(end - first)};
    uint64_t numbers[MOST];
    mr_block rows = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (first < end && rc == MR_OK) {
        size_t k = end - first < MOST ? (size_t)(end - first) : MOST;
        for (size_t i = 0; i < k; i++)
            numbers[i] = first + i;
        rc = mr_iter_at_input(it, 0, numbers, k, &rows, st);
        if (rc == MR_OK)
            rc = mr__batch_builder_add(&stack, &rows, 0, rows.rows, (size_t)size, NULL, st);
        first += rows.rows;
    }
    if (rc == MR_OK)
        rc = mr__batch_builder_finish(&stack, out, st);
    mr__batch_builder_reset(&stack);
    mr_block_reset(&rows);
    return rc;
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    const struct params *q = p;
    bool known = q->o.drop_remainder &&
                 !mr_param_unknown(self, offsetof(struct params, batch_size)) &&
                 !mr_param_unknown(self, offsetof(struct params, o.drop_remainder));
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    return mr__batched_spec(in, known ? q->batch_size : -1, out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    const struct params *q = p;
    return mr__count_batches(in[0], q->batch_size, q->o.drop_remainder);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, batch_size, MR_P_POSITIONAL | MR_P_DIMENSION | MR_P_HOLDS,
                  .min.i = 1, .max.i = INT64_MAX, .doc = "Elements in a batch, at least 1."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops a last batch of fewer than batch_size elements."),
    MR_OPT(struct params, num_parallel_calls, .flags = MR_P_AUTO | MR_P_NONE, .min.i = 1,
           .max.i = INT64_MAX, .doc = "Batches collected at once; the order is kept."),
    MR_OPT(struct params, deterministic, .def.b = true,
           .doc = "Accepted for compatibility with tf.data: the order is always kept."),
    {0}};

const mr_op mr_op_batch = {
    .abi = MR_ABI_VERSION,
    .name = "batch",
    .doc = "Groups consecutive elements along a new axis 0.",
    .example = "range(10).batch(4)",
    .memory_doc = "a batch",
    .count_doc = "n / batch_size, rounded up; down with drop_remainder",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(mr__collected),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS | MR_OP_BATCHES,
    .infer = infer,
    .cardinality = cardinality,
    .next = next,
    .close = mr__collected_close,
    .save = mr__collected_save,
    .restore = mr__collected_restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_batch(mr_dataset *input, int64_t batch_size, const mr_batch_opts *opts)
{
    struct params p = {.batch_size = batch_size};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_batch, &p, &input, 1);
}
