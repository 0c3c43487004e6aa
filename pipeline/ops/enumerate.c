/* SPDX-License-Identifier: Apache-2.0 */
/* An error in the input consumes a number. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/op_iterator.h"
#include "pipeline/params/infer.h"

struct params {
    int64_t start;
};

struct state {
    uint64_t count; /* numbers emitted */
    mr_block rows;
};

/* out = s->rows, which is cleared, with their numbers: those of index; NULL: from s->count on. */
static mr_code number_rows(mr_iter *it, const uint64_t *index, mr_block *out, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    size_t n = s->rows.rows;
    mr_code rc = mr_block_prepare(out, s->rows.n_columns + 1, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, n, st);
    if (rc == MR_OK) {
        int64_t *to = out->columns[0].data;
        for (size_t i = 0; i < n; i++)
            to[i] = (int64_t)((uint64_t)p->start + (index ? index[i] : s->count + i));
        for (size_t c = 0; c < s->rows.n_columns; c++)
            mr_array_slice(&out->columns[c + 1], &s->rows.columns[c], 0, n);
        mr_identities_take(&out->ids, &s->rows.ids, 0, n);
        out->rows = n;
    }
    mr_block_clear(&s->rows);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc = mr_iter_pull(it, 0, want, &s->rows, st);
    if (rc < 0 && !mr_status_is_of_no_element(st))
        s->count++;
    if (rc != MR_OK)
        return rc;
    size_t n = s->rows.rows;
    rc = number_rows(it, NULL, out, st);
    s->count += n;
    return rc;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc = mr_iter_skip_input(it, 0, n, skipped, st);
    s->count += *skipped;
    return rc;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_iter_at_input(it, 0, index, n, &s->rows, st));
    return number_rows(it, index, out, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr_block_reset(&s->rows);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->count, st));
    return mr_iter_save_input(it, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->count, st));
    return mr_iter_restore_input(it, 0, r, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    mr_spec *children[2] = {mr_spec_scalar(MR_INT64), mr_spec_ref(in)};
    return mr__inferred(mr_spec_tuple(children, 2), out, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, start, .doc = "Number of the first element."), {0}};

const mr_op mr_op_enumerate = {
    .abi = MR_ABI_VERSION,
    .name = "enumerate",
    .doc = "Pairs each element with its number.",
    .example = "range(5, 8).enumerate(start=1)",
    .state_doc = "a counter",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER, /* with sharding by file, the numbers would restart on every worker */
    .props = MR_OP_KEEPS_COUNT | MR_OP_COUNTS_STEPS,
    .infer = infer,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_enumerate(mr_dataset *input, int64_t start)
{
    struct params p = {start};
    return mr_dataset_new(&mr_op_enumerate, &p, &input, 1);
}
