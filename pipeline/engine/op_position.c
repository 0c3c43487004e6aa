/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and restoring iterators. position.c has the encoding of numbers and blocks. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/position.h"
#include "pipeline/engine/run.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/graph/origin_internal.h"

/* One iterator:
 *   op's name (bytes)
 *   flags     1 ended, 2 an error is due, 4 rows are pending, 8 shared state follows, 16 it dropped
 *             elements
 *   epoch; 0 except for a source
 *   elements delivered
 *   [number of dropped elements] if 16
 *   [status] if 2
 *   [block, number of errors, (row, status)...] if 4
 *   [op's shared state] if 8
 *   the op's state, or that of its inputs if it has none
 * An open input: flag 1 and its state. A closed one: flag 2, the shared states below it, and how
 * often the sources below it were opened: the number of opened ones, (index of the source below the
 * input, times)... 0.1 wrote flag 0, and no shared state of `distribute`. Flag 3: a closed one with
 * a mixture below it; the same, but each shared state is a part that follows the place of its node,
 * so that it can be found in another mixture. */

enum { ENDED = 1, DEFERRED = 2, PENDING = 4, SHARED = 8, DROPPED = 16 };
enum { CLOSED_IN_0_1, OPEN, CLOSED, CLOSED_MIXED };

/* Puts rows before the pending ones, in one block. */
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
                                (p->pending ? PENDING : 0) | (shared ? SHARED : 0) |
                                (p->dropped ? DROPPED : 0),
                            st));
    MR_TRY(mr_state_put_u64(w, p->epoch, st));
    MR_TRY(mr_state_put_u64(w, p->delivered, st));
    if (p->dropped)
        MR_TRY(mr_state_put_u64(w, p->dropped, st));
    if (p->deferred)
        MR_TRY(mr_state_put_status(w, &p->error, st));
    if (p->pending)
        MR_TRY(mr__state_put_rows_errors(w, &p->rows, p->at, &p->errors, p->error_at, st));
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
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the position belongs to another graph: it has '%.*s' where this one has '%s'",
            (int)(n > 64 ? 64 : n), (const char *)name, it->op->name);
    MR_TRY(mr_state_get_u64(r, &flags, st));
    MR_TRY(mr_state_get_u64(r, &p->epoch, st));
    MR_TRY(mr_state_get_u64(r, &p->delivered, st));
    if (it->n_inputs == 0 && p->scope)
        MR_TRY(mr__scope_set(it->run, p->scope, p->number, p->epoch + 1, st));
    bool shared = it->op->restore_shared != NULL;
    /* Shared state may be missing: 0.1 had none of some ops. */
    if (flags > (ENDED | DEFERRED | PENDING | SHARED | DROPPED) || (!shared && (flags & SHARED)))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: flags %" PRIu64, flags);
    p->dropped = 0;
    if (flags & DROPPED)
        MR_TRY(mr_state_get_u64(r, &p->dropped, st));
    mr__iter_drop_pending(p);
    p->failed = p->counted = false;
    p->ended = (flags & ENDED) && !mr__iter_may_go_on(it);
    p->deferred = flags & DEFERRED;
    if (p->deferred)
        MR_TRY(mr_state_get_status(r, &p->error, st));
    if (flags & PENDING)
        MR_TRY(mr__state_get_rows_errors(r, it->spec, &p->rows, &p->errors, st));
    p->pending = flags & PENDING;
    if (flags & SHARED)
        MR_TRY(it->op->restore_shared(it->node, r, st));
    if (it->op->restore)
        return it->op->restore(it, r, st);
    for (size_t i = 0; i < it->n_inputs; i++)
        MR_TRY(mr_iter_restore_input(it, i, r, st));
    return MR_OK;
}

/* Saves the shared states of node and the nodes below it to w, each node once and after its inputs;
 * w NULL: restores them from r. */
static mr_code each_shared(mr_dataset *node, mr_state_w *w, mr_state_r *r, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(node, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++) {
        const mr_op *op = mr_dataset_op(nodes.v[i]);
        if (w && op->save_shared)
            rc = op->save_shared(nodes.v[i], w, st);
        else if (!w && op->restore_shared)
            rc = op->restore_shared(nodes.v[i], r, st);
    }
    mr__nodes_reset(&nodes);
    return rc;
}

/* The nodes below an input that have shared states, and their places. */
typedef struct shared_nodes {
    mr__nodes nodes;
    uint64_t *places; /* of each node; NULL: no memory */
    size_t n;         /* nodes with a shared state */
} shared_nodes;

static void shared_nodes_reset(shared_nodes *x)
{
    mr__nodes_reset(&x->nodes);
    mr_free(x->places);
}

/* A node with several places has that of its first user from the sink. */
static mr_code shared_nodes_of(const mr_iter *it, size_t i, shared_nodes *x, mr_status *st)
{
    size_t inputs = 0;
    *x = (shared_nodes){0};
    MR_TRY(mr__nodes_of(mr_dataset_input(it->node, i), &x->nodes, st));
    const mr__nodes *all = &x->nodes;
    x->places = mr_calloc(all->n, sizeof *x->places);
    if (!x->places) {
        shared_nodes_reset(x);
        return mr_fail_memory(st, all->n * sizeof *x->places, "a position");
    }
    for (size_t k = 0; k < all->n; k++) {
        inputs += mr_dataset_n_inputs(all->v[k]);
        x->n += mr_dataset_op(all->v[k])->save_shared != NULL;
    }
    x->places[all->n - 1] = mr__dataset_input_place(it->node, it->priv->in_graph, i);
    for (size_t k = all->n; k-- > 0;) {
        size_t n = mr_dataset_n_inputs(all->v[k]);
        inputs -= n;
        for (size_t m = 0; m < n; m++) {
            uint64_t *place = &x->places[all->inputs[inputs + m]];
            if (!*place)
                *place = mr__dataset_input_place(all->v[k], x->places[k], m);
        }
    }
    return MR_OK;
}

static mr_code put_shared(void *node, mr_state_w *w, mr_status *st)
{
    return mr_dataset_op(node)->save_shared(node, w, st);
}

static mr_code get_shared(void *node, mr_state_r *r, mr_status *st)
{
    return mr_dataset_op(node)->restore_shared(node, r, st);
}

static mr_code save_mixed(mr_iter *it, size_t i, mr_state_w *w, mr_status *st)
{
    shared_nodes x;
    MR_TRY(shared_nodes_of(it, i, &x, st));
    mr_code rc = mr_state_put_u64(w, x.n, st);
    for (size_t k = 0; k < x.nodes.n && rc == MR_OK; k++) {
        if (!mr_dataset_op(x.nodes.v[k])->save_shared)
            continue;
        rc = mr_state_put_u64(w, x.places[k], st);
        if (rc == MR_OK)
            rc = mr__state_put_part(w, put_shared, x.nodes.v[k], st);
    }
    shared_nodes_reset(&x);
    return rc;
}

static mr_code restore_shared_at(const mr_iter *it, const shared_nodes *x, mr_state_r *r,
                                 mr_status *st)
{
    uint64_t place;
    const void *bytes;
    size_t n;
    MR_TRY(mr_state_get_u64(r, &place, st));
    MR_TRY(mr_state_get_bytes(r, &bytes, &n, st));
    for (size_t k = 0; k < x->nodes.n; k++)
        if (x->places[k] == place && mr_dataset_op(x->nodes.v[k])->restore_shared)
            return mr__state_get_part(r, bytes, n, get_shared, x->nodes.v[k], st);
    return it->run->by_name ? MR_OK : mr_state_damaged(st, "the state of an op of another graph");
}

static mr_code restore_mixed(mr_iter *it, size_t i, mr_state_r *r, mr_status *st)
{
    shared_nodes x;
    uint64_t n;
    MR_TRY(mr_state_get_u64(r, &n, st));
    MR_TRY(shared_nodes_of(it, i, &x, st));
    mr_code rc = MR_OK;
    for (uint64_t k = 0; k < n && rc == MR_OK; k++)
        rc = restore_shared_at(it, &x, r, st);
    shared_nodes_reset(&x);
    return rc;
}

mr_code mr_iter_save_input(mr_iter *it, size_t i, mr_state_w *w, mr_status *st)
{
    mr_dataset *node = mr_dataset_input(it->node, i);
    bool mixed = mr__dataset_is_mixed(node);
    MR_TRY(mr_state_put_u64(w, it->inputs[i] ? OPEN : mixed ? CLOSED_MIXED : CLOSED, st));
    if (it->inputs[i])
        return mr_iter_save(it->inputs[i], w, st);
    MR_TRY(mixed ? save_mixed(it, i, w, st) : each_shared(node, w, NULL, st));
    return mr__scope_save(it->run, it->priv->scope, mr__iter_first_source(it, i),
                          mr__dataset_n_sources(node), w, st);
}

mr_code mr_iter_restore_input(mr_iter *it, size_t i, mr_state_r *r, mr_status *st)
{
    uint64_t open;
    MR_TRY(mr_state_get_u64(r, &open, st));
    if (open > CLOSED_MIXED)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: input flag %" PRIu64, open);
    mr_iter_close_input(it, i);
    if (open != OPEN) {
        mr_dataset *node = mr_dataset_input(it->node, i);
        bool mixed = open == CLOSED_MIXED;
        r->is_of_0_1 = open == CLOSED_IN_0_1;
        MR_TRY(mixed ? restore_mixed(it, i, r, st) : each_shared(node, NULL, r, st));
        /* The numbers of another mixture's sources say nothing about ours. */
        bool other = mixed && it->run->by_name;
        return mr__scope_restore(it->run, other ? NULL : it->priv->scope,
                                 mr__iter_first_source(it, i),
                                 other ? UINT64_MAX : mr__dataset_n_sources(node), r, st);
    }
    MR_TRY(mr_iter_open_input(it, i, st));
    return mr_iter_restore(it->inputs[i], r, st);
}

bool mr__iter_restores_by_name(const mr_iter *it)
{
    return it->run->by_name;
}

bool mr__iter_may_go_on(const mr_iter *it)
{
    return it->run->by_name && it->run->internal.elastic && mr__dataset_is_mixed(it->node);
}

bool mr__iter_speaks(const mr_iter *it)
{
    return !it->run->internal.restores_silently;
}

mr_code mr_iter_position(mr_iter *it, mr_buffer **position, mr_status *st)
{
    *position = NULL;
    if (!mr_iter_keeps_positions(it))
        return MR_OK;
    mr_state_w w = {.ledger = it->run->opts.ledger};
    mr_code rc = mr_iter_save(it, &w, st);
    if (rc == MR_OK)
        rc = mr__state_put_names(&w, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(position, w.size, st);
    if (rc == MR_OK)
        memcpy(mr_buffer_data(*position), w.data, w.size);
    mr__state_w_reset(&w);
    return rc;
}

mr_code mr_iter_restore_position(mr_iter *it, const void *bytes, size_t n, mr_status *st)
{
    mr_state_r r = {.at = bytes, .end = (const unsigned char *)bytes + n, .graph = it->run->graph};
    MR_TRY(mr_iter_restore(it, &r, st));
    if (r.at != r.end)
        MR_TRY(mr__state_get_names(&r, it->run->opts.ledger, st));
    if (r.at != r.end)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: %zu bytes are left over",
                       (size_t)(r.end - r.at));
    return MR_OK;
}
