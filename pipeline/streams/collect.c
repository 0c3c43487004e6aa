/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/collect.h"

mr_code mr__collect_batch(mr_iter *it, mr__cursor *input, mr__batch_builder *b, size_t n,
                          bool drop_remainder, mr_status *st)
{
    while (b->n < n) {
        if (mr__cursor_left(input) == 0) {
            mr_code rc = mr__cursor_pull(it, 0, n - b->n, input, NULL, st);
            if (rc == MR_END && b->n && !drop_remainder)
                return MR_OK;
            if (rc != MR_OK) {
                mr__batch_builder_drop(b);
                return rc;
            }
        }
        size_t left = mr__cursor_left(input), k = n - b->n < left ? n - b->n : left;
        mr_code rc =
            mr__batch_builder_add(b, mr__cursor_rows(input), mr__cursor_at(input), k, n, NULL, st);
        mr__cursor_use(input, k);
        if (rc != MR_OK) {
            mr__batch_builder_drop(b);
            return rc;
        }
    }
    return MR_OK;
}
