/* SPDX-License-Identifier: Apache-2.0 */
/* One iterator per node: opening, pulling, delivering rows and errors in their order, closing. */
#include "pipeline/engine/iter.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "pipeline/engine/executor.h"
#include "pipeline/engine/run.h"

/* A block's payload, so that it stays in the second-level cache from one op to the next. */
enum { BLOCK_BYTES = 256 * 1024 };

static uint64_t mix(uint64_t h, uint64_t v)
{
    /* splitmix64's finaliser (Steele et al. 2014) over the running hash. */
    h += v + 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}

static uint64_t hash_text(const char *s)
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

void mr__iter_path(const mr_iter *it, char *buf, size_t size)
{
    /* The path is written from the sink down: collect the chain first, capped well above what the
     * field can show. */
    const mr_iter *chain[64];
    size_t n = 0;
    for (const mr_iter *i = it; i && n < sizeof chain / sizeof *chain; i = i->priv->parent)
        chain[n++] = i;
    size_t used = 0;
    buf[0] = '\0';
    while (n-- > 0 && used < size) {
        const mr_iter *i = chain[n];
        const mr_iter *up = i->priv->parent;
        int k;
        if (up && up->n_inputs > 1 && i->priv->place != SIZE_MAX)
            k = snprintf(buf + used, size - used, "[%zu]/%s", i->priv->place, i->op->name);
        else
            k = snprintf(buf + used, size - used, "%s%s", up ? "/" : "", i->op->name);
        used += k > 0 ? (size_t)k : 0;
    }
}

static uint64_t count_opening(mr_run *run, uint64_t source)
{
    uint64_t epoch = 0;
    pthread_mutex_lock(&run->lock);
    size_t i = 0;
    while (i < run->n_epochs && run->epochs[i].source != source)
        i++;
    if (i < run->n_epochs)
        epoch = ++run->epochs[i].opened;
    else if (mr_grow((void **)&run->epochs, &run->epochs_capacity, i + 1, sizeof *run->epochs,
                     SIZE_MAX / sizeof *run->epochs, "epoch counts", NULL) == MR_OK)
        run->epochs[run->n_epochs++] = (mr_epoch_count){source, 0};
    pthread_mutex_unlock(&run->lock);
    return epoch;
}

static void set_epoch(mr_run *run, uint64_t source, uint64_t epoch)
{
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < run->n_epochs; i++)
        if (run->epochs[i].source == source)
            run->epochs[i].opened = epoch;
    pthread_mutex_unlock(&run->lock);
}

mr_code mr__iter_open(mr_run *run, mr_iter *parent, size_t place, mr_dataset *node, uint64_t source,
                      mr_iter **out, mr_status *st)
{
    MR_TRY(mr_dataset_check(node, st));
    const mr_op *op = mr_dataset_op(node);
    size_t n = mr_dataset_n_inputs(node);
    /* One allocation: [iter][private][inputs][op's state], each 16-byte aligned. */
    size_t priv_at = (sizeof(mr_iter) + 15) & ~(size_t)15;
    size_t inputs_at = (priv_at + sizeof(struct mr_iter_private) + 15) & ~(size_t)15;
    size_t state_at = (inputs_at + n * sizeof(mr_iter *) + 15) & ~(size_t)15;
    size_t bytes = state_at + op->iter_size;
    char *memory = mr_malloc(bytes);
    if (!memory)
        return mr_fail_memory(st, bytes, "an iterator");
    mr_iter *it = (mr_iter *)memory;
    struct mr_iter_private *p = (struct mr_iter_private *)(memory + priv_at);
    memset(it, 0, sizeof *it);
    memset(p, 0, offsetof(struct mr_iter_private, error)); /* the status is large: only when used */
    memset(memory + inputs_at, 0, bytes - inputs_at);
    it->op = op;
    it->params = mr_dataset_params(node);
    it->spec = mr_dataset_spec(node);
    it->node = mr_dataset_ref(node);
    it->run = run;
    it->state = memory + state_at;
    it->n_inputs = n;
    it->inputs = (mr_iter **)(memory + inputs_at);
    it->source = source;
    it->priv = p;
    p->parent = parent;
    p->place = place;
    if (op->props & MR_OP_NO_REPLAY)
        mr_iter_set_no_replay(it);
    bool inner = place == SIZE_MAX || (parent && !parent->priv->counters);
    if (!inner) {
        char path[sizeof((mr_status *)0)->op];
        mr__iter_path(it, path, sizeof path);
        p->counters = mr__stats_of(&run->stats, op->name, path);
    }
    if (n == 0 && run->opts.identities)
        p->epoch = count_opening(run, source);

    mr_code rc = MR_OK;
    if (!(op->props & MR_OP_OPENS_INPUTS))
        for (size_t i = 0; i < n && rc == MR_OK; i++)
            rc = mr_iter_open_input(it, i, st);
    if (rc == MR_OK && op->open) {
        rc = op->open(it, st);
        if (rc < 0 && st) {
            char path[sizeof st->op];
            mr__iter_path(it, path, sizeof path);
            mr_status_set_op(st, path);
        }
    }
    if (rc != MR_OK) {
        mr_iter_close(it);
        return rc;
    }
    *out = it;
    return MR_OK;
}

mr_code mr_iter_open_input(mr_iter *it, size_t i, mr_status *st)
{
    mr_iter_close_input(it, i);
    mr_dataset *node = mr_dataset_input(it->node, i);
    return mr__iter_open(it->run, it, i, node, mix(mix(it->source, i + 1), hash_text(it->op->name)),
                         &it->inputs[i], st);
}

void mr_iter_close_input(mr_iter *it, size_t i)
{
    mr_iter *input = it->inputs[i];
    it->inputs[i] = NULL;
    mr_iter_close(input);
}

const mr_spec *mr_iter_input_spec(const mr_iter *it, size_t i)
{
    return mr_dataset_spec(mr_dataset_input(it->node, i));
}

mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                             mr_iter **out, mr_status *st)
{
    uint64_t source = mix(parent->source, hash_text(parent->op->name));
    if (outer && outer->ids) {
        uint64_t end = outer->offsets ? outer->offsets[1] : 1;
        for (uint64_t i = outer->offsets ? outer->offsets[0] : 0; i < end; i++) {
            const mr_identity *id = &outer->ids[i];
            source = mix(mix(mix(mix(source, id->source), id->file), id->ordinal), id->epoch);
        }
    }
    return mr__iter_open(parent->run, parent, SIZE_MAX, ds, source, out, st);
}

static void drop_pending(struct mr_iter_private *p)
{
    p->pending = false;
    p->at = p->error_at = 0;
    mr_block_reset(&p->rows);
    mr_row_errors_reset(&p->errors);
}

void mr_iter_close(mr_iter *it)
{
    if (!it)
        return;
    if (it->op->close)
        it->op->close(it);
    for (size_t i = 0; i < it->n_inputs; i++)
        mr_iter_close_input(it, i);
    drop_pending(it->priv);
    mr_dataset_unref(it->node);
    mr_free(it);
}

/* ---- delivering ---- */

static mr_code deliver_pending(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    bool more_errors = p->error_at < p->errors.n;
    size_t limit = more_errors ? p->errors.v[p->error_at].row - p->error_at : p->rows.rows;
    mr_code rc;
    if (p->at < limit) {
        size_t n = limit - p->at < want ? limit - p->at : want;
        rc = mr_block_slice(out, &p->rows, p->at, n, st);
        if (rc != MR_OK)
            return rc;
        p->at += n;
    } else {
        const mr_status *e = &p->errors.v[p->error_at++].status;
        rc = e->code;
        if (st)
            *st = *e;
    }
    if (p->at == p->rows.rows && p->error_at == p->errors.n)
        drop_pending(p);
    return rc;
}

mr_code mr_iter_emit(mr_iter *it, size_t want, mr_block *rows, mr_row_errors *errors, mr_block *out,
                     mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    assert(!p->pending && "emit is the last thing a next does");
    bool clean = !errors || errors->n == 0;
    if (clean && rows->rows == 0)
        return mr_fail(st, MR_INTERNAL, "%s emitted nothing", it->op->name);
    if (clean && rows->rows <= want) {
        if (out != rows)
            mr_block_move(out, rows);
        return MR_OK;
    }
    mr_block_move(&p->rows, rows);
    if (errors) {
        mr_row_errors_reset(&p->errors);
        p->errors = *errors;
        memset(errors, 0, sizeof *errors);
    }
    p->at = p->error_at = 0;
    p->pending = true;
    return deliver_pending(it, want, out, st);
}

void mr_iter_defer(mr_iter *it, const mr_status *error)
{
    assert(!it->priv->deferred && "one deferred error at a time");
    it->priv->error = *error;
    it->priv->deferred = true;
}

static void count(mr_iter *it, const mr_block *b, int64_t own_ticks)
{
    mr_op_counters *c = it->priv->counters;
    if (!c)
        return;
    /* Relaxed: statistics order nothing. */
    atomic_fetch_add_explicit(&c->busy_ticks, own_ticks, memory_order_relaxed);
    if (b->rows) {
        atomic_fetch_add_explicit(&c->elements, (int64_t)b->rows, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->bytes, (int64_t)mr_block_payload_bytes(b),
                                  memory_order_relaxed);
    }
}

mr_code mr_iter_next(mr_iter *it, size_t want, mr_block *b, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    mr_block_clear(b);
    if (mr_iter_cancelled(it))
        return mr_fail(st, MR_CANCELLED, "the iterator was cancelled");
    if (want == 0)
        want = 1;
    size_t most = (size_t)it->run->opts.block_rows;
    if (most && want > most)
        want = most;
    mr_code rc;
    int64_t outer, began = mr__stats_enter(&outer);
    if (p->pending)
        rc = deliver_pending(it, want, b, st);
    else if (p->deferred) {
        p->deferred = false;
        rc = p->error.code;
        if (st)
            *st = p->error;
    } else if (p->ended)
        rc = MR_END;
    else
        rc = it->op->next(it, want, b, st);
    if (rc != MR_OK) {
        mr_block_clear(b);
        if (rc == MR_END)
            p->ended = true;
        else if (st) {
            char path[sizeof st->op];
            mr__iter_path(it, path, sizeof path);
            mr_status_set_op(st, path);
        }
    }
    assert(rc != MR_OK || (b->rows >= 1 && b->rows <= want));
    count(it, b, mr__stats_leave(began, outer));
    return rc;
}

mr_code mr_iter_pull(mr_iter *it, size_t i, size_t want, mr_block *b, mr_status *st)
{
    return mr_iter_next(it->inputs[i], want, b, st);
}

/* ---- what ops ask ---- */

size_t mr_iter_block_rows(const mr_iter *it, size_t want, size_t row_bytes)
{
    size_t rows = row_bytes ? BLOCK_BYTES / row_bytes : BLOCK_BYTES / 8;
    size_t most = (size_t)it->run->opts.block_rows;
    if (most && rows > most)
        rows = most;
    if (rows > want)
        rows = want;
    return rows ? rows : 1;
}

bool mr_iter_positions(const mr_iter *it)
{
    return it->run->opts.positions;
}
bool mr_iter_identities(const mr_iter *it)
{
    return it->run->opts.identities;
}
bool mr_iter_cancelled(const mr_iter *it)
{
    /* Relaxed: seen a block later is soon enough. */
    return atomic_load_explicit(&it->run->cancelled, memory_order_relaxed);
}
bool mr_iter_deterministic(const mr_iter *it)
{
    return it->run->deterministic;
}
bool mr_iter_no_uring(const mr_iter *it)
{
    return it->run->opts.no_uring;
}

static int usable_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

mr_executor *mr_iter_executor(mr_iter *it)
{
    mr_run *run = it->run;
    pthread_mutex_lock(&run->lock);
    if (!run->executor) {
        int n = run->opts.has_threads ? (int)run->opts.threads : usable_cpus();
        if (mr_executor_new(n, &run->executor, NULL) == MR_OK ||
            mr_executor_new(0, &run->executor, NULL) == MR_OK)
            run->own_executor = true;
    }
    /* Without memory for a pool there is still the calling thread. */
    mr_executor *ex = run->executor ? run->executor : mr__executor_none();
    pthread_mutex_unlock(&run->lock);
    return ex;
}

uint64_t mr_iter_fresh_seed(mr_iter *it)
{
    if (it->run->opts.has_seed)
        return mix(mix(it->run->opts.seed, it->source), hash_text(it->op->name));
    uint64_t v;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        v = mix((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    }
    return v;
}

uint64_t mr_iter_epoch(const mr_iter *it)
{
    return it->priv->epoch;
}

mr_code mr_node_shared(mr_dataset *node, size_t size, void (*init)(void *), void (*destroy)(void *),
                       void **out, mr_status *st)
{
    return mr__dataset_shared(node, size, init, destroy, out, st);
}

mr_code mr_iter_shared(mr_iter *it, size_t size, void (*init)(void *), void (*destroy)(void *),
                       void **out, mr_status *st)
{
    return mr__dataset_shared(it->node, size, init, destroy, out, st);
}

mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                               mr_status *st)
{
    if (!mr_iter_identities(it))
        return MR_OK;
    mr_identity *ids;
    MR_TRY(mr_identities_alloc(&b->ids, b->rows, &ids, st));
    for (size_t i = 0; i < b->rows; i++)
        ids[i] = (mr_identity){it->source, file, first + i, it->priv->epoch};
    return MR_OK;
}

void mr_iter_add_wait(mr_iter *it, double seconds)
{
    int64_t ticks = mr__stats_to_ticks(&it->run->stats, seconds);
    mr__stats_exclude(ticks);
    for (mr_iter *i = it; i; i = i->priv->parent)
        if (i->priv->counters) {
            atomic_fetch_add_explicit(&i->priv->counters->wait_ticks, ticks, memory_order_relaxed);
            return;
        }
}

void mr_iter_add_busy(mr_iter *it, double seconds)
{
    int64_t ticks = mr__stats_to_ticks(&it->run->stats, seconds);
    for (mr_iter *i = it; i; i = i->priv->parent)
        if (i->priv->counters) {
            atomic_fetch_add_explicit(&i->priv->counters->busy_ticks, ticks, memory_order_relaxed);
            return;
        }
}

bool mr_iter_replays(const mr_iter *it)
{
    /* Relaxed: it is set before the first row that is concerned. */
    return !it || !atomic_load_explicit(&it->priv->no_replay, memory_order_relaxed);
}

void mr_iter_set_no_replay(mr_iter *it)
{
    for (; it; it = it->priv->parent)
        atomic_store_explicit(&it->priv->no_replay, true, memory_order_relaxed);
}

/* ---- positions ----
 * One iterator:
 *   op's name (bytes)
 *   flags     1 ended, 2 an error is due, 4 rows are pending, 8 shared state follows
 *   epoch
 *   [status] if 2
 *   [block, number of errors, (row, status)...] if 4
 *   [op's shared state] if 8
 *   the op's state, or that of its inputs where it has none
 * A closed input: flag 0 and the shared states below it; an open one: flag 1 and its state. */

enum { ENDED = 1, DEFERRED = 2, PENDING = 4, SHARED = 8 };

static mr_code save_pending(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    mr_block left = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_slice(&left, &p->rows, p->at, p->rows.rows - p->at, st);
    if (rc == MR_OK)
        rc = mr_state_put_block(w, &left, st);
    mr_block_reset(&left);
    if (rc == MR_OK)
        rc = mr_state_put_u64(w, p->errors.n - p->error_at, st);
    for (size_t i = p->error_at; i < p->errors.n && rc == MR_OK; i++) {
        /* Rows are counted from what is left. */
        rc = mr_state_put_u64(w, p->errors.v[i].row - p->at - p->error_at, st);
        if (rc == MR_OK)
            rc = mr_state_put_status(w, &p->errors.v[i].status, st);
    }
    return rc;
}

static mr_code restore_pending(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    MR_TRY(mr_state_get_block(r, it->spec, &p->rows, st));
    uint64_t n, row, last = 0;
    MR_TRY(mr_state_get_u64(r, &n, st));
    for (uint64_t i = 0; i < n; i++) {
        mr_status e;
        MR_TRY(mr_state_get_u64(r, &row, st));
        MR_TRY(mr_state_get_status(r, &e, st));
        if (row > p->rows.rows + i || (i && row <= last))
            return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: error at row %" PRIu64, row);
        last = row;
        MR_TRY(mr_row_errors_add(&p->errors, (size_t)row, &e, st));
    }
    if (p->rows.rows == 0 && n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: nothing is pending");
    p->pending = true;
    return MR_OK;
}

mr_code mr_iter_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    bool shared = it->op->save_shared != NULL;
    MR_TRY(mr_state_put_bytes(w, it->op->name, strlen(it->op->name), st));
    MR_TRY(mr_state_put_u64(w,
                            (p->ended ? ENDED : 0) | (p->deferred ? DEFERRED : 0) |
                                (p->pending ? PENDING : 0) | (shared ? SHARED : 0),
                            st));
    MR_TRY(mr_state_put_u64(w, p->epoch, st));
    if (p->deferred)
        MR_TRY(mr_state_put_status(w, &p->error, st));
    if (p->pending)
        MR_TRY(save_pending(it, w, st));
    if (shared)
        MR_TRY(it->op->save_shared(it->node, w, st));
    if (it->op->save)
        return it->op->save(it, w, st);
    for (size_t i = 0; i < it->n_inputs; i++)
        MR_TRY(mr_iter_save_input(it, i, w, st));
    return MR_OK;
}

mr_code mr_iter_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    const void *name;
    size_t n;
    uint64_t flags;
    MR_TRY(mr_state_get_bytes(r, &name, &n, st));
    if (n != strlen(it->op->name) || memcmp(name, it->op->name, n) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the position is of another graph: it has '%.*s' where this one has '%s'",
                       (int)(n > 64 ? 64 : n), (const char *)name, it->op->name);
    MR_TRY(mr_state_get_u64(r, &flags, st));
    MR_TRY(mr_state_get_u64(r, &p->epoch, st));
    bool shared = it->op->restore_shared != NULL;
    if (flags > (ENDED | DEFERRED | PENDING | SHARED) || shared != !!(flags & SHARED))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: flags %" PRIu64, flags);
    if (it->n_inputs == 0 && it->run->opts.identities)
        set_epoch(it->run, it->source, p->epoch);
    drop_pending(p);
    p->ended = flags & ENDED;
    p->deferred = flags & DEFERRED;
    if (p->deferred)
        MR_TRY(mr_state_get_status(r, &p->error, st));
    if (flags & PENDING)
        MR_TRY(restore_pending(it, r, st));
    if (shared)
        MR_TRY(it->op->restore_shared(it->node, r, st));
    if (it->op->restore)
        return it->op->restore(it, r, st);
    for (size_t i = 0; i < it->n_inputs; i++)
        MR_TRY(mr_iter_restore_input(it, i, r, st));
    return MR_OK;
}

/* Depth-first over the nodes; a node with two consumers is written twice, which is harmless. */
mr_code mr__node_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    const mr_op *op = mr_dataset_op(node);
    if (op->save_shared)
        MR_TRY(op->save_shared(node, w, st));
    for (size_t i = 0; i < mr_dataset_n_inputs(node); i++)
        MR_TRY(mr__node_save_shared(mr_dataset_input(node, i), w, st));
    return MR_OK;
}

mr_code mr__node_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    const mr_op *op = mr_dataset_op(node);
    if (op->restore_shared)
        MR_TRY(op->restore_shared(node, r, st));
    for (size_t i = 0; i < mr_dataset_n_inputs(node); i++)
        MR_TRY(mr__node_restore_shared(mr_dataset_input(node, i), r, st));
    return MR_OK;
}

mr_code mr_iter_save_input(mr_iter *it, size_t i, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, it->inputs[i] != NULL, st));
    if (it->inputs[i])
        return mr_iter_save(it->inputs[i], w, st);
    return mr__node_save_shared(mr_dataset_input(it->node, i), w, st);
}

mr_code mr_iter_restore_input(mr_iter *it, size_t i, mr_state_r *r, mr_status *st)
{
    uint64_t open;
    MR_TRY(mr_state_get_u64(r, &open, st));
    if (open > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: input flag %" PRIu64, open);
    mr_iter_close_input(it, i);
    if (!open)
        return mr__node_restore_shared(mr_dataset_input(it->node, i), r, st);
    MR_TRY(mr_iter_open_input(it, i, st));
    return mr_iter_restore(it->inputs[i], r, st);
}

mr_code mr_iter_tag(mr_iter *it, mr_buffer **tag, mr_status *st)
{
    *tag = NULL;
    if (!mr_iter_positions(it))
        return MR_OK;
    mr_state_w w = {0};
    mr_code rc = mr_iter_save(it, &w, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(tag, w.size, st);
    if (rc == MR_OK)
        memcpy(mr_buffer_data(*tag), w.data, w.size);
    mr__state_w_reset(&w);
    return rc;
}

mr_code mr_iter_restore_tag(mr_iter *it, const void *bytes, size_t n, mr_status *st)
{
    mr_state_r r = {bytes, (const unsigned char *)bytes + n};
    MR_TRY(mr_iter_restore(it, &r, st));
    if (r.at != r.end)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %zu bytes are left over",
                       (size_t)(r.end - r.at));
    return MR_OK;
}
