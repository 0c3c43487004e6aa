/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/lookups.h"

enum { FIRST = 8, MOST_BYTES = 1 << 20 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void mr__lookups_drop(mr__lookups *l)
{
    mr_block_reset(&l->rows);
    l->row = 0;
}

/* l->rows = the next elements; or the error of the next one. */
static mr_code fetch(mr_iter *it, mr__lookups *l, size_t want, mr__upcoming_fn *upcoming,
                     mr_status *st)
{
    size_t most = l->batch ? l->batch : FIRST;
    bool source = it->inputs[0]->n_inputs == 0;
    mr__lookups_drop(l);
    size_t n = upcoming(it, l->numbers, source ? most : least(want, most));
    if (n == 0)
        return MR_END;
    mr_code rc = mr_iter_at_input(it, 0, l->numbers, n, &l->rows, st);
    if (rc != MR_OK) {
        l->batch = FIRST;
        return rc;
    }
    /* The first few elements do not wait for hundreds; then as many as a block should hold. */
    size_t bytes = mr_block_payload_bytes(&l->rows) / l->rows.rows + 1;
    l->batch = least(least(2 * most, MR__MOST_LOOKUPS), MOST_BYTES / bytes + 1);
    return MR_OK;
}

mr_code mr__lookups_next(mr_iter *it, mr__lookups *l, size_t want, mr__upcoming_fn *upcoming,
                         mr_block *out, size_t *done, uint64_t *last, mr_status *st)
{
    *done = 0;
    if (l->row == l->rows.rows) {
        mr_code rc = fetch(it, l, want, upcoming, st);
        if (rc < 0 && rc != MR_CANCELLED && !mr_status_is_of_no_element(st)) {
            *done = 1; /* an error of no element is tried again */
            *last = l->numbers[0];
        }
        MR_TRY(rc);
    }
    size_t n = mr_iter_block_rows(it, least(l->rows.rows - l->row, want), 1);
    MR_TRY(mr_block_slice(out, &l->rows, l->row, n, st));
    l->row += n;
    *done = n;
    *last = l->numbers[l->row - 1];
    return MR_OK;
}

mr_code mr__lookups_infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    mr_dataset *input = mr_dataset_input(self, 0);
    mr_status why;
    (void)p;
    mr_code rc = mr_dataset_indexed(input, &why);
    if (rc == MR_FAILED_PRECONDITION)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "needs an input whose elements can be looked up by number: %s", why.message);
    if (rc != MR_OK) {
        *st = why;
        return rc;
    }
    *out = mr_spec_ref(mr_dataset_spec(input));
    return MR_OK;
}
