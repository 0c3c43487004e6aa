/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/seeds.h"

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/philox.h"
#include "pipeline/system/fork.h"

struct shared {
    mr__lock lock; /* guards the rest */
    bool seeded;
    uint64_t pair[2];
    mr__philox generator;
    uint64_t drawn; /* words of it */
};

static void init(void *p)
{
    struct shared *c = p;
    mr__lock_init(&c->lock);
}

static void destroy(void *p)
{
    struct shared *c = p;
    mr__lock_destroy(&c->lock);
}

static mr_code shared_of(mr_dataset *node, struct shared **c, mr_status *st)
{
    void *p;
    MR_TRY(mr_node_shared(node, sizeof **c, init, destroy, &p, st));
    *c = p;
    return MR_OK;
}

static void start_generator(struct shared *c)
{
    mr__philox_init(&c->generator, c->pair[0], c->pair[1]);
    mr__philox_skip(&c->generator, c->drawn);
    c->seeded = true;
}

/* After a pass that could not be opened: the next one draws the same pair. */
static void draw_back(mr_iter *it)
{
    struct shared *c;
    if (shared_of(it->node, &c, NULL) != MR_OK) /* it is there */
        return;
    mr__lock_take(&c->lock);
    c->drawn -= c->drawn >= 2 ? 2 : 0;
    start_generator(c);
    mr__lock_release(&c->lock);
}

mr_code mr__seeds_draw(mr_iter *it, const int64_t *seed, bool again, uint64_t pair[2],
                       mr_status *st)
{
    struct shared *c;
    MR_TRY(shared_of(it->node, &c, st));
    uint64_t fresh = seed ? 0 : mr_iter_fresh_seed(it);
    mr__lock_take(&c->lock);
    if (!c->seeded) {
        if (seed)
            mr__seed_pair(*seed, c->pair);
        else {
            c->pair[0] = fresh;
            c->pair[1] = ~fresh * 0x9E3779B97F4A7C15u;
        }
        start_generator(c);
    }
    pair[0] = again ? mr__philox_next(&c->generator) : c->pair[0];
    pair[1] = again ? mr__philox_next(&c->generator) : c->pair[1];
    c->drawn += again ? 2 : 0;
    mr__lock_release(&c->lock);
    if (again)
        mr__iter_set_undo(it, draw_back);
    return MR_OK;
}

/* 0 | 1, the pair, words drawn */
mr_code mr__seeds_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    struct shared *c;
    MR_TRY(shared_of(node, &c, st));
    mr__lock_take(&c->lock);
    bool seeded = c->seeded;
    uint64_t pair[2] = {c->pair[0], c->pair[1]}, drawn = c->drawn;
    mr__lock_release(&c->lock);
    MR_TRY(mr_state_put_u64(w, seeded, st));
    if (!seeded)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, pair[0], st));
    MR_TRY(mr_state_put_u64(w, pair[1], st));
    return mr_state_put_u64(w, drawn, st);
}

mr_code mr__seeds_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    struct shared *c;
    uint64_t seeded, pair[2] = {0}, drawn = 0;
    MR_TRY(shared_of(node, &c, st));
    MR_TRY(mr_state_get_u64(r, &seeded, st));
    if (seeded) {
        MR_TRY(mr_state_get_u64(r, &pair[0], st));
        MR_TRY(mr_state_get_u64(r, &pair[1], st));
        MR_TRY(mr_state_get_u64(r, &drawn, st));
    }
    mr__lock_take(&c->lock);
    c->pair[0] = pair[0];
    c->pair[1] = pair[1];
    c->drawn = drawn;
    c->seeded = false;
    if (seeded)
        start_generator(c);
    mr__lock_release(&c->lock);
    return MR_OK;
}
