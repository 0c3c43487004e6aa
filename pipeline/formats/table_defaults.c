/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/table_defaults.h"

#include <string.h>

mr_code mr__table_repeat(const mr_array *value, size_t rows, mr_array *out, mr_status *st)
{
    mr_array a = {0};
    MR_TRY(mr_array_start(&a, value, rows ? rows : 1, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < rows && rc == MR_OK; i++)
        rc = mr_array_append(&a, value, 0, 1, st);
    if (rc == MR_OK)
        mr_array_move(out, &a);
    else
        mr_array_reset(&a);
    return rc;
}

mr_code mr__table_fill(mr_array *a, const bool *null, const mr_array *value, mr_status *st)
{
    mr_array filled = {0};
    size_t rows = a->rows;
    /* Rows of lists have their own shapes, which dense ones could not take. */
    MR_TRY(mr_array_start(&filled, a->storage == MR_RAGGED ? a : value, rows ? rows : 1, st));
    mr_code rc = MR_OK;
    for (size_t from = 0, to; from < rows && rc == MR_OK; from = to) {
        for (to = from; to < rows && null[to] == null[from]; to++)
            ;
        if (!null[from])
            rc = mr_array_append(&filled, a, from, to - from, st);
        for (size_t i = from; i < to && null[from] && rc == MR_OK; i++)
            rc = mr_array_append(&filled, value, 0, 1, st);
    }
    if (rc != MR_OK) {
        mr_array_reset(&filled);
        return rc;
    }
    mr_array_reset(a);
    mr_array_move(a, &filled);
    return MR_OK;
}
