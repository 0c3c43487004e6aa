/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch: a queue of blocks between its input and its consumer, filled by a task.
 *
 * The input belongs to whoever runs the fill: the task while it is queued or running, the consumer
 * otherwise. A consumer that finds the queue empty and the task not yet taken pulls for itself, so
 * nothing ever waits for a thread to become free, and a pool of 0 threads makes this op
 * transparent.
 *
 *     input --fill (task)--> [block, tag][block, tag][error][end] --next-->
 *
 * An entry's tag is the input's state before it was pulled: the position is the oldest entry's tag
 * and the rows taken from it. */
#include "pipeline/ops/function_ops.h"

#include <inttypes.h>
#include <pthread.h>

#include "pipeline/engine/executor.h"

enum {
    AUTO_BYTES = 1 << 20, /* auto: read ahead up to this, but AUTO_LEAST blocks in any case */
    AUTO_LEAST = 2,
    AUTO_MOST = 8,
    MOST_ROWS = 1 << 20,
    CHEAP_PULLS = 16
};
#define SHORT_PULL 0.0005 /* seconds */
#define LONG_PULL  0.004
#define CHEAP_PULL 5e-6

struct params {
    int64_t buffer_size;
};

typedef struct entry entry;
struct entry {
    entry *next;
    mr_block block;
    size_t taken;
    mr_code rc; /* not MR_OK: the input's answer instead of a block */
    mr_status status;
    mr_buffer *tag;
};

struct state {
    mr_iter *it;
    mr_executor *executor; /* NULL: everything in the consumer's thread */
    mr_task fill;
    size_t room; /* elements; SIZE_MAX: auto, by bytes */
    bool blocking;
    /* the input's, with it */
    size_t skip; /* rows delivered before the restored position */
    size_t row_bytes;
    unsigned cheap;       /* pulls by the consumer in a row that took less than a wake-up would */
    size_t ask;           /* rows at the next pull of the fill: grows until a pull takes long */
    atomic_uint changes;  /* counts entries pushed and fills ended, for mr_executor_sleep */
    pthread_mutex_t lock; /* guards what follows */
    bool has_lock;
    entry *head, *tail, *spare;
    size_t n, rows, bytes; /* queued */
    bool ended;            /* the end is queued or delivered */
    bool waiting;          /* the consumer sleeps */
    bool stop;             /* the fill ends after the block it is at */
};

static void free_entries(entry *e)
{
    while (e) {
        entry *next = e->next;
        mr_block_reset(&e->block);
        mr_buffer_unref(e->tag);
        mr_free(e);
        e = next;
    }
}

/* ---- filling: with the input ---- */

/* One pull of up to want rows, without those delivered before the restored position. */
static mr_code pull(struct state *s, size_t want, mr_block *b, size_t *dropped, mr_status *st)
{
    *dropped = 0;
    for (;;) {
        MR_TRY(mr_iter_pull(s->it, 0, want, b, st));
        s->row_bytes = mr_block_payload_bytes(b) / b->rows;
        if (s->skip == 0)
            return MR_OK;
        if (s->skip < b->rows) {
            *dropped = s->skip;
            s->skip = 0;
            return MR_OK;
        }
        s->skip -= b->rows;
    }
}

/* Called with the lock: whether one more entry may be queued, and of how many rows at most. */
static bool has_room(const struct state *s, size_t *rows)
{
    if (s->ended || s->stop)
        return false;
    *rows = SIZE_MAX;
    if (s->room == SIZE_MAX)
        return s->n < AUTO_LEAST || (s->n < AUTO_MOST && s->bytes < AUTO_BYTES);
    if (s->rows >= s->room)
        return false;
    *rows = s->room - s->rows;
    return true;
}

static entry *take_spare(struct state *s)
{
    pthread_mutex_lock(&s->lock);
    entry *e = s->spare;
    if (e)
        s->spare = e->next;
    pthread_mutex_unlock(&s->lock);
    return e ? e : mr_calloc(1, sizeof *e);
}

static void fill_entry(struct state *s, entry *e, size_t rows)
{
    mr_iter *input = s->it->inputs[0];
    e->next = NULL;
    e->taken = 0;
    size_t skipped = s->skip;
    e->rc = mr_iter_replays(input) ? mr_iter_tag(input, &e->tag, &e->status) : MR_OK;
    if (e->rc != MR_OK)
        return;
    double began = mr_iter_now();
    size_t ask = s->ask < rows ? s->ask : rows;
    e->rc = pull(s, mr_iter_block_rows(s->it, ask, s->row_bytes), &e->block, &e->taken, &e->status);
    double seconds = mr_iter_now() - began;
    if (seconds < SHORT_PULL && s->ask < MOST_ROWS)
        s->ask *= 2;
    else if (seconds > LONG_PULL && s->ask > 1)
        s->ask /= 2;
    /* Whole blocks were dropped between the tag and this one: its rows cannot be counted from it.
     */
    if (skipped > e->taken && e->tag) {
        mr_buffer_unref(e->tag);
        e->tag = NULL;
    }
}

/* Pushes e; true if the consumer is to be woken. */
static bool push(struct state *s, entry *e)
{
    pthread_mutex_lock(&s->lock);
    if (s->tail)
        s->tail->next = e;
    else
        s->head = e;
    s->tail = e;
    s->n++;
    /* An error fills a place too, or a source of errors would fill the memory. */
    s->rows += e->rc == MR_OK ? e->block.rows - e->taken : 1;
    s->bytes += e->rc == MR_OK ? mr_block_payload_bytes(&e->block) : sizeof *e;
    s->ended |= e->rc == MR_END || e->rc == MR_CANCELLED;
    bool wake = s->waiting;
    s->waiting = false;
    atomic_fetch_add(&s->changes, 1);
    pthread_mutex_unlock(&s->lock);
    return wake;
}

static void run_fill(mr_task *task)
{
    struct state *s = (struct state *)((char *)task - offsetof(struct state, fill));
    double began = mr_iter_now();
    bool wake = false;
    for (;;) {
        size_t rows;
        pthread_mutex_lock(&s->lock);
        bool go = has_room(s, &rows);
        pthread_mutex_unlock(&s->lock);
        entry *e = go ? take_spare(s) : NULL;
        if (!e) /* no memory: the consumer pulls for itself, and meets it there */
            break;
        fill_entry(s, e, rows);
        wake = push(s, e);
        if (wake)
            mr_executor_wake(&s->changes);
    }
    pthread_mutex_lock(&s->lock);
    wake = s->waiting;
    s->waiting = false;
    atomic_fetch_add(&s->changes, 1);
    pthread_mutex_unlock(&s->lock);
    if (wake)
        mr_executor_wake(&s->changes);
    mr_iter_add_busy(s->it, mr_iter_now() - began);
}

/* ---- the consumer ---- */

/* Starts the fill if it pays: not for every row of a long queue. */
static void start_fill(struct state *s)
{
    if (!s->executor || !mr_task_done(&s->fill))
        return;
    if (s->cheap >= CHEAP_PULLS) /* until a pull takes longer */
        return;
    size_t rows;
    pthread_mutex_lock(&s->lock);
    bool go = has_room(s, &rows) && (s->room == SIZE_MAX || s->rows <= s->room / 2);
    pthread_mutex_unlock(&s->lock);
    if (!go)
        return;
    if (s->blocking)
        mr_task_submit_blocking(s->executor, &s->fill);
    else
        mr_task_submit(s->executor, &s->fill);
}

/* Takes the queue's head away. Called with the lock. */
static void pop(struct state *s)
{
    entry *e = s->head;
    s->head = e->next;
    if (!s->head)
        s->tail = NULL;
    s->n--;
    mr_block_clear(&e->block);
    mr_buffer_unref(e->tag);
    e->tag = NULL;
    e->next = s->spare;
    s->spare = e;
}

/* Delivers from the head. Called with the lock; the head is never the fill's. */
static mr_code deliver(struct state *s, size_t want, mr_block *out, mr_status *st)
{
    entry *e = s->head;
    mr_code rc = e->rc;
    if (rc != MR_OK) {
        if (st && rc != MR_END)
            *st = e->status;
        s->rows--;
        s->bytes -= sizeof *e;
        pop(s);
        return rc;
    }
    size_t n = e->block.rows - e->taken;
    if (n <= want) {
        s->rows -= n;
        s->bytes -= mr_block_payload_bytes(&e->block);
        if (e->taken == 0)
            mr_block_move(out, &e->block);
        else
            rc = mr_block_slice(out, &e->block, e->taken, n, st);
        pop(s);
        return rc;
    }
    MR_TRY(mr_block_slice(out, &e->block, e->taken, want, st));
    s->rows -= want;
    e->taken += want;
    return MR_OK;
}

/* Waits until something is queued or the fill has ended. */
static void wait_for_fill(struct state *s)
{
    double began = mr_iter_now();
    pthread_mutex_lock(&s->lock);
    while (!s->head && !mr_task_done(&s->fill)) {
        unsigned seen = atomic_load(&s->changes);
        s->waiting = true;
        pthread_mutex_unlock(&s->lock);
        mr_executor_sleep(&s->changes, seen);
        pthread_mutex_lock(&s->lock);
    }
    s->waiting = false;
    pthread_mutex_unlock(&s->lock);
    mr_iter_add_wait(s->it, mr_iter_now() - began);
}

/* With the queue empty and the input in the consumer's hands. */
static mr_code pull_here(struct state *s, size_t want, mr_block *out, mr_status *st)
{
    size_t dropped;
    /* Not more than the queue may hold, so that the fill starts soon. */
    if (s->executor && s->room != SIZE_MAX && want > s->room)
        want = s->room;
    double began = mr_iter_now();
    mr_code rc = pull(s, want, out, &dropped, st);
    s->cheap = mr_iter_now() - began < CHEAP_PULL ? s->cheap + 1 : 0;
    if (rc == MR_OK && dropped) {
        mr_block all = MR_BLOCK_EMPTY;
        mr_block_move(&all, out);
        rc = mr_block_slice(out, &all, dropped, all.rows - dropped, st);
        mr_block_reset(&all);
    }
    if (rc == MR_END)
        s->ended = true;
    return rc;
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc;
    pthread_mutex_lock(&s->lock);
    bool empty = !s->head;
    pthread_mutex_unlock(&s->lock);
    if (empty && s->executor) {
        mr_task_withdraw(s->executor, &s->fill);
        wait_for_fill(s);
    }
    pthread_mutex_lock(&s->lock);
    empty = !s->head;
    rc = empty ? MR_OK : deliver(s, want, out, st);
    pthread_mutex_unlock(&s->lock);
    if (empty)
        rc = pull_here(s, want, out, st);
    start_fill(s);
    return rc;
}

/* After it the input is in the caller's hands. */
static void stop_fill(struct state *s)
{
    if (!s->executor)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_mutex_unlock(&s->lock);
    mr_task_withdraw(s->executor, &s->fill);
    mr_task_wait(s->executor, &s->fill);
    s->stop = false;
}

static bool may_block(const mr_iter *it)
{
    if (it->op->props & MR_OP_MAY_BLOCK)
        return true;
    for (size_t i = 0; i < it->n_inputs; i++)
        if (it->inputs[i] && may_block(it->inputs[i]))
            return true;
    return false;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    const struct params *p = it->params;
    struct state *s = it->state;
    s->it = it;
    if (pthread_mutex_init(&s->lock, NULL))
        return mr_fail_memory(st, sizeof s->lock, "a lock");
    s->has_lock = true;
    s->fill.run = run_fill;
    s->ask = 1;
    bool automatic = p->buffer_size == MR_AUTO || p->buffer_size <= 0;
    s->room = automatic ? SIZE_MAX : (size_t)p->buffer_size;
    mr_executor *executor = mr_iter_executor(it);
    if (mr_executor_threads(executor) > 0)
        s->executor = executor;
    s->blocking = may_block(it->inputs[0]);
    return MR_OK;
}

static void drop_queue(struct state *s)
{
    while (s->head)
        pop(s);
    s->rows = s->bytes = 0;
    s->ended = false;
    s->skip = 0;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    if (!s->has_lock)
        return;
    stop_fill(s);
    drop_queue(s);
    free_entries(s->spare);
    pthread_mutex_destroy(&s->lock);
}

/* ---- position ----
 *   kind   0: state of the input (bytes), rows delivered behind it
 *          1: state of the input (bytes), rows to pass over yet, number of entries, each
 *             [code; block if 0, else status] */

static mr_code save_entries(const struct state *s, mr_state_w *w, mr_status *st)
{
    uint64_t n = 0;
    for (const entry *e = s->head; e; e = e->next)
        n += e->rc != MR_END;
    MR_TRY(mr_state_put_u64(w, n, st));
    mr_block left = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (const entry *e = s->head; e && rc == MR_OK; e = e->next) {
        if (e->rc == MR_END) /* the input says so again */
            continue;
        rc = mr_state_put_i64(w, e->rc, st);
        if (rc == MR_OK && e->rc != MR_OK)
            rc = mr_state_put_status(w, &e->status, st);
        else if (rc == MR_OK)
            rc = mr_block_slice(&left, &e->block, e->taken, e->block.rows - e->taken, st);
        if (rc == MR_OK && e->rc == MR_OK)
            rc = mr_state_put_block(w, &left, st);
    }
    mr_block_reset(&left);
    return rc;
}

static mr_code save_live(struct state *s, bool entries, mr_state_w *w, mr_status *st)
{
    mr_buffer *tag = NULL;
    MR_TRY(mr_state_put_u64(w, entries, st));
    MR_TRY(mr_iter_tag(s->it->inputs[0], &tag, st));
    mr_code rc = mr_state_put_bytes(w, mr_buffer_data(tag), mr_buffer_size(tag), st);
    mr_buffer_unref(tag);
    if (rc == MR_OK)
        rc = mr_state_put_u64(w, s->skip, st);
    if (rc == MR_OK && entries)
        rc = save_entries(s, w, st);
    return rc;
}

static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct state *s = it->state;
    pthread_mutex_lock(&s->lock);
    const entry *head = s->head; /* only the consumer, which we are, takes it away */
    pthread_mutex_unlock(&s->lock);
    if (head && head->tag && mr_iter_replays(it->inputs[0])) {
        MR_TRY(mr_state_put_u64(w, 0, st));
        MR_TRY(mr_state_put_bytes(w, mr_buffer_data(head->tag), mr_buffer_size(head->tag), st));
        return mr_state_put_u64(w, head->taken, st);
    }
    stop_fill(s);
    head = s->head;
    mr_code rc;
    if (head && head->tag && mr_iter_replays(it->inputs[0]))
        rc = save(it, w, st); /* the fill has brought one meanwhile */
    else
        rc = save_live(s, head != NULL, w, st);
    start_fill(s);
    return rc;
}

static mr_code damaged(mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: a queue that cannot be");
}

static mr_code restore_entry(struct state *s, mr_state_r *r, mr_status *st)
{
    int64_t code;
    MR_TRY(mr_state_get_i64(r, &code, st));
    entry *e = take_spare(s);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "a prefetched block");
    e->next = NULL;
    e->taken = 0;
    e->rc = MR_OK;
    mr_code rc = code != MR_OK ? mr_state_get_status(r, &e->status, st)
                               : mr_state_get_block(r, s->it->spec, &e->block, st);
    if (rc == MR_OK && code != MR_OK)
        e->rc = e->status.code;
    if (rc == MR_OK && (code != MR_OK ? e->rc >= 0 : e->block.rows == 0))
        rc = damaged(st);
    if (rc != MR_OK) {
        e->next = NULL;
        free_entries(e);
        return rc;
    }
    push(s, e);
    return MR_OK;
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct state *s = it->state;
    const void *tag;
    size_t size;
    uint64_t kind, skip, n;
    stop_fill(s);
    drop_queue(s);
    MR_TRY(mr_state_get_u64(r, &kind, st));
    MR_TRY(mr_state_get_bytes(r, &tag, &size, st));
    MR_TRY(mr_state_get_u64(r, &skip, st));
    if (kind > 1)
        return damaged(st);
    MR_TRY(mr_iter_restore_tag(it->inputs[0], tag, size, st));
    s->skip = (size_t)skip;
    if (kind == 0)
        return MR_OK;
    MR_TRY(mr_state_get_u64(r, &n, st));
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(restore_entry(s, r, st));
    return MR_OK;
}

/* ---- the graph ---- */

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    (void)params;
    (void)st;
    *out = mr_spec_ref(mr_dataset_spec(mr_dataset_input(self, 0)));
    return MR_OK;
}

static int64_t cardinality(const mr_dataset *self, const void *params, const int64_t *in)
{
    (void)self;
    (void)params;
    return in[0];
}

static const mr_param table[] = {
    {.name = "buffer_size",
     .doc = "Elements read ahead; auto, 0 or -1: a few blocks, bounded by bytes.",
     .type = MR_PT_I64,
     .flags = MR_P_POSITIONAL | MR_P_AUTO,
     .at = offsetof(struct params, buffer_size),
     .min.i = -1,
     .max.i = INT64_MAX},
    {0}};

const mr_op mr_op_prefetch = {
    .abi = MR_ABI_VERSION,
    .name = "prefetch",
    .doc = "Reads ahead on another thread; passes its input through.",
    .example = "range(5).map(x => x + 1).prefetch(2)",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_PREFETCH,
    .props = MR_OP_KEEPS_COUNT,
    .infer = infer,
    .cardinality = cardinality,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
};

mr_dataset *mr_prefetch(mr_dataset *input, int64_t buffer_size)
{
    struct params p = {.buffer_size = buffer_size};
    return mr_dataset_new(&mr_op_prefetch, &p, &input, 1);
}
