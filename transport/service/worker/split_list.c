/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/split_list.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/timed_wait.h"
#include "shard/streams/stream_splits.h"

#define LOOK_NS ((int64_t)100000000) /* for a cancellation, while it waits */

struct mr__split_list {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t *v;
    size_t n, capacity;
    uint64_t total;
    uint64_t ended; /* repetitions below this number have no more splits */
    bool asked, stopped;
    mr__split_ask ask;
    void *ctx;
};

mr_code mr__split_list_new(mr__split_list **out, const uint64_t *v, size_t n, uint64_t total,
                           mr__split_ask ask, void *ctx, mr_status *st)
{
    mr__split_list *l = mr_calloc(1, sizeof *l);
    if (!l || !(l->v = mr_malloc((n ? n : 1) * sizeof *v))) {
        mr_free(l);
        return mr_fail_memory(st, n * sizeof *v, "a stream's splits");
    }
    if (n)
        memcpy(l->v, v, n * sizeof *v);
    l->n = l->capacity = n;
    l->total = total;
    l->ask = ask;
    l->ctx = ctx;
    pthread_mutex_init(&l->lock, NULL);
    mr__timed_cond_init(&l->changed);
    *out = l;
    return MR_OK;
}

void mr__split_list_free(mr__split_list *l)
{
    if (!l)
        return;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    mr_free(l->v);
    mr_free(l);
}

void mr__split_list_add(mr__split_list *l, uint64_t index, uint64_t split)
{
    pthread_mutex_lock(&l->lock);
    if (l->asked && index == l->n &&
        MR_GROW(l->v, l->capacity, l->n + 1, SIZE_MAX / 16, "a stream's splits", NULL) == MR_OK)
        l->v[l->n++] = split;
    l->asked = false;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void mr__split_list_end(mr__split_list *l, uint64_t repetition)
{
    pthread_mutex_lock(&l->lock);
    if (l->ended <= repetition)
        l->ended = repetition + 1;
    l->asked = false;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void mr__split_list_stop(mr__split_list *l)
{
    pthread_mutex_lock(&l->lock);
    l->stopped = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

/* *split = the first of [first, end) in this repetition from *index on; moves *index after it.
 * Waits.
 * returns  MR_OK, MR_END, MR_CANCELLED (no status) */
static mr_code take(mr__split_list *l, const mr_iter *it, uint64_t *index, uint64_t repetition,
                    uint64_t first, uint64_t end, uint64_t *split)
{
    mr_code rc = MR_CANCELLED;
    pthread_mutex_lock(&l->lock);
    while (!l->stopped && !mr_iter_cancelled(it)) {
        /* Skip splits of other sources and of earlier repetitions. */
        while (*index < l->n &&
               (l->v[*index] / l->total < repetition ||
                (l->v[*index] / l->total == repetition && l->v[*index] % l->total < first)))
            ++*index;
        if (*index < l->n) {
            uint64_t x = l->v[*index];
            rc = x / l->total == repetition && x % l->total < end ? MR_OK : MR_END;
            if (rc == MR_OK) {
                *split = x % l->total - first;
                ++*index;
            }
            break;
        }
        if (repetition < l->ended) {
            rc = MR_END;
            break;
        }
        if (!l->asked) {
            l->asked = true;
            l->ask(l->ctx, l->n, repetition);
        }
        mr__cond_wait_for(&l->changed, &l->lock, LOOK_NS);
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

/* ---- the op that replaces a source; its input is the source, which stays closed ---- */

struct params {
    mr__split_list *list;
    mr_split_source source; /* its ds is the input */
};

/* Shared by all iterators of one source. */
typedef struct shared {
    pthread_mutex_t lock;
    uint64_t repetitions, index; /* begun so far; in the list, where the last one ended */
} shared;

struct state {
    mr_iter *inner;      /* of the current split; NULL: none */
    uint64_t split;      /* the current split */
    uint64_t has_begun;  /* its repetition is known */
    uint64_t repetition; /* of the source: how many iterators of it were read before */
    uint64_t index;      /* of the next split in the list */
};

static void init_shared(void *p)
{
    pthread_mutex_init(&((shared *)p)->lock, NULL);
}

static void destroy_shared(void *p)
{
    pthread_mutex_destroy(&((shared *)p)->lock);
}

static mr_code shared_of(mr_dataset *node, shared **out, mr_status *st)
{
    void *p = NULL;
    MR_TRY(mr_node_shared(node, sizeof(shared), init_shared, destroy_shared, &p, st));
    *out = p;
    return MR_OK;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    (void)st;
    mr_iter_set_stands_for_source(it);
    return MR_OK;
}

static void close(mr_iter *it)
{
    mr_iter_close(((struct state *)it->state)->inner);
}

static mr_code open_split(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr_split_source source = p->source;
    source.ds = mr_dataset_input(it->node, 0);
    mr_dataset *ds = mr_split_dataset(&source, (int64_t)s->split);
    mr_code rc = mr_dataset_check(ds, st);
    if (rc == MR_OK)
        rc = mr_iter_open_dataset(it, ds, NULL, &s->inner, st);
    mr_dataset_unref(ds);
    return rc;
}

/* Opens the next split. */
static mr_code next_split(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    shared *h;
    MR_TRY(shared_of(it->node, &h, st));
    pthread_mutex_lock(&h->lock);
    if (!s->has_begun) {
        s->repetition = h->repetitions++;
        s->index = h->index;
        s->has_begun = true;
    }
    pthread_mutex_unlock(&h->lock);
    if (p->source.n == 0 || p->list->total == 0)
        return MR_END;
    double began = mr_iter_now();
    uint64_t first = (uint64_t)p->source.first;
    mr_code rc = take(p->list, it, &s->index, s->repetition, first, first + (uint64_t)p->source.n,
                      &s->split);
    mr_iter_add_wait(it, mr_iter_now() - began);
    if (rc == MR_CANCELLED)
        return mr_iter_fail_cancelled(st);
    pthread_mutex_lock(&h->lock);
    h->index = s->index;
    pthread_mutex_unlock(&h->lock);
    return rc == MR_OK ? open_split(it, st) : rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    for (;;) {
        if (!s->inner)
            MR_TRY(next_split(it, st));
        mr_code rc = mr_iter_next(s->inner, want, out, st);
        if (rc != MR_END)
            return rc;
        mr_iter_close(s->inner);
        s->inner = NULL;
    }
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->has_begun, st));
    MR_TRY(mr_state_put_u64(w, s->repetition, st));
    MR_TRY(mr_state_put_u64(w, s->index, st));
    MR_TRY(mr_state_put_u64(w, s->inner != NULL, st));
    if (!s->inner)
        return MR_OK;
    MR_TRY(mr_state_put_u64(w, s->split, st));
    return mr_iter_save(s->inner, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    uint64_t open_now;
    mr_iter_close(s->inner);
    s->inner = NULL;
    MR_TRY(mr_state_get_u64(r, &s->has_begun, st));
    MR_TRY(mr_state_get_u64(r, &s->repetition, st));
    MR_TRY(mr_state_get_u64(r, &s->index, st));
    MR_TRY(mr_state_get_u64(r, &open_now, st));
    if (s->has_begun > 1 || open_now > 1)
        return mr_state_damaged(st, "an impossible split");
    if (!open_now)
        return MR_OK;
    MR_TRY(mr_state_get_u64(r, &s->split, st));
    if (s->split >= (uint64_t)p->source.n)
        return mr_state_damaged(st, "a split is out of range");
    MR_TRY(open_split(it, st));
    return mr_iter_restore(s->inner, r, st);
}

static mr_code save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    shared *h;
    MR_TRY(shared_of(node, &h, st));
    pthread_mutex_lock(&h->lock);
    uint64_t repetitions = h->repetitions, index = h->index;
    pthread_mutex_unlock(&h->lock);
    MR_TRY(mr_state_put_u64(w, repetitions, st));
    return mr_state_put_u64(w, index, st);
}

static mr_code restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    shared *h;
    uint64_t repetitions, index;
    MR_TRY(mr_state_get_u64(r, &repetitions, st));
    MR_TRY(mr_state_get_u64(r, &index, st));
    MR_TRY(shared_of(node, &h, st));
    pthread_mutex_lock(&h->lock);
    h->repetitions = repetitions;
    h->index = index;
    pthread_mutex_unlock(&h->lock);
    return MR_OK;
}

static const mr_param table[] = {{0}};

static const mr_op feed_op = {
    .abi = MR_ABI_VERSION,
    .name = "splits",
    .doc = "Emits the parts of its input that are assigned to this stream.",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_OPENS_INPUTS | MR_OP_MAY_BLOCK | MR_OP_INTERNAL,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .save_shared = save_shared,
    .restore_shared = restore_shared,
};

static mr_dataset *feed(void *ctx, const mr_split_source *s)
{
    struct params p = {.list = ctx, .source = *s};
    mr_dataset *source = mr_dataset_ref(s->ds);
    p.source.ds = NULL;
    return mr_dataset_new(&feed_op, &p, &source, 1);
}

mr_code mr__split_list_feed(mr__split_list *l, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    return mr_feed_splits(ds, feed, l, out, NULL, st);
}
