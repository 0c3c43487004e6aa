/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_UNBATCHER_H
#define MR_PIPELINE_STREAMS_UNBATCHER_H
/* The rows of axis 0 of an input's elements, one after the other; without copies if elements are
 * dense.
 *
 *     elements   [0 1 2] [3 4 5] [6]   ->   0 1 2 3 4 5 | 6
 *
 * Zeroed memory is the start. */
#include "pipeline/streams/cursor.h"

typedef struct mr__unbatcher {
    mr__cursor input;
    mr_block rows; /* of the input's next `elements` elements, `per` rows each */
    size_t at;     /* rows consumed */
    size_t elements, per;
    uint64_t skip; /* after a restore: rows of the next element already consumed */
    int64_t size;  /* rows of each element if the graph determines it, else -1; set by the owner */
} mr__unbatcher;

static inline size_t mr__unbatcher_left(const mr__unbatcher *f)
{
    return f->rows.rows - f->at;
}

/* Pulls elements for `want` rows if no rows are left.
 * returns  MR_OK, MR_END, or an error of the input or of an element, which is then consumed */
mr_code mr__unbatcher_fill(mr_iter *it, mr__unbatcher *f, size_t want, mr_status *st) MR_NODISCARD;
void mr__unbatcher_use(mr__unbatcher *f, size_t rows);
void mr__unbatcher_reset(mr__unbatcher *f);
mr_code mr__unbatcher_save(mr_iter *it, mr__unbatcher *f, mr_state_w *w,
                           mr_status *st) MR_NODISCARD;
mr_code mr__unbatcher_restore(mr_iter *it, mr__unbatcher *f, mr_state_r *r,
                              mr_status *st) MR_NODISCARD;
#endif
