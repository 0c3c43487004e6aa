/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_CURSOR_H
#define MR_PIPELINE_STREAMS_CURSOR_H
/* Reads an input in blocks and consumes it row by row: a read-ahead queue of at most one block.
 *
 *     rows  [ used | left ]        the block pulled last; mr__cursor_at rows of it are consumed
 *
 * Zeroed memory is an empty cursor. */
#include "pipeline/streams/read_ahead_queue.h"

typedef struct mr__cursor {
    mr__queue queue;
} mr__cursor;

/* Rows left of the block pulled last. */
static inline size_t mr__cursor_left(const mr__cursor *c)
{
    return c->queue.head ? c->queue.head->rows.rows - c->queue.head->at : 0;
}

/* The block pulled last, while rows of it are left, and the number of rows consumed. */
static inline mr_block *mr__cursor_rows(const mr__cursor *c)
{
    return &c->queue.head->rows;
}

static inline size_t mr__cursor_at(const mr__cursor *c)
{
    return c->queue.head->at;
}

/* Pulls the next rows of input i into c, which must have no rows left. destination (block.h) may be
 * NULL. */
mr_code mr__cursor_pull(mr_iter *it, size_t i, size_t want, mr__cursor *c,
                        const mr_destination *destination, mr_status *st) MR_NODISCARD;
/* Puts rows that were consumed back into c, which must have no rows left: the next that are
 * consumed. They are moved. */
mr_code mr__cursor_put_back(mr__cursor *c, mr_block *rows, mr_status *st) MR_NODISCARD;
/* Consumes n rows; the block is released with its last row. */
void mr__cursor_use(mr__cursor *c, size_t n);
void mr__cursor_reset(mr__cursor *c);

/* Saves input i's state as of the first row left, counting `used` more rows as consumed. */
mr_code mr__cursor_save(mr_iter *it, size_t i, mr__cursor *c, size_t used, mr_state_w *w,
                        mr_status *st) MR_NODISCARD;
mr_code mr__cursor_restore(mr_iter *it, size_t i, mr__cursor *c, mr_state_r *r,
                           mr_status *st) MR_NODISCARD;
#endif
