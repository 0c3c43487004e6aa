/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/lent_memory.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "pipeline/system/fork.h"
#include "transport/net/shared_memory.h"

/* Blocks begin at pages, so that no two share a page; the last page stays free for MR_SLACK. */
enum { PAGE = 4096 };

/* ---- the lender ---- */

typedef struct extent {
    struct extent *next; /* the next one after it */
    size_t at, bytes;
    bool lands;       /* it is a landing, which the borrower cannot free */
    mr_buffer *keeps; /* NULL: nothing */
} extent;

struct mr__lender {
    atomic_size_t refs;
    unsigned char *map;
    size_t bytes;
    bool is_ours; /* the borrower cannot write */
    mr__lock lock;
    /* guarded by the lock */
    extent *held; /* in order */
    size_t held_bytes, landed_bytes;
    bool has_ended; /* the borrower is gone */
};

mr_code mr__lender_new(mr__lender **out, size_t bytes, int *fd, mr_status *st)
{
    mr__lender *l = mr_calloc(1, sizeof *l);
    void *map;
    if (!l)
        return mr_fail_memory(st, sizeof *l, "shared memory");
    mr_code rc = mr__shared_memory_new(bytes, MR__SHARED_OWNER_WRITES, &map, fd, st);
    if (rc != MR_OK) {
        mr_free(l);
        return rc;
    }
    l->map = map;
    l->bytes = bytes;
    l->is_ours = mr__shared_memory_is_read_only(*fd);
    atomic_init(&l->refs, 1);
    mr__lock_init(&l->lock);
    *out = l;
    return MR_OK;
}

mr__lender *mr__lender_ref(mr__lender *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

void mr__lender_unref(mr__lender *l)
{
    /* acq_rel: other threads' accesses happen before it is freed */
    if (!l || atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
        return;
    while (l->held) { /* never a landing: a landing holds a reference to the lender */
        extent *x = l->held;
        l->held = x->next;
        mr_buffer_unref(x->keeps);
        mr_free(x);
    }
    mr__shared_memory_free(l->map, l->bytes);
    mr__lock_destroy(&l->lock);
    mr_free(l);
}

/* Makes x the first free extent of `whole` bytes; false: no room. The lock is held. */
static bool take_first(mr__lender *l, extent *x, size_t whole, bool lands)
{
    size_t from = 0;
    extent **place = &l->held;
    while (*place && (*place)->at - from < whole) {
        from = (*place)->at + (*place)->bytes;
        place = &(*place)->next;
    }
    if (l->bytes - PAGE - from < whole)
        return false;
    *x = (extent){.next = *place, .at = from, .bytes = whole, .lands = lands};
    *place = x;
    l->held_bytes += whole;
    l->landed_bytes += lands ? whole : 0;
    return true;
}

static void *take(mr__lender *l, size_t n, bool lands, uint64_t *at)
{
    if (n > l->bytes - PAGE)
        return NULL;
    size_t whole = (n + PAGE - 1) / PAGE * PAGE;
    extent *x = mr_calloc(1, sizeof *x);
    bool taken = false;
    if (!x)
        return NULL;
    mr__lock_take(&l->lock);
    if (!lands || (!l->has_ended && l->landed_bytes + whole <= l->bytes / MR__LANDED_PART))
        taken = take_first(l, x, whole, lands);
    *at = x->at; /* not later: a faulty peer may free it at any time */
    mr__lock_release(&l->lock);
    if (taken)
        return l->map + *at;
    mr_free(x);
    return NULL;
}

void *mr__lender_take(mr__lender *l, size_t n, uint64_t *at)
{
    return take(l, n, false, at);
}

/* The link to the extent that begins there; to NULL if none does. The lock is held. */
static extent **find(mr__lender *l, uint64_t at, bool lands)
{
    extent **place = &l->held;
    while (*place && (*place)->at < at)
        place = &(*place)->next;
    bool is_it = *place && (*place)->at == at && (*place)->lands == lands;
    return is_it ? place : NULL;
}

bool mr__lender_keep(mr__lender *l, uint64_t at, mr_buffer *keeps)
{
    mr_buffer *old = NULL;
    mr__lock_take(&l->lock);
    extent **place = l->has_ended ? NULL : find(l, at, false);
    if (place) {
        old = (*place)->keeps;
        (*place)->keeps = mr_buffer_ref(keeps);
    }
    mr__lock_release(&l->lock);
    mr_buffer_unref(old);
    return place != NULL;
}

static bool give(mr__lender *l, uint64_t at, bool lands)
{
    extent *x = NULL;
    mr__lock_take(&l->lock);
    extent **place = find(l, at, lands);
    if (place) {
        x = *place;
        *place = x->next;
        l->held_bytes -= x->bytes;
        l->landed_bytes -= lands ? x->bytes : 0;
    }
    mr__lock_release(&l->lock);
    if (x)
        mr_buffer_unref(x->keeps); /* which may free a landing */
    mr_free(x);
    return x != NULL;
}

bool mr__lender_give(mr__lender *l, uint64_t at)
{
    return give(l, at, false);
}

void mr__lender_end(mr__lender *l)
{
    mr_buffer *keeps;
    do {
        keeps = NULL;
        mr__lock_take(&l->lock);
        l->has_ended = true;
        for (extent *x = l->held; x && !keeps; x = x->next) {
            keeps = x->keeps;
            x->keeps = NULL;
        }
        mr__lock_release(&l->lock);
        mr_buffer_unref(keeps);
    } while (keeps);
}

static void landing_gone(void *ctx, void *data)
{
    mr__lender *l = ctx;
    give(l, (uint64_t)((unsigned char *)data - l->map), true);
    mr__lender_unref(l);
}

mr_buffer *mr__lender_land(mr__lender *l, size_t n)
{
    mr_buffer *b = NULL;
    uint64_t at;
    if (!l->is_ours || n > SIZE_MAX - MR_SLACK)
        return NULL;
    void *p = take(l, n + MR_SLACK, true, &at);
    if (!p)
        return NULL;
    if (mr_buffer_wrap(&b, p, n, false, landing_gone, l, NULL) != MR_OK) {
        give(l, at, true);
        return NULL;
    }
    mr__lender_ref(l);
    return b;
}

const uint8_t *mr__lender_memory(const mr__lender *l, size_t *bytes)
{
    *bytes = l->bytes;
    return l->map;
}

size_t mr__lender_held(mr__lender *l)
{
    mr__lock_take(&l->lock);
    size_t n = l->held_bytes;
    mr__lock_release(&l->lock);
    return n;
}

/* ---- the borrower ---- */

typedef struct done {
    uint64_t at;
    size_t bytes;
} done;

struct mr__borrower {
    atomic_size_t refs; /* the owner's, and one for each buffer */
    unsigned char *map;
    size_t bytes;
    mr__lock lock;
    /* guarded by the lock */
    done *done; /* room for all wrapped buffers, so that returning one allocates no memory */
    size_t n_done, done_bytes, n_wrapped, capacity;
};

mr_code mr__borrower_new(mr__borrower **out, int fd, size_t bytes, mr_status *st)
{
    mr__borrower *b = mr_calloc(1, sizeof *b);
    void *map;
    if (!b)
        return mr_fail_memory(st, sizeof *b, "shared memory");
    mr_code rc = mr__shared_memory_map(fd, bytes, MR__SHARED_OWNER_WRITES, &map, st);
    if (rc != MR_OK) {
        mr_free(b);
        return rc;
    }
    b->map = map;
    b->bytes = bytes;
    atomic_init(&b->refs, 1);
    mr__lock_init(&b->lock);
    *out = b;
    return MR_OK;
}

void mr__borrower_unref(mr__borrower *b)
{
    /* acq_rel: other threads' reads happen before it is unmapped */
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    mr__shared_memory_free(b->map, b->bytes);
    mr__lock_destroy(&b->lock);
    mr_free(b->done);
    mr_free(b);
}

/* A buffer in the shared memory. */
typedef struct loan {
    mr__borrower *from;
    done what;
} loan;

static void buffer_gone(void *ctx, void *data)
{
    loan *x = ctx;
    mr__borrower *b = x->from;
    (void)data;
    mr__lock_take(&b->lock);
    b->done[b->n_done++] = x->what;
    b->done_bytes += x->what.bytes;
    b->n_wrapped--;
    mr__lock_release(&b->lock);
    mr_free(x);
    mr__borrower_unref(b);
}

const uint8_t *mr__borrower_memory(const mr__borrower *b, size_t *bytes)
{
    *bytes = b->bytes;
    return b->map;
}

mr_code mr__borrower_wrap(mr__borrower *b, uint64_t at, uint64_t n, uint64_t worth, mr_buffer **out,
                          mr_status *st)
{
    if (n == 0 || at % PAGE != 0 || n > b->bytes || at > b->bytes - n ||
        b->bytes - n - at < MR_SLACK)
        return mr_fail(st, MR_DATA_LOSS,
                       "a block of %" PRIu64 " bytes at %" PRIu64
                       " is outside the %zu bytes of shared memory",
                       n, at, b->bytes);
    loan *x = mr_malloc(sizeof *x);
    if (!x)
        return mr_fail_memory(st, sizeof *x, "a block");
    *x = (loan){b, {at, (size_t)worth}};
    mr__lock_take(&b->lock);
    mr_code rc = MR_GROW(b->done, b->capacity, b->n_done + b->n_wrapped + 1, SIZE_MAX / 16,
                         "blocks in shared memory", st);
    if (rc == MR_OK)
        b->n_wrapped++;
    mr__lock_release(&b->lock);
    if (rc == MR_OK) {
        rc = mr_buffer_wrap(out, b->map + at, (size_t)n, true, buffer_gone, x, st);
        if (rc == MR_OK) {
            atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
            return MR_OK;
        }
        mr__lock_take(&b->lock);
        b->n_wrapped--;
        mr__lock_release(&b->lock);
    }
    mr_free(x);
    return rc;
}

size_t mr__borrower_done(mr__borrower *b, size_t least_bytes, uint64_t *at, size_t most)
{
    size_t n = 0;
    mr__lock_take(&b->lock);
    if (b->done_bytes >= least_bytes)
        for (; n < most && b->n_done; n++) {
            const done *x = &b->done[--b->n_done];
            at[n] = x->at;
            b->done_bytes -= x->bytes;
        }
    mr__lock_release(&b->lock);
    return n;
}
