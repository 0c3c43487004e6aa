/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/merge_rows.h"

/* The number of places from `at` on that are consecutive rows of one part. */
static size_t run_length(const mr__part *parts, const mr__row_place *places, size_t at, size_t n)
{
    const mr__row_place first = places[at];
    size_t k = 0;
    while (at + k < n && places[at + k].part == first.part && places[at + k].row == first.row + k &&
           places[at + k].row < parts[first.part].rows.rows)
        k++;
    return k;
}

static mr_code append(const mr__part *parts, const mr__row_place *places, size_t n, mr_block *out,
                      mr_status *st)
{
    MR_TRY(mr_block_start(out, &parts[places[0].part].rows, n, st));
    for (size_t at = 0, k; at < n && (k = run_length(parts, places, at, n)) > 0; at += k) {
        const mr_block *from = &parts[places[at].part].rows;
        if (!mr_block_fits(out, from))
            break;
        MR_TRY(mr_block_append(out, from, places[at].row, k, st));
    }
    return MR_OK;
}

mr_code mr__merge_rows(mr__part *parts, const mr__row_place *places, size_t n, mr_block *out,
                       mr_status *st)
{
    const mr__part *first = &parts[places[0].part];
    size_t k = run_length(parts, places, 0, n);
    if (k == 0) {
        if (st)
            *st = first->error;
        return first->rc;
    }
    return k == n ? mr_block_slice(out, &first->rows, places[0].row, n, st)
                  : append(parts, places, n, out, st);
}

void mr__parts_free(mr__part *parts, size_t n)
{
    for (size_t i = 0; parts && i < n; i++)
        mr_block_reset(&parts[i].rows);
    mr_free(parts);
}
