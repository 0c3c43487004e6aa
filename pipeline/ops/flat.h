/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_FLAT_H
#define MR_PIPELINE_OPS_FLAT_H
/* The rows of axis 0 of an input's elements, one after the other, without copies where elements are
 * dense.
 *
 *     elements   [0 1 2] [3 4 5] [6]   ->   0 1 2 3 4 5 | 6
 *
 * Zeroed memory is the start. */
#include "pipeline/ops/cursor.h"

typedef struct mr_flat {
    mr_cursor input;
    mr_block rows; /* of `elements` elements from input.at on, `per` rows each */
    size_t at;     /* rows used up */
    size_t elements, per;
    uint64_t skip; /* rows of the next element that a restored position has behind it */
    int64_t size;  /* rows of each element where the graph says so, else -1; set by the owner */
} mr_flat;

static inline size_t mr__flat_left(const mr_flat *f)
{
    return f->rows.rows - f->at;
}

/* Makes sure that rows are left: pulls elements for `want` rows if none are.
 * returns  MR_OK, MR_END, or an error of the input or of an element, which is then used up */
mr_code mr__flat_fill(mr_iter *it, mr_flat *f, size_t want, mr_status *st) MR_NODISCARD;
void mr__flat_use(mr_flat *f, size_t rows);
void mr__flat_reset(mr_flat *f);
mr_code mr__flat_save(mr_iter *it, const mr_flat *f, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__flat_restore(mr_iter *it, mr_flat *f, mr_state_r *r, mr_status *st) MR_NODISCARD;
#endif
