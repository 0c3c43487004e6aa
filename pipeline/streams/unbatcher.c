/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/unbatcher.h"

#include <string.h>

/* Size of axis 0 if it is equal in all rows of all columns and these are dense, else -1. */
static int64_t common_size(const mr_block *b)
{
    int64_t size = -1;
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        if ((a->storage != MR_DENSE && a->storage != MR_BYTES) || a->rank == 0 ||
            (size >= 0 && a->shape[0] != size))
            return -1;
        size = a->shape[0];
    }
    return size;
}

/* All elements of the block at once: only the shape changes. */
static mr_code flatten_all(mr__unbatcher *f, size_t per, mr_status *st)
{
    const mr_block *b = mr__cursor_rows(&f->input);
    size_t elements = mr__cursor_left(&f->input), at = mr__cursor_at(&f->input);
    MR_TRY(mr_block_prepare(&f->rows, b->n_columns, st));
    for (size_t c = 0; c < b->n_columns; c++) {
        mr_array *a = &f->rows.columns[c];
        mr_array_slice(a, &b->columns[c], at, elements);
        a->rows *= per;
        a->rank--;
        memmove(a->shape, a->shape + 1, (size_t)a->rank * sizeof *a->shape);
    }
    f->rows.rows = elements * per;
    f->elements = elements;
    f->per = per;
    return MR_OK;
}

/* Row r of n receives the r-th of the element's identities if there are n of them, else all. */
static mr_code cut_identities(mr__unbatcher *f, size_t n, mr_status *st)
{
    const mr_identities *ids = &mr__cursor_rows(&f->input)->ids;
    size_t i = mr__cursor_at(&f->input);
    uint64_t from = ids->offsets ? ids->offsets[i] : i,
             to = ids->offsets ? ids->offsets[i + 1] : i + 1;
    if (!ids->ids || to - from != n)
        return mr_identities_ungroup(&f->rows.ids, ids, i, n, st);
    f->rows.ids = (mr_identities){.ids = ids->ids + from,
                                  .owner = ids->owner ? mr_buffer_ref(ids->owner) : NULL};
    return MR_OK;
}

static mr_code flatten_one(mr__unbatcher *f, mr_status *st)
{
    const mr_block *b = mr__cursor_rows(&f->input);
    size_t i = mr__cursor_at(&f->input), n = 0;
    MR_TRY(mr_block_prepare(&f->rows, b->n_columns, st));
    for (size_t c = 0; c < b->n_columns; c++) {
        if (b->columns[c].rank == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "component %zu is a scalar, which has no axis 0 to split", c);
        MR_TRY(mr_array_ungroup(&f->rows.columns[c], &b->columns[c], i, st));
        size_t rows = f->rows.columns[c].rows;
        if (c && rows != n)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "components must agree in axis 0, found %zu and %zu (component %zu)", n,
                           rows, c);
        n = rows;
    }
    MR_TRY(cut_identities(f, n, st));
    f->rows.rows = n;
    f->elements = 1;
    f->per = n;
    return MR_OK;
}

static mr_code flatten(mr__unbatcher *f, mr_status *st)
{
    const mr_block *b = mr__cursor_rows(&f->input);
    int64_t per = b->ids.ids ? -1 : common_size(b);
    f->at = 0;
    mr_code rc = per >= 0 ? flatten_all(f, (size_t)per, st) : flatten_one(f, st);
    if (rc != MR_OK) {
        mr_block_clear(&f->rows);
        mr__cursor_use(&f->input, 1);
        f->skip = 0;
        return rc;
    }
    if (f->skip > f->per)
        return mr_state_damaged(st, "an element has fewer rows than were used");
    f->at = (size_t)f->skip;
    f->skip = 0;
    if (mr__unbatcher_left(f) == 0)
        mr__unbatcher_use(f, 0);
    return MR_OK;
}

mr_code mr__unbatcher_fill(mr_iter *it, mr__unbatcher *f, size_t want, mr_status *st)
{
    while (mr__unbatcher_left(f) == 0) {
        if (mr__cursor_left(&f->input) == 0) {
            /* If the size is unknown, pull one element at a time: the first may have all
             * requested rows. */
            size_t size = f->size > 0 ? (size_t)f->size : want;
            size_t elements = want / size + (want % size != 0);
            MR_TRY(mr__cursor_pull(it, 0, elements, &f->input, NULL, st));
        }
        MR_TRY(flatten(f, st));
    }
    return MR_OK;
}

void mr__unbatcher_use(mr__unbatcher *f, size_t rows)
{
    f->at += rows;
    if (f->at < f->rows.rows)
        return;
    mr_block_clear(&f->rows);
    f->at = 0;
    mr__cursor_use(&f->input, f->elements);
    f->elements = 0;
}

void mr__unbatcher_reset(mr__unbatcher *f)
{
    mr_block_reset(&f->rows);
    mr__cursor_reset(&f->input);
    f->at = f->elements = 0;
    f->skip = 0;
}

mr_code mr__unbatcher_save(mr_iter *it, mr__unbatcher *f, mr_state_w *w, mr_status *st)
{
    size_t elements = f->elements ? f->at / f->per : 0;
    MR_TRY(mr_state_put_u64(w, f->elements ? f->at % f->per : f->skip, st));
    return mr__cursor_save(it, 0, &f->input, elements, w, st);
}

mr_code mr__unbatcher_restore(mr_iter *it, mr__unbatcher *f, mr_state_r *r, mr_status *st)
{
    mr__unbatcher_reset(f);
    MR_TRY(mr_state_get_u64(r, &f->skip, st));
    return mr__cursor_restore(it, 0, &f->input, r, st);
}
