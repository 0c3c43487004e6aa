/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/feed.h"
#include <string.h>

mr_code mr__feed_open(mr__feed *f, mr_strategy *s, mr_dataset *ds, const mr_iterator_opts *opts,
                      size_t depth, mr_status *st)
{
    memset(f, 0, sizeof *f);
    MR_TRY(mr_iterator_open(&f->it, ds, opts, st));
    return mr__staging_new(&f->ring, s, depth ? depth : 2, st);
}

void mr__feed_close(mr__feed *f)
{
    mr__staging_free(f->ring);
    mr_block_reset(&f->block);
    mr_iterator_close(f->it);
    memset(f, 0, sizeof *f);
}

static mr_code fetch(mr__feed *f)
{
    mr_status *st = &f->st;
    MR_TRY(mr__staging_reserve(f->ring, &f->block.into, st));
    MR_TRY(mr_iterator_next(f->it, 1, &f->block, st));
    return mr__staging_put(f->ring, &f->block, &f->slot, st);
}

void mr__feed_fetch(mr__feed *f)
{
    if (f->ahead)
        return;
    mr_status_init(&f->st);
    f->rc = fetch(f);
    f->block.into = NULL;
    mr_block_clear(&f->block);
    f->ahead = true;
}

mr_code mr__feed_take(mr__feed *f, size_t *slot, mr_status *st)
{
    mr__feed_fetch(f);
    f->ahead = false;
    *slot = f->slot;
    if (f->rc != MR_OK && f->rc != MR_END && st)
        *st = f->st;
    return f->rc;
}

mr_code mr__feed_rewind(mr__feed *f, mr_status *st)
{
    f->ahead = false;
    return mr_iterator_rewind(f->it, st);
}
