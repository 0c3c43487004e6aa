/* SPDX-License-Identifier: Apache-2.0 */
/* Functions bound to an input spec. The typed tree is shared (cached in the function, and by all
 * functions that calls make from one template); a program adds the values captured by this
 * function. */
#include "pipeline/functions/compiler/program.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/functions/compiler/program_impl.h"
#include "pipeline/functions/compiler/row_wise_internal.h"
#include "pipeline/system/callback_code.h"
#include "pipeline/params/infer.h"
#include "pipeline/graph/fn.h"

/* What is cached: independent of captured values. */
typedef struct code {
    mr__object obj;
    const mr_expr *lambda;
    typed *tree;
    size_t n_in;       /* columns of the input */
    size_t n_captured; /* columns of captures, after those */
    mr_spec *out;
    size_t row_bytes; /* see mr__program_row_bytes */
    bool row_wise;    /* see mr__program_is_row_wise */
} code;

struct mr_program {
    mr__object obj;
    mr_fn *fn;
    code *code; /* NULL: a callback */
    mr_spec *out;
    size_t n_out;
    mr_array *captured; /* NULL: a template, which cannot run */
    mr_spec *in;        /* of MR_FN_ROWS */
    void *run;          /* of its begin; NULL: none */
    uint64_t seed;      /* the job's */
    mr_cancel *cancel;  /* the job's, borrowed; NULL: none */
};

void mr_row_errors_reset(mr_row_errors *e)
{
    mr_free(e->v);
    *e = (mr_row_errors){0};
}

mr_code mr_row_errors_add(mr_row_errors *e, size_t row, const mr_status *status, mr_status *st)
{
    MR_TRY(MR_GROW(e->v, e->capacity, e->n + 1, SIZE_MAX / sizeof *e->v, "errors of rows", st));
    e->v[e->n++] = (mr_row_error){row, *status};
    return MR_OK;
}

/* ---- compiling ---- */

static void destroy_code(mr__object *o)
{
    code *c = (code *)o;
    mr__typed_free(c->tree);
    mr_expr_unref(c->lambda);
    mr_spec_unref(c->out);
    mr_free(c);
}

/* `tfrecord` stands for x => tfrecord(x). */
static mr_code as_lambda(const mr_expr *e, const mr_expr **out, mr_status *st)
{
    if (e->kind == MR_EX_LAMBDA) {
        *out = mr_expr_ref(e);
        return MR_OK;
    }
    size_t n = strlen(e->text);
    char *text = mr_malloc(2 * n + 16);
    if (!text)
        return mr_fail_memory(st, n, "a function");
    size_t at = 0;
    memcpy(text, "x => ", 5);
    memcpy(text + (at = 5), e->text, n);
    memcpy(text + at + n, "(x)", 4);
    mr_code rc = mr_expr_parse(text, strlen(text), out, st);
    mr_free(text);
    return rc;
}

static mr_code capture_spec(const mr_fn *fn, size_t i, mr_spec **out, mr_status *st)
{
    const mr_value *v = &fn->captures[i];
    const mr_spec *known = v->kind == MR_V_UNKNOWN ? v->spec
                           : fn->capture_specs     ? fn->capture_specs[i]
                                                   : NULL;
    if (!known)
        return mr__value_spec(v, out, st);
    *out = mr_spec_ref(known);
    return MR_OK;
}

typedef struct naming {
    scope s;
    mr_spec **owned;
    size_t n_owned;
} naming;

static void naming_free(naming *x)
{
    for (size_t i = 0; i < x->n_owned; i++)
        mr_spec_unref(x->owned[i]);
    mr_free(x->owned);
    mr_free(x->s.names);
    mr_free(x->s.specs);
    mr_free(x->s.first);
    mr_free(x->s.constant);
}

static mr_code bind_names(const mr_fn *fn, const mr_expr *lambda, const mr_spec *in, naming *x,
                          size_t *n_captured, mr_status *st)
{
    size_t n = fn->n_captures + lambda->n_params;
    x->s.names = mr_calloc(n + 1, sizeof *x->s.names);
    x->s.specs = mr_calloc(n + 1, sizeof *x->s.specs);
    x->s.first = mr_calloc(n + 1, sizeof *x->s.first);
    x->s.constant = mr_calloc(n + 1, sizeof *x->s.constant);
    x->owned = mr_calloc(n + 1, sizeof *x->owned);
    if (!x->s.names || !x->s.specs || !x->s.first || !x->s.constant || !x->owned)
        return mr_fail_memory(st, n, "names");
    size_t column = mr_spec_n_leaves(in);
    *n_captured = 0;
    for (size_t i = 0; i < fn->n_captures; i++) {
        MR_TRY(capture_spec(fn, i, &x->owned[x->n_owned], st));
        size_t k = x->s.n++;
        x->s.names[k] = fn->capture_names[i];
        x->s.specs[k] = x->owned[x->n_owned++];
        x->s.first[k] = column + *n_captured;
        x->s.constant[k] = true;
        *n_captured += mr_spec_n_leaves(x->s.specs[k]);
    }
    bool whole = lambda->n_params == 1;
    if (!whole &&
        (mr_spec_kind_of(in) != MR_SPEC_TUPLE || mr_spec_n_children(in) != lambda->n_params)) {
        char found[160];
        mr_spec_format(in, found, sizeof found);
        return mr_expr_fail_at(st, lambda,
                               "a function of %zu parameters is called with elements of %s; it "
                               "needs a tuple of %zu components",
                               lambda->n_params, found, lambda->n_params);
    }
    for (size_t i = 0; i < lambda->n_params; i++) {
        size_t k = x->s.n++;
        x->s.names[k] = lambda->params[i];
        x->s.specs[k] = whole ? in : mr_spec_child(in, i);
        x->s.first[k] = whole ? 0 : mr_spec_first_leaf(in, i);
    }
    return MR_OK;
}

static size_t widest(const typed *t)
{
    size_t most = t->spec ? mr__row_bytes(t->spec) : 0;
    for (size_t i = 0; most && i < t->n; i++) {
        size_t bytes = t->children[i]->constant ? 1 : widest(t->children[i]);
        most = bytes == 0 || bytes > most ? bytes : most;
    }
    return most;
}

void mr__type_number_draws(typed *t, uint64_t *n)
{
    for (size_t i = 0; i < t->n; i++)
        mr__type_number_draws(t->children[i], n);
    if (t->kind == TYPED_CALL && (t->function->props & MR_FUNCTION_DRAWS))
        t->number = (*n)++;
}

static mr_code settle_tree(typed *t, code *c, mr_status *st)
{
    if (t->weak)
        MR_TRY(mr__type_settle_default(t, c->lambda->children[0], st));
    uint64_t n_draws = 0;
    mr__type_number_draws(t, &n_draws);
    c->tree = t;
    c->out = mr_spec_ref(t->spec);
    c->row_bytes = widest(t);
    c->row_wise = c->n_captured == 0 && mr__is_row_wise(t);
    return MR_OK;
}

static mr_code compile(const mr_fn *fn, const mr_spec *in, code **out, mr_status *st)
{
    code *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "a program");
    mr__object_init(&c->obj, destroy_code);
    naming x = {0};
    typed *t = NULL;
    c->n_in = mr_spec_n_leaves(in);
    mr_code rc = as_lambda(fn->expr, &c->lambda, st);
    if (rc == MR_OK)
        rc = bind_names(fn, c->lambda, in, &x, &c->n_captured, st);
    if (rc == MR_OK)
        rc = mr__type(c->lambda->children[0], &x.s, &t, st);
    if (rc == MR_OK)
        rc = settle_tree(t, c, st);
    naming_free(&x);
    if (rc != MR_OK) {
        if (!c->tree)
            mr__typed_free(t);
        mr__object_unref(&c->obj);
        return rc;
    }
    *out = c;
    return MR_OK;
}

static mr_code cached_code(mr_fn *fn, const mr_spec *in, code **out, mr_status *st)
{
    struct mr_fn_cache *cache = fn->cache;
    *out = NULL;
    mr__lock_take(&cache->lock);
    if (cache->program &&
        (fn->instance ? mr__spec_covers(cache->in, in) : mr_spec_equal(cache->in, in))) {
        *out = (code *)cache->program;
        mr__object_ref(cache->program);
    }
    mr__lock_release(&cache->lock);
    if (*out)
        return MR_OK;
    MR_TRY(compile(fn, in, out, st));
    mr_spec *spec = mr_spec_ref(in);
    mr__object_ref(&(*out)->obj);
    mr__lock_take(&cache->lock);
    mr__object *old = cache->program;
    mr_spec *old_in = cache->in;
    cache->program = &(*out)->obj;
    cache->in = spec;
    mr__lock_release(&cache->lock);
    mr__object_unref(old);
    mr_spec_unref(old_in);
    return MR_OK;
}

static void destroy_program(mr__object *o)
{
    mr_program *p = (mr_program *)o;
    for (size_t i = 0; p->captured && i < p->code->n_captured; i++)
        mr_array_reset(&p->captured[i]);
    mr_free(p->captured);
    if (p->code)
        mr__object_unref(&p->code->obj);
    mr_fn_unref(p->fn);
    mr_spec_unref(p->in);
    mr_spec_unref(p->out);
    mr_free(p);
}

static mr_code bind_captures(mr_program *p, mr_status *st)
{
    const mr_fn *fn = p->fn;
    for (size_t i = 0; i < fn->n_captures; i++)
        if (fn->captures[i].kind == MR_V_UNKNOWN)
            return MR_OK;
    p->captured = mr_calloc(p->code->n_captured + 1, sizeof *p->captured);
    if (!p->captured)
        return mr_fail_memory(st, p->code->n_captured, "captured values");
    size_t at = 0;
    for (size_t i = 0; i < fn->n_captures; i++) {
        mr_spec *spec = NULL;
        MR_TRY(mr__value_spec(&fn->captures[i], &spec, st));
        size_t n = mr_spec_n_leaves(spec);
        mr_spec_unref(spec);
        if (at + n > p->code->n_captured)
            return mr_fail(st, MR_INTERNAL, "captured values of another type");
        MR_TRY(mr__value_columns(&fn->captures[i], p->captured + at, st));
        at += n;
    }
    return MR_OK;
}

mr_code mr_program_get(mr_fn *fn, const mr_spec *in, const mr_program **out, mr_status *st)
{
    if (fn->error) {
        if (st)
            *st = *fn->error;
        return fn->error->code;
    }
    mr_program *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a program");
    mr__object_init(&p->obj, destroy_program);
    p->fn = mr_fn_ref(fn);
    mr_code rc = MR_OK;
    if (fn->kind == MR_FN_EXPR) {
        rc = cached_code(fn, in, &p->code, st);
        if (rc == MR_OK)
            rc = bind_captures(p, st);
    }
    if (rc != MR_OK) {
        mr_program_unref(p);
        return rc;
    }
    p->out = mr_spec_ref(p->code ? p->code->out : fn->out ? fn->out : in);
    p->n_out = mr_spec_n_leaves(p->out);
    if (fn->kind == MR_FN_ROWS)
        p->in = mr_spec_ref(in);
    *out = p;
    return MR_OK;
}

const mr_program *mr__program_ref(const mr_program *p)
{
    mr__object_ref((mr__object *)(uintptr_t)&p->obj);
    return p;
}

void mr_program_unref(const mr_program *p)
{
    if (p)
        mr__object_unref((mr__object *)(uintptr_t)&p->obj);
}

const mr_spec *mr_program_output(const mr_program *p)
{
    return p->out;
}

int64_t mr__program_dataset_count(const mr_program *p)
{
    if (!p->code || p->code->tree->kind != TYPED_DATASET)
        return MR_UNKNOWN_COUNT;
    return mr__dataset_body_count(p->code->tree->body);
}

static bool may_block(const char *name);

static bool fn_may_block(const mr_fn *fn)
{
    return fn->may_block || (fn->expr && mr__expr_calls(fn->expr, may_block));
}

static bool may_block(const char *name)
{
    return !mr_function_find(name) && mr__registered_does(name, MR__MAY_BLOCK, fn_may_block);
}

bool mr_program_may_block(const mr_program *p)
{
    return fn_may_block(p->fn);
}

/* ---- running callbacks ---- */

static mr_code check_result(const mr_program *p, const mr_block *out, size_t rows, mr_status *st)
{
    if (out->rows != rows || out->n_columns != p->n_out)
        return mr_fail(st, MR_INTERNAL,
                       "a C function returned %zu rows of %zu columns instead of %zu of %zu",
                       out->rows, out->n_columns, rows, p->n_out);
    for (size_t i = 0; i < out->n_columns; i++) {
        const mr_leaf *leaf = mr_spec_leaf(p->out, i);
        const mr_array *a = &out->columns[i];
        if (a->dtype != leaf->dtype || a->rows != rows ||
            (a->storage != MR_RAGGED && !mr_leaf_admits(leaf, a->rank, a->shape))) {
            char found[96], want[96];
            mr_shape_format(a->rank, a->shape, found, sizeof found);
            mr_shape_format(leaf->rank, leaf->shape, want, sizeof want);
            return mr_fail(st, MR_INTERNAL,
                           "a C function returned %s%s in column %zu instead of %s%s",
                           mr_dtype_name(a->dtype), found, i, mr_dtype_name(leaf->dtype), want);
        }
    }
    return MR_OK;
}

static mr_code call(const mr_program *p, const mr_block *in, mr_block *out, mr_status *st)
{
    mr_block_clear(out);
    mr_status_init(st);
    mr_code rc = p->fn->callback(p->fn->ctx, in, out, st);
    if (rc == MR_OK)
        return check_result(p, out, in->rows, st);
    if (rc == MR_END)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "a C function returned MR_END, which does not end the dataset; return an error");
    return mr__callback_code(rc, "a C function", st);
}

/* The error of a call with one row: the row's, unless the environment is at fault. Such an error
 * ends the pass here, and must not be in a position, for it may be gone when that is restored. */
static mr_code row_failed(mr_row_errors *errors, size_t row, const mr_status *why, mr_status *st)
{
    if (!mr_status_is_of_no_element(why))
        return mr_row_errors_add(errors, row, why, st);
    if (st)
        *st = *why;
    return why->code;
}

static mr_code call_rows(const mr_program *p, const mr_block *in, mr_block *out,
                         mr_row_errors *errors, mr_status *st)
{
    mr_block row = MR_BLOCK_EMPTY, one = MR_BLOCK_EMPTY;
    mr_block_clear(out);
    mr_code rc = MR_OK;
    bool started = false;
    for (size_t r = 0; r < in->rows && rc == MR_OK; r++) {
        mr_status why;
        rc = mr_block_slice(&row, in, r, 1, st);
        if (rc != MR_OK)
            break;
        row.names = in->names;
        if (call(p, &row, &one, &why) != MR_OK) {
            rc = row_failed(errors, r, &why, st);
            continue;
        }
        if (!started) {
            rc = mr_block_start(out, &one, in->rows, st);
            started = true;
        }
        if (rc == MR_OK && !mr_block_fits(out, &one))
            for (size_t i = 0; i < one.n_columns && rc == MR_OK; i++) {
                /* Rows of several shapes: both sides become ragged rows. */
                mr_array a, b;
                rc = mr_array_to_ragged(&a, &one.columns[i], st);
                if (rc != MR_OK)
                    break;
                mr_array_reset(&one.columns[i]);
                one.columns[i] = a;
                if (out->columns[i].storage == MR_RAGGED)
                    continue;
                rc = mr_array_start(&b, &one.columns[i], in->rows, st);
                if (rc == MR_OK)
                    rc = mr_array_append(&b, &out->columns[i], 0, out->rows, st);
                if (rc == MR_OK) {
                    mr_array_reset(&out->columns[i]);
                    out->columns[i] = b;
                }
            }
        if (rc == MR_OK)
            rc = mr_block_append(out, &one, 0, 1, st);
    }
    mr_block_reset(&row);
    mr_block_reset(&one);
    return rc;
}

static mr_code run_callback(const mr_program *p, const mr_block *in, mr_block *out,
                            mr_row_errors *errors, mr_status *st)
{
    mr_status why;
    if (p->fn->kind == MR_FN_ELEMENT)
        return call_rows(p, in, out, errors, st);
    if (call(p, in, out, &why) == MR_OK)
        return MR_OK;
    if (in->rows == 1 || mr_status_is_of_no_element(&why)) {
        mr_block_clear(out);
        return row_failed(errors, 0, &why, st);
    }
    return call_rows(p, in, out, errors, st);
}

/* ---- running expressions ---- */

static int by_row(const void *a, const void *b)
{
    size_t x = ((const mr_row_error *)a)->row, y = ((const mr_row_error *)b)->row;
    return (x > y) - (x < y);
}

/* Drops the failed rows of out and of its identities. */
static mr_code drop_failed(mr_block *out, const mr_row_errors *errors, size_t rows, mr_status *st)
{
    if (errors->n == 0)
        return MR_OK;
    if (errors->n == rows) {
        mr_block_clear(out);
        return MR_OK;
    }
    uint32_t *index = mr_malloc(rows * sizeof *index);
    if (!index)
        return mr_fail_memory(st, rows * sizeof *index, "the rows of a block");
    size_t n = 0, e = 0;
    for (size_t r = 0; r < rows; r++)
        if (e < errors->n && errors->v[e].row == r)
            e++;
        else
            index[n++] = (uint32_t)r;
    mr_block kept = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_start(&kept, out, n, st);
    if (rc == MR_OK)
        rc = mr_block_append_rows(&kept, out, index, n, st);
    mr_free(index);
    if (rc == MR_OK)
        mr_block_move(out, &kept);
    mr_block_reset(&kept);
    return rc;
}

/* Rows that were computed one at a time, but have the same shape. */
static mr_code tidy(const mr_program *p, mr_block *out, mr_status *st)
{
    for (size_t i = 0; i < out->n_columns; i++) {
        mr_array *a = &out->columns[i];
        if (a->storage != MR_RAGGED || mr_spec_leaf(p->out, i)->ragged ||
            mr_spec_leaf(p->out, i)->rank < 0)
            continue;
        bool all_known = true;
        for (int d = 0; d < mr_spec_leaf(p->out, i)->rank; d++)
            all_known = all_known && mr_spec_leaf(p->out, i)->shape[d] >= 0;
        if (!all_known)
            continue;
        mr_array dense;
        MR_TRY(mr_array_to_dense(&dense, a, NULL, st));
        mr_array_reset(a);
        *a = dense;
    }
    return MR_OK;
}

/* The identities of the rows of `in` that did not fail. */
static mr_code take_identities(mr_block *out, const mr_block *in, const mr_row_errors *errors,
                               mr_status *st)
{
    mr_block ids = {.rows = in->rows};
    mr_identities_take(&ids.ids, &in->ids, 0, in->rows);
    mr_code rc = drop_failed(&ids, errors, in->rows, st);
    if (rc == MR_OK) {
        out->ids = ids.ids;
        ids.ids = (mr_identities){0};
    }
    mr_block_reset(&ids);
    return rc;
}

static mr_code run_rows(const mr_program *p, const mr_block *in, const mr_row_sink *outer,
                        mr_block *out, mr_row_errors *errors, mr_status *st)
{
    mr_row_sink sink = {.n_rows = in->rows, .outer = outer, .ids = &in->ids, .seed = p->seed};
    const mr_rows rows = {.errors = &sink};
    const mr_rows_call c = {
        .in = p->in, .run = p->run, .cancel = outer ? outer->cancel : p->cancel, .rows = &rows};
    mr_status why;
    mr_status_init(&why);
    mr_block_clear(out);
    mr_code rc = p->fn->rows->call(p->fn->ctx, &c, in, out, errors, &why);
    rc = mr__callback_code(rc, "a C function", &why);
    size_t good = in->rows - errors->n;
    for (size_t i = 0; i < errors->n && rc == MR_OK; i++)
        if (errors->v[i].row >= in->rows || (i && errors->v[i].row <= errors->v[i - 1].row))
            rc = mr_fail(&why, MR_INTERNAL, "a C function returned errors out of order");
    if (rc == MR_OK && (good || out->rows))
        rc = check_result(p, out, good, &why);
    if (rc == MR_OK && good && in->ids.ids)
        rc = take_identities(out, in, errors, &why);
    mr__sink_free(&sink);
    if (rc == MR_OK)
        return MR_OK;
    mr_status_of_no_element(&why);
    if (st)
        *st = why;
    return rc;
}

static mr_code run_code(const mr_program *p, const mr_block *in, const mr_row_sink *outer,
                        mr_block *out, mr_row_errors *errors, size_t *bytes, mr_status *st)
{
    const code *c = p->code;
    if (!p->captured && c->n_captured)
        return mr_fail(st, MR_INTERNAL, "a function's template was run");
    mr_array few[16];
    bool few_constant[16];
    size_t n = c->n_in + c->n_captured;
    mr_array *v = n <= 16 ? few : mr_calloc(n, sizeof *v);
    bool *constant = n <= 16 ? few_constant : mr_calloc(n, sizeof *constant);
    mr_row_sink sink = {.n_rows = in->rows,
                        .outer = outer,
                        .ids = &in->ids,
                        .seed = p->seed,
                        .cancel = outer ? outer->cancel : p->cancel};
    column_set result = {0};
    mr_code rc = v && constant ? MR_OK : mr_fail_memory(st, n * sizeof *v, "columns");
    if (rc == MR_OK) {
        for (size_t i = 0; i < n; i++) {
            v[i] = i < c->n_in ? in->columns[i] : p->captured[i - c->n_in];
            constant[i] = i >= c->n_in;
        }
        rc = mr__eval(c->tree, &(frame){v, constant, n, in->rows, &sink, NULL}, &result, st);
    }
    if (rc == MR_OK)
        rc = mr__columns_expand(&result, in->rows, st);
    *bytes = sink.widest;
    if (rc == MR_OK)
        rc = mr_block_prepare(out, result.n, st);
    if (rc == MR_OK) {
        for (size_t i = 0; i < result.n; i++)
            mr_array_move(&out->columns[i], &result.v[i]);
        out->rows = in->rows;
        if (sink.errors.n > 1)
            qsort(sink.errors.v, sink.errors.n, sizeof *sink.errors.v, by_row);
        mr_row_errors_reset(errors);
        *errors = sink.errors;
        sink.errors = (mr_row_errors){0};
    }
    mr__columns_free(&result);
    mr__sink_free(&sink);
    if (n > 16) {
        mr_free(v);
        mr_free(constant);
    }
    return rc;
}

bool mr__program_is_row_wise(const mr_program *p)
{
    return p->code && p->code->row_wise;
}

size_t mr__program_row_bytes(const mr_program *p)
{
    return p->code ? p->code->row_bytes : mr__row_bytes(p->out);
}

static mr_code run_any(const mr_program *p, const mr_block *in, const mr_row_sink *outer,
                       mr_block *out, mr_row_errors *errors, size_t *bytes, mr_status *st)
{
    *bytes = 0;
    if (p->fn->kind == MR_FN_ROWS)
        return run_rows(p, in, outer, out, errors, st);
    if (p->fn->kind != MR_FN_EXPR) {
        MR_TRY(run_callback(p, in, out, errors, st));
        if (out->rows && !out->ids.ids && in->ids.ids && errors->n == 0)
            mr_identities_take(&out->ids, &in->ids, 0, in->rows);
        return MR_OK;
    }
    MR_TRY(run_code(p, in, outer, out, errors, bytes, st));
    if (in->ids.ids)
        mr_identities_take(&out->ids, &in->ids, 0, in->rows);
    MR_TRY(drop_failed(out, errors, in->rows, st));
    return tidy(p, out, st);
}

mr_code mr__program_run_measured(const mr_program *p, const mr_block *in, mr_block *out,
                                 mr_row_errors *errors, size_t *bytes, mr_status *st)
{
    return run_any(p, in, NULL, out, errors, bytes, st);
}

mr_code mr_program_run(const mr_program *p, const mr_block *in, mr_block *out,
                       mr_row_errors *errors, mr_status *st)
{
    size_t bytes;
    return run_any(p, in, NULL, out, errors, &bytes, st);
}

mr_code mr__program_run_within(const mr_program *p, const mr_block *in, const mr_row_sink *outer,
                               mr_block *out, mr_row_errors *errors, mr_status *st)
{
    size_t bytes;
    return run_any(p, in, outer, out, errors, &bytes, st);
}

const mr_rows_fn *mr__program_rows(const mr_program *p)
{
    return p->fn->rows;
}

void mr__program_set_run(const mr_program *p, void *run)
{
    ((mr_program *)(uintptr_t)p)->run = run;
}

void mr__program_bind(const mr_program *p, uint64_t seed, mr_cancel *cancel)
{
    mr_program *bound = (mr_program *)(uintptr_t)p;
    bound->seed = seed;
    bound->cancel = cancel;
}
