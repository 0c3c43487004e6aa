/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/columns/pick_rows.h"

mr_code mr__pick_rows(mr_block *in, const uint32_t *index, size_t n, mr_block *out, mr_status *st)
{
    if (n == in->rows) {
        mr_block_move(out, in);
        return MR_OK;
    }
    if (n && index[n - 1] - index[0] == n - 1)
        return mr_block_slice(out, in, index[0], n, st);
    mr_block_clear(out);
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_block_start(out, in, n, st));
    return mr_block_append_rows(out, in, index, n, st);
}
