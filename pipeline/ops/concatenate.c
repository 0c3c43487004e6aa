/* SPDX-License-Identifier: Apache-2.0 */
/* The second input is opened when the first has ended. */
#include "pipeline/ops/sequence.h"

#include "pipeline/memory/merge_rows.h"
#include "pipeline/engine/op_iterator.h"
#include "pipeline/params/infer.h"

struct state {
    uint64_t current; /* input being read; 2: both have ended */
};

static mr_code open(mr_iter *it, mr_status *st)
{
    return mr_iter_open_input(it, 0, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    for (; s->current < 2; s->current++) {
        if (!it->inputs[s->current])
            MR_TRY(mr_iter_open_input(it, s->current, st));
        mr_code rc = mr_iter_pull(it, s->current, want, out, st);
        if (rc != MR_END)
            return rc;
        mr_iter_close_input(it, s->current);
    }
    return MR_END;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    if (s->current == 2)
        return MR_OK;
    if (!it->inputs[s->current])
        MR_TRY(mr_iter_open_input(it, s->current, st));
    return mr_iter_skip_input(it, s->current, n, skipped, st);
}

/* Looks up the elements of each input together. */
static mr_code at_both(mr_iter *it, const uint64_t *index, size_t n, uint64_t first, mr_block *out,
                       mr_status *st)
{
    mr__part *parts = mr_calloc(2, sizeof *parts);
    mr__row_place *places = mr_malloc(n * sizeof *places);
    uint64_t *in = mr_malloc(n * sizeof *in);
    mr_code rc = parts && places && in ? MR_OK : mr_fail_memory(st, n * sizeof *places, "a lookup");
    for (uint32_t k = 0; k < 2 && rc == MR_OK; k++) {
        uint32_t rows = 0;
        for (size_t i = 0; i < n; i++)
            if ((index[i] >= first) == k) {
                in[rows] = index[i] - (k ? first : 0);
                places[i] = (mr__row_place){k, rows++};
            }
        if (rows == 0)
            continue;
        parts[k].rc = mr_iter_at_input(it, k, in, rows, &parts[k].rows, &parts[k].error);
        if (parts[k].rc != MR_OK && mr_status_is_of_no_element(&parts[k].error)) {
            *st = parts[k].error;
            rc = parts[k].rc;
        }
    }
    if (rc == MR_OK)
        rc = mr__merge_rows(parts, places, n, out, st);
    mr__parts_free(parts, 2);
    mr_free(places);
    mr_free(in);
    return rc;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    uint64_t first, few[16];
    MR_TRY(mr_iter_count_input(it, 0, &first, st));
    size_t low = 0;
    for (size_t i = 0; i < n; i++)
        low += index[i] < first;
    if (low == n)
        return mr_iter_at_input(it, 0, index, n, out, st);
    if (low || n > sizeof few / sizeof *few)
        return at_both(it, index, n, first, out, st);
    for (size_t i = 0; i < n; i++)
        few[i] = index[i] - first;
    return mr_iter_at_input(it, 1, few, n, out, st);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->current, st));
    MR_TRY(mr_iter_save_input(it, 0, w, st));
    return mr_iter_save_input(it, 1, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->current, st));
    if (s->current > 2)
        return mr_state_damaged(st, "an input is out of range");
    MR_TRY(mr_iter_restore_input(it, 0, r, st));
    return mr_iter_restore_input(it, 1, r, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    const mr_spec *a = mr_dataset_spec(mr_dataset_input(self, 0));
    const mr_spec *b = mr_dataset_spec(mr_dataset_input(self, 1));
    if (!mr_spec_same_types(a, b)) {
        char x[160], y[160];
        mr_spec_format(a, x, sizeof x);
        mr_spec_format(b, y, sizeof y);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "concatenate: both datasets must have elements of the same types, found %s "
                       "and %s",
                       x, y);
    }
    return mr__inferred(mr_spec_merge(a, b), out, st);
}

static int64_t cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)p;
    if (in[0] == MR_INFINITE || in[1] == MR_INFINITE)
        return MR_INFINITE;
    if (in[0] < 0 || in[1] < 0)
        return MR_UNKNOWN_COUNT;
    int64_t n;
    return __builtin_add_overflow(in[0], in[1], &n) ? INT64_MAX : n;
}

const mr_op mr_op_concatenate = {
    .abi = MR_ABI_VERSION,
    .name = "concatenate",
    .doc = "Emits the elements of one dataset, then those of another of the same types.",
    .example = "range(3).concatenate(range(10, 12))",
    .order_doc = "the first input, then the second",
    .state_doc = "which input",
    .count_doc = "the sum of both",
    .iter_size = sizeof(struct state),
    .min_inputs = 2,
    .max_inputs = 2,
    .role = MR_ROLE_PARALLEL,
    .props = MR_OP_OPENS_INPUTS | MR_OP_OPENS_LATER | MR_OP_KEEPS_SHARDS,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .save = save,
    .restore = restore,
    .skip = skip,
    .at = at,
};

mr_dataset *mr_concatenate(mr_dataset *input, mr_dataset *other)
{
    return mr_dataset_new(&mr_op_concatenate, NULL, (mr_dataset *[]){input, other}, 2);
}
