/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/read_ahead_queue.h"

#include <errno.h>
#include <inttypes.h>

#include "pipeline/engine/inputs_read.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/position.h"
#include "pipeline/wait/wait.h"

enum { CHEAP_PULLS = 16, MOST_ENTRIES = 1 << 24 };
#define CHEAP_PULL 5e-6 /* seconds */

static void lock(mr__queue *q)
{
    if (q->has_lock)
        pthread_mutex_lock(&q->lock);
}

static void unlock(mr__queue *q)
{
    if (q->has_lock)
        pthread_mutex_unlock(&q->lock);
}

/* ---- entries ---- */

size_t mr__entry_left(const mr__entry *e)
{
    if (e->rc != MR_OK)
        return 1 - e->error_at;
    return e->rows.rows - e->at + e->errors.n - e->error_at;
}

void mr__entry_fail(mr__entry *e, mr_code rc, const mr_status *error)
{
    e->rc = rc;
    e->error = mr_memdup(error, sizeof *error);
}

static mr_code entry_error(const mr__entry *e, mr_status *st)
{
    if (!e->error)
        return mr_fail_memory(st, sizeof *e->error, "an error");
    if (st)
        *st = *e->error;
    return e->rc;
}

/* The same if the input has moved past it: if its text was lost for lack of memory, that becomes
 * an error at its position, because the input will not return it again. */
static mr_code read_error(const mr__entry *e, mr_status *st)
{
    mr_code rc = entry_error(e, st);
    if (!e->error && st) {
        st->sys_errno = 0;
        st->element = -1;
    }
    return rc;
}

mr_code mr__entry_retry(mr__entry *e, mr_status *st)
{
    mr_code rc = entry_error(e, st);
    mr_free(e->error);
    e->error = NULL;
    e->rc = MR_OK;
    return rc;
}

/* No error of the data. */
static bool of_no_place(const mr__entry *e)
{
    return e->rc != MR_OK &&
           (e->rc == MR_CANCELLED || !e->error || mr_status_is_of_no_element(e->error));
}

/* The input has failed and stays failed. */
static bool is_permanent(const mr__entry *e)
{
    return of_no_place(e) && e->rc != MR_CANCELLED && e->error && e->error->sys_errno != ENOMEM;
}

/* Resets an entry for reuse. */
static void empty_entry(mr__entry *e)
{
    mr_block_clear(&e->rows);
    mr_block_clear(&e->in);
    mr_row_errors_reset(&e->errors);
    mr_buffer_unref(e->position);
    mr_free(e->error);
    e->position = NULL;
    e->error = NULL;
    e->rc = MR_OK;
    e->at = e->error_at = e->counted = e->bytes = e->asked = e->ahead = 0;
    e->seconds = 0;
    e->next = NULL;
}

static mr__entry *take_spare(mr__queue *q)
{
    lock(q);
    mr__entry *e = q->spare;
    if (e)
        q->spare = e->next;
    unlock(q);
    if (!e)
        e = mr_calloc(1, sizeof *e);
    if (e) {
        e->next = NULL;
        e->queue = q;
    }
    return e;
}

static void put_spare(mr__queue *q, mr__entry *e)
{
    empty_entry(e);
    lock(q);
    e->next = q->spare;
    q->spare = e;
    unlock(q);
}

void mr__queue_expect(const mr__queue *q, mr__entry *e, size_t bytes)
{
    if (!q->gives_way)
        return;
    e->ahead += bytes;
    mr__memory_ahead(q->it, (int64_t)bytes);
}

/* Appends e, whose task begins if it has rows and `pulled`; true if the consumer must be woken. */
static bool push(mr__queue *q, mr__entry *e, bool pulled)
{
    /* An error counts too, otherwise a source of errors would fill the memory. */
    e->counted = e->shown = e->rc == MR_OK ? e->rows.rows : 1;
    bool ends = e->rc == MR_CANCELLED || is_permanent(e);
    if (q->begin && pulled && e->rc == MR_OK)
        q->begin(q, e);
    lock(q);
    if (q->tail)
        q->tail->next = e;
    else
        q->head = e;
    q->tail = e;
    q->n++;
    q->rows += e->counted;
    q->bytes += e->bytes;
    q->pulling = NULL;
    mr__queue_expect(q, e, e->bytes);
    mr__stats_queued(q->it, !q->executor, 1, (int64_t)e->shown, (int64_t)e->bytes);
    q->ended |= ends;
    bool wake = q->waiting;
    q->waiting = false;
    if (q->executor) /* else no thread waits */
        atomic_fetch_add(&q->changes, 1);
    unlock(q);
    return wake;
}

static void pop(mr__queue *q)
{
    lock(q);
    mr__entry *e = q->head;
    q->head = e->next;
    if (!q->head)
        q->tail = NULL;
    q->n--;
    q->rows -= e->counted;
    q->bytes -= e->bytes;
    mr__memory_ahead(q->it, -(int64_t)e->ahead);
    mr__stats_queued(q->it, !q->executor, -1, -(int64_t)e->shown, -(int64_t)e->bytes);
    unlock(q);
    put_spare(q, e);
}

/* Records that n rows of e, which stays in the queue, were taken. */
static void take_rows(mr__queue *q, mr__entry *e, size_t n)
{
    e->at += n;
    lock(q);
    e->counted -= n < e->counted ? n : e->counted;
    q->rows -= n < q->rows ? n : q->rows;
    unlock(q);
}

/* The number of rows of e before its next error. */
static size_t run_of_rows(const mr__entry *e)
{
    size_t limit =
        e->error_at < e->errors.n ? e->errors.v[e->error_at].row - e->error_at : e->rows.rows;
    return limit - e->at;
}

/* Takes up to *n events of e and counts *n down. */
static void skip_events(mr__queue *q, mr__entry *e, size_t *n)
{
    while (*n && mr__entry_left(e)) {
        size_t rows = e->rc == MR_OK ? run_of_rows(e) : 0;
        if (rows > *n)
            rows = *n;
        if (rows)
            take_rows(q, e, rows);
        else
            e->error_at++;
        *n -= rows ? rows : 1;
    }
}

/* ---- pulling ---- */

static bool keeps_positions(const mr__queue *q)
{
    return q->positions && mr_iter_replays(q->input) && !mr_iter_pulls_count(q->input);
}

/* What the fill pulls next begins at `position`; NULL: it is not pulling. */
static void show_pull(mr__queue *q, mr_buffer *position)
{
    lock(q);
    q->pulling = position;
    bool wake = q->waiting;
    q->waiting = false;
    atomic_fetch_add(&q->changes, 1);
    unlock(q);
    if (wake)
        mr__wait_wake(&q->changes);
}

/* One pull into e. MR_END, MR_OK (also with an error in e), or the failure to get a position. */
static mr_code read_entry(mr__queue *q, mr__entry *e, size_t want, bool keep, mr_status *st)
{
    if (keep && keeps_positions(q))
        MR_TRY(mr_iter_position(q->input, &e->position, st));
    if (e->position && mr__queue_filling(q))
        show_pull(q, e->position);
    bool by_clock = q->tuned && q->tuner.by_clock;
    double began = by_clock ? mr_iter_now() : 0;
    mr_status error;
    mr_code rc = mr_iter_next(q->input, want, &e->rows, &error);
    if (rc < 0)
        mr__entry_fail(e, rc, &error);
    e->seconds = by_clock ? mr_iter_now() - began : 0;
    q->fill.light = by_clock && e->seconds < MR__LIGHT_TASK; /* not queued now */
    e->bytes = q->tuned || q->gives_way ? mr_block_payload_bytes(&e->rows) : 0;
    if (q->tuned)
        mr__block_size_tuner_note(&q->tuner, want, e->seconds, e->rows.rows, e->bytes);
    return rc == MR_END ? MR_END : MR_OK;
}

static mr_code pull(mr__queue *q, size_t want, bool keep, const mr_destination *destination,
                    mr__entry **out, mr_status *st)
{
    mr__entry *e = take_spare(q);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "a block read ahead");
    e->rows.destination = destination;
    mr_code rc = read_entry(q, e, want, keep, st);
    e->rows.destination = NULL;
    q->cheap = e->seconds < CHEAP_PULL ? q->cheap + 1 : 0;
    if (rc == MR_OK && of_no_place(e))
        rc = read_error(e, st);
    if (rc != MR_OK) {
        q->ended |= rc == MR_END && !mr__iter_goes_on(q->input);
        put_spare(q, e);
        return rc;
    }
    (void)push(q, e, true);
    if (out)
        *out = e;
    return MR_OK;
}

mr_code mr__queue_pull(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                       mr_status *st)
{
    return pull(q, want, true, destination, e, st);
}

mr_code mr__queue_put_back(mr__queue *q, mr_block *rows, mr_status *st)
{
    mr__entry *e = take_spare(q);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "a block read ahead");
    mr_block_move(&e->rows, rows);
    e->bytes = q->tuned || q->gives_way ? mr_block_payload_bytes(&e->rows) : 0;
    (void)push(q, e, false);
    return MR_OK;
}

/* ---- the fill ---- */

/* Called with the lock held: whether another entry may be queued, and its maximum number of
 * rows. */
static bool has_room(const mr__queue *q, size_t *rows)
{
    const mr__ahead *a = &q->ahead;
    if (q->ended || q->stop)
        return false;
    *rows = a->rows == SIZE_MAX ? SIZE_MAX : a->rows - q->rows;
    bool room = q->n < a->least || (q->n < a->entries && q->rows < a->rows && q->bytes < a->bytes);
    return room && mr__memory_room(q->it, q->tuner.largest);
}

/* As read_entry; a failure for lack of memory becomes an error at that position. */
static mr_code fill_entry(mr__queue *q, mr__entry *e, size_t most)
{
    mr_status st;
    if (q->ask && q->ask(q) < most)
        most = q->ask(q);
    mr_code rc = read_entry(q, e, mr__block_size_tuner_ask(&q->tuner, q->it, most), true, &st);
    if (rc < 0)
        mr__entry_fail(e, rc, &st);
    return rc == MR_END ? MR_END : MR_OK;
}

/* Called by the fill without the lock: wakes the consumer, which may check the queue again. */
static void report(mr__queue *q, bool ended)
{
    lock(q);
    q->ended |= ended;
    bool wake = q->waiting;
    q->waiting = q->filling = false;
    atomic_fetch_add(&q->changes, 1);
    unlock(q);
    if (wake)
        mr__wait_wake(&q->changes);
}

static void run_fill(mr__task *task)
{
    mr__queue *q = (mr__queue *)((char *)task - offsetof(mr__queue, fill));
    mr_iter_work work;
    mr_iter_work_begin(q->it, &work);
    bool ended = false;
    while (!ended) {
        size_t rows;
        lock(q);
        bool go = has_room(q, &rows);
        q->was_full |= !go;
        unlock(q);
        mr__entry *e = go ? take_spare(q) : NULL;
        if (!e) /* out of memory: the consumer pulls itself, and gets the error */
            break;
        ended = fill_entry(q, e, rows) == MR_END;
        if (ended) {
            show_pull(q, NULL);
            put_spare(q, e);
        } else if (push(q, e, true))
            mr__wait_wake(&q->changes);
    }
    report(q, ended);
    mr_iter_work_end(q->it, &work);
}

bool mr__queue_idle(const mr__queue *q)
{
    return !mr__queue_filling(q) && !q->head && !q->skip && !q->gap;
}

bool mr__queue_filling(const mr__queue *q)
{
    return q->executor && !mr__task_done((mr__task *)(uintptr_t)&q->fill);
}

void mr__queue_start(mr__queue *q)
{
    if (!q->executor || mr__queue_filling(q))
        return;
    if (q->cheap >= CHEAP_PULLS && !q->begin) /* until a pull takes longer */
        return;
    size_t rows;
    lock(q);
    /* Not for every row of a long queue. */
    bool go = q->rows <= q->ahead.rows / 2 && (!q->begin || 2 * q->n <= q->ahead.entries) &&
              has_room(q, &rows);
    q->filling = go;
    unlock(q);
    if (!go)
        return;
    if (q->blocking)
        mr__task_submit_blocking(q->executor, &q->fill);
    else
        mr__task_submit(q->executor, &q->fill);
}

/* Takes the fill back if no thread has taken it yet. */
static void withdraw_fill(mr__queue *q)
{
    if (!mr__task_withdraw(q->executor, &q->fill))
        return;
    lock(q);
    q->filling = false;
    unlock(q);
}

/* Waits until an entry is queued, or the fill has ended and left the input to the consumer.
 * false: cancelled. */
static bool wait_for_fill(mr__queue *q)
{
    lock(q);
    while (!q->head && q->filling && !mr_iter_cancelled(q->it)) {
        unsigned seen = atomic_load(&q->changes);
        q->waiting = true;
        unlock(q);
        mr__wait_while(&q->changes, seen, mr_iter_cancel(q->it));
        lock(q);
    }
    q->waiting = false;
    bool there = q->head, filling = q->filling;
    unlock(q);
    if (!there && !filling) /* set a moment before its task is done */
        mr__task_wait(q->executor, &q->fill);
    return there || !filling;
}

/* Afterwards the input belongs to the consumer. */
static void stop_fill(mr__queue *q)
{
    if (!q->executor)
        return;
    lock(q);
    q->stop = true;
    unlock(q);
    withdraw_fill(q);
    mr__task_wait(q->executor, &q->fill);
    q->stop = false;
}

/* ---- the consumer ---- */

static mr__entry *peek(mr__queue *q)
{
    lock(q);
    mr__entry *e = q->head;
    unlock(q);
    return e;
}

static void wait_for_entry(mr__queue *q, mr__entry *e)
{
    if (mr__task_done(&e->task))
        return;
    mr__task_wait(mr_iter_executor(q->it), &e->task);
}

mr__entry *mr__queue_wait(mr__queue *q)
{
    mr__entry *e = peek(q);
    if (e)
        wait_for_entry(q, e);
    return e;
}

mr__entry *mr__queue_head(mr__queue *q)
{
    mr__entry *e;
    while ((e = mr__queue_wait(q))) {
        if (q->skip && e->rc == MR_OK)
            skip_events(q, e, &q->skip);
        else if (q->gap && !q->skip && !of_no_place(e))
            skip_events(q, e, &q->gap);
        if (mr__entry_left(e))
            return e;
        pop(q);
    }
    return NULL;
}

bool mr__queue_has_entry(mr__queue *q)
{
    return peek(q);
}

mr__entry *mr__queue_after(mr__queue *q, const mr__entry *e)
{
    lock(q);
    mr__entry *next = e->next;
    unlock(q);
    return next;
}

void mr__queue_choose(mr__queue *q)
{
    lock(q);
    mr__entry *before = q->head && !mr__task_done(&q->head->task) ? q->head : NULL;
    for (; before && before->next; before = before->next) {
        mr__entry *e = before->next;
        if (!mr__task_done(&e->task) || of_no_place(e)) /* the end of the input comes last */
            continue;
        before->next = e->next;
        if (q->tail == e)
            q->tail = before;
        e->next = q->head;
        q->head = e;
        break;
    }
    unlock(q);
}

mr_code mr__queue_take_error(mr__queue *q, mr_status *st)
{
    mr_code rc = read_error(q->head, st);
    if (is_permanent(q->head))
        return rc;
    pop(q);
    if (rc == MR_CANCELLED) { /* if the iterator resumes, the input continues */
        lock(q);
        q->ended = false;
        unlock(q);
    }
    return rc;
}

/* Makes sure that there is an entry, of up to `want` rows if it is pulled here. */
static mr_code need(mr__queue *q, size_t want, bool keep, const mr_destination *destination,
                    mr_status *st)
{
    if (q->executor) {
        withdraw_fill(q);
        if (!wait_for_fill(q))
            return mr_iter_fail_cancelled(st);
        if (peek(q))
            return MR_OK;
    }
    if (q->ended)
        return MR_END;
    if (q->skip || q->gap) /* the rows are dropped */
        return pull(q, q->skip ? q->skip : q->gap, false, NULL, NULL, st);
    return pull(q, want ? want : mr__block_size_tuner_ask(&q->tuner, q->it, SIZE_MAX), keep,
                destination, NULL, st);
}

mr_code mr__queue_need(mr__queue *q, size_t want, mr_status *st)
{
    return peek(q) ? MR_OK : need(q, want, true, NULL, st);
}

static mr_code front(mr__queue *q, size_t want, bool keep, const mr_destination *destination,
                     mr__entry **out, mr_status *st)
{
    while (!(*out = mr__queue_head(q)))
        MR_TRY(need(q, want, keep, destination, st));
    return q->skip || of_no_place(*out) ? mr__queue_take_error(q, st) : MR_OK;
}

mr_code mr__queue_front(mr__queue *q, size_t want, const mr_destination *destination, mr__entry **e,
                        mr_status *st)
{
    return front(q, want, true, destination, e, st);
}

mr_code mr__queue_deliver(mr__queue *q, size_t want, mr_block *out, mr_status *st)
{
    mr__entry *e = q->head;
    if (e->rc != MR_OK)
        return mr__queue_take_error(q, st);
    mr_code rc = MR_OK;
    size_t n = run_of_rows(e);
    if (n == 0) {
        const mr_status *error = &e->errors.v[e->error_at++].status;
        rc = error->code;
        if (st)
            *st = *error;
    } else if (n == e->rows.rows && n <= want && e->errors.n == 0) {
        mr_block_move(out, &e->rows);
        pop(q);
        return MR_OK;
    } else {
        n = n < want ? n : want;
        MR_TRY(mr_block_slice(out, &e->rows, e->at, n, st));
        take_rows(q, e, n);
    }
    if (mr__entry_left(e) == 0)
        pop(q);
    return rc;
}

/* Sets the queue's capacity in the statistics; 0 or SIZE_MAX: not bounded that way. */
static void show_room(mr__queue *q, size_t blocks, size_t rows)
{
    blocks = blocks == SIZE_MAX ? 0 : blocks;
    rows = rows == SIZE_MAX ? 0 : rows;
    if (blocks == q->room_blocks && rows == q->room_rows)
        return;
    mr__stats_room(q->it, (int64_t)(blocks - q->room_blocks), (int64_t)(rows - q->room_rows));
    q->room_blocks = blocks;
    q->room_rows = rows;
}

/* The consumer requested an entry at time `asked` and received e; `there`: it was already
 * queued. */
static void tune_depth(mr__queue *q, const mr__entry *e, double asked, bool there)
{
    mr__ahead *a = &q->ahead;
    size_t one = a->bytes / a->entries;
    lock(q);
    /* More room does not help a queue that was never full. */
    mr__supply supply = there ? MR_SUPPLY_READY : q->was_full ? MR_SUPPLY_LATE : MR_SUPPLY_NEITHER;
    q->was_full = q->was_full && there;
    unlock(q);
    mr__auto_parallelism_took(&q->depth, asked, e->seconds, supply);
    lock(q);
    a->entries = q->depth.now;
    a->bytes = one * a->entries;
    unlock(q);
    show_room(q, a->entries, a->rows);
}

mr_code mr__queue_next(mr__queue *q, size_t want, mr_block *out, mr_status *st)
{
    mr__entry *e;
    /* Not more than the queue may hold, so that the fill starts soon. */
    size_t ask = q->executor && want > q->ahead.rows ? q->ahead.rows : want;
    const mr__entry *head = q->depth.it ? peek(q) : NULL;
    bool counts = q->depth.it && (!head || (head->at == 0 && head->error_at == 0));
    double asked = counts ? mr_iter_now() : 0;
    MR_TRY(front(q, ask, false, out->destination, &e, st));
    if (counts)
        tune_depth(q, e, asked, head != NULL);
    return mr__queue_deliver(q, want, out, st);
}

void mr__queue_drop(mr__queue *q, size_t n)
{
    while (n && q->head) {
        size_t left = mr__entry_left(q->head);
        if (n < left) {
            skip_events(q, q->head, &n);
            return;
        }
        n -= left;
        pop(q);
    }
    q->gap += n;
}

/* ---- opening and closing ---- */

void mr__queue_open(mr__queue *q, mr_iter *it, mr_iter *input)
{
    q->it = it;
    q->input = input;
    q->positions = mr_iter_keeps_positions(it);
}

void mr__queue_resize(mr__queue *q, size_t entries)
{
    lock(q);
    q->ahead.entries = entries;
    unlock(q);
    show_room(q, entries, q->ahead.rows);
}

mr_code mr__queue_open_ahead(mr__queue *q, mr_iter *it, mr_iter *input, mr_executor *executor,
                             const mr__ahead *ahead, mr_status *st)
{
    mr__queue_open(q, it, input);
    mr__block_size_tuner_start(&q->tuner, it, 0);
    q->tuned = true;
    q->cheap = 0;
    q->fill.light = false;
    q->executor = NULL;
    if (!executor || mr__executor_threads(executor) == 0)
        return MR_OK;
    if (!q->has_lock && pthread_mutex_init(&q->lock, NULL))
        return mr_fail_memory(st, sizeof q->lock, "a lock");
    q->has_lock = true;
    q->executor = executor;
    q->ahead = *ahead;
    q->fill.run = run_fill;
    q->blocking = mr__iter_pulled_by_tasks(input);
    if (ahead->most)
        mr__auto_parallelism_start(&q->depth, it, "buffer_size", ahead->least, ahead->entries,
                                   ahead->most);
    show_room(q, ahead->entries, ahead->rows);
    return MR_OK;
}

void mr__queue_clear(mr__queue *q)
{
    stop_fill(q);
    for (mr__entry *e = q->head; e; e = e->next) {
        mr_executor *executor = mr__task_done(&e->task) ? NULL : mr_iter_executor(q->it);
        if (executor && !mr__task_withdraw(executor, &e->task))
            mr__task_wait(executor, &e->task);
    }
    while (q->head)
        pop(q);
    q->ended = q->was_full = false;
    q->skip = q->gap = 0;
}

void mr__queue_reset(mr__queue *q)
{
    mr__queue_clear(q);
    show_room(q, 0, 0);
    while (q->spare) {
        mr__entry *e = q->spare;
        q->spare = e->next;
        mr_block_reset(&e->rows);
        mr_block_reset(&e->in);
        mr_free(e);
    }
    if (q->has_lock)
        pthread_mutex_destroy(&q->lock);
    q->has_lock = false;
    q->executor = NULL;
}

/* ---- the state ---- */

enum { LIVE, AT_HEAD };

static mr_code save_entry(const mr__entry *e, size_t taken, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_i64(w, e->rc, st));
    if (e->rc != MR_OK)
        return mr_state_put_status(w, e->error, st);
    return mr__state_put_rows_errors(w, &e->rows, e->at + taken, &e->errors, e->error_at, st);
}

static bool is_saved(const mr__entry *e, size_t taken)
{
    return mr__entry_left(e) > taken && !of_no_place(e);
}

/* Saves the entries; the input belongs to the caller. */
static mr_code save_live(mr__queue *q, size_t taken, mr_state_w *w, mr_status *st)
{
    uint64_t n = 0;
    mr__entry *head = mr__queue_head(q);
    for (mr__entry *e = head; e; e = e->next) {
        wait_for_entry(q, e);
        if (of_no_place(e) && e->in.rows) /* a task failed: its rows are nowhere else */
            return entry_error(e, st);
        n += is_saved(e, e == head ? taken : 0);
    }
    MR_TRY(mr_state_put_u64(w, LIVE, st));
    MR_TRY(mr_iter_save(q->input, w, st));
    MR_TRY(mr_state_put_u64(w, q->skip, st));
    MR_TRY(mr_state_put_u64(w, q->gap, st));
    MR_TRY(mr_state_put_u64(w, n, st));
    for (mr__entry *e = head; e; e = e->next) {
        size_t gone = e == head ? taken : 0;
        if (is_saved(e, gone))
            MR_TRY(save_entry(e, gone, w, st));
    }
    return MR_OK;
}

static mr_code save_at(mr__queue *q, const mr_buffer *position, size_t taken, mr_state_w *w,
                       mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, AT_HEAD, st));
    MR_TRY(mr_state_put_bytes(w, mr_buffer_data(position), mr_buffer_size(position), st));
    MR_TRY(mr_state_put_u64(w, taken + q->skip, st));
    MR_TRY(mr_state_put_u64(w, q->gap, st));
    return mr_state_put_u64(w, 0, st);
}

/* Where an empty queue is: the position of the rows that the fill is pulling. They may not come for
 * long, as from a pipe, so the position does not wait for them. NULL: there is an entry, or no
 * fill, or the input can only be saved as it is. */
static mr_buffer *position_of_pull(mr__queue *q)
{
    if (!q->executor || !keeps_positions(q))
        return NULL;
    withdraw_fill(q);
    lock(q);
    while (!q->head && q->filling && !q->pulling && !mr_iter_cancelled(q->it)) {
        unsigned seen = atomic_load(&q->changes);
        q->waiting = true;
        unlock(q);
        mr__wait_while(&q->changes, seen, mr_iter_cancel(q->it));
        lock(q);
    }
    q->waiting = false;
    mr_buffer *position = !q->head && q->pulling ? mr_buffer_ref(q->pulling) : NULL;
    unlock(q);
    return position;
}

mr_code mr__queue_save(mr__queue *q, size_t taken, mr_state_w *w, mr_status *st)
{
    bool filling = mr__queue_filling(q);
    const char *none = mr__iter_no_position(q->input);
    if (none)
        return mr_fail(st, MR_FAILED_PRECONDITION, "%s", none);
    mr_buffer *pulling = peek(q) ? NULL : position_of_pull(q);
    if (pulling) {
        mr_code rc = save_at(q, pulling, taken, w, st);
        mr_buffer_unref(pulling);
        return rc;
    }
    if (!peek(q))
        stop_fill(q);
    mr__entry *head = peek(q); /* the fill may have added one meanwhile */
    mr_code rc;
    if (head && head->position && mr_iter_replays(q->input)) {
        size_t done = mr__task_done(&head->task) ? head->at + head->error_at : 0;
        rc = save_at(q, head->position, done + taken, w, st);
    } else {
        stop_fill(q);
        rc = save_live(q, taken, w, st);
    }
    if (filling)
        mr__queue_start(q);
    return rc;
}

static mr_code restore_entry(mr__queue *q, const mr_spec *spec, mr_state_r *r, mr_status *st)
{
    int64_t code;
    MR_TRY(mr_state_get_i64(r, &code, st));
    mr__entry *e = take_spare(q);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "a block read ahead");
    mr_code rc;
    mr_status error;
    if (code == MR_OK) {
        rc = mr__state_get_rows_errors(r, spec, &e->rows, &e->errors, st);
        e->bytes = q->tuned ? mr_block_payload_bytes(&e->rows) : 0;
    } else {
        rc = mr_state_get_status(r, &error, st);
        if (rc == MR_OK)
            mr__entry_fail(e, error.code, &error);
        if (rc == MR_OK && !e->error)
            rc = mr_fail_memory(st, sizeof error, "an error");
    }
    if (rc == MR_OK)
        (void)push(q, e, false);
    else
        put_spare(q, e);
    return rc;
}

mr_code mr__queue_restore(mr__queue *q, const mr_spec *spec, mr_state_r *r, mr_status *st)
{
    uint64_t where, skip, gap, n;
    mr__queue_clear(q);
    MR_TRY(mr_state_get_u64(r, &where, st));
    if (where == AT_HEAD) {
        const void *position;
        size_t size;
        MR_TRY(mr_state_get_bytes(r, &position, &size, st));
        MR_TRY(mr_iter_restore_position(q->input, position, size, st));
    } else if (where == LIVE)
        MR_TRY(mr_iter_restore(q->input, r, st));
    else
        return mr_state_damaged(st, "a queue is neither at its head nor after its tail");
    MR_TRY(mr_state_get_u64(r, &skip, st));
    MR_TRY(mr_state_get_u64(r, &gap, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (skip > INT32_MAX || n > MOST_ENTRIES || ((where == AT_HEAD || gap) && n > 0))
        return mr_state_damaged(st, "a queue holds more than allowed");
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(restore_entry(q, spec, r, st));
    q->skip = (size_t)skip;
    q->gap = (size_t)gap;
    return MR_OK;
}

mr_code mr__reopen_at(mr_iter *it, size_t i, const void *position, size_t n, mr_status *st)
{
    MR_TRY(mr_iter_open_input(it, i, st));
    return mr_iter_restore_position(it->inputs[i], position, n, st);
}
