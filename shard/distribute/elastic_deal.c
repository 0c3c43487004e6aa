/* SPDX-License-Identifier: Apache-2.0 */
/* What cannot be cut is read once by each process and dealt to its streams, row i to stream
 * i mod S:
 *
 *     elastic_dealt(place, S, s)      in the graph of stream s, in place of shard(S, s)
 *     hub                             in the host, for each place: reads the whole
 *
 * A stream asks for the rows of an epoch of the whole from some row on: the epochs that it has
 * begun are counted in its position, and so are the rows. The hub reads on, and keeps for every
 * stream the rows that it has not asked for yet. It goes back where a stream asks for rows that it
 * has passed: after a restore, or if it has kept too much for a slow stream. So that it need not
 * begin the epoch again, it remembers some of its positions, the anchors. The position of the job
 * has a few of them.
 *
 * Streams run in several threads; the hub runs in the thread that asks first, without other
 * threads. */
#include <pthread.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/op_iterator.h"
#include "pipeline/graph/graph_internal.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/wait/cancel_internal.h"
#include "shard/distribute/elastic_impl.h"

#define MOST_KEPT ((size_t)64 << 20) /* bytes for all streams of a hub */
enum {
    ROWS_FOR_EACH = 64, /* to read for every stream at once */
    FAR = 8,            /* times as much is not read if an anchor is closer */
    ANCHOR_ROWS = 1024, /* between two anchors, at least */
    MOST_ANCHORS = 128, /* then every other one is forgotten */
    MOST_ANCHOR_BYTES = 1 << 16
};

/* ---- what is kept for a stream ---- */

/* A place in what a stream gets: its row `row` of an epoch of the whole, after `errors` errors that
 * stood before that row. */
typedef mr__elastic_place place;
typedef mr__elastic_anchor anchor;

typedef enum item_kind { ROWS, FAULT, END } item_kind;
typedef struct item {
    struct item *next;
    place at; /* of its first row */
    item_kind kind;
    mr_block rows;
    size_t used, bytes;
    mr_status error[]; /* one in a FAULT: it is ten times as large as the rest */
} item;

typedef struct taker {
    bool runs;  /* the stream is of this process */
    bool waits; /* it will be restored, to a place that is not known yet */
    place next; /* that the hub will keep for it next */
    item *first, **last;
} taker;

struct mr__elastic_hub {
    pthread_mutex_t lock;
    mr_dataset *whole; /* owned */
    const mr_iterator_opts *run;
    mr__iterator_internal internal;
    mr_cancel *cancel;           /* owned: ends what it reads */
    bool writes;                 /* a file, which is complete only at the end of its input */
    mr_iterator *it;             /* NULL: not open */
    uint64_t epoch, row, errors; /* where it is; errors: those before that row */
    mr_block block;
    int64_t streams;
    taker *takers;
    size_t kept;                  /* bytes */
    anchor anchors[MOST_ANCHORS]; /* in their order, of one epoch */
    size_t n_anchors;
    mr__elastic_anchors restored; /* of the job's position; owned */
};

static bool is_dealt_to(const taker *t)
{
    return t->runs || t->waits;
}

static bool is_before(place a, place b)
{
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch;
    return a.row != b.row ? a.row < b.row : a.errors < b.errors;
}

static void drop_first(mr__elastic_hub *h, taker *t)
{
    item *x = t->first;
    t->first = x->next;
    if (!t->first)
        t->last = &t->first;
    h->kept -= x->bytes;
    mr_block_reset(&x->rows);
    mr_free(x);
}

/* The taker wants `at` next: drops what is before it, or everything if `at` is not kept. */
static void go_to(mr__elastic_hub *h, taker *t, place at)
{
    t->waits = false;
    while (t->first && is_before(t->first->at, at)) {
        item *x = t->first;
        size_t n = x->rows.rows;
        if (x->kind == ROWS && x->at.epoch == at.epoch && at.row < x->at.row + n) {
            x->used = (size_t)(at.row - x->at.row);
            if (at.errors == 0)
                return;
        }
        drop_first(h, t);
    }
    if (t->first && !is_before(at, t->first->at)) {
        t->first->used = 0; /* rows of it may have been taken before */
        return;
    }
    while (t->first)
        drop_first(h, t);
    if (is_before(at, t->next) || is_before(t->next, at))
        t->next = at;
}

/* A new last item; NULL: out of memory. */
static item *keep(taker *t, item_kind kind, mr_status *st)
{
    size_t bytes = sizeof(item) + (kind == FAULT ? sizeof(mr_status) : 0);
    item *x = mr_calloc(1, bytes);
    if (!x) {
        mr_fail_memory(st, bytes, "rows of a stream");
        return NULL;
    }
    x->kind = kind;
    x->at = t->next;
    *t->last = x;
    t->last = &x->next;
    return x;
}

/* ---- anchors ---- */

static void forget_anchors(mr__elastic_hub *h)
{
    while (h->n_anchors)
        mr_buffer_unref(h->anchors[--h->n_anchors].position);
}

static void thin_anchors(mr__elastic_hub *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_anchors; i++)
        if (i % 2)
            mr_buffer_unref(h->anchors[i].position);
        else
            h->anchors[n++] = h->anchors[i];
    h->n_anchors = n;
}

/* Remembers where the hub is, if the last anchor is far away. Without memory or a position it
 * does not. */
static void drop_anchor(mr__elastic_hub *h)
{
    void *bytes = NULL;
    size_t size = 0;
    mr_status unused;
    const place here = {h->epoch, h->row, h->errors};
    if (h->n_anchors && h->anchors[h->n_anchors - 1].at.epoch != h->epoch)
        forget_anchors(h);
    const place *last = h->n_anchors ? &h->anchors[h->n_anchors - 1].at : NULL;
    if (!h->run->positions || (last && h->row < last->row + ANCHOR_ROWS) ||
        mr_iterator_save(h->it, &bytes, &size, &unused) != MR_OK)
        return;
    mr_buffer *position = NULL;
    if (size <= MOST_ANCHOR_BYTES && mr_buffer_alloc(&position, size, NULL) == MR_OK) {
        memcpy(mr_buffer_data(position), bytes, size);
        if (h->n_anchors == MOST_ANCHORS)
            thin_anchors(h);
        h->anchors[h->n_anchors++] = (anchor){here, position};
    }
    mr_free(bytes);
}

/* Where stream s is in the whole, if its next row there is that of `at`. */
static place in_whole(const mr__elastic_hub *h, int64_t s, place at)
{
    at.row = at.row * (uint64_t)h->streams + (uint64_t)s;
    return at;
}

/* a, or *best, whichever is the later one of those in the epoch of `at` and not after it. */
static void choose(const anchor **best, const anchor *a, place at)
{
    if (a->at.epoch == at.epoch && !is_before(at, a->at) &&
        (!*best || is_before((*best)->at, a->at)))
        *best = a;
}

/* NULL: none is before `at`. */
static const anchor *anchor_before(const mr__elastic_hub *h, place at)
{
    const anchor *best = NULL;
    for (size_t i = 0; i < h->n_anchors; i++)
        choose(&best, &h->anchors[i], at);
    for (size_t i = 0; i < h->restored.n; i++)
        choose(&best, &h->restored.v[i], at);
    return best;
}

/* ---- reading ---- */

/* Reads an epoch whose rows no stream asks for: a cache in memory has those of the first one. */
static mr_code fill_caches(mr__elastic_hub *h, mr_status *st)
{
    mr_status why;
    mr_code rc;
    do {
        mr_status_init(&why);
        rc = mr_iterator_next(h->it, (size_t)h->streams * ROWS_FOR_EACH, &h->block, &why);
    } while (rc == MR_OK || (rc < 0 && rc != MR_CANCELLED && !mr_status_is_of_no_element(&why)));
    if (rc == MR_END)
        return MR_OK;
    if (st)
        *st = why;
    return rc;
}

static void close_files(mr__elastic_hub *h)
{
    mr_iterator_close(h->it);
    h->it = NULL;
}

static mr_code go_to_epoch(mr__elastic_hub *h, uint64_t epoch, mr_status *st)
{
    if (epoch > 0 && (mr__dataset_all_props(h->whole) & MR_OP_REMEMBERS))
        MR_TRY(fill_caches(h, st));
    for (h->epoch = 0; h->epoch < epoch; h->epoch++) {
        if (mr_cancel_is_cancelled(h->cancel))
            return mr_iter_fail_cancelled(st);
        MR_TRY(mr_iterator_rewind(h->it, st));
    }
    return MR_OK;
}

static mr_code start_over(mr__elastic_hub *h, uint64_t epoch, mr_status *st)
{
    mr_iterator_opts run = *h->run;
    close_files(h);
    run.internal = &h->internal;
    run.on_mismatch = MR_REFUSE_MISMATCH;
    run.has_threads = true;
    run.threads = 0;
    run.executor = NULL;
    run.cancel = h->cancel;
    run.watch = false;
    MR_TRY(mr_iterator_open(&h->it, h->whole, &run, st));
    h->row = h->errors = 0;
    mr_code rc = go_to_epoch(h, epoch, st);
    if (rc != MR_OK)
        close_files(h);
    return rc;
}

/* Of streams that will be restored, what follows `at` is kept: they are probably there. */
static void keep_for_waiting(mr__elastic_hub *h, place at)
{
    const uint64_t streams = (uint64_t)h->streams, turn = at.row % streams;
    for (uint64_t s = 0; s < streams; s++) {
        taker *t = &h->takers[s];
        if (!t->waits)
            continue;
        while (t->first)
            drop_first(h, t);
        t->next = (place){at.epoch, at.row / streams + (s < turn), s == turn ? at.errors : 0};
    }
}

/* Goes to where stream s may get its next rows, and unless `alone` others in its epoch too. */
static mr_code jump(mr__elastic_hub *h, int64_t s, bool alone, mr_status *st)
{
    uint64_t epoch = h->takers[s].next.epoch;
    place first = in_whole(h, s, h->takers[s].next);
    for (int64_t i = 0; i < h->streams && !alone; i++) {
        const place at = in_whole(h, i, h->takers[i].next);
        if (h->takers[i].runs && !h->takers[i].waits && at.epoch == epoch && is_before(at, first))
            first = at;
    }
    const anchor *from = anchor_before(h, first);
    keep_for_waiting(h, from ? from->at : (place){.epoch = epoch});
    if (!from)
        return start_over(h, epoch, st);
    const place at = from->at;
    mr_buffer *position = mr_buffer_ref(from->position);
    mr_code rc = start_over(h, 0, st);
    if (rc == MR_OK)
        rc = mr_iterator_restore(h->it, mr_buffer_data(position), mr_buffer_size(position), st);
    mr_buffer_unref(position);
    if (rc != MR_OK)
        close_files(h);
    h->epoch = at.epoch;
    h->row = at.row;
    h->errors = at.errors;
    return rc;
}

/* The next epoch. What it draws must not depend on how far this one was read, which differs between
 * processes and after a restore. */
static mr_code next_epoch(mr__elastic_hub *h, mr_status *st)
{
    if (mr__graph_draws_by_reading(h->whole))
        return start_over(h, h->epoch + 1, st);
    MR_TRY(mr_iterator_rewind(h->it, st));
    h->epoch++;
    h->row = h->errors = 0;
    return MR_OK;
}

/* What stream s wants next was read already. */
static bool is_behind(const mr__elastic_hub *h, int64_t s)
{
    const taker *t = &h->takers[s];
    uint64_t streams = (uint64_t)h->streams, turn = h->row % streams;
    const place here = {h->epoch, h->row / streams + ((uint64_t)s < turn),
                        (uint64_t)s == turn ? h->errors : 0};
    return is_before(t->next, here);
}

/* Rows of h->block from `from` on, every S-th. */
static mr_code pick(const mr__elastic_hub *h, size_t from, mr_block *out, mr_status *st)
{
    size_t step = (size_t)h->streams, n = (h->block.rows - from - 1) / step + 1;
    uint32_t index[ROWS_FOR_EACH];
    MR_TRY(mr_block_start(out, &h->block, n, st));
    for (size_t done = 0; done < n;) {
        size_t k = 0;
        for (; k < ROWS_FOR_EACH && done < n; k++, done++)
            index[k] = (uint32_t)(from + done * step);
        MR_TRY(mr_block_append_rows(out, &h->block, index, k, st));
    }
    return MR_OK;
}

/* Keeps the rows of h->block, which begin at h->row, for a stream that wants them next. */
static mr_code deal_rows(mr__elastic_hub *h, int64_t s, mr_status *st)
{
    taker *t = &h->takers[s];
    uint64_t streams = (uint64_t)h->streams;
    size_t from = (size_t)(((uint64_t)s + streams - h->row % streams) % streams);
    if (from >= h->block.rows || t->next.epoch != h->epoch || is_behind(h, s))
        return MR_OK;
    uint64_t first = (h->row + from) / streams; /* the stream's number of its first row here */
    if (t->next.row > first)
        from += (size_t)(t->next.row - first) * (size_t)streams;
    if (from >= h->block.rows || (h->kept > MOST_KEPT && t->first))
        return MR_OK;
    mr_block rows = MR_BLOCK_EMPTY;
    mr_code rc = pick(h, from, &rows, st);
    item *x = rc == MR_OK ? keep(t, ROWS, st) : NULL; /* after the errors before its first row */
    if (x) {
        x->bytes = mr_block_payload_bytes(&rows);
        mr_block_move(&x->rows, &rows);
        h->kept += x->bytes;
        t->next.row += x->rows.rows;
        t->next.errors = 0;
    }
    mr_block_reset(&rows);
    return rc != MR_OK || x ? rc : MR_RESOURCE_EXHAUSTED;
}

/* An error before row h->row goes to the stream of that row. */
static mr_code deal_error(mr__elastic_hub *h, const mr_status *error, mr_status *st)
{
    uint64_t streams = (uint64_t)h->streams;
    taker *t = &h->takers[h->row % streams];
    const place here = {h->epoch, h->row / streams, h->errors};
    if (!is_dealt_to(t) || is_before(t->next, here) || is_before(here, t->next))
        return MR_OK;
    item *x = keep(t, FAULT, st);
    if (!x)
        return MR_RESOURCE_EXHAUSTED;
    x->error[0] = *error;
    t->next.errors++;
    return MR_OK;
}

static mr_code deal_end(mr__elastic_hub *h, mr_status *st)
{
    for (int64_t s = 0; s < h->streams; s++) {
        taker *t = &h->takers[s];
        if (!is_dealt_to(t) || t->next.epoch != h->epoch || is_behind(h, s))
            continue;
        if (!keep(t, END, st))
            return MR_RESOURCE_EXHAUSTED;
        t->next = (place){h->epoch + 1, 0, 0};
    }
    return MR_OK;
}

/* Reads on, and keeps it for the streams. */
static mr_code read_on(mr__elastic_hub *h, mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    drop_anchor(h);
    mr_code rc = mr_iterator_next(h->it, (size_t)h->streams * ROWS_FOR_EACH, &h->block, &why);
    if (rc == MR_OK) {
        for (int64_t s = 0; s < h->streams && rc == MR_OK; s++)
            if (is_dealt_to(&h->takers[s]))
                rc = deal_rows(h, s, st);
        h->row += h->block.rows;
        h->errors = 0;
        return rc;
    }
    if (rc == MR_END) {
        MR_TRY(deal_end(h, st));
        return next_epoch(h, st);
    }
    if (rc == MR_CANCELLED || mr_status_is_of_no_element(&why)) {
        if (st)
            *st = why;
        return rc;
    }
    rc = deal_error(h, &why, st);
    h->errors++;
    return rc;
}

/* An anchor is much closer to what stream s wants next: after a restore. */
static bool is_far(const mr__elastic_hub *h, int64_t s)
{
    const anchor *a = anchor_before(h, in_whole(h, s, h->takers[s].next));
    return a && a->at.epoch == h->epoch &&
           a->at.row > h->row + (uint64_t)h->streams * ROWS_FOR_EACH * FAR;
}

/* No stream wants more of this epoch. */
static bool is_epoch_over(const mr__elastic_hub *h)
{
    for (int64_t s = 0; s < h->streams; s++)
        if (is_dealt_to(&h->takers[s]) && h->takers[s].next.epoch <= h->epoch)
            return false;
    return true;
}

/* Moves the hub to where stream s may get its next rows. */
static mr_code approach(mr__elastic_hub *h, int64_t s, mr_status *st)
{
    if (!h->it || is_behind(h, s))
        return jump(h, s, false, st);
    if (is_far(h, s))
        return jump(h, s, true, st);
    while (is_epoch_over(h))
        MR_TRY(next_epoch(h, st));
    return MR_OK;
}

/* Takes the item that stream s wants, reading until it is there. */
static mr_code wanted(mr__elastic_hub *h, int64_t s, item **out, mr_status *st)
{
    taker *t = &h->takers[s];
    while (!t->first) {
        if (mr_cancel_is_cancelled(h->cancel))
            return mr_iter_fail_cancelled(st);
        mr_code rc = approach(h, s, st);
        if (rc == MR_OK)
            rc = read_on(h, st);
        if (rc != MR_OK) {
            if (rc != MR_CANCELLED && !t->first) /* what was read is dealt again */
                close_files(h);
            return rc;
        }
    }
    *out = t->first;
    return MR_OK;
}

/* ---- hubs ---- */

mr_code mr__elastic_hub_open(mr__elastic_hub **out, mr_dataset *whole, int64_t streams,
                             const mr_iterator_opts *run, mr_status *st)
{
    mr_cancel *cancel;
    const mr_op *writer;
    MR_TRY(mr_dataset_writes(whole, &writer, st));
    MR_TRY(mr_cancel_new(run->cancel, &cancel, st));
    mr__elastic_hub *h = mr_calloc(1, sizeof *h);
    taker *takers = mr_calloc((size_t)streams, sizeof *takers);
    if (!h || !takers) {
        mr_free(h);
        mr_free(takers);
        mr_cancel_unref(cancel);
        return mr_fail_memory(st, (size_t)streams * sizeof *takers, "the streams of a job");
    }
    for (int64_t s = 0; s < streams; s++)
        takers[s].last = &takers[s].first;
    h->takers = takers;
    h->streams = streams;
    h->whole = mr_dataset_ref(whole);
    h->run = run;
    h->cancel = cancel;
    h->writes = writer != NULL;
    h->internal = *mr__iterator_internal_of(run);
    h->internal.shares_memory = true;
    h->internal.opened_again = true;
    h->internal.elastic = NULL;
    pthread_mutex_init(&h->lock, NULL);
    *out = h;
    return MR_OK;
}

void mr__elastic_hub_close(mr__elastic_hub *h)
{
    if (!h)
        return;
    for (int64_t s = 0; s < h->streams; s++)
        while (h->takers[s].first)
            drop_first(h, &h->takers[s]);
    forget_anchors(h);
    mr__elastic_anchors_reset(&h->restored);
    mr_iterator_close(h->it);
    mr_block_reset(&h->block);
    mr_dataset_unref(h->whole);
    mr_cancel_unref(h->cancel);
    pthread_mutex_destroy(&h->lock);
    mr_free(h->takers);
    mr_free(h);
}

mr_code mr__elastic_hub_save(mr__elastic_hub *h, mr__elastic_anchors *out, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&h->lock);
    for (size_t back = 1; back <= h->n_anchors && rc == MR_OK; back *= 2)
        rc = mr__elastic_anchors_add(out, &h->anchors[h->n_anchors - back], st);
    for (size_t i = 0; i < h->restored.n && !h->n_anchors && rc == MR_OK; i++)
        rc = mr__elastic_anchors_add(out, &h->restored.v[i], st);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void mr__elastic_hub_expect(mr__elastic_hub *h, int64_t stream, bool restored)
{
    taker *t = &h->takers[stream];
    pthread_mutex_lock(&h->lock);
    if (restored && t->waits) { /* it was not opened */
        while (t->first)
            drop_first(h, t);
        t->next = (place){0};
    }
    t->waits = !restored;
    pthread_mutex_unlock(&h->lock);
}

void mr__elastic_hub_restore(mr__elastic_hub *h, mr__elastic_anchors *anchors)
{
    pthread_mutex_lock(&h->lock);
    forget_anchors(h);
    mr__elastic_anchors_reset(&h->restored);
    h->restored = *anchors;
    *anchors = (mr__elastic_anchors){0};
    pthread_mutex_unlock(&h->lock);
}

void mr__elastic_hub_stop(mr__elastic_hub *h)
{
    if (!h->writes)
        mr_cancel_trigger(h->cancel);
}

void mr__elastic_hub_rest(mr__elastic_hub *h)
{
    pthread_mutex_lock(&h->lock);
    close_files(h);
    pthread_mutex_unlock(&h->lock);
    mr__cancel_forget(h->cancel);
}

/* ---- the op ---- */

struct params {
    int64_t place, streams, stream;
};

/* Of all iterators of the node. */
struct shared {
    uint64_t begun; /* epochs */
};

struct state {
    struct shared *shared;
    mr__elastic_hub *hub;
    taker *taker;
    int64_t stream;
    place at; /* the next row */
};

static void begin_again(mr_iter *it)
{
    ((struct state *)it->state)->shared->begun--;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    mr__elastic_host *host = mr__iterator_internal_of(mr_iter_opts(it))->elastic;
    void *shared;
    MR_TRY(mr_iter_shared(it, sizeof *s->shared, NULL, NULL, &shared, st));
    s->shared = shared;
    s->hub = mr__elastic_hub_of(host, p->place);
    s->stream = p->stream;
    s->taker = &s->hub->takers[p->stream];
    s->at = (place){.epoch = s->shared->begun++};
    mr__iter_set_undo(it, begin_again);
    pthread_mutex_lock(&s->hub->lock);
    s->taker->runs = true;
    if (!s->taker->waits)
        go_to(s->hub, s->taker, s->at);
    pthread_mutex_unlock(&s->hub->lock);
    return MR_OK;
}

static mr_code take(struct state *s, size_t want, mr_block *out, mr_status *st)
{
    item *x = NULL;
    if (s->taker->waits)
        go_to(s->hub, s->taker, s->at);
    MR_TRY(wanted(s->hub, s->stream, &x, st));
    if (x->kind == END)
        return MR_END; /* it stays until the next epoch begins */
    if (x->kind == FAULT) {
        if (st)
            *st = x->error[0];
        mr_code rc = x->error[0].code;
        s->at.errors++;
        drop_first(s->hub, s->taker);
        return rc;
    }
    size_t left = x->rows.rows - x->used, n = left < want ? left : want;
    MR_TRY(mr_block_slice(out, &x->rows, x->used, n, st));
    x->used += n;
    s->at.row += n;
    s->at.errors = 0;
    if (n == left)
        drop_first(s->hub, s->taker);
    return MR_OK;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    pthread_mutex_lock(&s->hub->lock);
    mr_code rc = take(s, want, out, st);
    pthread_mutex_unlock(&s->hub->lock);
    return rc;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    MR_TRY(mr_state_put_u64(w, s->at.epoch, st));
    MR_TRY(mr_state_put_u64(w, s->at.row, st));
    return mr_state_put_u64(w, s->at.errors, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr_state_get_u64(r, &s->at.epoch, st));
    MR_TRY(mr_state_get_u64(r, &s->at.row, st));
    MR_TRY(mr_state_get_u64(r, &s->at.errors, st));
    pthread_mutex_lock(&s->hub->lock);
    go_to(s->hub, s->taker, s->at);
    pthread_mutex_unlock(&s->hub->lock);
    return MR_OK;
}

/* The number of rows of the epoch that the stream is known to have: those before an anchor. */
static uint64_t rows_known(const mr__elastic_hub *h, int64_t s, uint64_t epoch)
{
    uint64_t most = 0;
    for (size_t i = 0; i < h->n_anchors + h->restored.n; i++) {
        const anchor *a = i < h->n_anchors ? &h->anchors[i] : &h->restored.v[i - h->n_anchors];
        if (a->at.epoch == epoch && a->at.row > most)
            most = a->at.row;
    }
    return most / (uint64_t)h->streams + ((uint64_t)s < most % (uint64_t)h->streams);
}

/* Only rows that exist, since the end would not be noticed. Errors between them are not
 * reported. */
static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    (void)st;
    pthread_mutex_lock(&s->hub->lock);
    uint64_t known = rows_known(s->hub, s->stream, s->at.epoch);
    uint64_t left = known > s->at.row ? known - s->at.row : 0;
    *skipped = n < left ? n : left;
    if (*skipped) {
        s->at.row += *skipped;
        s->at.errors = 0;
        go_to(s->hub, s->taker, s->at);
    }
    pthread_mutex_unlock(&s->hub->lock);
    return MR_OK;
}

static mr_code save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    void *shared;
    MR_TRY(mr_node_shared(node, sizeof(struct shared), NULL, NULL, &shared, st));
    return mr_state_put_u64(w, ((struct shared *)shared)->begun, st);
}

static mr_code restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    void *shared;
    MR_TRY(mr_node_shared(node, sizeof(struct shared), NULL, NULL, &shared, st));
    return mr_state_get_u64(r, &((struct shared *)shared)->begun, st);
}

/* The hub runs the input. */
static void needs(const mr_dataset *self, const void *p, int64_t *copies, int64_t *blocks)
{
    (void)self;
    (void)p;
    (void)blocks;
    *copies = 0;
}

#define NUMBER(f, least, most, says)                                                               \
    MR_PARAM_WITH(struct params, f, MR_P_POSITIONAL, .min.i = least, .max.i = most, .doc = says)
static const mr_param table[] = {NUMBER(place, 0, INT64_MAX, "Where the graph is cut."),
                                 NUMBER(streams, 1, INT32_MAX, "Streams of the job."),
                                 NUMBER(stream, 0, INT32_MAX, "The one that gets these rows."),
                                 {0}};

static const mr_op elastic_dealt = {
    .abi = MR_ABI_VERSION,
    .name = "elastic_dealt",
    .doc = "The rows of one stream, of an input that each process reads once for its streams.",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_OPENS_INPUTS | MR_OP_OPENS_LATER | MR_OP_KEEPS_GRAPH,
    .needs = needs,
    .open = open,
    .next = next,
    .skip = skip,
    .save = save,
    .restore = restore,
    .save_shared = save_shared,
    .restore_shared = restore_shared,
};

mr_dataset *mr__elastic_dealt(mr_dataset *whole, int64_t at, int64_t streams, int64_t stream)
{
    const struct params p = {at, streams, stream};
    return mr_dataset_new(&elastic_dealt, &p, &whole, 1);
}
