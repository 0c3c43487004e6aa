/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/cursor.h"

mr_code mr__cursor_pull(mr_iter *it, size_t i, size_t want, mr__cursor *c,
                        const mr_destination *destination, mr_status *st)
{
    mr__entry *e;
    mr__queue_open(&c->queue, it, it->inputs[i]);
    MR_TRY(mr__queue_front(&c->queue, want, destination, &e, st));
    return e->rc == MR_OK ? MR_OK : mr__queue_take_error(&c->queue, st);
}

mr_code mr__cursor_put_back(mr__cursor *c, mr_block *rows, mr_status *st)
{
    return mr__queue_put_back(&c->queue, rows, st);
}

void mr__cursor_use(mr__cursor *c, size_t n)
{
    mr__queue_drop(&c->queue, n);
}

void mr__cursor_reset(mr__cursor *c)
{
    mr__queue_reset(&c->queue);
}

mr_code mr__cursor_save(mr_iter *it, size_t i, mr__cursor *c, size_t used, mr_state_w *w,
                        mr_status *st)
{
    mr__queue_open(&c->queue, it, it->inputs[i]);
    return mr__queue_save(&c->queue, used, w, st);
}

mr_code mr__cursor_restore(mr_iter *it, size_t i, mr__cursor *c, mr_state_r *r, mr_status *st)
{
    mr__queue_open(&c->queue, it, it->inputs[i]);
    MR_TRY(mr__queue_restore(&c->queue, mr_iter_input_spec(it, i), r, st));
    const mr__entry *e = c->queue.head;
    if (e && (e->next || e->rc != MR_OK || e->errors.n || c->queue.skip))
        return mr_state_damaged(st, "a cursor holds more than one block of rows");
    return MR_OK;
}
