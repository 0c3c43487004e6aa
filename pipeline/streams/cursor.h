/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_CURSOR_H
#define MR_PIPELINE_STREAMS_CURSOR_H
/* Reading an input by blocks while using it up row by row: a read-ahead queue of at most one block.
 *
 *     rows  [ used | left ]        the block pulled last; mr__cursor_at rows of it are used up
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

/* The block pulled last, while rows of it are left, and how many are used up. */
static inline mr_block *mr__cursor_rows(const mr__cursor *c)
{
    return &c->queue.head->rows;
}

static inline size_t mr__cursor_at(const mr__cursor *c)
{
    return c->queue.head->at;
}

/* Next rows of input i into c, of which nothing may be left. destination (block.h) may be NULL. */
mr_code mr__cursor_pull(mr_iter *it, size_t i, size_t want, mr__cursor *c,
                        const mr_destination *destination, mr_status *st) MR_NODISCARD;
/* Uses up n rows; the block is released with its last row. */
void mr__cursor_use(mr__cursor *c, size_t n);
void mr__cursor_reset(mr__cursor *c);

/* Input i's state as of the first row left, of which `used` more count as used up. */
mr_code mr__cursor_save(mr_iter *it, size_t i, mr__cursor *c, size_t used, mr_state_w *w,
                        mr_status *st) MR_NODISCARD;
mr_code mr__cursor_restore(mr_iter *it, size_t i, mr__cursor *c, mr_state_r *r,
                           mr_status *st) MR_NODISCARD;
#endif
