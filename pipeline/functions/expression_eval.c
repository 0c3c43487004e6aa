/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation: a typed tree over all rows of a block at once.
 *
 * Rows of one shape go through a kernel together. Where rows differ in shape (a RAGGED column, or a
 * shape that is computed), the node alone is evaluated row by row and its rows are put together
 * again. A row that fails is marked and carried along with any value; the program drops it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/row_kernels.h"
#include "pipeline/memory/object.h"

void mr__row_fail(mr_row_sink *sink, size_t row, mr_code code, const char *fmt, ...)
{
    if (!sink->n_rows)
        return;
    size_t at = sink->rows ? sink->rows[sink->base + row] : sink->base + row;
    if (!sink->bad && !(sink->bad = mr_calloc(sink->n_rows, sizeof *sink->bad))) {
        sink->out_of_memory = true;
        return;
    }
    if (sink->bad[at])
        return;
    sink->bad[at] = true;
    mr_status e;
    va_list ap;
    va_start(ap, fmt);
    mr_failv(&e, code, fmt, ap);
    va_end(ap);
    if (mr_row_errors_add(&sink->errors, at, &e, NULL) != MR_OK)
        sink->out_of_memory = true;
}

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

/* Puts arrays of one row each together: DENSE if their shapes agree, else RAGGED. */
static mr_code merge_rows(mr_array *rows, size_t n, mr_array *out, mr_status *st)
{
    bool same = true;
    for (size_t r = 1; r < n && same; r++)
        same = mr_array_fits(&rows[0], &rows[r]) && rows[0].storage == rows[r].storage;
    for (size_t r = 0; r < n && !same; r++) {
        mr_array ragged;
        MR_TRY(mr_array_to_ragged(&ragged, &rows[r], st));
        mr_array_reset(&rows[r]);
        rows[r] = ragged;
    }
    for (size_t r = 1; r < n; r++)
        if (rows[r].rank != rows[0].rank)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "rows of %d and of %d axes do not fit one column", rows[0].rank,
                           rows[r].rank);
    MR_TRY(mr_array_start(out, &rows[0], n, st));
    for (size_t r = 0; r < n; r++)
        MR_TRY(mr_array_append(out, &rows[r], 0, 1, st));
    return MR_OK;
}

/* A failed row may have come out with another rank: it takes the shape of one that did not fail. */
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

static mr_code row_by_row(const typed *t, const arguments *a, mr_array *out, mr_row_sink *sink,
                          mr_status *st)
{
    mr_array *rows = mr_calloc(a->rows, sizeof *rows), *v = mr_calloc(a->n, sizeof *v);
    bool *one = mr_calloc(a->n, sizeof *one);
    mr_code rc = rows && v && one
                     ? MR_OK
                     : mr_fail_memory(st, a->rows * sizeof *rows, "the rows of a block");
    size_t base = sink->base;
    for (size_t r = 0; r < a->rows && rc == MR_OK; r++) {
        for (size_t i = 0; i < a->n; i++)
            lone_row(&a->v[i], a->constant[i], r, &v[i]);
        sink->base = base + r;
        rc = mr__run_kernel(t, &(arguments){v, one, a->n, 1}, &rows[r], sink, st);
        for (size_t i = 0; i < a->n; i++)
            mr_array_reset(&v[i]);
    }
    sink->base = base;
    if (rc == MR_OK) {
        hide_failed(rows, a->rows, sink);
        rc = merge_rows(rows, a->rows, out, st);
    }
    for (size_t r = 0; rows && r < a->rows; r++)
        mr_array_reset(&rows[r]);
    mr_free(rows);
    mr_free(v);
    mr_free(one);
    return rc;
}

/* Whether argument i decides the shape of the result. */
static bool decides_shape(const typed *t, size_t i)
{
    return ((t->kind == TYPED_RESHAPE || t->kind == TYPED_ONE_HOT) && i == 1) ||
           (t->kind == TYPED_FILL && i == 0);
}

static mr_code eval_kernel(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    mr_array few[4];
    bool few_constant[4];
    column_set values[4], *c = t->n <= 4 ? values : mr_calloc(t->n, sizeof *c);
    mr_array *v = t->n <= 4 ? few : mr_calloc(t->n, sizeof *v);
    bool *constant = t->n <= 4 ? few_constant : mr_calloc(t->n, sizeof *constant);
    size_t got = 0;
    bool ragged = false;
    mr_code rc = c && v && constant ? MR_OK : mr_fail_memory(st, t->n * sizeof *c, "arguments");
    for (; got < t->n && rc == MR_OK; got++) {
        c[got] = (column_set){0};
        rc = mr__eval(t->children[got], f, &c[got], st);
        if (rc != MR_OK)
            break;
        v[got] = c[got].v[0];
        constant[got] = c[got].constant;
        ragged = ragged || v[got].storage == MR_RAGGED || (decides_shape(t, got) && !constant[got]);
    }
    /* A kernel of one argument sees its rows only. */
    if (rc == MR_OK)
        rc = new_columns(out, 1, st);
    if (rc == MR_OK) {
        arguments a = {v, constant, t->n, f->rows};
        rc = ragged ? row_by_row(t, &a, &out->v[0], f->sink, st)
                    : mr__run_kernel(t, &a, &out->v[0], f->sink, st);
    }
    for (size_t i = 0; i < got; i++)
        mr__columns_free(&c[i]);
    if (t->n > 4) {
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
    size_t base = sink->base;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rows[i] = outer ? outer[base + index[i]] : (uint32_t)(base + index[i]);
    if (rc == MR_OK) {
        sink->rows = rows;
        sink->base = 0;
        rc = mr__eval(t, &(frame){v, f->constant, f->n, n, sink}, out, st);
        sink->rows = outer;
        sink->base = base;
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
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the two sides of if came out with %d and with %d axes", yes->rank,
                       no->rank);
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

/* `yes` on the rows where take is set, `no` on the others; a NULL side is the constant `other`. */
static mr_code eval_branches(const uint8_t *take, const typed *yes, const typed *no, bool other,
                             const frame *f, column_set *out, mr_status *st)
{
    uint32_t *index = mr_malloc(f->rows * sizeof *index);
    if (!index)
        return mr_fail_memory(st, f->rows * sizeof *index, "a branch");
    column_set side[2] = {{0}, {0}};
    const typed *tree[2] = {yes, no};
    mr_code rc = MR_OK;
    for (int s = 0; s < 2 && rc == MR_OK; s++) {
        size_t n = 0;
        for (size_t r = 0; r < f->rows; r++)
            if ((take[r] != 0) == (s == 0))
                index[n++] = (uint32_t)r;
        if (n == 0)
            continue;
        if (tree[s])
            rc = n == f->rows ? mr__eval(tree[s], f, &side[s], st)
                              : eval_some(tree[s], f, index, n, &side[s], st);
        else {
            rc = new_columns(&side[s], 1, st);
            if (rc == MR_OK)
                rc = mr_array_alloc(&side[s].v[0], MR_BOOL, 0, NULL, n, st);
            if (rc == MR_OK)
                memset(side[s].v[0].data, other, n);
        }
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
        mr__fail_all(f->sink, f->rows, "a condition must be a single bool");
        mr_array_reset(&c.v[0]);
        rc = mr__any_value(MR_BOOL, f->rows, &c.v[0], st);
    }
    if (rc == MR_OK) {
        const uint8_t *take = c.v[0].data;
        rc = t->kind == TYPED_IF
                 ? eval_branches(take, t->children[1], t->children[2], false, f, out, st)
             : t->kind == TYPED_AND ? eval_branches(take, t->children[1], NULL, false, f, out, st)
                                    : eval_branches(take, NULL, t->children[1], true, f, out, st);
    }
    mr__columns_free(&c);
    return rc;
}

/* ---- groups, functions, datasets ---- */

static mr_code eval_group(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    MR_TRY(new_columns(out, mr_spec_n_leaves(t->spec), st));
    size_t at = 0;
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

static mr_code builtin_rows(const typed *t, const column_set *args, const frame *f, column_set *out,
                            mr_status *st)
{
    size_t base = f->sink->base, n = out->n;
    mr_array *rows = mr_calloc(n * f->rows, sizeof *rows), *v = mr_calloc(args->n + 1, sizeof *v);
    mr_array *one = mr_calloc(n, sizeof *one);
    mr_code rc = rows && v && one ? MR_OK : mr_fail_memory(st, n * f->rows, "the rows of a block");
    for (size_t r = 0; r < f->rows && rc == MR_OK; r++) {
        for (size_t i = 0; i < args->n; i++)
            lone_row(&args->v[i], false, r, &v[i]);
        f->sink->base = base + r;
        rc = t->builtin->run(t->plan, v, args->n, 1, one, f->sink, st);
        for (size_t k = 0; k < n; k++)
            mr_array_move(&rows[k * f->rows + r], &one[k]);
        for (size_t i = 0; i < args->n; i++)
            mr_array_reset(&v[i]);
    }
    f->sink->base = base;
    for (size_t k = 0; k < n && rc == MR_OK; k++) {
        hide_failed(rows + k * f->rows, f->rows, f->sink);
        rc = merge_rows(rows + k * f->rows, f->rows, &out->v[k], st);
    }
    for (size_t k = 0; rows && k < n * f->rows; k++)
        mr_array_reset(&rows[k]);
    mr_free(rows);
    mr_free(v);
    mr_free(one);
    return rc;
}

static mr_code eval_builtin(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    column_set args = {0};
    mr_code rc = eval_all(t, f, &args, st);
    bool ragged = false;
    for (size_t i = 0; i < args.n && rc == MR_OK; i++)
        ragged = ragged || args.v[i].storage == MR_RAGGED;
    if (rc == MR_OK)
        rc = new_columns(out, mr_spec_n_leaves(t->spec), st);
    if (rc == MR_OK)
        rc = ragged ? builtin_rows(t, &args, f, out, st)
                    : t->builtin->run(t->plan, args.v, args.n, f->rows, out->v, f->sink, st);
    mr__columns_free(&args);
    return rc;
}

static mr_code eval_function(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    column_set args = {0};
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_block result = MR_BLOCK_EMPTY;
    MR_TRY(eval_all(t, f, &args, st));
    mr_block in = {.rows = f->rows, .n_columns = args.n, .columns = args.v};
    mr_code rc = mr_program_run(t->program, &in, &result, &errors, st);
    uint32_t *index = mr_calloc(f->rows + 1, sizeof *index);
    if (rc == MR_OK && !index)
        rc = mr_fail_memory(st, f->rows * sizeof *index, "the rows of a block");
    size_t good = 0, e = 0;
    for (size_t r = 0; r < f->rows && rc == MR_OK; r++)
        if (e < errors.n && errors.v[e].row == r) {
            mr__row_fail(f->sink, r, errors.v[e].status.code, "%s", errors.v[e].status.message);
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
        if (rc == MR_OK)
            ((mr_dataset **)out->v[0].data)[r] = ds;
        else
            mr__row_fail(f->sink, r, rc, "%s", why.message);
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

/* What does not depend on the rows is computed once; an error in it is every row's. */
static mr_code eval_once(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    mr_row_sink sink = {.n_rows = 1};
    mr_code rc = MR_OK;
    frame one = {f->v, f->constant, f->n, 1, &sink};
    switch (t->kind) {
    case TYPED_GROUP:
        rc = eval_group(t, &one, out, st);
        break;
    case TYPED_IF:
    case TYPED_AND:
    case TYPED_OR:
        rc = eval_choice(t, &one, out, st);
        break;
    case TYPED_BUILTIN:
        rc = eval_builtin(t, &one, out, st);
        break;
    default:
        rc = eval_kernel(t, &one, out, st);
    }
    out->constant = true;
    if (sink.out_of_memory)
        f->sink->out_of_memory = true;
    for (size_t r = 0; sink.errors.n && r < f->rows; r++)
        mr__row_fail(f->sink, r, sink.errors.v[0].status.code, "%s",
                     sink.errors.v[0].status.message);
    mr_row_errors_reset(&sink.errors);
    mr_free(sink.bad);
    return rc;
}

/* A node all of whose rows failed may have come out with fewer axes than its type says; what is
 * built on it must find them. Empty rows will do: none is kept. */
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

mr_code mr__eval(const typed *t, const frame *f, column_set *out, mr_status *st)
{
    mr_code rc;
    if (t->kind == TYPED_CONST) {
        rc = new_columns(out, 1, st);
        if (rc == MR_OK)
            mr_array_slice(&out->v[0], &t->value, 0, 1);
        out->constant = true;
        return rc;
    }
    if (t->kind == TYPED_COLUMN)
        rc = eval_column(t, f, out, st);
    else if (t->kind == TYPED_PART)
        rc = eval_part(t, f, out, st);
    else if (t->constant)
        rc = eval_once(t, f, out, st);
    else
        switch (t->kind) {
        case TYPED_GROUP:
            rc = eval_group(t, f, out, st);
            break;
        case TYPED_IF:
        case TYPED_AND:
        case TYPED_OR:
            rc = eval_choice(t, f, out, st);
            break;
        case TYPED_BUILTIN:
            rc = eval_builtin(t, f, out, st);
            break;
        case TYPED_FUNCTION:
            rc = eval_function(t, f, out, st);
            break;
        case TYPED_DATASET:
            rc = eval_dataset(t, f, out, st);
            break;
        default:
            rc = eval_kernel(t, f, out, st);
        }
    if (rc == MR_OK && f->sink->out_of_memory)
        rc = mr_fail_memory(st, sizeof(mr_row_error), "the errors of rows");
    if (rc == MR_OK && f->sink->bad)
        rc = restore_axes(t, out, st);
    if (rc != MR_OK)
        mr__columns_free(out);
    return rc;
}
