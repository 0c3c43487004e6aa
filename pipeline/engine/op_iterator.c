/* SPDX-License-Identifier: Apache-2.0 */
/* One iterator per node: opens, pulls, delivers rows and errors in their order, closes. */
#include "pipeline/engine/op_iterator.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/run.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/system/callback_code.h"

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
        const char *name = up && i->priv->place != SIZE_MAX
                               ? mr__dataset_input_name(up->node, i->priv->place)
                               : NULL;
        if (name)
            k = snprintf(buf + used, size - used, "[%s]/%s", name, i->op->name);
        else if (up && up->n_inputs > 1 && i->priv->place != SIZE_MAX)
            k = snprintf(buf + used, size - used, "[%zu]/%s", i->priv->place, i->op->name);
        else
            k = snprintf(buf + used, size - used, "%s%s", up ? "/" : "", i->op->name);
        used += k > 0 ? (size_t)k : 0;
    }
}

void mr__iter_set_undo(mr_iter *it, void (*undo)(mr_iter *it))
{
    it->priv->undo = undo;
}

/* So that the next try to open it is not the one after it. */
static void undo_open(mr_iter *it)
{
    for (size_t i = 0; i < it->n_inputs; i++)
        if (it->inputs[i])
            undo_open(it->inputs[i]);
    if (it->priv->undo)
        it->priv->undo(it);
    if (it->priv->in_scope)
        mr__scope_unopened(it->run, it->priv->scope, it->priv->number);
}

mr_code mr__iter_open(mr_run *run, const mr__place *place, mr_dataset *node, mr_iter **out,
                      mr_status *st)
{
    mr_code rc = mr_dataset_check(node, st);
    if (rc == MR_OK && !mr_dataset_op(node)->next)
        rc = mr_fail(st, MR_FAILED_PRECONDITION, "op %s has no next", mr_dataset_op(node)->name);
    if (rc != MR_OK) {
        if (place->owns_scope)
            mr__scope_free(place->scope);
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
            mr__scope_free(place->scope);
        return mr_fail_memory(st, bytes, "an iterator");
    }
    mr_iter *it = (mr_iter *)memory;
    struct mr_iter_private *p = (struct mr_iter_private *)(memory + priv_at);
    memset(it, 0, sizeof *it);
    memset(
        p, 0,
        offsetof(struct mr_iter_private, error)); /* the status is large: copied only when used */
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
    const mr__origin origin = mr__dataset_origin(node);
    p->in_graph = origin.has_place ? origin.place : place->in_graph;
    p->has_seed = origin.has_seed || (parent && parent->priv->has_seed);
    p->seed = origin.has_seed ? origin.seed : p->has_seed ? parent->priv->seed : 0;
    p->scope = place->scope;
    p->owns_scope = place->owns_scope;
    p->number = place->number;
    p->again = parent ? !place->owns_scope &&
                            (parent->priv->again || mr__dataset_opens_later(parent->node))
                      : run->internal.opened_again;
    p->names = place->names ? place->names : parent ? parent->priv->names : MR__NAMES_GIVEN;
    p->in_turn = parent ? parent->priv->in_turn : 1;
    if (parent && p->place == SIZE_MAX && parent->priv->takes &&
        __builtin_mul_overflow(p->in_turn, parent->priv->takes, &p->in_turn))
        p->in_turn = SIZE_MAX;
    p->most_rows = mr__iter_counts_exactly(p, node) ? 1 : (size_t)run->opts.block_rows;
    p->inner = parent && (place->input == SIZE_MAX || parent->priv->inner);
    p->guarded = parent && run->memory.limit &&
                 (parent->priv->inner ? mr__memory_guards_inner : mr__memory_guards)(parent->node);
    it->source = mr__scope_source(p->scope, p->number);
    if (op->props & MR_OP_NO_REPLAY)
        mr_iter_set_no_replay(it);
    if (op->props & MR_OP_MAY_BLOCK)
        mr_iter_set_may_block(it);
    mr_iter_work work;
    mr_iter_work_begin(it, &work);
    p->counters = mr__stats_of(&run->stats, parent != NULL, parent ? parent->priv->counters : NULL,
                               it, p->place, &p->owns_counters);
    if (n == 0 && p->scope) {
        rc = mr__scope_opened(run, p->scope, p->number, &p->epoch, st);
        p->in_scope = rc == MR_OK;
    }
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
    mr__iter_work_end(it, &work);
    if (rc != MR_OK) {
        undo_open(it);
        mr_iter_close(it);
        return rc;
    }
    p->running = true;
    *out = it;
    return MR_OK;
}

uint64_t mr__iter_first_source(const mr_iter *it, size_t i)
{
    return it->priv->number + mr__dataset_sources_before(it->node, i);
}

mr_code mr_iter_open_input(mr_iter *it, size_t i, mr_status *st)
{
    mr_iter_close_input(it, i);
    const struct mr_iter_private *p = it->priv;
    const mr__place place = {.parent = it,
                             .input = i,
                             .in_graph = mr__dataset_input_place(it->node, p->in_graph, i),
                             .scope = p->scope,
                             .number = mr__iter_first_source(it, i)};
    mr_code rc = mr__iter_open(it->run, &place, mr_dataset_input(it->node, i), &it->inputs[i], st);
    if (rc < 0 && p->running) /* in mid-stream: it would fail again at each pull */
        mr_status_of_no_element(st);
    return rc;
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

void mr__iter_drop_pending(struct mr_iter_private *p)
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
    mr__iter_drop_pending(it->priv);
    mr_iter_set_records(it, false);
    if (it->priv->owns_scope)
        mr__scope_free(it->priv->scope);
    if (it->priv->owns_counters)
        mr__stats_disown(it->priv->counters);
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
        const mr_status *e = &p->errors.v[p->error_at].status;
        rc = e->code;
        if (st)
            *st = *e;
        if (mr_status_is_of_no_element(e) && e->sys_errno != ENOMEM)
            return rc; /* the iterator stays failed here */
        p->error_at++;
    }
    if (p->at == p->rows.rows && p->error_at == p->errors.n)
        mr__iter_drop_pending(p);
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

void mr_iter_dropped(mr_iter *it)
{
    struct mr_iter_private *p = it->priv;
    p->dropped++;
    if (p->counters)
        MR__COUNT(p->counters, dropped, p->owns_counters, 1);
}

uint64_t mr_iter_n_dropped(const mr_iter *it)
{
    return it->priv->dropped;
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
    /* If the block has several rows, one of them makes it much larger than usual. */
    if (limited && (b->rows == 1 || bytes > MR__LARGE_BLOCK))
        mr__memory_made(it, bytes, 0);
    if (!c)
        return;
    bool alone = it->priv->owns_counters;
    MR__COUNT(c, elements, alone, b->rows);
    MR__COUNT(c, blocks, alone, 1);
    MR__COUNT(c, bytes, alone, bytes);
}

/* An error of the op itself names its path, and the element unless it is a source's record: then
 * true. */
static bool name_element(const mr_iter *it, uint64_t element, mr_code rc, mr_status *st)
{
    char path[sizeof st->op];
    bool own = !st->op[0] && it->n_inputs > 0; /* not an input's; sources name records */
    iter_path(it, path, sizeof path);
    mr_status_set_op(st, path);
    own = own && !mr_status_is_of_no_element(st) && rc != MR_CANCELLED;
    if (own)
        mr_status_set_element(st, (int64_t)element);
    return own;
}

static void name_place(mr_iter *it, mr_code rc, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    p->delivered += name_element(it, p->delivered, rc, st);
}

/* A permanent error of no element: the iterator stays failed, so that no op takes what follows for
 * the end. A lack of memory is temporary. */
static void stay_failed(mr_iter *it, mr_code rc, const mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    if (!mr_status_is_of_no_element(st) || st->sys_errno == ENOMEM || rc == MR_CANCELLED)
        return;
    p->failed = true;
    p->error = *st;
}

static mr_code fail_again(const mr_iter *it, mr_status *st)
{
    *st = it->priv->error;
    return st->code;
}

mr_code mr__iter_next_rows(mr_iter *it, size_t want, mr_block *b, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    if (p->pending)
        return deliver_pending(it, want, b, st);
    if (!p->deferred)
        return it->op->next(it, want, b, st);
    p->deferred = false;
    *st = p->error;
    return st->code;
}

mr_code mr_iter_next(mr_iter *it, size_t want, mr_block *b, mr_status *st)
{
    struct mr_iter_private *p = it->priv;
    mr_status own; /* ops always have a status, to tell errors of no element by */
    if (!st)
        st = &own;
    mr_block_clear(b);
    if (mr_iter_cancelled(it))
        return mr_iter_fail_cancelled(st);
    if (p->failed)
        return fail_again(it, st);
    if (p->guarded)
        MR_TRY(mr__memory_check(p->parent, st));
    if (want == 0)
        want = 1;
    size_t most = p->most_rows;
    if (most && want > most)
        want = most;
    mr_iter_work work;
    mr_iter_work_begin(it, &work);
    mr_code rc =
        p->ended && !p->pending && !p->deferred ? MR_END : mr__iter_next_rows(it, want, b, st);
    if (rc != MR_OK) {
        mr_block_clear(b);
        if (rc == MR_END)
            p->ended = !p->goes_on;
        else {
            rc = mr__callback_step(rc, "next", st); /* of an op of a plugin */
            if (rc == MR_CANCELLED)                 /* no op may count it */
                mr_status_of_no_element(st);
            name_place(it, rc, st);
            stay_failed(it, rc, st);
        }
    }
    assert(rc != MR_OK || (b->rows >= 1 && b->rows <= want));
    p->delivered += b->rows;
    count(it, b);
    mr__iter_work_end(it, &work);
    return rc;
}

void mr__iter_set_goes_on(mr_iter *it)
{
    it->priv->goes_on = true;
}

bool mr__iter_goes_on(const mr_iter *it)
{
    return it->priv->goes_on;
}

mr_code mr_iter_pull(mr_iter *it, size_t i, size_t want, mr_block *b, mr_status *st)
{
    return mr_iter_next(it->inputs[i], want, b, st);
}

/* Errors of skipped elements come up, unless reading them is what is to be saved. */
static bool must_produce(const mr_dataset *ds)
{
    uint32_t props = mr__dataset_all_props(ds);
    return (props & MR_OP_MAY_FAIL) && !(props & MR_OP_LATE_COUNT);
}

bool mr_iter_skips_input(const mr_iter *it, size_t i)
{
    const mr_dataset *input = mr_dataset_input(it->node, i);
    return !must_produce(input) && mr_dataset_indexed(input, NULL) == MR_OK;
}

mr_code mr_iter_skip_input(mr_iter *it, size_t i, uint64_t n, uint64_t *skipped, mr_status *st)
{
    mr_iter *input = it->inputs[i];
    struct mr_iter_private *p = input->priv;
    mr_status own;
    if (!st)
        st = &own;
    *skipped = 0;
    if (!input->op->skip || p->pending || p->deferred || p->ended || p->failed ||
        must_produce(input->node))
        return MR_OK;
    mr_iter_work work;
    mr_iter_work_begin(input, &work);
    mr_code rc = input->op->skip(input, n, skipped, st);
    p->delivered += *skipped;
    if (rc != MR_OK) {
        name_place(input, rc, st);
        stay_failed(input, rc, st);
    }
    mr__iter_work_end(input, &work);
    return rc;
}

mr_code mr__iter_at(mr_iter *it, const uint64_t *index, size_t n, mr_block *b, mr_status *st)
{
    const struct mr_iter_private *p = it->priv;
    mr_status own;
    assert(n >= 1);
    if (!st)
        st = &own;
    mr_block_clear(b);
    if (mr_iter_cancelled(it))
        return mr_iter_fail_cancelled(st);
    if (p->guarded)
        MR_TRY(mr__memory_check(p->parent, st));
    if (p->most_rows && n > p->most_rows)
        n = p->most_rows;
    mr_iter_work work;
    mr_iter_work_begin(it, &work);
    mr_code rc = it->op->at(it, index, n, b, st);
    assert(rc != MR_OK || (b->rows >= 1 && b->rows <= n));
    if (rc != MR_OK) {
        mr_block_clear(b);
        if (rc == MR_CANCELLED)
            mr_status_of_no_element(st);
        name_element(it, index[0], rc, st);
    }
    count(it, b);
    mr__iter_work_end(it, &work);
    return rc;
}
