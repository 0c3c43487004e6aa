/* SPDX-License-Identifier: Apache-2.0 */
/* All emitted values are kept, also in a position. */
#include "pipeline/ops/sequence.h"

#include "pipeline/engine/memory_limit.h"
#include "pipeline/streams/row_filter.h"
#include "pipeline/columns/value_set.h"
#include "pipeline/streams/cursor.h"

struct state {
    mr__cursor input; /* holds rows only if lack of memory prevented processing them */
    mr__value_set seen;
};

static mr_code open(mr_iter *it, mr_status *st)
{
    (void)st;
    struct state *s = it->state;
    const mr_leaf *leaf = mr_spec_leaf(mr_iter_input_spec(it, 0), 0);
    if (leaf->rank == 0 && leaf->dtype != MR_STRING)
        s->seen.width = mr_dtype_size(leaf->dtype);
    mr__memory_guard(it);
    return MR_OK;
}

/* out = the rows of `in` that are new. On failure the set is unchanged. */
static mr_code look(struct state *s, mr_block *in, mr_block *out, mr_status *st)
{
    mr_buffer *index = NULL;
    size_t n = 0, mark = mr__value_set_mark(&s->seen);
    mr_code rc = mr_buffer_alloc(&index, in->rows * sizeof(uint32_t), st);
    for (size_t row = 0; row < in->rows && rc == MR_OK; row++) {
        bool fresh = false;
        rc = mr__value_set_add(&s->seen, &in->columns[0], row, &fresh, st);
        ((uint32_t *)mr_buffer_data(index))[n] = (uint32_t)row;
        n += fresh;
    }
    if (rc == MR_OK)
        rc = mr__pick_rows(in, mr_buffer_data(index), n, out, st);
    if (rc != MR_OK)
        mr__value_set_back(&s->seen, mark);
    mr_buffer_unref(index);
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    while (out->rows == 0) {
        if (mr__cursor_left(&s->input) == 0)
            MR_TRY(mr__cursor_pull(it, 0, want, &s->input, NULL, st));
        mr_block in = MR_BLOCK_EMPTY;
        size_t left = mr__cursor_left(&s->input);
        mr_code rc =
            mr_block_slice(&in, mr__cursor_rows(&s->input), mr__cursor_at(&s->input), left, st);
        if (rc == MR_OK)
            rc = look(s, &in, out, st);
        mr_block_reset(&in);
        if (rc != MR_OK)
            return rc;
        mr__cursor_use(&s->input, left);
    }
    return MR_OK;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__cursor_reset(&s->input);
    mr__value_set_reset(&s->seen);
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__value_set_save(&s->seen, w, st));
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__value_set_restore(&s->seen, r, st));
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

static mr_code infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)p;
    const mr_spec *in = mr_dataset_spec(mr_dataset_input(self, 0));
    const mr_leaf *leaf = mr_spec_n_leaves(in) == 1 ? mr_spec_leaf(in, 0) : NULL;
    if (!leaf || leaf->ragged || !(leaf->dtype == MR_STRING || mr_dtype_is_integer(leaf->dtype))) {
        char text[160];
        mr_spec_format(in, text, sizeof text);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "unique: elements must be one tensor of integers or strings, not %s", text);
    }
    *out = mr_spec_ref(in);
    return MR_OK;
}

const mr_op mr_op_unique = {
    .abi = MR_ABI_VERSION,
    .name = "unique",
    .doc = "Drops elements that occurred before.",
    .example = "from_tensor_slices([1, 3, 1, 2, 3]).unique()",
    .memory_doc = "a copy of each value so far",
    .state_doc = "the values so far",
    .count_doc = "unknown",
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_unique(mr_dataset *input)
{
    return mr_dataset_new(&mr_op_unique, NULL, &input, 1);
}
