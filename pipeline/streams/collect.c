/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/collect.h"

#include "pipeline/graph/node.h"
#include "pipeline/params/infer.h"

/* Rows of whole batches, up to the size of a block, but at least one batch. */
static size_t rows_to_pull(mr_iter *it, size_t want, size_t n)
{
    size_t all;
    if (__builtin_mul_overflow(want, n, &all))
        all = SIZE_MAX;
    size_t rows = mr_iter_block_rows(it, all, mr__row_bytes(mr_iter_input_spec(it, 0)));
    return rows < n ? n : rows - rows % n;
}

/* The number of elements, if known without reading files; else 0. */
static size_t known_rows(const mr_dataset *input)
{
    if (mr__dataset_all_props(input) & MR_OP_LATE_COUNT)
        return 0;
    int64_t n = mr_dataset_cardinality(input);
    return n > 0 && (uint64_t)n < SIZE_MAX ? (size_t)n : 0;
}

mr_code mr__collect_pull(mr_iter *it, size_t want, size_t n, const mr_destination *destination,
                         mr_status *st)
{
    mr__collected *s = it->state;
    if (!s->stack.spec)
        s->stack.most = known_rows(mr_dataset_input(it->node, 0));
    s->stack.spec = it->spec;
    return mr__cursor_pull(it, 0, rows_to_pull(it, want, n) - s->stack.n, &s->input,
                           s->stack.n ? NULL : destination, st);
}

mr_code mr__collect_failed(mr__batch_builder *stack, mr__cursor *input,
                           mr_code (*take)(mr__batch_builder *, mr_block *, mr_status *),
                           mr_code rc, mr_status *st)
{
    mr_block rows = MR_BLOCK_EMPTY;
    mr_status why;
    if (rc != MR_CANCELLED)
        mr__batch_builder_drop(stack);
    if (stack->n == 0 || stack->misfit)
        return rc;
    mr_code kept = take(stack, &rows, &why);
    if (kept == MR_OK)
        kept = mr__cursor_put_back(input, &rows, &why);
    mr_block_reset(&rows);
    if (kept != MR_OK && st)
        *st = why;
    return kept == MR_OK ? rc : kept;
}

mr_code mr__collect_batch(mr_iter *it, size_t want, size_t n, bool drop_remainder, mr_status *st)
{
    mr__collected *s = it->state;
    mr__batch_builder *b = &s->stack;
    while (b->n < n) {
        if (mr__cursor_left(&s->input) == 0) {
            mr_code rc = mr__collect_pull(it, want, n, NULL, st);
            if (rc == MR_END && b->n && !drop_remainder)
                return MR_OK;
            if (rc != MR_OK)
                return mr__collect_failed(&s->stack, &s->input, mr__batch_builder_take, rc, st);
        }
        size_t left = mr__cursor_left(&s->input), k = n - b->n < left ? n - b->n : left;
        const mr_block *rows = mr__cursor_rows(&s->input);
        size_t at = mr__cursor_at(&s->input);
        mr_code rc = k == n ? mr__batch_builder_view(b, rows, at, n, st)
                            : mr__batch_builder_add(b, rows, at, k, n, NULL, st);
        mr__cursor_use(&s->input, k);
        if (rc != MR_OK) {
            mr__batch_builder_drop(b);
            return rc;
        }
    }
    return MR_OK;
}

void mr__collected_close(mr_iter *it)
{
    mr__collected *s = it->state;
    mr__cursor_reset(&s->input);
    mr__batch_builder_reset(&s->stack);
}

mr_code mr__collected_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__collected *s = it->state;
    if (s->stack.n)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a batch of elements of different shapes was cancelled halfway");
    return mr__cursor_save(it, 0, &s->input, 0, w, st);
}

mr_code mr__collected_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__collected *s = it->state;
    return mr__cursor_restore(it, 0, &s->input, r, st);
}

int64_t mr__count_batches(int64_t n, int64_t batch_size, bool drop_remainder)
{
    return n < 0 ? n : n / batch_size + (!drop_remainder && n % batch_size);
}
