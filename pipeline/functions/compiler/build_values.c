/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the arguments of ops: literals, lists that are tensors, arithmetic, functions with
 * their captured values. Also determines which expressions are datasets. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/functions/compiler/graph_builder.h"
#include "pipeline/graph/fn.h"
#include "pipeline/graph/op.h"
#include "pipeline/params/params.h"

mr_code mr__build_fail(const builder *b, mr_status *st, const mr_expr *e, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (b->body)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s", text);
    return mr_expr_fail_at(st, e, "%s", text);
}

static mr_code no_memory(mr_status *st)
{
    return mr_fail_memory(st, 0, "a graph");
}

/* ---- datasets among expressions, and the names that they use ---- */

/* Type of a name, or of a component of one, however deep; NULL: e is something else. */
static const mr_spec *place_spec(const mr_expr *e, const scope *s)
{
    if (e->kind == MR_EX_NAME) {
        int64_t i = mr__scope_find(s, e->text);
        return i < 0 ? NULL : s->specs[i];
    }
    if (e->kind != MR_EX_INDEX || e->n != 2)
        return NULL;
    const mr_spec *whole = place_spec(e->children[0], s);
    const mr_expr *at = e->children[1];
    if (!whole || mr_spec_kind_of(whole) == MR_SPEC_LEAF)
        return NULL;
    int64_t n = (int64_t)mr_spec_n_children(whole), i;
    bool tuple = mr_spec_kind_of(whole) == MR_SPEC_TUPLE;
    bool minus = at->kind == MR_EX_UNARY && at->op == '-';
    const mr_expr *number = minus ? at->children[0] : at;
    if (at->kind == MR_EX_STRING)
        i = mr_spec_find(whole, at->text);
    else if (tuple && number->kind == MR_EX_INT) {
        i = minus ? -number->i : number->i;
        i += i < 0 ? n : 0;
    } else
        return NULL;
    return i < 0 || i >= n ? NULL : mr_spec_child(whole, (size_t)i);
}

static bool is_dataset_spec(const mr_spec *spec)
{
    return spec && mr_spec_kind_of(spec) == MR_SPEC_LEAF &&
           mr_spec_leaf(spec, 0)->dtype == MR_DATASET;
}

void mr__hint_of_place(const mr_expr *e, const scope *s, char text[MR__HINT_ROOM])
{
    char part[64]; /* of a name: one level, which is as deep as records usually are */
    const char *name = e->kind == MR_EX_NAME ? e->text : NULL;
    if (e->kind == MR_EX_INDEX && e->n == 2 && e->children[0]->kind == MR_EX_NAME &&
        e->children[1]->kind == MR_EX_STRING) {
        snprintf(part, sizeof part, "%.12s[\"%.12s\"]", e->children[0]->text, e->children[1]->text);
        name = part;
    }
    mr__hint_of_datasets(place_spec(e, s), name, text);
}

/* A name may be that of a method and of a function: split(x) is the function. */
static bool calls_op(const char *name)
{
    const mr_op *op = mr_op_find(name, strlen(name));
    bool method = op && op->min_inputs > 0 && !(op->props & MR_OP_SOURCE_CALL);
    return op && !(method && mr_function_find(name));
}

bool mr__is_dataset(const mr_expr *e, const scope *s)
{
    switch (e->kind) {
    case MR_EX_METHOD:
        return true;
    case MR_EX_CALL:
        return calls_op(e->text);
    case MR_EX_NAME:
    case MR_EX_INDEX:
        return is_dataset_spec(place_spec(e, s));
    case MR_EX_IF:
        return mr__is_dataset(e->children[0], s) && mr__is_dataset(e->children[2], s);
    default:
        return false;
    }
}

/* Marks names of s that e uses; hidden: the parameters of enclosing lambdas. */
typedef struct hiding {
    const struct hiding *outer;
    const mr_expr *lambda;
} hiding;

static bool is_hidden(const hiding *h, const char *name)
{
    for (; h; h = h->outer)
        for (size_t i = 0; i < h->lambda->n_params; i++)
            if (strcmp(h->lambda->params[i], name) == 0)
                return true;
    return false;
}

static void mark_names(const mr_expr *e, const scope *s, const hiding *h, bool *used)
{
    if (e->kind == MR_EX_NAME && !is_hidden(h, e->text)) {
        int64_t i = mr__scope_find(s, e->text);
        if (i >= 0)
            used[i] = true;
    }
    hiding here = {h, e};
    for (size_t i = 0; i < e->n; i++)
        mark_names(e->children[i], s, e->kind == MR_EX_LAMBDA ? &here : h, used);
}

void mr__mark_names(const mr_expr *e, const scope *s, bool *used)
{
    mark_names(e, s, NULL, used);
}

/* The names of s that are free in e (indexes into s, ascending, each once); *n of them, owned. */
static mr_code free_names(const mr_expr *e, const scope *s, size_t **out, size_t *n, mr_status *st)
{
    bool *used = mr_calloc(s->n + 1, sizeof *used);
    *out = mr_calloc(s->n + 1, sizeof **out);
    *n = 0;
    if (!used || !*out) {
        mr_free(used);
        mr_free(*out);
        *out = NULL;
        return no_memory(st);
    }
    mark_names(e, s, NULL, used);
    for (size_t i = 0; i < s->n; i++)
        if (used[i])
            (*out)[(*n)++] = i;
    mr_free(used);
    return MR_OK;
}

/* ---- values of arguments ---- */

mr_code mr__build_name(const builder *b, size_t i, mr_value *out, mr_status *st)
{
    const scope *s = b->s;
    if (!b->values) {
        *out = (mr_value){.kind = MR_V_UNKNOWN, .spec = mr_spec_ref(s->specs[i])};
        return MR_OK;
    }
    return mr__value_of_columns(s->specs[i], b->values->v + s->first[i], NULL, 0, out, st);
}

static mr_code run_tree(const builder *b, const typed *t, mr_value *out, mr_status *st)
{
    mr_row_sink *outer = b->values ? b->values->sink : NULL;
    mr_row_sink sink = {.n_rows = 1, .outer = outer, .cancel = outer ? outer->cancel : NULL};
    frame empty = {.rows = 1, .sink = &sink};
    frame f = b->values ? *b->values : empty;
    f.sink = &sink;
    column_set c = {0};
    mr_code rc = mr__eval(t, &f, &c, st);
    if (rc == MR_OK && sink.errors.n) {
        rc = sink.errors.v[0].status.code;
        if (st)
            *st = sink.errors.v[0].status;
    }
    if (rc == MR_OK)
        rc = mr__value_of_columns(t->spec, c.v, NULL, 0, out, st);
    out->computed = true;
    mr__columns_free(&c);
    mr__sink_free(&sink);
    return rc;
}

static mr_code keep_tree(dataset_body *r, const mr_expr *e, typed *t, mr_status *st)
{
    uint64_t number = UINT64_C(1) << 32; /* apart from those of the function around the body */
    mr__type_number_draws(t, &number);
    MR_TRY(
        MR_GROW(r->arguments, r->arguments_capacity, r->n_arguments + 1, 1 << 20, "arguments", st));
    r->arguments[r->n_arguments++] = (struct typed_argument){e, t};
    return MR_OK;
}

/* The tables begin their entries with the expression, and are in order of its address. */
static int compare_places(const void *a, const void *b)
{
    const mr_expr *x = *(const mr_expr *const *)a, *y = *(const mr_expr *const *)b;
    return (x > y) - (x < y);
}

void mr__dataset_body_sort(dataset_body *b)
{
    if (b->n_arguments)
        qsort(b->arguments, b->n_arguments, sizeof *b->arguments, compare_places);
    if (b->n_fns)
        qsort(b->fns, b->n_fns, sizeof *b->fns, compare_places);
    if (b->n_nodes)
        qsort(b->nodes, b->n_nodes, sizeof *b->nodes, compare_places);
}

const struct template_node *mr__template_node(const dataset_body *b, const mr_expr *e)
{
    return b->n_nodes ? bsearch(&e, b->nodes, b->n_nodes, sizeof *b->nodes, compare_places) : NULL;
}

static const typed *find_tree(const dataset_body *body, const mr_expr *e)
{
    if (!body || !body->n_arguments)
        return NULL;
    const struct typed_argument *found =
        bsearch(&e, body->arguments, body->n_arguments, sizeof *body->arguments, compare_places);
    return found ? found->tree : NULL;
}

static const struct template_fn *find_fn(const dataset_body *body, const mr_expr *e)
{
    if (!body || !body->n_fns)
        return NULL;
    return bsearch(&e, body->fns, body->n_fns, sizeof *body->fns, compare_places);
}

/* An argument that is arithmetic. */
mr_code mr__build_computed(const builder *b, const mr_expr *e, mr_value *out, mr_status *st)
{
    const typed *known = find_tree(b->body, e);
    if (known)
        return run_tree(b, known, out, st);
    typed *t = NULL;
    MR_TRY(mr__type(e, b->s, &t, st));
    mr_code rc = t->weak ? mr__type_settle_default(t, e, st) : MR_OK;
    if (rc == MR_OK && !b->values && b->record) {
        *out = (mr_value){.kind = MR_V_UNKNOWN, .spec = mr_spec_ref(t->spec)};
        rc = keep_tree(b->record, e, t, st);
        if (rc == MR_OK)
            return MR_OK;
        mr_value_reset(out);
    } else if (rc == MR_OK) {
        mr_status why;
        rc = run_tree(b, t, out, &why);
        if (rc == MR_INVALID_ARGUMENT || rc == MR_OUT_OF_RANGE)
            rc = mr__build_fail(b, st, e, "%s", why.message);
        else if (rc != MR_OK && st)
            *st = why;
    }
    mr__typed_free(t);
    return rc;
}

mr_code mr__build_fn(const builder *b, const mr_expr *e, mr_value *out, mr_status *st)
{
    const struct template_fn *known = find_fn(b->body, e);
    size_t *captured = NULL, n = 0;
    mr_code rc = MR_OK;
    if (known) {
        captured = known->captured;
        n = known->n_captured;
    } else
        rc = free_names(e, b->s, &captured, &n, st);
    const char **names = mr_calloc(n + 1, sizeof *names);
    mr_value *values = mr_calloc(n + 1, sizeof *values);
    if (rc == MR_OK && (!names || !values))
        rc = no_memory(st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        names[i] = b->s->names[captured[i]];
        rc = mr__build_name(b, captured[i], &values[i], st);
    }
    mr_fn *fn = NULL;
    if (rc == MR_OK)
        rc = known ? mr__fn_with_captures(known->fn, values, &fn, st)
                   : mr__fn_of_expr(e, names, values, n, &fn, st);
    for (size_t i = 0; values && i < n; i++)
        mr_value_reset(&values[i]);
    mr_free(values);
    mr_free(names);
    if (rc == MR_OK && b->record && !known) {
        dataset_body *r = b->record;
        rc = MR_GROW(r->fns, r->fns_capacity, r->n_fns + 1, 1 << 20, "functions", st);
        if (rc == MR_OK) {
            r->fns[r->n_fns++] = (struct template_fn){e, mr_fn_ref(fn), captured, n};
            captured = NULL;
        }
    }
    if (!known)
        mr_free(captured);
    if (rc != MR_OK) {
        mr_fn_unref(fn);
        return rc;
    }
    *out = (mr_value){.kind = MR_V_FN, .fn = fn};
    return MR_OK;
}

/* Items that make a tensor become one: numbers (float32 if any is a float), bools, strings, or
 * tensors of one dtype and shape. */
static mr_code join_items(mr_value *list, mr_status *st)
{
    size_t n = list->n;
    mr_array first = {0};
    bool floats = n == 0, unknown = false, fits = true;
    mr_array *v = mr_calloc(n + 1, sizeof *v);
    if (!v)
        return no_memory(st);
    for (size_t i = 0; i < n && fits; i++) {
        const mr_value *x = &list->items[i];
        unknown = unknown || x->kind == MR_V_UNKNOWN;
        floats = floats || x->kind == MR_V_FLOAT ||
                 (x->kind == MR_V_TENSOR && x->tensor.dtype == MR_FLOAT32);
        fits = x->kind == MR_V_INT || x->kind == MR_V_FLOAT || x->kind == MR_V_BOOL ||
               x->kind == MR_V_STRING || (x->kind == MR_V_TENSOR && x->tensor.storage != MR_RAGGED);
    }
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && fits && rc == MR_OK; i++) {
        rc = mr_value_to_array(&list->items[i], &v[i], st);
        if (rc == MR_OK && floats && v[i].dtype == MR_INT64) {
            mr_array wide;
            rc = mr__kernel_cast(&v[i], MR_FLOAT32, &wide, st);
            if (rc == MR_OK) {
                mr_array_reset(&v[i]);
                v[i] = wide;
            }
        }
        if (i == 0)
            first = v[0];
        fits = rc == MR_OK && v[i].dtype == first.dtype && v[i].rank == first.rank &&
               memcmp(v[i].shape, first.shape, (size_t)first.rank * sizeof *first.shape) == 0 &&
               first.rank < MR_MAX_RANK;
    }
    if (rc == MR_OK && fits && !unknown) {
        mr_array all = {0};
        const int64_t zero = 0;
        if (n == 0)
            rc = mr_array_alloc(&all, MR_FLOAT32, 1, &zero, 1, st);
        else {
            rc = mr_array_start(&all, &first, n, st);
            for (size_t i = 0; i < n && rc == MR_OK; i++)
                rc = mr_array_append(&all, &v[i], 0, 1, st);
            if (rc == MR_OK) {
                mr_array grouped;
                mr_array_group(&grouped, &all, n);
                mr_array_reset(&all);
                all = grouped;
            }
        }
        if (rc == MR_OK) {
            bool was_computed = false;
            for (size_t i = 0; i < n; i++)
                was_computed = was_computed || list->items[i].computed;
            mr_value_reset(list);
            *list = (mr_value){.kind = MR_V_TENSOR, .tensor = all, .computed = was_computed};
        } else
            mr_array_reset(&all);
    }
    for (size_t i = 0; i < n; i++)
        mr_array_reset(&v[i]);
    mr_free(v);
    return rc;
}

static mr_code build_items(const builder *b, const mr_expr *e, mr_value *out, mr_status *st)
{
    out->kind = e->kind == MR_EX_LIST    ? MR_V_LIST
                : e->kind == MR_EX_TUPLE ? MR_V_TUPLE
                                         : MR_V_RECORD;
    out->items = mr_calloc(e->n + 1, sizeof *out->items);
    if (e->kind == MR_EX_RECORD)
        out->names = mr_calloc(e->n + 1, sizeof *out->names);
    if (!out->items || (e->kind == MR_EX_RECORD && !out->names))
        return no_memory(st);
    out->n = e->n;
    for (size_t i = 0; i < e->n; i++) {
        MR_TRY(mr__build_value(b, e->children[i], &out->items[i], st));
        if (out->names && !(out->names[i] = mr_strdup(e->keys[i])))
            return no_memory(st);
    }
    return e->kind == MR_EX_LIST ? join_items(out, st) : MR_OK;
}

/* A list with items that are only known in a call is an unknown tensor as a whole. */
static bool has_computed(const mr_expr *e, const builder *b)
{
    if (e->kind == MR_EX_LIST || e->kind == MR_EX_UNARY) {
        for (size_t i = 0; i < e->n; i++)
            if (has_computed(e->children[i], b))
                return true;
        return false;
    }
    return e->kind != MR_EX_INT && e->kind != MR_EX_FLOAT && e->kind != MR_EX_STRING &&
           e->kind != MR_EX_BOOL && e->kind != MR_EX_NONE && e->kind != MR_EX_AUTO &&
           e->kind != MR_EX_TUPLE && e->kind != MR_EX_RECORD && e->kind != MR_EX_LAMBDA &&
           !mr__is_dataset(e, b->s);
}

mr_code mr__build_value(const builder *b, const mr_expr *e, mr_value *out, mr_status *st)
{
    bool literal;
    *out = (mr_value){0};
    mr_code rc = mr__literal_value(e, out, &literal, st);
    if (rc != MR_OK || literal)
        return rc;
    switch (e->kind) {
    case MR_EX_LAMBDA:
        return mr__build_fn(b, e, out, st);
    case MR_EX_LIST:
        if (e->n && has_computed(e, b))
            return mr__build_computed(b, e, out, st);
        rc = build_items(b, e, out, st);
        break;
    case MR_EX_TUPLE:
    case MR_EX_RECORD:
        rc = build_items(b, e, out, st);
        break;
    default:
        if (!mr__is_dataset(e, b->s))
            return mr__build_computed(b, e, out, st);
        out->kind = MR_V_DATASET;
        rc = mr__build_dataset(b, e, &out->dataset, st);
    }
    if (rc != MR_OK)
        mr_value_reset(out);
    return rc;
}
