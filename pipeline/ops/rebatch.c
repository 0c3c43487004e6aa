/* SPDX-License-Identifier: Apache-2.0 */
/* Like unbatch().batch(n) with n cycling through a list of sizes. A size of 0 makes an empty batch
 * without reading the input. The dataset ends when a size other than 0 finds no rows left. An
 * element whose components differ in axis 0 is an error in its place, even if the graph shows that
 * they differ. A batch of rows with different shapes is an error that uses up its size; an error of
 * the input does not. */
#include "pipeline/ops/batch.h"

#include "pipeline/streams/collect.h"
#include "pipeline/streams/unbatcher.h"
#include "pipeline/columns/batch_builder.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/position.h"

struct params {
    mr_ints batch_sizes;
    mr_rebatch_opts o;
};

struct state {
    mr__unbatcher input;
    mr__batch_builder stack; /* as in mr__collected */
    uint64_t turn;           /* index of the next size */
    uint64_t ended;          /* a short batch was the last */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    mr_spec *rows = NULL;
    MR_TRY(mr__rows_spec(mr_iter_input_spec(it, 0), &s->input.size, &rows, st));
    mr_spec_unref(rows);
    s->stack.spec = it->spec;
    return MR_OK;
}

static mr_code empty_batch(mr_iter *it, mr_block *out, mr_status *st)
{
    size_t n = mr_spec_n_leaves(it->spec);
    MR_TRY(mr_block_prepare(out, n, st));
    for (size_t c = 0; c < n; c++) {
        const mr_leaf *leaf = mr_spec_leaf(it->spec, c);
        int64_t shape[MR_MAX_RANK] = {0};
        int rank = leaf->rank < 1 ? 1 : leaf->rank;
        for (int d = 1; d < leaf->rank; d++)
            shape[d] = leaf->shape[d] < 0 ? 0 : leaf->shape[d];
        MR_TRY(mr_array_alloc(&out->columns[c], leaf->dtype, rank, shape, 1, st));
    }
    out->rows = 1;
    mr_identity none[1];
    mr_identities nothing = {.ids = none, .offsets = (const uint64_t[]){0, 0}};
    return mr_iter_identities(it) ? mr_identities_ungroup(&out->ids, &nothing, 0, 1, st) : MR_OK;
}

static void end_turn(mr_iter *it)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->turn = (s->turn + 1) % p->batch_sizes.n;
}

static mr_code collect(mr_iter *it, size_t size, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr__unbatcher *f = &s->input;
    for (;;) {
        size_t rows = size - s->stack.n;
        if (s->stack.n == 0 && __builtin_mul_overflow(size, want, &rows))
            rows = size;
        mr_code rc = mr__unbatcher_fill(it, f, rows, st);
        if (rc == MR_END && s->stack.n && !p->o.drop_remainder) {
            s->ended = 1;
            end_turn(it);
            return mr__batch_builder_finish(&s->stack, out, st);
        }
        if (rc != MR_OK)
            return mr__collect_failed(&s->stack, &f->input, mr__batch_builder_finish, rc, st);
        size_t left = mr__unbatcher_left(f);
        if (s->stack.n == 0 && left >= size && mr__can_group(&f->rows)) {
            size_t groups = left / size < want ? left / size : want;
            MR_TRY(mr__group(out, &f->rows, f->at, groups, size, st));
            mr__unbatcher_use(f, groups * size);
            end_turn(it);
            return MR_OK;
        }
        size_t k = size - s->stack.n < left ? size - s->stack.n : left;
        rc = mr__batch_builder_add(&s->stack, &f->rows, f->at, k, size, NULL, st);
        mr__unbatcher_use(f, k);
        if (rc == MR_OK && s->stack.n < size)
            continue;
        end_turn(it);
        if (rc == MR_OK)
            return mr__batch_builder_finish(&s->stack, out, st);
        mr__batch_builder_drop(&s->stack);
        return rc;
    }
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    if (s->ended)
        return MR_END;
    size_t n = p->batch_sizes.n, size = (size_t)p->batch_sizes.v[s->turn];
    if (size)
        return collect(it, size, n == 1 ? want : 1, out, st);
    end_turn(it);
    return empty_batch(it, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__unbatcher_reset(&s->input);
    mr__batch_builder_reset(&s->stack);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    if (s->stack.n)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a batch of rows of different shapes was cancelled halfway");
    MR_TRY(mr_state_put_u64(w, s->turn, st));
    MR_TRY(mr_state_put_u64(w, s->ended, st));
    return mr__unbatcher_save(it, &s->input, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->turn, st));
    MR_TRY(mr_state_get_u64(r, &s->ended, st));
    if (mr__iter_may_go_on(it))
        s->ended = 0;
    if (s->turn >= p->batch_sizes.n)
        return mr_state_damaged(st, "a size is out of range");
    return mr__unbatcher_restore(it, &s->input, r, st);
}

static mr_code check(const void *p, mr_status *st)
{
    const struct params *q = p;
    for (size_t i = 0; i < q->batch_sizes.n; i++)
        if (q->batch_sizes.v[i] > 0)
            return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "rebatch: batch_sizes must hold at least one size greater than 0");
}

/* Axis 0 if it is equal in all elements: no batch is short, or elements of a known size form
 * whole batches. */
static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    const struct params *q = p;
    mr_spec *rows = NULL;
    int64_t n = q->batch_sizes.n ? q->batch_sizes.v[0] : 0, size;
    MR_TRY(mr__rows_spec(mr_dataset_spec(mr_dataset_input(self, 0)), &size, &rows, st));
    bool known = n > 0 && !mr_param_unknown(self, offsetof(struct params, batch_sizes)) &&
                 !mr_param_unknown(self, offsetof(struct params, o.drop_remainder)) &&
                 (q->o.drop_remainder || (size >= 0 && size % n == 0));
    for (size_t i = 1; i < q->batch_sizes.n; i++)
        known = known && q->batch_sizes.v[i] == n;
    mr_code rc = mr__batched_spec(rows, known ? n : -1, out, st);
    mr_spec_unref(rows);
    return rc;
}

static const mr_param table[] = {
    MR_PARAM_WITH(
        struct params, batch_sizes, MR_P_POSITIONAL | MR_P_DIMENSION, .min.i = 0,
        .max.i = INT64_MAX,
        .doc =
            "Rows of an element, or a list of sizes to cycle through; 0 makes an empty element."),
    MR_OPT(struct params, drop_remainder, .flags = MR_P_OPTIONAL,
           .doc = "Drops an incomplete last element."),
    {0}};

const mr_op mr_op_rebatch = {
    .abi = MR_ABI_VERSION,
    .name = "rebatch",
    .doc = "Regroups the rows of batches into batches of the given sizes.",
    .example = "range(12).batch(4).rebatch(6)",
    .memory_doc = "a batch that is cut",
    .state_doc = "counters",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PASS,
    .props = MR_OP_KEEPS_SHARDS,
    .check = check,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_rebatch(mr_dataset *input, const int64_t *batch_sizes, size_t n,
                       const mr_rebatch_opts *opts)
{
    struct params p = {.batch_sizes = {(int64_t *)(uintptr_t)batch_sizes, n}};
    if (opts)
        p.o = *opts;
    return mr_dataset_new(&mr_op_rebatch, &p, &input, 1);
}
