/* SPDX-License-Identifier: Apache-2.0 */
/* The user's iterator: the root, its options, and the file format of positions.
 *
 * A position:
 *   offset  size  meaning
 *   0       4     "MRP4"; "MRP5": with an outline
 *   4       4     zlib crc32 of all that follows, little-endian
 *   8       ...   bytes: text of the graph (its list of ops if it has no text), shortened if it
 *                        has more than LONG_TEXT bytes; 0.1 wrote all of it
 *                 bytes: MRP5: the outline of a graph with a mixture (graph/named_inputs.h),
 *                        shortened like the text
 *                 number: rows to skip after the state (0 except for mr_iterator_save_at)
 *                 bytes: state of the root iterator (engine/op_position.c)
 *                 block: rows to deliver before the state; only for mr_iterator_save_at, if the
 *                        graph would not produce the same rows again
 *                 names: of the files of these rows (engine/position.c); only in a run with a
 *                        ledger */
#include "pipeline/engine/iterator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/fnv.h"
#include "pipeline/engine/executor.h"
#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/old_seeds.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/position.h"
#include "pipeline/engine/run.h"
#include "pipeline/engine/watch.h"
#include "pipeline/files/file_name.h"
#include "pipeline/formats/compression_libraries.h"
#include "pipeline/functions/compiler/draws.h"
#include "pipeline/graph/graph_internal.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/log.h"
#include "pipeline/system/fork.h"
#include "pipeline/wait/cancel_internal.h"

struct mr_iterator {
    mr_run run;
    mr_cancel *cancel; /* of all passes; run.cancel, which it triggers, is that of one */
    mr_dataset *instance;
    mr_iter *root;   /* NULL: it rests, or its next pass could not be opened */
    bool replays;    /* without a root: the rows after the last position can be made again */
    bool settles;    /* the last pull gave rows: what it left open may be settled */
    bool resumed;    /* in place: ops may still report the cancellation that was ended */
    bool astray;     /* mr_iterator_resume failed: only a position leads back */
    char *signature; /* made when first needed; shortened */
    char *outline;   /* the same; NULL: the graph has no mixture */
    mr__watched watched;
    mr_buffer *before; /* state before and after the last block, if positions are on */
    mr_buffer *after;
    bool late;            /* the position after the last block was not taken yet: root is there */
    size_t rows_after;    /* rows delivered after `after` */
    mr_status save_error; /* why there is no `after` */
};

static const char magic[4] = {'M', 'R', 'P', '4'}, magic_outlined[4] = {'M', 'R', 'P', '5'};
enum { LONG_TEXT = 4096, TEXT_END = 1024 };

/* The graph's options: the value nearest the sink wins; in a zip, that of the later input. */
static mr_code find_options(const mr_dataset *ds, int *deterministic, int64_t *memory_limit,
                            char **cache, mr__name_scope *names, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++) {
        mr_value v = {0}, limit = {0}, dir = {0}, connections = {0}, ahead = {0};
        if (!(mr_dataset_op(nodes.v[i])->props & MR_OP_HOLDS_OPTIONS))
            continue;
        rc = mr_dataset_param_named(nodes.v[i], "deterministic", &v, st);
        if (rc == MR_OK)
            rc = mr_dataset_param_named(nodes.v[i], "memory_limit", &limit, st);
        if (rc == MR_OK)
            rc = mr_dataset_param_named(nodes.v[i], "cache_dir", &dir, st);
        if (rc == MR_OK && dir.kind == MR_V_STRING && dir.size) {
            mr_free(*cache);
            *cache = NULL;
            rc = mr__file_name(dir.s, cache, st);
        }
        if (v.kind == MR_V_BOOL)
            *deterministic = (int)v.i;
        if (limit.kind == MR_V_INT)
            *memory_limit = limit.i;
        if (rc == MR_OK)
            rc = mr_dataset_param_named(nodes.v[i], "remote_connections", &connections, st);
        if (rc == MR_OK)
            rc = mr_dataset_param_named(nodes.v[i], "remote_read_ahead", &ahead, st);
        if (connections.kind == MR_V_INT)
            names->remote_connections = connections.i;
        if (ahead.kind == MR_V_INT)
            names->remote_read_ahead = ahead.i;
        mr_value_reset(&v);
        mr_value_reset(&limit);
        mr_value_reset(&dir);
        mr_value_reset(&connections);
        mr_value_reset(&ahead);
    }
    mr__nodes_reset(&nodes);
    return rc;
}

static mr_code check_remote(mr__name_scope names, mr_status *st)
{
    if (names.remote_connections < 0 || names.remote_connections > MR_REMOTE_CONNECTIONS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "remote_connections must be 0 to %d, not %" PRId64,
                       MR_REMOTE_CONNECTIONS, names.remote_connections);
    if (names.remote_read_ahead && names.remote_read_ahead < 64 << 10)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "remote_read_ahead must be 0 or at least 65536 bytes, not %" PRId64,
                       names.remote_read_ahead);
    return MR_OK;
}

mr_code mr_iterator_check(const mr_iterator *it, mr_status *st)
{
    return mr__check_process(it->run.forks, "the iterator", st);
}

static mr_code open_root(mr_iterator *it, mr_status *st)
{
    mr_iter_close(it->root);
    it->root = NULL;
    if (!it->run.cancel)
        MR_TRY(mr_cancel_new(it->cancel, &it->run.cancel, st));
    it->run.names.cancel = it->run.cancel;
    (void)mr__name_scope_set(it->run.names); /* the caller sets the outer one again */
    if (it->run.opts.watch && !it->watched.run)
        mr__watch_start(&it->watched, &it->run, it->run.graph);
    const mr__place place = {.in_graph = MR__PLACE_ROOT,
                             .scope = it->run.opts.identities ? &it->run.scope : NULL};
    return mr__iter_open(&it->run, &place, it->instance, &it->root, st);
}

/* Pulls op, the root or an op between which and the root no task pulls another. */
static mr_code pull(mr_iterator *it, mr_iter *op, size_t want, mr_block *b, mr_status *st)
{
    mr_executor *ex = it->run.executor; /* NULL: not needed yet */
    mr__sleep_watch before = {0};
    if (ex)
        before = mr__executor_enter(ex);
    mr__name_scope outer = mr__name_scope_set(it->run.names);
    mr_code rc = mr_iter_next(op, want, b, st);
    mr__name_scope_set(outer);
    if (ex)
        mr__executor_leave(ex, before);
    return rc;
}

/* Where to pull for the end of `op`: the op itself, or the highest one above it whose input tasks
 * pull. *depth = the number of ops from there to the root. */
static mr_iter *point_of(mr_iter *op, size_t *depth)
{
    mr_iter *point = op;
    *depth = 0;
    for (mr_iter *at = op; at; at = at->priv->parent, ++*depth)
        if (at->priv->elsewhere) {
            point = at->priv->parent;
            *depth = (size_t)-1;
        }
    return point;
}

/* The next point to pull. An op that writes what another one writes comes first: rows that are
 * pulled below it would be missing in its file. NULL: nothing waits that was not pulled for yet. */
static mr_iter *unsettled(mr_iterator *it)
{
    mr_iter *point = NULL, *of = NULL;
    size_t least = SIZE_MAX;
    pthread_mutex_lock(&it->run.lock);
    for (mr_iter *at = it->run.waiting; at; at = at->priv->next_waiting) {
        size_t depth;
        mr_iter *p = point_of(at, &depth);
        if (at->priv->settled || depth >= least || mr__iter_may_block(p) ||
            (mr__dataset_all_props(p->node) & MR_OP_MAY_BLOCK))
            continue;
        least = depth;
        point = p;
        of = at;
    }
    if (of)
        of->priv->settled = true;
    pthread_mutex_unlock(&it->run.lock);
    return point;
}

/* An op that writes a file may have had all elements of its input without having met the end, which
 * completes the file: one more pull shows it. Not after an error, nor where the pull could wait for
 * an outside producer; ops that do not lead to the file are left alone. It does not count as an
 * opening of sources. */
static void settle(mr_iterator *it)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_state_w w = {0};
    mr__scope *scope = it->run.opts.identities ? &it->run.scope : NULL;
    if (!it->settles || mr_cancel_is_cancelled(it->run.cancel))
        return;
    it->settles = false;
    mr_iter *op = unsettled(it);
    if (!op)
        return;
    uint64_t sources = mr__dataset_n_sources(it->instance);
    if (mr__scope_save(&it->run, scope, 0, sources, &w, &st) == MR_OK) {
        for (; op; op = unsettled(it))
            (void)pull(it, op, 1, &b, &st);
        mr_block_reset(&b);
        mr_state_r r = {.at = w.data, .end = w.data + w.size};
        if (mr__scope_restore(&it->run, scope, 0, sources, &r, &st) != MR_OK)
            mr_log(MR_LOG_WARNING, "the epochs of later passes may be too high: %s", st.message);
    }
    mr__state_w_reset(&w);
}

/* true: what is pulled may have effects on the next pass, which may begin before the end of this
 * one. */
static bool pulls_count(const mr_iterator *it)
{
    if (!it->root)
        return false;
    uint32_t props = mr__dataset_all_props(it->instance);
    /* Relaxed: set by pulls that have returned. */
    return it->run.internal.opened_again &&
           ((props & MR__OPENS_RANDOM) ||
            ((props & MR_OP_REMEMBERS) &&
             atomic_load_explicit(&it->root->priv->recording, memory_order_relaxed) > 0));
}

bool mr__graph_is_mixed(const mr_dataset *ds)
{
    return mr__dataset_is_mixed(ds);
}

bool mr__graph_draws_by_reading(const mr_dataset *ds)
{
    return mr__dataset_all_props(ds) & MR__OPENS_RANDOM;
}

/* Keeps the position after the `rows` rows that are being delivered. If a wait was cancelled in the
 * middle of a call, an op may have no position now: then it is the last one, and the number of rows
 * after it. */
static void keep_position(mr_iterator *it, size_t rows)
{
    mr_buffer *now = NULL;
    it->late = false;
    mr_status_init(&it->save_error);
    /* If an op cannot save, mr_iterator_save reports it, not mr_iterator_next. */
    if (mr_iter_position(it->root, &now, &it->save_error) != MR_OK)
        now = NULL;
    if (!now && it->after && mr_cancel_is_cancelled(it->run.cancel) && mr_iter_replays(it->root) &&
        !pulls_count(it)) {
        it->rows_after += rows;
        return;
    }
    mr_buffer_unref(it->before);
    it->before = it->after;
    it->after = now;
    it->rows_after = 0;
}

/* true: where rows of the last block are left, they are saved, since there is no earlier position
 * from which to pull them again. */
static bool saves_rows(const mr_iterator *it)
{
    return mr__dataset_is_mixed(it->instance) || !mr_iter_replays(it->root) || pulls_count(it);
}

/* The ops above a mixture save the rows that they hold, which may be many. So its position is taken
 * when it is asked for: until the next call, the root is where the last block ended. */
static void note_position(mr_iterator *it, size_t rows)
{
    it->late = mr__dataset_is_mixed(it->instance);
    if (!it->late) {
        keep_position(it, rows);
        return;
    }
    mr_buffer_unref(it->after);
    it->after = NULL;
}

static void take_late_position(mr_iterator *it)
{
    if (it->late && it->root)
        keep_position(it, 0);
}

static mr_code open_iterator(mr_iterator **out, mr_dataset *ds, const mr_iterator_opts *opts,
                             mr_status *st)
{
    MR_TRY(mr_dataset_check(ds, st));
    if (opts->block_rows < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "block_rows must be 0 (by size) or more, not %" PRId64, opts->block_rows);
    if (opts->has_threads && (opts->threads < 0 || opts->threads > 1024))
        return mr_fail(st, MR_INVALID_ARGUMENT, "threads must be 0 to 1024, not %" PRId64,
                       opts->threads);
    if (opts->executor)
        MR_TRY(mr__check_process(mr__executor_forks(opts->executor), "the executor", st));
    mr_iterator *it = mr_calloc(1, sizeof *it);
    if (!it)
        return mr_fail_memory(st, sizeof *it, "an iterator");
    it->run.forks = mr__forks();
    it->run.opts = *opts;
    it->run.internal = *mr__iterator_internal_of(opts);
    it->run.opts.internal = &it->run.internal;
    it->run.names = mr__name_scope_get();
    it->run.opts.directory = it->run.names.directory;
    it->run.executor = opts->executor;
    pthread_mutex_init(&it->run.lock, NULL);
    /* In the calling thread alone, all times add up to the elapsed time. */
    mr__stats_init(&it->run.stats, opts->executor ? mr__executor_threads(opts->executor) > 0
                                                  : !opts->has_threads || opts->threads > 0);
    it->run.graph = mr_dataset_ref(ds);
    int deterministic = 1;
    int64_t memory_limit = 0;
    mr_code rc = mr_cancel_new(opts->cancel, &it->cancel, st);
    if (rc == MR_OK && opts->trace_spans)
        rc = mr__stats_trace(&it->run.stats, opts->trace_spans, st);
    if (rc == MR_OK)
        rc = find_options(ds, &deterministic, &memory_limit, &it->run.cache, &it->run.names, st);
    if (it->run.cache)
        it->run.names.cache = it->run.cache;
    if (opts->remote_connections)
        it->run.names.remote_connections = opts->remote_connections;
    if (opts->remote_read_ahead)
        it->run.names.remote_read_ahead = opts->remote_read_ahead;
    if (rc == MR_OK)
        rc = check_remote(it->run.names, st);
    (void)mr__name_scope_set(it->run.names); /* mr_iterator_open sets the outer one again */
    if (rc == MR_OK)
        rc = mr__memory_start(&it->run.memory, ds, opts, memory_limit, st);
    /* For the iterators that ops open, which find the control group's by themselves. */
    it->run.opts.memory_limit = it->run.memory.of_group ? 0 : it->run.memory.limit;
    it->run.deterministic =
        opts->deterministic == MR_DEFAULT ? deterministic != 0 : opts->deterministic == MR_YES;
    /* Random functions draw from the identities of an element. */
    bool draws = false;
    if (rc == MR_OK)
        rc = mr__graph_draws(ds, &draws, st);
    it->run.opts.identities = opts->identities || draws || opts->ledger;
    if (rc == MR_OK && !(it->instance = mr__dataset_instance(ds)))
        rc = mr_fail_memory(st, 0, "a graph's instance");
    /* Created now, so that next always has them. */
    if (rc == MR_OK && !mr_spec_leaf_names(mr_dataset_spec(ds)))
        rc = mr_fail_memory(st, 0, "the names of columns");
    if (rc == MR_OK)
        rc = open_root(it, st);
    if (rc != MR_OK) {
        mr_iterator_close(it);
        return rc;
    }
    if (opts->positions)
        note_position(it, 0);
    *out = it;
    return MR_OK;
}

/* An iterator that an op opens within another has the names of that one. */
mr_code mr_iterator_open(mr_iterator **out, mr_dataset *ds, const mr_iterator_opts *opts,
                         mr_status *st)
{
    static const mr_iterator_opts defaults;
    opts = opts ? opts : &defaults;
    mr__name_scope outer = mr__name_scope_enter(opts->directory);
    mr_code rc = open_iterator(out, ds, opts, st);
    mr__name_scope_set(outer);
    return rc;
}

int64_t mr_iterator_take_memory(mr_iterator *it, int64_t most)
{
    return mr__memory_take(&it->run.memory, most);
}

int64_t mr_iterator_take_slots(mr_iterator *it, int64_t most)
{
    mr__memory *m = &it->run.memory;
    int64_t bytes;
    if (!m->limit)
        return most;
    if (!m->of_batch)
        return 0;
    if (__builtin_mul_overflow(most, m->of_batch, &bytes))
        bytes = INT64_MAX;
    return mr__memory_take(m, bytes) / m->of_batch;
}

MR_API bool mr__iterator_can_give_back(const mr_iterator *it)
{
    return mr__memory_can_give_back(&it->run.memory, it->run.graph);
}

MR_API void mr__iterator_gave_back(mr_iterator *it)
{
    mr__memory_gave_back(&it->run.memory);
}

bool mr_iterator_has_memory(mr_iterator *it, size_t bytes)
{
    return mr__memory_has_room(&it->run.memory, bytes);
}

static mr_code enter_rows(mr_ledger *ledger, const mr_block *b, mr_status *st)
{
    const mr_identities *x = &b->ids;
    for (size_t i = 0; i < b->rows; i++) {
        size_t from = x->offsets ? x->offsets[i] : i;
        size_t n = x->offsets ? x->offsets[i + 1] - from : 1;
        MR_TRY(mr_ledger_add(ledger, x->ids ? x->ids + from : NULL, x->ids ? n : 0, st));
    }
    return MR_OK;
}

mr_code mr_iterator_next(mr_iterator *it, size_t want, mr_block *b, mr_status *st)
{
    if (it->run.forks != mr__forks()) {
        mr_block_clear(b);
        return mr_iterator_check(it, st);
    }
    if (!it->root) {
        mr_block_clear(b);
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the iterator rests; rewind it for the next pass, or restore a position");
    }
    if (pulls_count(it))
        want = 1;                 /* the rest of a block might never be used */
    if (it->root->priv->failed) { /* reported; a consumer that continues must not get it forever */
        mr_block_clear(b);
        return MR_END;
    }
    mr_code rc = pull(it, it->root, want, b, st);
    while (rc == MR_CANCELLED && it->resumed && !mr_cancel_is_cancelled(it->run.cancel))
        rc = pull(it, it->root, want, b, st);
    it->settles = rc >= 0;
    if (rc == MR_OK && it->run.opts.ledger && !mr_ledger_takes_steps(it->run.opts.ledger)) {
        rc = enter_rows(it->run.opts.ledger, b, st);
        if (rc != MR_OK)
            mr_block_clear(b);
    }
    b->names = mr_spec_leaf_names(it->root->spec);
    /* If a wait was cancelled or the pass failed, the last delivered block remains the last one. */
    bool given_up =
        (rc == MR_CANCELLED && mr_cancel_is_cancelled(it->run.cancel)) || it->root->priv->failed;
    if (it->run.opts.positions && !given_up) {
        note_position(it, b->rows);
        if (rc == MR_OK && it->after && !it->rows_after)
            b->position = mr_buffer_ref(it->after);
    }
    return rc;
}

mr_code mr__iterator_count(mr_iterator *it, uint64_t *n, mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    mr__name_scope outer = mr__name_scope_set(it->run.names);
    mr_code rc = mr__iter_count(it->root, n, st);
    mr__name_scope_set(outer);
    return rc;
}

mr_code mr__iterator_at(mr_iterator *it, const uint64_t *index, size_t n, mr_block *b,
                        mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    mr__name_scope outer = mr__name_scope_set(it->run.names);
    mr_code rc = mr__iter_at(it->root, index, n, b, st);
    mr__name_scope_set(outer);
    b->names = mr_spec_leaf_names(it->root->spec);
    return rc;
}

mr_code mr_iterator_rewind(mr_iterator *it, mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    mr__name_scope outer = mr__name_scope_set(it->run.names);
    settle(it);
    mr_code rc = open_root(it, st);
    mr__name_scope_set(outer);
    if (rc == MR_OK && it->run.opts.positions)
        note_position(it, 0);
    return rc;
}

void mr__iterator_settle(mr_iterator *it)
{
    if (it->run.forks != mr__forks() || !it->root)
        return;
    take_late_position(it);
    settle(it);
}

mr_code mr_iterator_rest(mr_iterator *it, mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    if (!it->root)
        return MR_OK;
    mr__watch_stop(&it->watched);
    mr__iterator_settle(it);
    it->settles = false;
    it->replays = !saves_rows(it);
    mr_cancel_trigger(it->run.cancel); /* the waits of what was read ahead */
    mr_iter_close(it->root);
    it->root = NULL;
    mr__run_end_functions(&it->run);
    mr_cancel_unref(it->run.cancel);
    it->run.cancel = it->run.names.cancel = NULL;
    mr__cancel_forget(it->cancel);
    if (it->run.own_executor) {
        mr_executor_free(it->run.executor);
        it->run.executor = NULL;
        it->run.own_executor = false;
    }
    return MR_OK;
}

/* What waits outside would not repeat what it has delivered: a pipe, a generator, a service. */
MR_API bool mr__iterator_may_block(const mr_iterator *it)
{
    return it->root && mr__iter_may_block(it->root);
}

mr_code mr_iterator_resume(mr_iterator *it, mr_status *st)
{
    void *position;
    size_t size, rows_after = it->rows_after;
    mr_code rc = MR_FAILED_PRECONDITION;
    MR_TRY(mr_iterator_check(it, st));
    if (it->astray || !mr__iterator_may_block(it))
        rc = mr_iterator_save(it, &position, &size, st);
    if (rc == MR_FAILED_PRECONDITION && it->root && !it->astray) {
        mr__cancel_forget(it->cancel);
        mr__cancel_forget(it->run.cancel);
        it->resumed = true;
        return MR_OK;
    }
    MR_TRY(rc);
    it->astray = true;
    rc = mr_iterator_rest(it, st);
    if (rc == MR_OK)
        rc = mr_iterator_restore(it, position, size, st);
    if (rc == MR_OK)
        it->astray = false;
    else
        it->rows_after = rows_after; /* the position remains that of the last row delivered */
    mr_free(position);
    return rc;
}

void mr__iterator_set_executor(mr_iterator *it, mr_executor *executor)
{
    it->run.executor = it->run.opts.executor = executor;
}

/* ---- positions ---- */

static mr_code list_ops(const mr_dataset *ds, mr_state_w *w, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++) {
        const char *name = mr_dataset_op(nodes.v[i])->name;
        rc =
            MR_GROW(w->data, w->capacity, w->size + strlen(name) + 2, 1 << 28, "a list of ops", st);
        if (rc == MR_OK)
            w->size += (size_t)sprintf((char *)w->data + w->size, ".%s", name);
    }
    mr__nodes_reset(&nodes);
    return rc;
}

mr_code mr__graph_signature(const mr_dataset *ds, char **out, mr_status *st)
{
    mr_status why;
    mr_code rc = mr_dataset_to_text(ds, out, &why);
    if (rc != MR_FAILED_PRECONDITION) {
        if (rc == MR_OK)
            mr_text_drop_secrets(*out);
        else if (st)
            *st = why;
        return rc;
    }
    mr_state_w w = {0};
    rc = list_ops(ds, &w, st);
    if (rc == MR_OK)
        *out = (char *)w.data;
    else
        mr__state_w_reset(&w);
    return rc;
}

/* *out = `text` of n bytes, or if it is long, its ends and a hash: workers send a position with
 * each block, and the values of a tensor in the graph may take megabytes. */
static mr_code shorten(const char *text, size_t n, char **out, mr_status *st)
{
    if (n <= LONG_TEXT) {
        *out = mr_memdup(text, n + 1);
        return *out ? MR_OK : mr_fail_memory(st, n, "a position");
    }
    *out = mr_malloc(3 * TEXT_END);
    if (!*out)
        return mr_fail_memory(st, n, "a position");
    snprintf(*out, 3 * TEXT_END, "%.*s [bytes=%zu,hash=%016" PRIx64 "] %.*s", TEXT_END, text, n,
             mr__fnv1a(MR__FNV_BASIS, text, n), TEXT_END, text + n - TEXT_END);
    return MR_OK;
}

mr_code mr__graph_short_signature(const mr_dataset *ds, char **out, mr_status *st)
{
    char *text = NULL;
    MR_TRY(mr__graph_signature(ds, &text, st));
    mr_code rc = shorten(text, strlen(text), out, st);
    mr_free(text);
    return rc;
}

mr_code mr__graph_outline(const mr_dataset *ds, char **out, mr_status *st)
{
    char *text = NULL;
    *out = NULL;
    if (!mr__dataset_is_mixed(ds))
        return MR_OK;
    MR_TRY(mr__dataset_outline(ds, &text, st));
    mr_code rc = shorten(text, strlen(text), out, st);
    mr_free(text);
    return rc;
}

static mr_code sign(mr_iterator *it, mr_status *st)
{
    if (it->signature)
        return MR_OK;
    if (!it->outline)
        MR_TRY(mr__graph_outline(it->run.graph, &it->outline, st));
    return mr__graph_short_signature(it->run.graph, &it->signature, st);
}

/* b NULL: skip `rows` rows after the state; else deliver the rows of b from `rows` on before it. */
static mr_code write_position(mr_iterator *it, const mr_buffer *state, const mr_block *b,
                              size_t rows, void **bytes, size_t *size, mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    if (!it->run.opts.positions)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "positions are off; open the iterator with .positions = true");
    if (!state) {
        if (st)
            *st = it->save_error;
        return it->save_error.code ? it->save_error.code
                                   : mr_fail(st, MR_FAILED_PRECONDITION, "nothing was delivered");
    }
    MR_TRY(sign(it, st));
    MR_TRY(mr__zlib_need(st));
    mr_state_w w = {0};
    static const unsigned char room[8];
    mr_code rc = MR_GROW(w.data, w.capacity, sizeof room, SIZE_MAX, "a position", st);
    w.size = sizeof room;
    if (rc == MR_OK)
        rc = mr_state_put_bytes(&w, it->signature, strlen(it->signature), st);
    if (rc == MR_OK && it->outline)
        rc = mr_state_put_bytes(&w, it->outline, strlen(it->outline), st);
    if (rc == MR_OK)
        rc = mr_state_put_u64(&w, b ? 0 : rows, st);
    if (rc == MR_OK)
        rc = mr_state_put_bytes(&w, mr_buffer_data(state), mr_buffer_size(state), st);
    if (rc == MR_OK && b) {
        w.ledger = it->run.opts.ledger;
        rc = mr__state_put_rows(&w, b, rows, st);
        if (rc == MR_OK)
            rc = mr__state_put_names(&w, st);
    }
    if (rc != MR_OK) {
        mr__state_w_reset(&w);
        return rc;
    }
    memcpy(w.data, it->outline ? magic_outlined : magic, 4);
    mr__store_le(w.data + 4, mr__zlib.crc32_z(0, w.data + 8, w.size - 8), 4);
    *bytes = w.data;
    *size = w.size;
    return MR_OK;
}

mr_code mr_iterator_save(mr_iterator *it, void **bytes, size_t *size, mr_status *st)
{
    MR_TRY(mr_iterator_check(it, st));
    take_late_position(it);
    return write_position(it, it->after, NULL, it->rows_after, bytes, size, st);
}

mr_code mr_iterator_save_at(mr_iterator *it, const mr_block *b, size_t rows, void **bytes,
                            size_t *size, mr_status *st)
{
    if (rows > b->rows)
        return mr_fail(st, MR_INVALID_ARGUMENT, "row %zu of a block of %zu", rows, b->rows);
    if (rows == b->rows)
        return mr_iterator_save(it, bytes, size, st);
    MR_TRY(mr_iterator_check(it, st));
    take_late_position(it);
    if (it->rows_after >= b->rows && it->rows_after > 0)
        return write_position(it, it->after, NULL, it->rows_after - b->rows + rows, bytes, size,
                              st);
    if (it->root ? !saves_rows(it) : it->replays)
        return write_position(it, it->before, NULL, rows, bytes, size, st);
    return write_position(it, it->after, b, rows, bytes, size, st);
}

static bool is_shortened(const char *text, size_t n)
{
    static const char mark[] = " [bytes=";
    return n > 2 * TEXT_END && memcmp(text + TEXT_END, mark, sizeof mark - 1) == 0;
}

/* The start of the word in which byte `at` is. */
static size_t word_at(const char *text, size_t at)
{
    while (at > 0 && !strchr(".( ", text[at - 1]))
        at--;
    return at;
}

/* Reports an op or argument in which two graphs differ. way: how to restore. */
static mr_code another_graph(const char *ours, const char *theirs, size_t n, const char *way,
                             mr_status *st)
{
    size_t m = strlen(ours), at = 0, same = 0;
    while (at < n && at < m && ours[at] == theirs[at])
        at++;
    size_t word = word_at(ours, at), its_word = word;
    char where[64];
    snprintf(where, sizeof where, "first difference is at byte %zu", at);
    if (at >= TEXT_END && at < m - TEXT_END && is_shortened(theirs, n) && is_shortened(ours, m)) {
        while (same < TEXT_END && ours[m - 1 - same] == theirs[n - 1 - same])
            same++;
        if (same == TEXT_END)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the position belongs to another graph, with other values in the middle "
                           "of its text; %s",
                           way);
        word = word_at(ours, m - 1 - same);
        its_word = word_at(theirs, n - 1 - same);
        snprintf(where, sizeof where, "last difference is at the end");
    }
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the position belongs to another graph; the %s: it has '%.*s', this one has "
                   "'%.60s'; %s",
                   where, (int)(n - its_word > 60 ? 60 : n - its_word), theirs + its_word,
                   ours + word, way);
}

/* From now on the iterator runs `seeded` (taken), which has the elements of its graph. */
static mr_code run_instead(mr_iterator *it, mr_dataset *seeded, mr_status *st)
{
    mr_dataset *instance = mr__dataset_instance(seeded);
    if (!instance) {
        mr_dataset_unref(seeded);
        return mr_fail_memory(st, 0, "a graph's instance");
    }
    mr__watch_stop(&it->watched); /* it looks at the graph; opening starts it again */
    mr_iter_close(it->root);
    it->root = NULL;
    mr_dataset_unref(it->instance);
    mr_dataset_unref(it->run.graph);
    it->instance = instance;
    it->run.graph = seeded;
    mr_free(it->signature);
    it->signature = NULL;
    return sign(it, st);
}

mr_code mr__graphs_differ(const char *text, const char *outline, const mr__graph_texts *theirs,
                          mr_on_mismatch allowed, mr_status *st)
{
    if (!outline || !theirs->outline)
        return another_graph(text, theirs->text, theirs->text_size,
                             "restore with the expression it was saved with", st);
    if (allowed != MR_RESTORE_BY_NAME)
        return another_graph(text, theirs->text, theirs->text_size,
                             "restore with the expression it was saved with, or by name "
                             "(--restore-by-name, on_mismatch) if only the sources and weights of "
                             "mix differ",
                             st);
    if (strlen(outline) == theirs->outline_size &&
        memcmp(outline, theirs->outline, theirs->outline_size) == 0)
        return MR_OK;
    return another_graph(outline, theirs->outline, theirs->outline_size,
                         "a restore by name takes other sources and weights of mix only, and none "
                         "below distribute, or below an op that an elastic job cannot cut",
                         st);
}

/* The text is as in the position, which 0.1 did not shorten. A graph that was seeded by 0.1 keeps
 * its seeds. */
static mr_code check_graph(mr_iterator *it, const mr__graph_texts *s, mr_status *st)
{
    char *text = NULL;
    mr__graph_texts theirs = *s;
    mr_dataset *seeded = NULL;
    it->run.by_name = false;
    MR_TRY(sign(it, st));
    if (s->text_size > LONG_TEXT) {
        MR_TRY(shorten(s->text, s->text_size, &text, st));
        theirs.text = text;
        theirs.text_size = strlen(text);
    }
    bool same = theirs.text_size == strlen(it->signature) &&
                memcmp(theirs.text, it->signature, theirs.text_size) == 0;
    mr_code rc = MR_OK;
    if (!same && !theirs.outline)
        rc = mr__with_old_seeds(it->run.graph, s->text, s->text_size, &seeded, st);
    if (rc == MR_OK && seeded)
        rc = run_instead(it, seeded, st);
    else if (rc == MR_OK && !same) {
        rc = mr__graphs_differ(it->signature, it->outline, &theirs, it->run.opts.on_mismatch, st);
        it->run.by_name = rc == MR_OK;
    }
    mr_free(text);
    return rc;
}

/* New sources draw and count from the beginning, whatever this iterator has run. */
static mr_code forget_passes(mr_iterator *it, mr_status *st)
{
    mr_dataset *instance = mr__dataset_instance(it->run.graph);
    if (!instance)
        return mr_fail_memory(st, 0, "a graph's instance");
    mr_iter_close(it->root);
    it->root = NULL;
    mr_dataset_unref(it->instance);
    it->instance = instance;
    mr__scope_reset(&it->run.scope);
    return MR_OK;
}

mr_code mr__iterator_start_over(mr_iterator *it, mr_status *st)
{
    MR_TRY(mr_iterator_rest(it, st));
    MR_TRY(forget_passes(it, st));
    return mr_iterator_rewind(it, st);
}

/* The rows to deliver before the state. */
static mr_code put_back(mr_iterator *it, mr_state_r *r, mr_status *st)
{
    mr_block rows = MR_BLOCK_EMPTY;
    mr_code rc = mr_state_get_block(r, it->root->spec, &rows, st);
    if (rc == MR_OK && r->at != r->end)
        rc = mr__state_get_names(r, it->run.opts.ledger, st);
    if (rc == MR_OK && r->at != r->end)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %zu bytes are left over",
                     (size_t)(r->end - r->at));
    if (rc == MR_OK)
        rc = mr__iter_put_back(it->root, &rows, st);
    mr_block_reset(&rows);
    return rc;
}

/* Begins to read a position: checks that it is one, and takes the signature of its graph. */
static mr_code read_signature(const mr_iterator *it, const void *bytes, size_t size, mr_state_r *r,
                              mr__graph_texts *theirs, mr_status *st)
{
    const unsigned char *p = bytes;
    unsigned char sum[4];
    bool outlined = size >= 8 && memcmp(p, magic_outlined, 4) == 0;
    if (size < 8 || (!outlined && memcmp(p, magic, 4) != 0))
        return mr_fail(st, MR_INVALID_ARGUMENT, "not a position: it does not start with MRP4");
    MR_TRY(mr__zlib_need(st));
    mr__store_le(sum, mr__zlib.crc32_z(0, p + 8, size - 8), 4);
    if (memcmp(sum, p + 4, 4) != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: its checksum does not match");
    const void *text, *outline = NULL;
    *r = (mr_state_r){.at = p + 8, .end = p + size, .graph = it->run.graph};
    MR_TRY(mr_state_get_bytes(r, &text, &theirs->text_size, st));
    if (outlined)
        MR_TRY(mr_state_get_bytes(r, &outline, &theirs->outline_size, st));
    theirs->text = text;
    theirs->outline = outline;
    return MR_OK;
}

mr_code mr__iterator_is_of_other_mixture(mr_iterator *it, const void *bytes, size_t size,
                                         bool *other, mr_status *st)
{
    mr_state_r r;
    mr__graph_texts theirs = {0};
    MR_TRY(read_signature(it, bytes, size, &r, &theirs, st));
    MR_TRY(check_graph(it, &theirs, st));
    *other = it->run.by_name;
    it->run.by_name = false;
    return MR_OK;
}

static mr_code restore(mr_iterator *it, const void *bytes, size_t size, mr_status *st)
{
    mr_state_r r;
    mr__graph_texts theirs = {0};
    const void *state;
    size_t state_size;
    uint64_t skip;
    MR_TRY(mr_iterator_check(it, st));
    MR_TRY(read_signature(it, bytes, size, &r, &theirs, st));
    MR_TRY(mr_state_get_u64(&r, &skip, st));
    MR_TRY(mr_state_get_bytes(&r, &state, &state_size, st));
    MR_TRY(check_graph(it, &theirs, st));
    r.graph = it->run.graph;
    if (skip > INT32_MAX || (skip && r.at != r.end))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: out of range");
    it->settles = it->late = false;
    it->rows_after = 0;
    if (it->run.by_name)
        MR_TRY(forget_passes(it, st));
    MR_TRY(open_root(it, st));
    MR_TRY(mr_iter_restore_position(it->root, state, state_size, st));
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = r.at == r.end ? MR_OK : put_back(it, &r, st);
    while (skip && rc == MR_OK) {
        rc = mr_iter_next(it->root, (size_t)skip, &b, st);
        skip -= rc == MR_OK ? b.rows : 0;
    }
    mr_block_reset(&b);
    if (rc == MR_END)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the position is after the end of the data");
    if (rc == MR_OK && it->run.opts.positions)
        note_position(it, 0);
    return rc;
}

mr_code mr_iterator_restore(mr_iterator *it, const void *bytes, size_t size, mr_status *st)
{
    mr__name_scope outer = mr__name_scope_set(it->run.names);
    mr_code rc = restore(it, bytes, size, st);
    it->run.by_name = false;
    mr__name_scope_set(outer);
    return rc;
}

void mr_iterator_cancel(mr_iterator *it)
{
    mr_cancel_trigger(it->cancel);
}

/* In a child of the process that opened it, its threads do not exist, and the kernel's and other
 * processes' state of it (io_uring, locks and temporary files, connections) is in use by the
 * parent. So only memory that no op refers to is freed, and the rest remains. */
static void leave(mr_iterator *it)
{
    mr_buffer_unref(it->before);
    mr_buffer_unref(it->after);
    mr_free(it->signature);
    mr_free(it->outline);
    it->before = it->after = NULL;
    it->signature = it->outline = NULL;
}

void mr_iterator_close(mr_iterator *it)
{
    if (!it)
        return;
    if (it->run.forks != mr__forks()) {
        leave(it);
        return;
    }
    mr__watch_stop(&it->watched);
    settle(it);
    if (it->cancel)
        mr_iterator_cancel(it);
    mr_iter_close(it->root);
    mr__run_end_functions(&it->run);
    if (it->run.own_executor)
        mr_executor_free(it->run.executor);
    mr_cancel_unref(it->run.cancel);
    mr_cancel_unref(it->cancel);
    mr_dataset_unref(it->instance);
    mr_dataset_unref(it->run.graph);
    mr__stats_reset(&it->run.stats);
    mr__memory_stop(&it->run.memory);
    pthread_mutex_destroy(&it->run.lock);
    mr_buffer_unref(it->before);
    mr_buffer_unref(it->after);
    mr__scope_reset(&it->run.scope);
    mr_free(it->signature);
    mr_free(it->outline);
    mr_free(it->run.cache);
    mr_free(it);
}

const mr_spec *mr_iterator_spec(const mr_iterator *it)
{
    return mr_dataset_spec(it->instance);
}

size_t mr_iterator_stats(mr_iterator *it, mr_op_stats *out, size_t capacity)
{
    if (it->run.forks != mr__forks())
        return 0;
    return mr__stats_read(&it->run.stats, out, capacity);
}

size_t mr_iterator_tuning(mr_iterator *it, mr_op_tuning *out, size_t capacity)
{
    if (it->run.forks != mr__forks())
        return 0;
    return mr__stats_read_tuning(&it->run.stats, out, capacity);
}

size_t mr_iterator_trace(mr_iterator *it, mr_op_span *out, size_t capacity, double *left_out)
{
    *left_out = 0;
    if (it->run.forks != mr__forks())
        return 0;
    return mr__stats_read_trace(&it->run.stats, out, capacity, left_out);
}

double mr_iterator_trace_begin(const mr_iterator *it)
{
    return it->run.stats.start_seconds;
}
