/* SPDX-License-Identifier: Apache-2.0 */
/* One iterator per node: opening, pulling, delivering rows and errors in their order, closing. */
#include "pipeline/engine/op_iterator.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "pipeline/engine/executor.h"
#include "pipeline/engine/run.h"
#include "pipeline/fnv.h"
#include "pipeline/splitmix.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"

static uint64_t mix(uint64_t h, uint64_t v)
{
    return mr__splitmix(h + v + MR__GOLDEN);
}

static uint64_t hash_text(const char *s)
{
    return mr__fnv1a(MR__FNV_BASIS, s, strlen(s));
}

static void iter_path(const mr_iter *it, char *buf, size_t size)
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

static void free_scope(mr__scope *scope)
{
    if (scope)
        mr__scope_reset(scope);
    mr_free(scope);
}

/* What the identities of a source say of it: its number, or a hash. */
static uint64_t name_source(const mr__scope *s, uint64_t number)
{
    if (!s || !s->inner)
        return number;
    return s->replaced ? s->outer.source : mix(s->salt, number);
}

/* Between two ops that open inputs while they run: what is read ahead there and thrown away must
 * not count as opened. Nothing is read ahead, and rows are read one at a time. */
static bool counts_exactly(const struct mr_iter_private *p, const mr_dataset *node)
{
    return p->scope && p->again && (mr__dataset_all_props(node) & MR_OP_OPENS_LATER);
}

static bool records(const mr_iter *it)
{
    bool some = it->priv->records;
    for (size_t i = 0; i < it->n_inputs && !some; i++)
        some = it->inputs[i] && records(it->inputs[i]);
    return some;
}

bool mr_iter_pulls_count(const mr_iter *it)
{
    const struct mr_iter_private *p = it->priv;
    uint32_t props = mr__dataset_all_props(it->node);
    return counts_exactly(p, it->node) ||
           (p->again && ((props & MR__OPENS_RANDOM) || ((props & MR_OP_REMEMBERS) && records(it))));
}

void mr_iter_set_records(mr_iter *it, bool does)
{
    it->priv->records = does;
}

mr_code mr__iter_open(mr_run *run, const mr__place *place, mr_dataset *node, mr_iter **out,
                      mr_status *st)
{
    mr_code rc = mr_dataset_check(node, st);
    if (rc != MR_OK) {
        if (place->owns_scope)
            free_scope(place->scope);
        return rc;
    }
    const mr_op *op = mr_dataset_op(node);
    size_t n = mr_dataset_n_inputs(node);
    /* One allocation: [iter][private][inputs][op's state], each 16-byte aligned. */
    size_t priv_at = (sizeof(mr_iter) + 15) & ~(size_t)15;
    size_t inputs_at = (priv_at + sizeof(struct mr_iter_private) + 15) & ~(size_t)15;
    size_t state_at = (inputs_at + n * sizeof(mr_iter *) + 15) & ~(size_t)15;
    size_t bytes = state_at + op->iter_size;
    char *memory = mr_malloc(bytes);
    if (!memory) {
        if (place->owns_scope)
            free_scope(place->scope);
        return mr_fail_memory(st, bytes, "an iterator");
    }
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
    it->priv = p;
    mr_iter *parent = place->parent;
    p->parent = parent;
    p->place = place->input;
    p->seed = place->seed;
    p->scope = place->scope;
    p->owns_scope = place->owns_scope;
    p->number = place->number;
    p->again = parent && !place->owns_scope &&
               (parent->priv->again || (parent->op->props & MR_OP_OPENS_LATER));
    p->in_turn = parent ? parent->priv->in_turn : 1;
    if (parent && p->place == SIZE_MAX && parent->priv->takes &&
        __builtin_mul_overflow(p->in_turn, parent->priv->takes, &p->in_turn))
        p->in_turn = SIZE_MAX;
    p->most_rows = counts_exactly(p, node) ? 1 : (size_t)run->opts.block_rows;
    p->guarded = parent && run->memory.limit && mr__memory_guards(parent->node);
    it->source = name_source(p->scope, p->number);
    if (op->props & MR_OP_NO_REPLAY)
        mr_iter_set_no_replay(it);
    mr_iter_work work;
    mr_iter_work_begin(it, &work);
    p->counters = mr__stats_of(&run->stats, parent != NULL, parent ? parent->priv->counters : NULL,
                               it, p->place);
    if (n == 0 && p->scope)
        rc = mr__scope_opened(run, p->scope, p->number, &p->epoch, st);
    if (!(op->props & MR_OP_OPENS_INPUTS))
        for (size_t i = 0; i < n && rc == MR_OK; i++)
            rc = mr_iter_open_input(it, i, st);
    if (rc == MR_OK && op->open) {
        rc = op->open(it, st);
        if (rc < 0 && st) {
            char path[sizeof st->op];
            iter_path(it, path, sizeof path);
            mr_status_set_op(st, path);
        }
    }
    mr_iter_work_end(it, &work);
    if (rc != MR_OK) {
        mr_iter_close(it);
        return rc;
    }
    *out = it;
    return MR_OK;
}

/* The number of the first source of input i. */
static uint64_t first_source(const mr_iter *it, size_t i)
{
    return it->priv->number + mr__dataset_sources_before(it->node, i);
}

mr_code mr_iter_open_input(mr_iter *it, size_t i, mr_status *st)
{
    mr_iter_close_input(it, i);
    const struct mr_iter_private *p = it->priv;
    const mr__place place = {.parent = it,
                             .input = i,
                             .seed = mix(mix(p->seed, i + 1), hash_text(it->op->name)),
                             .scope = p->scope,
                             .number = first_source(it, i)};
    return mr__iter_open(it->run, &place, mr_dataset_input(it->node, i), &it->inputs[i], st);
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

/* Is the source with that number below `it` one without files? */
static bool has_no_files(const mr_iter *it, uint64_t number)
{
    if (it->n_inputs == 0)
        return false;
    const mr_dataset *ds = it->node;
    number -= it->priv->number;
    if (number >= mr__dataset_n_sources(ds))
        return false;
    while (mr_dataset_n_inputs(ds) > 0) {
        size_t i = mr_dataset_n_inputs(ds) - 1;
        while (number < mr__dataset_sources_before(ds, i))
            i--;
        number -= mr__dataset_sources_before(ds, i);
        ds = mr_dataset_input(ds, i);
    }
    return mr_dataset_op(ds)->role != MR_ROLE_FILES;
}

/* The scope of a dataset made from an element with the identities `outer`. */
static void start_scope(mr__scope *s, const mr_iter *parent, const mr_identities *outer)
{
    const mr__scope *above = parent->priv->scope;
    s->inner = true;
    s->salt = mix(parent->source, hash_text(parent->op->name));
    if (!outer || !outer->ids)
        return;
    uint64_t from = outer->offsets ? outer->offsets[0] : 0,
             to = outer->offsets ? outer->offsets[1] : 1;
    s->salt = 0;
    for (uint64_t i = from; i < to; i++) {
        const mr_identity *id = &outer->ids[i];
        s->salt = mix(mix(mix(mix(s->salt, id->source), id->file), id->ordinal), id->epoch);
    }
    if (to - from != 1 || (above->inner && !above->replaced))
        return;
    s->outer = outer->ids[from];
    s->adopted = above->replaced || has_no_files(parent, s->outer.source);
}

static mr_code open_value(mr_iter *parent, mr_dataset *ds, mr__scope *scope, mr_iter **out,
                          mr_status *st)
{
    const mr__place place = {.parent = parent,
                             .input = SIZE_MAX,
                             .seed = mix(parent->priv->seed, hash_text(parent->op->name)),
                             .scope = scope,
                             .owns_scope = scope != NULL};
    return mr__iter_open(parent->run, &place, ds, out, st);
}

mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                             mr_iter **out, mr_status *st)
{
    mr__scope *scope = NULL;
    if (parent->priv->scope) {
        scope = mr_calloc(1, sizeof *scope);
        if (!scope)
            return mr_fail_memory(st, sizeof *scope, "the sources of a dataset");
        start_scope(scope, parent, outer);
    }
    return open_value(parent, ds, scope, out, st);
}

mr_code mr_iter_open_replacement(mr_iter *it, mr_dataset *ds, mr_iter **out, mr_status *st)
{
    mr__scope *scope = NULL;
    if (it->priv->scope) {
        scope = mr_calloc(1, sizeof *scope);
        if (!scope)
            return mr_fail_memory(st, sizeof *scope, "the sources of a dataset");
        *scope = (mr__scope){.inner = true,
                             .replaced = true,
                             .outer = {.source = it->source, .epoch = it->priv->epoch}};
    }
    return open_value(it, ds, scope, out, st);
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
    if (it->priv->owns_scope)
        free_scope(it->priv->scope);
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

static void count(mr_iter *it, const mr_block *b)
{
    mr__op_counters *c = it->priv->counters;
    bool limited = it->run->memory.limit != 0;
    if (!b->rows || (!c && !limited))
        return;
    size_t bytes = mr_block_payload_bytes(b);
    /* Of several rows it is one that makes a block so much larger than blocks are. */
    if (limited && (b->rows == 1 || bytes > MR__LARGE_BLOCK))
        mr__memory_made(it, bytes, 0);
    if (!c)
        return;
    /* Relaxed: statistics order nothing. */
    atomic_fetch_add_explicit(&c->elements, (int64_t)b->rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->bytes, (int64_t)bytes, memory_order_relaxed);
}

/* An error of the op's own names its path, and the element where it is not a source's record. */
static void name_place(mr_iter *it, mr_code rc, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    char path[sizeof st->op];
    bool own = !st->op[0] && it->n_inputs > 0; /* not an input's; sources name records */
    /* What the system lacks at the moment is no element's error. */
    bool of_system = rc == MR_RESOURCE_EXHAUSTED && st->sys_errno;
    iter_path(it, path, sizeof path);
    mr_status_set_op(st, path);
    if (own && !of_system && rc != MR_CANCELLED)
        mr_status_set_element(st, (int64_t)p->delivered++);
}

mr_code mr_iter_next(mr_iter *it, size_t want, mr_block *b, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    mr_block_clear(b);
    if (mr_iter_cancelled(it))
        return mr_iter_fail_cancelled(st);
    if (p->guarded)
        MR_TRY(mr__memory_check(p->parent, st));
    if (want == 0)
        want = 1;
    size_t most = p->most_rows;
    if (most && want > most)
        want = most;
    mr_code rc;
    mr_iter_work work;
    mr_iter_work_begin(it, &work);
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
        else if (st)
            name_place(it, rc, st);
    }
    assert(rc != MR_OK || (b->rows >= 1 && b->rows <= want));
    p->delivered += b->rows;
    count(it, b);
    mr_iter_work_end(it, &work);
    return rc;
}

mr_code mr_iter_pull(mr_iter *it, size_t i, size_t want, mr_block *b, mr_status *st)
{
    return mr_iter_next(it->inputs[i], want, b, st);
}

mr_code mr_iter_skip_input(mr_iter *it, size_t i, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr_iter *input = it->inputs[i];
    struct mr_iter_private *p = input->priv;
    *skipped = 0;
    if (!input->op->skip || p->pending || p->deferred || p->ended)
        return MR_OK;
    mr_iter_work work;
    mr_iter_work_begin(input, &work);
    mr_code rc = input->op->skip(input, n, skipped, st);
    p->delivered += *skipped;
    if (rc != MR_OK && st)
        name_place(input, rc, st);
    mr_iter_work_end(input, &work);
    return rc;
}

/* ---- threads and seeds ---- */

mr_executor *mr_iter_executor(mr_iter *it)
{
    mr_run *run = it->run;
    if (counts_exactly(it->priv, it->node))
        return mr__executor_none();
    pthread_mutex_lock(&run->lock);
    if (!run->executor) {
        int n = run->opts.has_threads ? (int)run->opts.threads : mr__usable_cpus();
        if (mr_executor_new(n, &run->executor, NULL) == MR_OK ||
            mr_executor_new(0, &run->executor, NULL) == MR_OK)
            run->own_executor = true;
    }
    if (run->executor && run->memory.limit)
        mr__executor_keep_places(run->executor);
    /* Without memory for a pool there is still the calling thread. */
    mr_executor *ex = run->executor ? run->executor : mr__executor_none();
    pthread_mutex_unlock(&run->lock);
    return ex;
}

uint64_t mr_iter_fresh_seed(mr_iter *it)
{
    if (it->run->opts.has_seed)
        return mix(mix(it->run->opts.seed, it->priv->seed), hash_text(it->op->name));
    uint64_t v;
    if (mr__sys->getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        struct timespec t;
        mr__sys->clock_gettime(CLOCK_REALTIME, &t);
        v = mix((uint64_t)t.tv_sec, (uint64_t)t.tv_nsec);
    }
    return v;
}

uint64_t mr_iter_function_seed(const mr_iter *it)
{
    return mr__function_seed(&it->run->opts);
}

/* ---- positions ----
 * One iterator:
 *   op's name (bytes)
 *   flags     1 ended, 2 an error is due, 4 rows are pending, 8 shared state follows
 *   epoch; 0 but of a source
 *   elements delivered
 *   [status] if 2
 *   [block, number of errors, (row, status)...] if 4
 *   [op's shared state] if 8
 *   the op's state, or that of its inputs where it has none
 * An open input: flag 1 and its state. A closed one: flag 0, the shared states below it, and how
 * often the sources below it were opened: the number of those that were, (number from the first of
 * them, times)... */

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

/* rows before the pending ones, in one block. */
static mr_code join_pending(struct mr_iter_private *p, const mr_block *rows, mr_status *st)
{
    size_t n = rows->rows + p->rows.rows;
    mr_block joined = MR_BLOCK_EMPTY;
    if (p->rows.rows && !mr_block_fits(rows, &p->rows))
        return mr_state_damaged(st, "pending rows differ in shape");
    mr_code rc = mr_block_start(&joined, rows, n, st);
    if (rc == MR_OK)
        rc = mr_block_append(&joined, rows, 0, rows->rows, st);
    if (rc == MR_OK && p->rows.rows)
        rc = mr_block_append(&joined, &p->rows, 0, p->rows.rows, st);
    if (rc == MR_OK)
        mr_block_move(&p->rows, &joined);
    mr_block_reset(&joined);
    return rc;
}

mr_code mr__iter_put_back(mr_iter *it, mr_block *rows, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    size_t n = rows->rows;
    if (n == 0 || p->delivered < n)
        return mr_state_damaged(st, "there are more rows than were delivered");
    if (p->pending)
        MR_TRY(join_pending(p, rows, st));
    else
        mr_block_move(&p->rows, rows);
    for (size_t i = 0; i < p->errors.n; i++)
        p->errors.v[i].row += n;
    p->pending = true;
    p->delivered -= n;
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
    MR_TRY(mr_state_put_u64(w, p->delivered, st));
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
    MR_TRY(mr_state_get_u64(r, &p->delivered, st));
    if (it->n_inputs == 0 && p->scope)
        MR_TRY(mr__scope_set(it->run, p->scope, p->number, p->epoch + 1, st));
    bool shared = it->op->restore_shared != NULL;
    if (flags > (ENDED | DEFERRED | PENDING | SHARED) || shared != !!(flags & SHARED))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: flags %" PRIu64, flags);
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

/* Shared states of node and all below it that have one: each node once, after its inputs. */
static mr_code save_shared(mr_dataset *node, mr_state_w *w, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(node, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++)
        if (mr_dataset_op(nodes.v[i])->save_shared)
            rc = mr_dataset_op(nodes.v[i])->save_shared(nodes.v[i], w, st);
    mr__nodes_reset(&nodes);
    return rc;
}

static mr_code restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(node, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++)
        if (mr_dataset_op(nodes.v[i])->restore_shared)
            rc = mr_dataset_op(nodes.v[i])->restore_shared(nodes.v[i], r, st);
    mr__nodes_reset(&nodes);
    return rc;
}

mr_code mr_iter_save_input(mr_iter *it, size_t i, mr_state_w *w, mr_status *st)
{
    MR_TRY(mr_state_put_u64(w, it->inputs[i] != NULL, st));
    if (it->inputs[i])
        return mr_iter_save(it->inputs[i], w, st);
    mr_dataset *node = mr_dataset_input(it->node, i);
    MR_TRY(save_shared(node, w, st));
    return mr__scope_save(it->run, it->priv->scope, first_source(it, i),
                          mr__dataset_n_sources(node), w, st);
}

mr_code mr_iter_restore_input(mr_iter *it, size_t i, mr_state_r *r, mr_status *st)
{
    uint64_t open;
    MR_TRY(mr_state_get_u64(r, &open, st));
    if (open > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: input flag %" PRIu64, open);
    mr_iter_close_input(it, i);
    if (!open) {
        mr_dataset *node = mr_dataset_input(it->node, i);
        MR_TRY(restore_shared(node, r, st));
        return mr__scope_restore(it->run, it->priv->scope, first_source(it, i),
                                 mr__dataset_n_sources(node), r, st);
    }
    MR_TRY(mr_iter_open_input(it, i, st));
    return mr_iter_restore(it->inputs[i], r, st);
}

mr_code mr_iter_position(mr_iter *it, mr_buffer **position, mr_status *st)
{
    *position = NULL;
    if (!mr_iter_keeps_positions(it))
        return MR_OK;
    mr_state_w w = {0};
    mr_code rc = mr_iter_save(it, &w, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(position, w.size, st);
    if (rc == MR_OK)
        memcpy(mr_buffer_data(*position), w.data, w.size);
    mr__state_w_reset(&w);
    return rc;
}

mr_code mr_iter_restore_position(mr_iter *it, const void *bytes, size_t n, mr_status *st)
{
    mr_state_r r = {bytes, (const unsigned char *)bytes + n};
    MR_TRY(mr_iter_restore(it, &r, st));
    if (r.at != r.end)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %zu bytes are left over",
                       (size_t)(r.end - r.at));
    return MR_OK;
}
