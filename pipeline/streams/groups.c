/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/groups.h"
#include "pipeline/engine/memory_limit.h"
#include "pipeline/engine/op_inner_datasets.h"
#include "pipeline/engine/position.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct mr__group {
    int64_t key;
    uint64_t size;   /* rows of a full one */
    uint32_t *slots; /* n of them */
    size_t n, capacity;
};

enum { SCANNED = 64, MOST_GROUPS = 1 << 30, SAVE_ROWS = 1024 };

/* ---- the groups ---- */

static uint64_t hash_of(int64_t key)
{
    return (uint64_t)key * 0x9E3779B97F4A7C15u;
}

static bool same_key(const void *groups, size_t place, const void *key)
{
    return ((const mr__group *)groups)[place].key == *(const int64_t *)key;
}

static size_t place_of(const mr__groups *g, int64_t key)
{
    return mr__hash_find(&g->index, hash_of(key), same_key, g->groups, &key);
}

static mr_code add_group(mr__groups *g, int64_t key, uint64_t size, size_t *at, mr_status *st)
{
    MR_TRY(MR_GROW(g->groups, g->capacity, g->n + 1, MOST_GROUPS, "groups", st));
    MR_TRY(mr__hash_add(&g->index, hash_of(key), g->n, "groups", st));
    *at = g->n;
    g->groups[g->n++] = (mr__group){.key = key, .size = size};
    return MR_OK;
}

/* The group of a key, created if it is new. */
static mr_code group_of(mr__groups *g, int64_t key, size_t *at, mr_status *st)
{
    *at = place_of(g, key);
    if (*at != MR__NO_PLACE)
        return MR_OK;
    int64_t size;
    MR_TRY(g->ops->size(g->it, key, &size, st));
    if (size < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the size of a window must be at least 1, found %" PRId64
                       " for the key %" PRId64,
                       size, key);
    return add_group(g, key, (uint64_t)size, at, st);
}

/* The minimum number of further rows before a group can be full. */
static size_t rows_to_full(mr__groups *g)
{
    if (g->bound)
        return g->bound;
    uint64_t least = (uint64_t)g->least_size;
    if (g->n > SCANNED)
        least = 1;
    for (size_t i = 0; least > 1 && i < g->n; i++) {
        uint64_t left = g->groups[i].size - g->groups[i].n;
        least = left < least ? left : least;
    }
    return g->bound = least < SIZE_MAX / 4 ? (size_t)least : SIZE_MAX / 4;
}

/* ---- a group becomes a dataset ---- */

static mr_code open_made(mr__groups *g, mr_dataset *made, const mr_block *rows, mr_status *st)
{
    mr_identities ids = {0};
    mr_code rc = mr_identities_group(&ids, &rows->ids, rows->rows, rows->rows, st);
    if (rc == MR_OK)
        rc = mr_iter_open_dataset(g->it, made, ids.ids ? &ids : NULL, &g->inner, st);
    mr_identities_reset(&ids);
    return rc;
}

/* Makes the dataset of g->rows and g->key, and opens it. */
static mr_code open_rows(mr__groups *g, mr_status *st)
{
    mr_dataset *made = NULL;
    mr_code rc = g->ops->make(g->it, g->key, &g->rows, &made, st);
    if (rc == MR_OK)
        rc = open_made(g, made, &g->rows, st);
    mr_dataset_unref(made);
    return rc;
}

/* Opens the due group. After an error of no element it stays due; another error replaces it. */
static mr_code open_due(mr__groups *g, mr_status *st)
{
    mr__group *p = &g->groups[g->due - 1];
    mr_status error;
    g->key = p->key;
    mr_code rc = MR_OK;
    if (mr__row_store_fits(&g->store, p->slots, p->n) < p->n)
        rc = mr_fail(&error, MR_INVALID_ARGUMENT,
                     "the elements of a window must have the same number of axes (key %" PRId64 ")",
                     p->key);
    if (rc == MR_OK)
        rc = mr__row_store_copy(&g->store, p->slots, p->n, &g->rows, &error);
    if (rc == MR_OK)
        rc = open_rows(g, &error);
    if (rc != MR_OK) {
        mr_block_clear(&g->rows);
        if (st)
            *st = error;
        if (mr_status_is_of_no_element(&error) || rc == MR_CANCELLED)
            return rc;
    }
    mr__row_store_drop(&g->store, p->slots, p->n);
    p->n = 0;
    g->due = 0;
    return rc;
}

static void close_inner(mr__groups *g)
{
    mr_iter_close(g->inner);
    g->inner = NULL;
    mr_block_clear(&g->rows);
}

/* ---- taking elements in ---- */

/* The numbers of the cursor's rows. */
static mr_code look(mr__groups *g, mr_status *st)
{
    mr_block in = MR_BLOCK_EMPTY;
    size_t left = mr__cursor_left(&g->input);
    mr_row_errors_reset(&g->errors);
    mr_code rc =
        mr_block_slice(&in, mr__cursor_rows(&g->input), mr__cursor_at(&g->input), left, st);
    if (rc == MR_OK)
        rc = mr_program_run(g->program, &in, &g->numbers, &g->errors, st);
    mr_block_reset(&in);
    g->failed = 0;
    if (rc == MR_OK && g->numbers.rows &&
        (g->numbers.columns[0].storage != MR_DENSE || g->numbers.columns[0].rank != 0)) {
        int rank = g->numbers.columns[0].rank;
        mr__cursor_use(&g->input, left);
        return mr_fail(st, MR_INVALID_ARGUMENT, "a key must be a scalar, found one of rank %d",
                       rank);
    }
    if (rc == MR_OK)
        g->looked = left;
    return rc;
}

static mr_code key_at(mr__groups *g, size_t good, int64_t *key, mr_status *st)
{
    int64_t number = ((const int64_t *)g->numbers.columns[0].data)[good];
    *key = number;
    return g->ops->key ? g->ops->key(g->it, number, key, st) : MR_OK;
}

/* Counts rows for their groups until a group is full or a row has an error: *n rows, with groups
 * g->to. Nothing is stored yet. */
static mr_code sort_rows(mr__groups *g, size_t first_good, size_t most, size_t *n, mr_status *st)
{
    mr_code rc = MR_GROW(g->to, g->to_capacity, most, UINT32_MAX, "groups", st);
    for (*n = 0; rc == MR_OK && *n < most && !g->due;) {
        int64_t key;
        size_t at;
        rc = key_at(g, first_good + *n, &key, st);
        if (rc == MR_OK)
            rc = group_of(g, key, &at, st);
        if (rc != MR_OK)
            break;
        mr__group *p = &g->groups[at];
        rc = MR_GROW(p->slots, p->capacity, p->n + 1, UINT32_MAX, "a group", st);
        if (rc != MR_OK)
            break;
        g->to[(*n)++] = (uint32_t)at;
        if (++p->n == p->size)
            g->due = at + 1;
    }
    return rc;
}

/* Assigns slots to the counted rows; on failure they are no longer counted. */
static mr_code store_rows(mr__groups *g, size_t n, mr_status *st)
{
    mr_code rc = MR_GROW(g->slots, g->slots_capacity, n, UINT32_MAX, "groups", st);
    if (rc == MR_OK && n)
        rc = mr__row_store_put(&g->store, mr__cursor_rows(&g->input), mr__cursor_at(&g->input), n,
                               g->slots, st);
    for (size_t i = n; i-- > 0;) { /* from the last on: a group's last counted slot is this one's */
        mr__group *p = &g->groups[g->to[i]];
        p->n--;
    }
    for (size_t i = 0; rc == MR_OK && i < n; i++) {
        mr__group *p = &g->groups[g->to[i]];
        p->slots[p->n++] = g->slots[i];
    }
    if (rc != MR_OK)
        g->due = 0;
    return rc;
}

/* Adds rows up to a full group or an error, which replaces its row. */
static mr_code take_in(mr__groups *g, mr_status *st)
{
    if (g->looked == 0)
        MR_TRY(look(g, st));
    size_t left = mr__cursor_left(&g->input), done = g->looked - left, n = 0;
    bool fails = g->failed < g->errors.n;
    size_t most = fails ? g->errors.v[g->failed].row - done : left;
    mr_status error;
    mr_code rc = most ? sort_rows(g, done - g->failed, most, &n, &error) : MR_OK;
    bool of_row = rc != MR_OK && !mr_status_is_of_no_element(&error) && rc != MR_CANCELLED;
    if (rc != MR_OK && !of_row && n == 0) {
        if (st)
            *st = error;
        return rc;
    }
    MR_TRY(store_rows(g, n, st));
    size_t used = n;
    if (of_row)
        used++;
    else if (rc == MR_OK && n == most && fails && !g->due) {
        error = g->errors.v[g->failed++].status;
        rc = error.code;
        used++;
    } else
        rc = MR_OK;
    if (of_row)
        rc = error.code;
    mr__cursor_use(&g->input, used);
    g->bound = g->due || g->bound <= used ? 0 : g->bound - used;
    if (mr__cursor_left(&g->input) == 0)
        g->looked = 0;
    if (rc != MR_OK && st)
        *st = error;
    return rc;
}

static int by_key(const void *a, const void *b)
{
    int64_t x = ((const mr__group *)a)->key, y = ((const mr__group *)b)->key;
    return (x > y) - (x < y);
}

static void end_input(mr__groups *g)
{
    g->ended = true;
    if (g->n)
        qsort(g->groups, g->n, sizeof *g->groups, by_key);
}

/* Makes the first remaining group due; MR_END: none is left. Groups are sorted now, and their
 * index is not used. */
static mr_code next_left(mr__groups *g)
{
    while (g->passed < g->n && g->groups[g->passed].n == 0)
        g->passed++;
    if (g->passed == g->n)
        return MR_END;
    g->due = g->passed + 1;
    return MR_OK;
}

/* ---- slots ---- */

mr_code mr__groups_open(mr__groups *g, mr_iter *it, const mr__grouper *ops, mr_fn *number,
                        int64_t least_size, mr_status *st)
{
    g->it = it;
    g->ops = ops;
    g->least_size = least_size < 1 ? 1 : least_size;
    mr__memory_guard(it);
    return mr_iter_program(it, number, mr_iter_input_spec(it, 0), &g->program, st);
}

mr_code mr__groups_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__groups *g = it->state;
    for (;;) {
        if (g->inner) {
            mr_code rc = mr_iter_next(g->inner, want, out, st);
            if (rc != MR_END)
                return rc;
            close_inner(g);
        }
        if (mr_iter_cancelled(it))
            return mr_iter_fail_cancelled(st);
        if (!g->due && g->ended)
            MR_TRY(next_left(g));
        if (g->due) {
            MR_TRY(open_due(g, st));
            continue;
        }
        if (mr__cursor_left(&g->input) == 0) {
            mr_code rc = mr__cursor_pull(it, 0, rows_to_full(g), &g->input, NULL, st);
            if (rc == MR_END)
                end_input(g);
            if (rc < 0)
                return rc;
        }
        if (!g->ended)
            MR_TRY(take_in(g, st));
    }
}

static void clear(mr__groups *g)
{
    if (g->inner)
        close_inner(g);
    for (size_t i = 0; i < g->n; i++)
        mr_free(g->groups[i].slots);
    g->n = 0;
    mr__hash_reset(&g->index);
    mr__row_store_reset(&g->store);
    mr_block_clear(&g->rows);
    mr_block_clear(&g->numbers);
    mr_row_errors_reset(&g->errors);
    g->looked = g->failed = g->bound = g->due = g->passed = 0;
    g->ended = false;
}

void mr__groups_close(mr_iter *it)
{
    mr__groups *g = it->state;
    clear(g);
    mr__cursor_reset(&g->input);
    mr_block_reset(&g->rows);
    mr_block_reset(&g->numbers);
    mr_free(g->groups);
    mr_free(g->slots);
    mr_free(g->to);
    mr_program_unref(g->program);
}

/* ---- positions ----
 *   input ended; number of groups, each: key, size, number of rows, the rows in blocks
 *   0, or 1 and the current group: key, rows (a block), the inner iterator
 *   the input */

static mr_code save_rows(mr__groups *g, const mr__group *p, mr_state_w *w, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (size_t at = 0; at < p->n && rc == MR_OK;) {
        size_t left = p->n - at, k = left < SAVE_ROWS ? left : SAVE_ROWS;
        k = mr__row_store_fits(&g->store, p->slots + at, k);
        rc = mr__row_store_copy(&g->store, p->slots + at, k, &b, st);
        if (rc == MR_OK)
            rc = mr_state_put_block(w, &b, st);
        at += k;
    }
    mr_block_reset(&b);
    return rc;
}

mr_code mr__groups_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    mr__groups *g = it->state;
    MR_TRY(mr_state_put_u64(w, g->ended, st));
    MR_TRY(mr_state_put_u64(w, g->n, st));
    for (size_t i = 0; i < g->n; i++) {
        const mr__group *p = &g->groups[i];
        MR_TRY(mr_state_put_i64(w, p->key, st));
        MR_TRY(mr_state_put_u64(w, p->size, st));
        MR_TRY(mr_state_put_u64(w, p->n, st));
        MR_TRY(save_rows(g, p, w, st));
    }
    MR_TRY(mr_state_put_u64(w, g->inner != NULL, st));
    if (g->inner) {
        MR_TRY(mr_state_put_i64(w, g->key, st));
        MR_TRY(mr_state_put_block(w, &g->rows, st));
        MR_TRY(mr_iter_save(g->inner, w, st));
    }
    return mr__cursor_save(it, 0, &g->input, 0, w, st);
}

static mr_code restore_rows(mr__groups *g, mr__group *p, uint64_t n, mr_state_r *r, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (p->n < n && rc == MR_OK) {
        rc = mr_state_get_block(r, mr_iter_input_spec(g->it, 0), &b, st);
        if (rc == MR_OK && (b.rows == 0 || b.rows > n - p->n))
            rc = mr_state_damaged(st, "a group has another number of rows");
        if (rc == MR_OK)
            rc = MR_GROW(p->slots, p->capacity, p->n + b.rows, UINT32_MAX, "a group", st);
        if (rc == MR_OK)
            rc = mr__row_store_put(&g->store, &b, 0, b.rows, p->slots + p->n, st);
        if (rc == MR_OK)
            p->n += b.rows;
    }
    mr_block_reset(&b);
    return rc;
}

static mr_code restore_group(mr__groups *g, mr_state_r *r, mr_status *st)
{
    int64_t key;
    uint64_t size, n;
    size_t at;
    MR_TRY(mr_state_get_i64(r, &key, st));
    MR_TRY(mr_state_get_u64(r, &size, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (size < 1 || n > size || place_of(g, key) != MR__NO_PLACE)
        return mr_state_damaged(st, "an invalid group");
    MR_TRY(add_group(g, key, size, &at, st));
    MR_TRY(restore_rows(g, &g->groups[at], n, r, st));
    if (n == size)
        g->due = at + 1;
    return MR_OK;
}

mr_code mr__groups_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    mr__groups *g = it->state;
    uint64_t ended, n, inner;
    clear(g);
    MR_TRY(mr_state_get_u64(r, &ended, st));
    MR_TRY(mr_state_get_u64(r, &n, st));
    if (ended > 1 || n > MOST_GROUPS)
        return mr_state_damaged(st, "more groups than allowed");
    for (; n; n--)
        MR_TRY(restore_group(g, r, st));
    if (ended && !mr__iter_may_go_on(it)) {
        end_input(g);
        g->due = 0; /* it occurs again, at its new place */
    }
    MR_TRY(mr_state_get_u64(r, &inner, st));
    if (inner) {
        MR_TRY(mr_state_get_i64(r, &g->key, st));
        MR_TRY(mr_state_get_block(r, mr_iter_input_spec(it, 0), &g->rows, st));
        if (g->rows.rows == 0)
            return mr_state_damaged(st, "a group has no rows");
        MR_TRY(open_rows(g, st));
        MR_TRY(mr_iter_restore(g->inner, r, st));
    }
    return mr__cursor_restore(it, 0, &g->input, r, st);
}

int64_t mr__groups_cardinality(const mr_dataset *self, const void *p, const int64_t *in)
{
    (void)self;
    (void)p;
    return in[0] == MR_INFINITE ? MR_INFINITE : MR_UNKNOWN_COUNT;
}

mr_code mr__groups_check_number(const mr_dataset *self, const char *what, mr_fn *fn,
                                const mr_spec *in, mr_status *st)
{
    const mr_program *program;
    MR_TRY(mr_program_get(fn, in, &program, st));
    const mr_spec *made = mr_program_output(program);
    const mr_leaf *leaf = mr_spec_leaf(made, 0);
    mr_code rc = MR_OK;
    if (mr_spec_kind_of(made) != MR_SPEC_LEAF || leaf->dtype != MR_INT64 || leaf->rank > 0) {
        char text[160];
        mr_spec_format(made, text, sizeof text);
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must return one scalar int64, not %s",
                     mr_dataset_op(self)->name, what, text);
    }
    mr_program_unref(program);
    return rc;
}
