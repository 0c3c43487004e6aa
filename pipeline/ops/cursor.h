/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_CURSOR_H
#define MR_PIPELINE_OPS_CURSOR_H
/* Reading an input by blocks while using it up row by row.
 *
 *     rows  [ used | left ]        the block pulled last; `at` rows of it are used up
 *           ^tag                   the input's position before that pull
 *
 * What is left is a read-ahead of less than one block. It is not part of a position: saving writes
 * the tag and `at`, restoring reads the used rows again and drops them. Only where the input cannot
 * produce the same again are the rows themselves saved.
 *
 * Zeroed memory is an empty cursor. */
#include "pipeline/engine/iter.h"

typedef struct mr_cursor {
    mr_block rows;
    size_t at;
    mr_buffer *tag; /* NULL: positions are off, or the input cannot be read again */
} mr_cursor;

static inline size_t mr__cursor_left(const mr_cursor *c)
{
    return c->rows.rows - c->at;
}

/* Next rows of input i into c, of which nothing may be left. */
mr_code mr__cursor_pull(mr_iter *it, size_t i, size_t want, mr_cursor *c,
                        mr_status *st) MR_NODISCARD;
/* Uses up n rows; the block is let go with its last row. */
void mr__cursor_use(mr_cursor *c, size_t n);
void mr__cursor_reset(mr_cursor *c);

/* Input i's state as of the first row left. */
mr_code mr__cursor_save(mr_iter *it, size_t i, const mr_cursor *c, mr_state_w *w,
                        mr_status *st) MR_NODISCARD;
mr_code mr__cursor_restore(mr_iter *it, size_t i, mr_cursor *c, mr_state_r *r,
                           mr_status *st) MR_NODISCARD;

/* Restores input i from a tag in the state: opens it, takes it there and drops `rows` rows. */
mr_code mr__reread(mr_iter *it, size_t i, const void *tag, size_t tag_bytes, uint64_t rows,
                   mr_status *st) MR_NODISCARD;
#endif
