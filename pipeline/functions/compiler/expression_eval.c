/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: a typed tree over all rows of a block at once.
 *
 * Rows of one shape go through a kernel together. Where rows differ in shape (a RAGGED column, or a
 * shape that is computed), the node alone is evaluated row by row and its rows are put together
 * again. A row that fails is marked and carried along with any value; the program drops it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/compiler/elementwise_loops.h"
#include "pipeline/memory/object.h"

void mr__columns_free(column_set *c)
{
    for (size_t i = 0; c->v && i < c->n; i++)
        mr_array_reset(&c->v[i]);
    mr_free(c->v);
    *c = (column_set){0};
}

static mr_code new_columns(column_set *c, size_t n, mr_status *st)
{
    c->v = mr_calloc(n ? n : 1, sizeof *c->v);
    c->n = n;
    c->constant = false;
    return c->v ? MR_OK : mr_fail_memory(st, n * sizeof *c->v, "columns");
}

mr_code mr__columns_expand(column_set *c, size_t rows, mr_status *st)
{
    if (!c->constant)
        return MR_OK;
    for (size_t i = 0; i < c->n && rows != 1; i++)
        MR_TRY(mr__repeat_row(&c->v[i], rows, st));
    c->constant = false;
    return MR_OK;
}

/* ---- row by row ---- */

/* Row r of a as an array of one row and its own shape. */
static void lone_row(const mr_array *a, bool constant, size_t r, mr_array *out)
{
    if (a->storage != MR_RAGGED) {
        mr_array_slice(out, a, constant ? 0 : r, 1);
        return;
    }
    const mr_row *row = (const mr_row *)a->data + (constant ? 0 : r);
    *out = (mr_array){.dtype = a->dtype,
                      .storage = a->dtype == MR_STRING ? MR_BYTES : MR_DENSE,
                      .rank = a->rank,
                      .rows = 1,
                      .data = (void *)(uintptr_t)row->data,
                      .owner = a->owner ? mr_buffer_ref(a->owner) : NULL};
    memcpy(out->shape, row->shape, (size_t)a->rank * sizeof *row->shape);
}

enum { SMALL_ROW = 1024 };

/* true: plain rows, not ragged ones, of at most SMALL_ROW bytes on average. *bytes: of all rows. */
static bool are_small(const mr_array *rows, size_t n, size_t *bytes)
{
    *bytes = 0;
    for (size_t r = 0; r < n; r++) {
        if (rows[r].storage != MR_DENSE && rows[r].storage != MR_BYTES)
            return false;
        *bytes += mr_array_row_bytes(&rows[r]);
    }
    return *bytes <= n * SMALL_ROW;
}

/* Small rows of several shapes: their values go into one buffer, which is faster to access than
 * one per row. */
static mr_code join_small(const mr_array *rows, size_t n, size_t bytes, mr_array *out,
                          mr_status *st)
{
    mr_buffer *values;
    MR_TRY(mr_array_alloc_ragged(out, rows[0].dtype, rows[0].rank, n, st));
    MR_TRY(mr_buffer_alloc(&values, bytes, st));
    mr_code rc = mr_buffer_hold(out->owner, values, st);
    char *to = mr_buffer_data(values);
    mr_buffer_unref(values);
    for (size_t r = 0; r < n && rc == MR_OK; r++) {
        size_t size = mr_array_row_bytes(&rows[r]);
        int64_t *shape = mr_array_shape_slot(out, r);
        memcpy(shape, rows[r].shape, (size_t)rows[r].rank * sizeof *shape);
        if (size)
            memcpy(to, rows[r].data, size);
        ((mr_row *)out->data)[r] = (mr_row){.data = to, .shape = shape};
        to += size;
        if (rows[r].storage == MR_BYTES)
            rc = mr_buffer_hold_all(out->owner, rows[r].owner, st);
    }
    return rc;
}

/* Combines arrays of one row each: DENSE if their shapes are equal, else RAGGED. */
static mr_code merge_rows(mr_array *rows, size_t n, mr_array *out, mr_status *st)
{
    bool same = true;
    size_t bytes;
    for (size_t r = 1; r < n && same; r++)
        same = mr_array_fits(&rows[0], &rows[r]) && rows[0].storage == rows[r].storage;
    for (size_t r = 1; r < n; r++)
        if (rows[r].rank != rows[0].rank)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "rows of %d and of %d axes cannot share one column", rows[0].rank,
                           rows[r].rank);
    if (!same && are_small(rows, n, &bytes))
        return join_small(rows, n, bytes, out, st);
    for (size_t r = 0; r < n && !same; r++) {
        mr_array ragged;
        MR_TRY(mr_array_to_ragged(&ragged, &rows[r], st));
        mr_array_reset(&rows[r]);
        rows[r] = ragged;
    }
    MR_TRY(mr_array_start(out, &rows[0], n, st));
    for (size_t r = 0; r < n; r++)
        MR_TRY(mr_array_append(out, &rows[r], 0, 1, st));
    return MR_OK;
}

/* A failed row may have another rank: it takes the shape of a row that did not fail. */
static void hide_failed(mr_array *rows, size_t n, const mr_row_sink *sink)
{
    size_t good = 0;
    while (good < n && sink->bad &&
           sink->bad[sink->rows ? sink->rows[sink->base + good] : sink->base + good])
        good++;
    if (!sink->bad)
        return;
    good %= n; /* none is left: any of them */
    for (size_t r = 0; r < n; r++)
        if (r != good && sink->bad[sink->rows ? sink->rows[sink->base + r] : sink->base + r]) {
            mr_array_reset(&rows[r]);
            mr_array_slice(&rows[r], &rows[good], 0, 1);
        }
}

/* A shape too large for memory is an error of its rows: a retry would fail too. */
static mr_code too_large(const typed *t, const mr_rows *r, const char *why, mr_array *out,
                         mr_status *st)
{
    mr__fail_all(r, "%s: %s; use a smaller shape", t->function->name, why);
    for (size_t i = 0; i < mr_spec_n_leaves(t->spec); i++) {
        mr_array_reset(&out[i]);
        MR_TRY(mr__any_value(mr_spec_leaf(t->spec, i)->dtype, r->rows, &out[i], st));
    }
    return MR_OK;
}

/* The function of t over columns; each leaf of the result goes to one of out. */
static mr_code run_call(const typed *t, const mr_array *in, const bool *constant, size_t rows,
                        mr_array *out, mr_row_sink *sink, mr_status *st)
{
    const mr_rows r = {.function = t->function,
                       .params = t->params,
                       .plan = t->plan,
                       .in = in,
                       .constant = constant,
                       .n = t->n,
                       .rows = rows,
                       .number = t->number,
                       .errors = sink};
    sink->e = t->e;
    mr_status why;
    mr_code rc = t->function->run(&r, out, &why);
    if (rc == MR_RESOURCE_EXHAUSTED && !mr_status_is_of_no_element(&why))
        return too_large(t, &r, why.message, out, st);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

/* The same one row at a time. */
static mr_code row_by_row(const typed *t, const mr_array *in, const bool *constant, size_t rows,
                          column_set *out, mr_row_sink *sink, mr_status *st)
{
    size_t n = out->n, base = sink->base;
    mr_array *parts = mr_calloc(n * rows, sizeof *parts), *v = mr_calloc(t->n + 1, sizeof *v);
    mr_array *leaves = mr_calloc(n, sizeof *leaves);
    bool *one = mr_calloc(t->n + 1, sizeof *one);
    mr_code rc = parts && v && leaves && one
                     ? MR_OK
                     : mr_fail_memory(st, n * rows * sizeof *parts, "the rows of a block");
    for (size_t r = 0; r < rows && rc == MR_OK; r++) {
        for (size_t i = 0; i < t->n; i++)
            lone_row(&in[i], constant[i], r, &v[i]);
        sink->base = base + r;
        rc = run_call(t, v, one, 1, leaves, sink, st);
        for (size_t k = 0; k < n; k++)
            mr_array_move(&parts[k * rows + r], &leaves[k]);
        for (size_t i = 0; i < t->n; i++)
            mr_array_reset(&v[i]);
    }
    sink->base = base;
    for (size_t k = 0; k < n && rc == MR_OK; k++) {
        hide_failed(parts + k * rows, rows, sink);
        rc = merge_rows(parts + k * rows, rows, &out->v[k], st);
    }
    for (size_t k = 0; parts && k < n * rows; k++)
        mr_array_reset(&parts[k]);
    mr_free(parts);
    mr_free(v);
    mr_free(leaves);
    mr_free(one);
    return rc;
}

enum { FEW = 4 };

/* An argument that exists already, a literal or a column, borrowed. NULL: it must be computed,
 * or expanded from one row to many (expand). */
static const mr_array *argument_at_hand(const typed *t, const frame *f, bool expand)
{
    bool constant = t->kind == TYPED_CONST || t->constant;
    if (constant && expand)
        return NULL;
    return t->kind == TYPED_CONST ? &t->value : t->kind == TYPED_COLUMN ? &f->v[t->first] : NULL;
}

static mr_code eval_call(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    mr_array few[FEW];
    bool few_constant[FEW];
    column_set values[FEW], *c = t->n <= FEW ? values : mr_calloc(t->n, sizeof *c);
    mr_array *v = t->n <= FEW ? few : mr_calloc(t->n, sizeof *v);
    bool *constant = t->n <= FEW ? few_constant : mr_calloc(t->n, sizeof *constant);
    bool knows_constants = t->function->props & MR_FUNCTION_CONSTANTS, alone = false;
    size_t got = 0;
    mr_code rc = c && v && constant ? MR_OK : mr_fail_memory(st, t->n * sizeof *c, "arguments");
    while (got < t->n && rc == MR_OK) {
        const typed *child = t->children[got];
        const mr_array *value = argument_at_hand(child, f, !knows_constants);
        column_set *x = &c[got];
        *x = (column_set){.constant = child->kind == TYPED_CONST || child->constant};
        if (!value) {
            rc = mr__eval(child, f, x, st);
            if (rc == MR_OK && !knows_constants)
                rc = mr__columns_expand(x, f->rows, st);
            value = x->v;
        }
        got++;
        if (rc != MR_OK)
            break;
        v[got - 1] = *value;
        constant[got - 1] = x->constant;
        alone = alone || value->storage == MR_RAGGED ||
                (!x->constant && mr__input_decides_shape(t->function, got - 1));
    }
    if (rc == MR_OK)
        rc = new_columns(out, mr_spec_n_leaves(t->spec), st);
    if (rc == MR_OK)
        rc = alone ? row_by_row(t, v, constant, f->rows, out, f->sink, st)
                   : run_call(t, v, constant, f->rows, out->v, f->sink, st);
    for (size_t i = 0; i < got; i++)
        mr__columns_free(&c[i]);
    if (t->n > FEW) {
        mr_free(c);
        mr_free(v);
        mr_free(constant);
    }
    return rc;
}

/* ---- branches ---- */

static void mark_used(const typed *t, bool *used)
{
    if (t->kind == TYPED_COLUMN)
        for (size_t i = 0; i < mr_spec_n_leaves(t->spec); i++)
            used[t->first + i] = true;
    if (t->kind == TYPED_DATASET)
        mr__dataset_body_used(t->body, used);
    for (size_t i = 0; i < t->n; i++)
        mark_used(t->children[i], used);
}

/* Evaluates t over rows index[0..n) of f alone. */
static mr_code eval_some(const typed *t, const frame *f, const uint32_t *index, size_t n,
                         column_set *out, mr_status *st)
{
    bool *used = mr_calloc(f->n + 1, sizeof *used);
    mr_array *v = mr_calloc(f->n + 1, sizeof *v);
    uint32_t *rows = mr_malloc(n * sizeof *rows);
    mr_code rc = used && v && rows ? MR_OK : mr_fail_memory(st, f->n * sizeof *v, "a branch");
    if (rc == MR_OK)
        mark_used(t, used);
    for (size_t i = 0; i < f->n && rc == MR_OK; i++) {
        if (!used[i])
            continue;
        if (f->constant && f->constant[i]) {
            mr_array_slice(&v[i], &f->v[i], 0, 1);
            continue;
        }
        rc = mr_array_start(&v[i], &f->v[i], n, st);
        if (rc == MR_OK)
            rc = mr_array_append_rows(&v[i], &f->v[i], index, n, st);
    }
    mr_row_sink *sink = f->sink;
    const uint32_t *outer = sink->rows;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rows[i] = outer ? outer[index[i]] : index[i];
    if (rc == MR_OK) {
        sink->rows = rows;
        rc = mr__eval(t, &(frame){v, f->constant, f->n, n, sink, NULL}, out, st);
        sink->rows = outer;
    }
    if (rc == MR_OK)
        rc = mr__columns_expand(out, n, st);
    for (size_t i = 0; v && i < f->n; i++)
        mr_array_reset(&v[i]);
    mr_free(v);
    mr_free(used);
    mr_free(rows);
    return rc;
}

/* out's rows = yes's for which take[r] is set, no's for the others, each in its order. */
static mr_code weave(const uint8_t *take, size_t rows, mr_array *yes, mr_array *no, mr_array *out,
                     mr_status *st)
{
    if (yes->rank != no->rank)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the two sides of if have %d and %d axes",
                       yes->rank, no->rank);
    if (!mr_array_fits(yes, no)) {
        mr_array *both[2] = {yes, no};
        for (int i = 0; i < 2; i++) {
            mr_array ragged;
            MR_TRY(mr_array_to_ragged(&ragged, both[i], st));
            mr_array_reset(both[i]);
            *both[i] = ragged;
        }
    }
    MR_TRY(mr_array_start(out, yes->storage == MR_RAGGED ? yes : no, rows, st));
    size_t y = 0, n = 0;
    for (size_t r = 0; r < rows;) {
        size_t run = 1;
        while (r + run < rows && take[r + run] == take[r])
            run++;
        MR_TRY(take[r] ? mr_array_append(out, yes, y, run, st)
                       : mr_array_append(out, no, n, run, st));
        *(take[r] ? &y : &n) += run;
        r += run;
    }
    return MR_OK;
}

/* Child 1 on the rows where take is set, child 2 on the others. */
static mr_code eval_branches(const typed *t, const uint8_t *take, const frame *f, column_set *out,
                             mr_status *st)
{
    uint32_t *index = mr_malloc(f->rows * sizeof *index);
    if (!index)
        return mr_fail_memory(st, f->rows * sizeof *index, "a branch");
    column_set side[2] = {{0}, {0}};
    mr_code rc = MR_OK;
    for (int s = 0; s < 2 && rc == MR_OK; s++) {
        const typed *tree = t->children[s + 1];
        size_t n = 0;
        for (size_t r = 0; r < f->rows; r++)
            if ((take[r] != 0) == (s == 0))
                index[n++] = (uint32_t)r;
        if (n == 0)
            continue;
        rc = n == f->rows ? mr__eval(tree, f, &side[s], st)
                          : eval_some(tree, f, index, n, &side[s], st);
        if (rc == MR_OK && n == f->rows) {
            /* A node that is not constant has all its rows, whatever its branch was. */
            mr_free(index);
            *out = side[s];
            return mr__columns_expand(out, f->rows, st);
        }
    }
    mr_free(index);
    if (rc == MR_OK)
        rc = new_columns(out, side[0].n, st);
    for (size_t i = 0; i < out->n && rc == MR_OK; i++)
        rc = weave(take, f->rows, &side[0].v[i], &side[1].v[i], &out->v[i], st);
    mr__columns_free(&side[0]);
    mr__columns_free(&side[1]);
    return rc;
}

static mr_code eval_choice(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    column_set c = {0};
    mr_code rc = mr__eval(t->children[0], f, &c, st);
    if (rc == MR_OK)
        rc = mr__columns_expand(&c, f->rows, st);
    if (rc == MR_OK && c.v[0].rank != 0) {
        f->sink->e = t->e;
        mr__fail_all(&(mr_rows){.rows = f->rows, .errors = f->sink},
                     "a condition must be a single bool");
        mr_array_reset(&c.v[0]);
        rc = mr__any_value(MR_BOOL, f->rows, &c.v[0], st);
    }
    if (rc == MR_OK)
        rc = eval_branches(t, c.v[0].data, f, out, st);
    mr__columns_free(&c);
    return rc;
}

/* ---- groups, functions, datasets ---- */

static mr_code eval_part(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    column_set whole = {0};
    MR_TRY(mr__eval(t->children[0], f, &whole, st));
    mr_code rc = new_columns(out, mr_spec_n_leaves(t->spec), st);
    for (size_t i = 0; i < out->n && rc == MR_OK; i++)
        mr_array_move(&out->v[i], &whole.v[t->first + i]);
    out->constant = whole.constant;
    mr__columns_free(&whole);
    return rc;
}

/* The children's columns one after the other, all with f's rows. */
static mr_code eval_all(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < t->n; i++)
        n += mr_spec_n_leaves(t->children[i]->spec);
    MR_TRY(new_columns(out, n, st));
    for (size_t i = 0; i < t->n; i++) {
        column_set c = {0};
        mr_code rc = mr__eval(t->children[i], f, &c, st);
        if (rc == MR_OK)
            rc = mr__columns_expand(&c, f->rows, st);
        for (size_t k = 0; k < c.n && rc == MR_OK; k++)
            mr_array_move(&out->v[at++], &c.v[k]);
        mr__columns_free(&c);
        MR_TRY(rc);
    }
    return MR_OK;
}

static mr_code eval_program(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    column_set args = {0};
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_block result = MR_BLOCK_EMPTY;
    mr_code rc = eval_all(t, f, &args, st);
    mr_block in = {.rows = f->rows, .n_columns = args.n, .columns = args.v};
    if (rc == MR_OK)
        rc = mr__program_run_within(t->program, &in, f->sink, &result, &errors, st);
    uint32_t *index = mr_calloc(f->rows + 1, sizeof *index);
    if (rc == MR_OK && !index)
        rc = mr_fail_memory(st, f->rows * sizeof *index, "the rows of a block");
    size_t good = 0, e = 0;
    for (size_t r = 0; r < f->rows && rc == MR_OK; r++)
        if (e < errors.n && errors.v[e].row == r) {
            mr__row_failed(f->sink, r, &errors.v[e].status);
            e++;
        } else
            index[r] = (uint32_t)good++;
    if (rc == MR_OK)
        rc = new_columns(out, mr_spec_n_leaves(t->spec), st);
    for (size_t i = 0; i < out->n && rc == MR_OK; i++) {
        if (good == f->rows) {
            mr_array_move(&out->v[i], &result.columns[i]);
            continue;
        }
        if (!good) {
            mr_dtype dtype = mr_spec_leaf(t->spec, i)->dtype;
            rc = dtype == MR_DATASET ? mr_array_alloc_datasets(&out->v[i], f->rows, st)
                                     : mr__any_value(dtype, f->rows, &out->v[i], st);
            continue;
        }
        rc = mr_array_start(&out->v[i], &result.columns[i], f->rows, st);
        if (rc == MR_OK)
            rc = mr_array_append_rows(&out->v[i], &result.columns[i], index, f->rows, st);
    }
    mr_free(index);
    mr_block_reset(&result);
    mr_row_errors_reset(&errors);
    mr__columns_free(&args);
    return rc;
}

static mr_code eval_dataset(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    MR_TRY(new_columns(out, 1, st));
    MR_TRY(mr_array_alloc_datasets(&out->v[0], f->rows, st));
    for (size_t r = 0; r < f->rows; r++) {
        mr_status why;
        mr_dataset *ds = NULL;
        mr_code rc = mr__dataset_body_make(t->body, f, r, &ds, &why);
        if (rc != MR_OK && mr_status_is_of_no_element(&why)) {
            if (st)
                *st = why;
            return rc;
        }
        if (rc == MR_OK)
            ((mr_dataset **)out->v[0].data)[r] = ds;
        else
            mr__row_failed(f->sink, r, &why);
    }
    return MR_OK;
}

static mr_code eval_column(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    MR_TRY(new_columns(out, mr_spec_n_leaves(t->spec), st));
    for (size_t i = 0; i < out->n; i++)
        mr_array_slice(&out->v[i], &f->v[t->first + i], 0, f->v[t->first + i].rows);
    out->constant = t->constant;
    return MR_OK;
}

/* A call, in tiles if it and its operands allow that. */
static mr_code eval_calls(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    operands made;
    made.n = 0;
    bool done = false;
    if (t->steps < 2)
        return eval_call(t, f, out, st);
    mr_code rc = new_columns(out, 1, st);
    if (rc == MR_OK)
        rc = mr__eval_in_tiles(t, f, &made, &out->v[0], &done, st);
    if (rc == MR_OK && !done) {
        frame rest = *f;
        rest.made = &made;
        mr__columns_free(out);
        rc = eval_call(t, &rest, out, st);
    }
    for (size_t i = 0; i < made.n; i++)
        mr__columns_free(&made.values[i]);
    return rc;
}

static bool take_made(operands *made, const typed *t, column_set *out)
{
    for (size_t i = 0; made && i < made->n; i++)
        if (made->of[i] == t && made->values[i].v) {
            *out = made->values[i];
            made->values[i] = (column_set){0};
            return true;
        }
    return false;
}

static mr_code eval_node(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    switch (t->kind) {
    case TYPED_CONST:
        MR_TRY(new_columns(out, 1, st));
        mr_array_slice(&out->v[0], &t->value, 0, 1);
        out->constant = true;
        return MR_OK;
    case TYPED_COLUMN:
        return eval_column(t, f, out, st);
    case TYPED_GROUP:
        return eval_all(t, f, out, st);
    case TYPED_PART:
        return eval_part(t, f, out, st);
    case TYPED_CHOICE:
        return eval_choice(t, f, out, st);
    case TYPED_CALL:
        return eval_calls(t, f, out, st);
    case TYPED_PROGRAM:
        return eval_program(t, f, out, st);
    case TYPED_DATASET:
        return eval_dataset(t, f, out, st);
    }
    return mr_fail(st, MR_INTERNAL, "an expression node of an unknown kind");
}

/* Nodes that do not depend on the rows are computed once; their error is every row's. */
static mr_code eval_once(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    mr_row_sink sink = {.n_rows = 1, .cancel = f->sink->cancel};
    const frame one = {f->v, f->constant, f->n, 1, &sink, NULL};
    mr_code rc = eval_node(t, &one, out, st);
    out->constant = true;
    if (sink.out_of_memory)
        f->sink->out_of_memory = true;
    for (size_t r = 0; sink.errors.n && r < f->rows; r++)
        mr__row_failed(f->sink, r, &sink.errors.v[0].status);
    mr__sink_free(&sink);
    return rc;
}

/* If all rows of a node failed, the result may have fewer axes than its type, on which its
 * consumers rely. Replace it by empty rows: none is kept. */
static mr_code restore_axes(const typed *t, column_set *out, mr_status *st)
{
    static const int64_t empty[MR_MAX_RANK];
    for (size_t i = 0; i < out->n; i++) {
        mr_array *a = &out->v[i], rows;
        int rank = mr_spec_leaf(t->spec, i)->rank;
        if (rank <= 0 || a->rank == rank || a->dtype == MR_DATASET)
            continue;
        MR_TRY(mr_array_alloc(&rows, a->dtype, rank, empty, a->rows, st));
        mr_array_reset(a);
        *a = rows;
    }
    return MR_OK;
}

/* Records the size of a node's value. */
static void note_bytes(const column_set *c, mr_row_sink *sink)
{
    size_t bytes = 0;
    for (size_t i = 0; i < c->n; i++)
        bytes += mr_array_payload_bytes(&c->v[i], 0, c->v[i].rows);
    if (bytes > sink->widest)
        sink->widest = bytes;
}

mr_code mr__eval(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    if (take_made(f->made, t, out))
        return MR_OK;
    bool once =
        t->constant && (t->kind == TYPED_GROUP || t->kind == TYPED_CHOICE || t->kind == TYPED_CALL);
    mr_code rc = once ? eval_once(t, f, out, st) : eval_node(t, f, out, st);
    if (t->kind == TYPED_CONST)
        return rc;
    if (rc == MR_OK && f->sink->out_of_memory)
        rc = mr_fail_memory(st, sizeof(mr_row_error), "the errors of rows");
    if (rc == MR_OK && f->sink->bad)
        rc = restore_axes(t, out, st);
    if (rc != MR_OK)
        mr__columns_free(out);
    else if (!out->constant && t->kind != TYPED_COLUMN && t->kind != TYPED_PART)
        note_bytes(out, f->sink);
    return rc;
}
