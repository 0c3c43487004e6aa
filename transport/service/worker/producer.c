/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/producer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "transport/service/job.h"
#include "transport/service/worker/file_roots.h"
#include "transport/service/worker/split_list.h"
#include "transport/service/stream_position.h"

#define QUICK_NS ((int64_t)100000000)
#define SLOW_NS  (4 * QUICK_NS)
#define LOOK_NS  ((int64_t)500000) /* polling interval of the loop while blocks arrive quickly */
enum {
    MOST_ROWS = 1 << 16,
    MEASURE_EVERY = 256,
    MOST_AHEAD = 16,
    AHEAD_BYTES = 4 << 20,
    LIMIT_PART = 64,     /* of a memory limit */
    OPEN_TRIES = 20,     /* a tenth of a second each */
    MOST_HOST = 15 << 20 /* of a Host, whose message has at most 16 MiB: the job and a position */
};

typedef enum brought { BLOCK, ERROR, FATAL, END } brought;

/* A result of the thread. */
typedef struct item {
    struct item *next;
    brought brought;
    mr__produced *block; /* BLOCK */
    uint64_t first, rows;
    size_t bytes; /* BLOCK: of its payload */
    uint8_t *position;
    size_t position_bytes;
    mr_status status;
    int64_t busy_ns; /* that it took to make it */
} item;

struct mr__producer {
    mr__producer_opts o;
    mr_read_slots read_slots; /* files are read into memory shared with its client */
    uint64_t number;
    Mr__Wire__Host *what; /* a copy */
    size_t job_bytes;     /* of what->job as a message */
    uint64_t generation, opened_at;
    int level;
    size_t most_ahead; /* bytes of the results made ahead */
    bool missing_moves, measured;
    mr_cancel *cancel;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the thread: there may be room */
    bool stopped;        /* the loop's */
    mr__posted brings, asks, ends;
    mr__timer look;         /* the loop's */
    int64_t brought_ns;     /* the loop's: time of the last delivery */
    mr__split_list *splits; /* dynamic; NULL: none */
    /* under the lock */
    bool stops, sleeps; /* it must end; it waits for room */
    bool gives_back;    /* another stream needs what the iterator has read ahead */
    bool wanted;        /* the loop has requested the next one */
    bool bringing;      /* `brings` is posted or runs, or `look` is set */
    bool posted;        /* `brings` is posted */
    item *first_item, *last_item;
    size_t ahead, ahead_bytes; /* made, with the one that the loop has until it is sent */
    size_t given_bytes;        /* of that one */
    bool is_tight;             /* a memory limit was reached when the last one was made */
    bool has_gone;             /* link is known */
    double link;               /* bytes per second, 0: fast */
    uint64_t asked_index, asked_repetition;
    /* the thread's */
    mr_iterator *it;
    uint64_t next; /* number of its next element */
    size_t want;
    double pace, ratio; /* of compression: bytes per second, compressed size / size; 0: unknown */
    uint32_t since;     /* blocks since that was measured */
    void *rested_at;    /* the position at which the iterator rests; NULL: it does not */
    size_t rested_bytes;
    item *spare; /* to report that memory has run out */
};

void mr__producer_drop(mr__produced *block)
{
    if (!block)
        return;
    mr__outgoing_reset(&block->frame);
    mr__memory_held_above(-(int64_t)block->held);
    mr_free(block);
}

/* ---- the thread ---- */

/* Adds the worker's name to an error. */
static void sign(const mr__producer *p, mr_status *why)
{
    char *text = why->message;
    mr__file_roots_explain(why);
    size_t n = strlen(text);
    snprintf(text + n, sizeof why->message - n, " (at worker %s)", p->o.worker);
}

/* x->position = the iterator's position. One that no message can carry would end the connection,
 * again and again. */
static mr_code keep_position(mr__producer *p, item *x, mr_status *st)
{
    void *bytes = NULL;
    size_t n = 0, room = MOST_HOST;
    MR_TRY(mr_iterator_save(p->it, &bytes, &n, st));
    room -= p->job_bytes < room ? p->job_bytes : room;
    x->position = n <= room ? mr_malloc(MR__STREAM_POSITION_BYTES + n) : NULL;
    mr_code rc = MR_OK;
    if (n > room)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED,
                     "the position of a stream has %zu bytes, and its graph %zu; a service accepts "
                     "at most %d together: let operations hold less data",
                     n, p->job_bytes, MOST_HOST);
    else if (!x->position)
        rc = mr_fail_memory(st, n, "a position");
    if (rc == MR_OK) {
        mr__stream_position_put(x->position);
        memcpy(x->position + MR__STREAM_POSITION_BYTES, bytes, n);
        x->position_bytes = MR__STREAM_POSITION_BYTES + n;
    }
    mr_free(bytes);
    return rc;
}

/* Called by the list, in the thread that needs a split. */
static void ask_for_split(void *ctx, uint64_t index, uint64_t repetition)
{
    mr__producer *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->asked_index = index;
    p->asked_repetition = repetition;
    pthread_mutex_unlock(&p->lock);
    mr__loop_post(p->o.loop, &p->asks);
}

static bool is_shared(const mr__producer *p)
{
    return p->what->job->mode == MR__WIRE__MODE__DYNAMIC ||
           p->what->job->mode == MR__WIRE__MODE__PARALLEL_EPOCHS;
}

static mr_buffer *land(void *lender, size_t bytes)
{
    return mr__lender_land(lender, bytes);
}

/* returns  false: it must end */
static bool sleep_a_little(mr__producer *p)
{
    pthread_mutex_lock(&p->lock);
    if (!p->stops)
        mr__cond_wait_for(&p->wake, &p->lock, QUICK_NS);
    bool goes_on = !p->stops;
    pthread_mutex_unlock(&p->lock);
    return goes_on;
}

/* Called with a lock of the pipeline's, by the thread of another stream. */
static void give_back(void *ctx)
{
    mr__producer *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->gives_back = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

/* What the iterator has read ahead is freed, and read again when the next block is made. */
static void rest(mr__producer *p)
{
    mr_status why;
    if (!p->it)
        return;
    if (!p->rested_at && mr__iterator_can_give_back(p->it)) {
        mr_code rc = mr_iterator_save(p->it, &p->rested_at, &p->rested_bytes, &why);
        if (rc == MR_OK)
            rc = mr_iterator_rest(p->it, &why);
        if (rc != MR_OK)
            mr_log(MR_LOG_WARNING, "a stream keeps what it has read ahead: %s", why.message);
    }
    mr__iterator_gave_back(p->it);
}

static mr_code go_on(mr__producer *p, mr_status *st)
{
    if (!p->rested_at)
        return MR_OK;
    mr_code rc = mr_iterator_restore(p->it, p->rested_at, p->rested_bytes, st);
    mr_free(p->rested_at);
    p->rested_at = NULL;
    return rc;
}

/* Streams of a client that has just left may still be ending, and hold resources that this one
 * needs. */
static mr_code open_iterator(mr__producer *p, mr_dataset *ds, const mr_iterator_opts *o,
                             mr_status *st)
{
    mr_code rc = mr_iterator_open(&p->it, ds, o, st);
    for (int i = 0; i < OPEN_TRIES && rc == MR_RESOURCE_EXHAUSTED && o->memory_limit; i++) {
        if (!sleep_a_little(p))
            break;
        rc = mr_iterator_open(&p->it, ds, o, st);
    }
    return rc;
}

static mr_code open_stream(mr__producer *p, mr_status *st)
{
    const Mr__Wire__Place *place = p->what->place;
    mr_dataset *ds = NULL;
    mr__iterator_internal internal = {.read_slots = p->o.lender ? &p->read_slots : NULL,
                                      .shares_memory = true,
                                      .give_back = give_back,
                                      .give_back_ctx = p};
    mr_iterator_opts o = {.executor = p->o.executor,
                          .positions = true,
                          .directory = mr__job_directory(p->what->job),
                          .cancel = p->cancel,
                          .memory_limit = p->o.memory_limit,
                          .watch = p->o.watch};
    mr__job_seed(p->what->job, &o, &internal);
    MR_TRY(mr__job_check_writes(p->what->job, st));
    MR_TRY(mr__job_cut(p->what->job, place->stream, &ds, &o.seed, NULL, st));
    mr_dataset *fed = p->splits ? NULL : mr_dataset_ref(ds);
    mr_code rc = p->splits ? mr__split_list_feed(p->splits, ds, &fed, st) : MR_OK;
    mr_dataset_unref(ds);
    if (rc == MR_OK)
        rc = open_iterator(p, fed, &o, st);
    mr_dataset_unref(fed);
    MR_TRY(rc);
    /* Streams of a shared job keep no state from one repetition to the next. */
    for (uint64_t r = 0; is_shared(p) && !place->position.len && r < p->what->job->repetition; r++)
        MR_TRY(mr_iterator_rewind(p->it, st));
    MR_TRY(mr__stream_position_go(p->it, place->position.data, place->position.len, st));
    MR_TRY(mr__stream_skip(p->it, p->opened_at + place->skip - place->elements, st));
    p->next = p->opened_at;
    return MR_OK;
}

/* The level of compression for the next block. If the link decides, a block is compressed if that
 * takes less time than it saves on the link; both are measured from time to time. */
static int level_now(mr__producer *p)
{
    if (!p->measured)
        return p->level;
    pthread_mutex_lock(&p->lock);
    double link = p->link;
    pthread_mutex_unlock(&p->lock);
    if (link <= 0)
        return 0;
    if (p->pace <= 0 || p->since++ >= MEASURE_EVERY)
        return p->level;
    return 1 / p->pace < (1 - p->ratio) / link ? p->level : 0;
}

static mr_code make_frame(mr__producer *p, item *x, mr_block *b, mr_status *st)
{
    x->block = mr_calloc(1, sizeof *x->block);
    if (!x->block)
        return mr_fail_memory(st, sizeof *x->block, "a block");
    x->block->producer = p->number;
    x->rows = b->rows;
    const mr__block_place place = {.job = p->what->job_id,
                                   .stream = p->what->place->stream,
                                   .generation = p->what->place->generation,
                                   .first = x->first,
                                   .position = x->position,
                                   .position_bytes = x->position_bytes,
                                   .lender = p->o.lender};
    int level = level_now(p);
    int64_t began = mr__clock_ns(CLOCK_MONOTONIC);
    mr__outgoing *o = &x->block->frame;
    MR_TRY(mr__outgoing_block(o, &place, b, level, st));
    if (p->what->job->key.len) /* the client, not its worker, says when lent pages are free again */
        o->lends = false;
    x->bytes = (size_t)o->raw;
    x->block->held = p->o.memory_limit ? o->bytes : 0;
    mr__memory_held_above((int64_t)x->block->held);
    int64_t took = mr__clock_ns(CLOCK_MONOTONIC) - began;
    if (level && !o->lender && o->raw && took > 0) {
        p->pace = (double)o->raw / (double)took * 1e9;
        p->ratio = o->packed ? (double)o->bytes / (double)o->raw : 1;
        p->since = 0;
    }
    return MR_OK;
}

/* True for errors that are not an element's: nothing was read, and another try may succeed. */
static bool is_fatal(const mr__producer *p, mr_code rc, const mr_status *why)
{
    bool of_system = rc == MR_RESOURCE_EXHAUSTED && why->sys_errno; /* else the element is large */
    return of_system || rc == MR_CANCELLED || (rc == MR_NOT_FOUND && p->missing_moves);
}

/* Adapts the number of rows to request to the time that the last block took. */
static void fit_want(mr__producer *p, int64_t took)
{
    if (took < QUICK_NS && p->want < MOST_ROWS)
        p->want *= 2;
    else if (took > SLOW_NS && p->want > 1)
        p->want /= 2;
}

/* The next block, error or end. */
static void produce(mr__producer *p, item *x)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status *st = &x->status;
    int64_t began = mr__clock_ns(CLOCK_MONOTONIC);
    mr_code rc = MR_OK;
    x->first = p->next;
    x->brought = FATAL;
    rc = p->it ? go_on(p, st) : open_stream(p, st);
    if (rc != MR_OK)
        goto done;
    x->first = p->next;
    rc = mr_iterator_next(p->it, p->want, &b, st);
    x->brought = rc == MR_OK ? BLOCK : rc == MR_END ? END : is_fatal(p, rc, st) ? FATAL : ERROR;
    if (x->brought != FATAL && keep_position(p, x, st) != MR_OK)
        x->brought = FATAL;
    if (x->brought == BLOCK && make_frame(p, x, &b, st) != MR_OK)
        x->brought = FATAL;
    p->next += x->brought == BLOCK ? x->rows : x->brought == ERROR;
    if (x->brought == BLOCK)
        fit_want(p, mr__clock_ns(CLOCK_MONOTONIC) - began);
done:
    if (x->brought == ERROR || x->brought == FATAL)
        sign(p, st);
    x->busy_ns = mr__clock_ns(CLOCK_MONOTONIC) - began;
    mr_block_reset(&b);
}

static item *new_item(void)
{
    item *x = mr_malloc(sizeof *x);
    if (x) {
        *x = (item){.brought = FATAL};
        mr_status_init(&x->status);
    }
    return x;
}

static void free_item(item *x)
{
    if (!x)
        return;
    mr__producer_drop(x->block);
    mr_free(x->position);
    mr_free(x);
}

/* Makes the next result; an error if memory has run out. */
static item *next_item(mr__producer *p)
{
    item *x = new_item();
    if (x) {
        produce(p, x);
        return x;
    }
    x = p->spare; /* used once: it is the last result */
    p->spare = NULL;
    x->first = p->next;
    mr_fail_memory(&x->status, sizeof *x, "a block");
    sign(p, &x->status);
    return x;
}

/* It makes blocks ahead while the loop and the client handle earlier ones; one block may have any
 * size. If the link decides on compression, the second block waits until the link is known. */
static bool has_room(const mr__producer *p, size_t bytes)
{
    bool some = (p->has_gone || !p->measured) && p->ahead < MOST_AHEAD &&
                p->ahead_bytes + bytes <= p->most_ahead;
    return p->ahead == 0 || (some && !p->is_tight);
}

/* `brings` must be posted, unless it is already; the lock is held. */
static bool must_post(mr__producer *p)
{
    bool must = !p->posted;
    p->bringing = p->posted = true;
    return must;
}

/* Adds x for the loop; the lock is held.
 * returns  `brings` must be posted, without the lock: the loop needs x at once */
static bool add_item(mr__producer *p, item *x)
{
    if (p->last_item)
        p->last_item->next = x;
    else
        p->first_item = x;
    p->last_item = x;
    p->ahead++;
    p->ahead_bytes += x->bytes;
    /* Large blocks are not left to the next look: this thread would wait for room until then. */
    bool is_full = p->ahead_bytes + x->bytes > p->most_ahead;
    return p->wanted && (!p->bringing || is_full) && must_post(p);
}

static void *work(void *arg)
{
    mr__producer *p = arg;
    bool is_over = false;
    size_t bytes = 0; /* of the last one */
    mr__name_scope_set(
        (mr__name_scope){.of_service = true}); /* also of the iterators opened here */
    pthread_mutex_lock(&p->lock);
    while (!p->stops) {
        if (p->gives_back) {
            p->gives_back = false;
            pthread_mutex_unlock(&p->lock);
            rest(p);
            pthread_mutex_lock(&p->lock);
            continue;
        }
        if (is_over || !has_room(p, bytes)) {
            p->sleeps = true;
            pthread_cond_wait(&p->wake, &p->lock);
            p->sleeps = false;
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        item *x = next_item(p);
        is_over = x->brought == END || x->brought == FATAL;
        bytes = x->bytes;
        bool is_tight = p->it && !mr_iterator_has_memory(p->it, bytes);
        pthread_mutex_lock(&p->lock);
        p->is_tight = is_tight;
        if (add_item(p, x)) {
            pthread_mutex_unlock(&p->lock);
            mr__loop_post(p->o.loop, &p->brings);
            pthread_mutex_lock(&p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    mr_iterator_close(p->it);
    mr_free(p->rested_at);
    mr__loop_post(p->o.loop, &p->ends);
    return NULL;
}

/* ---- the loop ---- */

static void deliver(mr__producer *p, item *x)
{
    const mr__producer_out *out = p->o.out;
    if (out->busy)
        out->busy(p->o.ctx, p->number, x->busy_ns);
    if (x->brought == BLOCK) {
        const mr__made made = {.first = x->first,
                               .rows = x->rows,
                               .bytes = x->bytes,
                               .position = x->position,
                               .position_bytes = x->position_bytes,
                               .block = x->block};
        x->block = NULL;
        out->made(p->o.ctx, p->number, &made);
    } else if (x->brought == END) {
        out->ended(p->o.ctx, p->number, x->first, x->position, x->position_bytes);
    } else {
        out->failed(p->o.ctx, p->number, x->first, &x->status, x->position, x->position_bytes,
                    x->brought == FATAL);
    }
}

/* Waking the loop, the client and its consumer costs more than a small block: if blocks arrive
 * quickly, the loop polls for several at once instead. */
static bool looks_again(mr__producer *p, bool had_some)
{
    int64_t now = mr__loop_now(p->o.loop);
    bool quick = had_some && now - p->brought_ns < 2 * LOOK_NS;
    if (had_some)
        p->brought_ns = now;
    return quick && mr__timer_set(p->o.loop, &p->look, now + LOOK_NS, NULL) == MR_OK;
}

/* Delivers all present results in order, as the loop requests them; results made in the meantime
 * are delivered in the loop's next turn. */
static void bring_all(mr__producer *p)
{
    pthread_mutex_lock(&p->lock);
    const item *last = p->last_item;
    bool is_last = false, had_some = false;
    while (!p->stopped && p->wanted && p->first_item && !is_last) {
        item *x = p->first_item;
        is_last = x == last;
        had_some = true;
        p->first_item = x->next;
        if (!p->first_item)
            p->last_item = NULL;
        p->wanted = false;
        p->given_bytes = x->bytes;
        pthread_mutex_unlock(&p->lock);
        deliver(p, x);
        free_item(x);
        pthread_mutex_lock(&p->lock);
    }
    bool goes_on = !p->stopped && p->wanted, looks = goes_on && looks_again(p, had_some);
    p->bringing = looks || p->posted;
    bool again = goes_on && !looks && p->first_item && must_post(p);
    pthread_mutex_unlock(&p->lock);
    if (again)
        mr__loop_post(p->o.loop, &p->brings);
}

static void bring(mr__posted *posted)
{
    mr__producer *p = (mr__producer *)((char *)posted - offsetof(mr__producer, brings));
    pthread_mutex_lock(&p->lock);
    p->posted = false;
    pthread_mutex_unlock(&p->lock);
    mr__timer_clear(p->o.loop, &p->look); /* nothing is left for it */
    bring_all(p);
}

static void look(mr__timer *t)
{
    bring_all((mr__producer *)((char *)t - offsetof(mr__producer, look)));
}

static void ask(mr__posted *x)
{
    mr__producer *p = (mr__producer *)((char *)x - offsetof(mr__producer, asks));
    pthread_mutex_lock(&p->lock);
    uint64_t index = p->asked_index, repetition = p->asked_repetition;
    pthread_mutex_unlock(&p->lock);
    if (!p->stopped)
        p->o.out->wants_split(p->o.ctx, p->number, index, repetition);
}

static void free_producer(mr__producer *p)
{
    mr__split_list_free(p->splits);
    while (p->first_item) {
        item *x = p->first_item;
        p->first_item = x->next;
        free_item(x);
    }
    free_item(p->spare);
    mr__lender_unref(p->o.lender);
    mr__wire_free(p->what);
    mr_cancel_unref(p->cancel);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    mr_free(p);
}

static void end(mr__posted *x)
{
    mr__producer *p = (mr__producer *)((char *)x - offsetof(mr__producer, ends));
    const mr__producer_out *out = p->o.out;
    void *ctx = p->o.ctx;
    uint64_t number = p->number;
    mr__timer_clear(p->o.loop, &p->look);
    pthread_join(p->thread, NULL);
    free_producer(p);
    out->gone(ctx, number);
}

size_t mr__producer_most_bytes(int64_t limit, size_t most)
{
    return limit && (uint64_t)limit / LIMIT_PART < most ? (size_t)limit / LIMIT_PART : most;
}

mr_code mr__producer_start(mr__producer **out, uint64_t number, const Mr__Wire__Host *what,
                           const Mr__Wire__Open *open, const mr__producer_opts *opts, mr_status *st)
{
    mr__producer *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a stream");
    p->o = *opts;
    if (p->o.lender)
        p->read_slots = (mr_read_slots){land, mr__lender_ref(p->o.lender)};
    p->number = number;
    p->most_ahead = mr__producer_most_bytes(opts->memory_limit, AHEAD_BYTES);
    p->opened_at = open->first;
    p->level = (int)open->compression;
    p->missing_moves = open->missing_moves;
    p->measured = open->measured;
    p->want = 1;
    p->wanted = true;
    p->brings.run = bring;
    p->asks.run = ask;
    p->ends.run = end;
    p->look.fire = look;
    pthread_mutex_init(&p->lock, NULL);
    mr__timed_cond_init(&p->wake);
    mr_code rc = mr__wire_copy(&what->base, &p->what, st);
    if (rc == MR_OK)
        rc = mr_cancel_new(NULL, &p->cancel, st);
    if (rc == MR_OK && !(p->spare = new_item()))
        rc = mr_fail_memory(st, sizeof *p->spare, "a stream");
    const Mr__Wire__Place *place = what->place;
    p->job_bytes = mr__wire__job__get_packed_size(what->job);
    if (rc == MR_OK && what->job->mode == MR__WIRE__MODE__DYNAMIC)
        rc = mr__split_list_new(&p->splits, place->splits, place->n_splits, what->job->splits,
                                ask_for_split, p, st);
    if (rc == MR_OK && pthread_create(&p->thread, NULL, work, p) != 0)
        rc = mr_fail(st, MR_RESOURCE_EXHAUSTED, "cannot start a thread for a stream");
    if (rc == MR_OK)
        *out = p;
    else
        free_producer(p);
    return rc;
}

void mr__producer_go(mr__producer *p, double link)
{
    pthread_mutex_lock(&p->lock);
    p->link = link;
    p->has_gone = true;
    p->wanted = true;
    p->ahead--;
    p->ahead_bytes -= p->given_bytes;
    /* Not for each block: so that the thread can make several when it wakes. */
    if (p->sleeps && p->ahead <= MOST_AHEAD / 2 && p->ahead_bytes <= p->most_ahead / 2 &&
        (!p->is_tight || p->ahead == 0))
        pthread_cond_signal(&p->wake);
    if (p->first_item && !p->bringing && must_post(p))
        mr__loop_post(p->o.loop, &p->brings);
    pthread_mutex_unlock(&p->lock);
}

bool mr__producer_is_tight(mr__producer *p)
{
    pthread_mutex_lock(&p->lock);
    bool is_tight = p->is_tight;
    pthread_mutex_unlock(&p->lock);
    return is_tight;
}

void mr__producer_split(mr__producer *p, uint64_t index, uint64_t split, bool end)
{
    if (!p->splits || p->stopped)
        return;
    pthread_mutex_lock(&p->lock);
    uint64_t repetition = p->asked_repetition;
    pthread_mutex_unlock(&p->lock);
    if (end)
        mr__split_list_end(p->splits, repetition);
    else
        mr__split_list_add(p->splits, index, split);
}

void mr__producer_stop(mr__producer *p)
{
    p->stopped = true;
    if (p->splits)
        mr__split_list_stop(p->splits);
    mr_cancel_trigger(p->cancel);
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}
