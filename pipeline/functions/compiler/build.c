/* SPDX-License-Identifier: Apache-2.0 */
/* Builds nodes from a syntax tree, using only the ops' descriptors: for whole pipelines, and for
 * function bodies that are datasets. A body is built once as a template, when the graph is
 * built, with unknown values for everything that depends on the element; this checks and types
 * it. Then it is built for every element from the template's typed arguments. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/compiler/graph_builder.h"
#include "pipeline/graph/fn.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/op.h"
#include "pipeline/params/guess.h"
#include "pipeline/params/params.h"

static mr_code no_memory(mr_status *st)
{
    return mr_fail_memory(st, 0, "a graph");
}

/* ---- calls of ops ---- */

enum { MAX_PLACES = 16 };

typedef struct op_call {
    const builder *b;
    const mr_expr *e;
    const mr_op *op;
    mr__arguments args;
    mr_dataset **inputs;
    size_t n_inputs, inputs_capacity;
    const mr_expr *named; /* the record of the inputs (MR_OP_NAMES_INPUTS); NULL: none yet */
    const mr_expr *given[MAX_PLACES]; /* the expression given for each of the first parameters */
} op_call;

static mr_code add_input(op_call *c, const mr_expr *e, mr_status *st)
{
    mr_dataset *ds = NULL;
    MR_TRY(mr__build_dataset(c->b, e, &ds, st));
    mr_code rc = MR_GROW(c->inputs, c->inputs_capacity, c->n_inputs + 1, 1 << 20, "inputs", st);
    if (rc != MR_OK) {
        mr_dataset_unref(ds);
        return rc;
    }
    c->inputs[c->n_inputs++] = ds;
    return MR_OK;
}

static bool takes_inputs(const op_call *c)
{
    return c->op->max_inputs < 0 || c->n_inputs < (size_t)c->op->max_inputs;
}

static bool is_dataset_list(const mr_expr *e, const scope *s)
{
    if (e->kind != MR_EX_LIST || e->n == 0)
        return false;
    for (size_t i = 0; i < e->n; i++)
        if (!mr__is_dataset(e->children[i], s))
            return false;
    return true;
}

static mr_code build_argument(op_call *c, const mr_param *p, const mr_expr *e, mr_value *out,
                              mr_status *st)
{
    bool bare = e->kind == MR_EX_NAME && mr__scope_find(c->b->s, e->text) < 0;
    if (p->type == MR_PT_FN) {
        if (e->kind == MR_EX_LAMBDA || bare)
            return mr__build_fn(c->b, e, out, st);
        return mr__build_fail(c->b, st, e, "%s: %s must be a function, as in x => x * 2",
                              c->op->name, p->name);
    }
    bool names_value = e->kind == MR_EX_NAME && !bare;
    if ((p->flags & MR_P_EXPRESSION) && e->kind != MR_EX_STRING && !names_value) {
        char *text = NULL;
        MR_TRY(mr_expr_print(e, &text, st));
        *out = (mr_value){.kind = MR_V_STRING, .s = text, .size = strlen(text)};
        return MR_OK;
    }
    if (e->kind == MR_EX_LAMBDA && p->type != MR_PT_VALUE) {
        /* x, y => x + y is x, and a function of y. */
        const mr_expr *before = NULL;
        for (size_t i = 1; i < c->e->n; i++)
            if (c->e->children[i] == e && !(c->e->keys && c->e->keys[i]))
                before = c->e->children[i - 1];
        if (before && before->kind == MR_EX_NAME && e->n_params == 1)
            return mr__build_fail(c->b, st, e,
                                  "%s: %s cannot be a function; one of several parameters is "
                                  "written (%s, %s) => ...",
                                  c->op->name, p->name, before->text, e->params[0]);
        return mr__build_fail(c->b, st, e, "%s: %s cannot be a function", c->op->name, p->name);
    }
    return mr__build_value(c->b, e, out, st);
}

static mr_code unknown_op(const builder *b, const mr_expr *e, mr_status *st)
{
    const mr_op *op;
    const char *hint = mr__type_hint(e);
    mr_guess g = {.word = e->text};
    if (*hint)
        return mr__build_fail(b, st, e, "unknown op '%s'%s", e->text, hint);
    const mr_function *f = mr_function_find(e->text);
    if (f && !f->form)
        return mr__build_fail(b, st, e,
                              "unknown op '%s': it is a function of values, as in "
                              "map(x => %s(x))",
                              e->text, e->text);
    for (size_t i = 0; (op = mr_op_at(i)); i++)
        if (!(op->props & MR_OP_INTERNAL))
            mr_guess_try(&g, op->name);
    if (g.best)
        return mr__build_fail(b, st, e, "unknown op '%s'; did you mean '%s'?", e->text, g.best);
    return mr__build_fail(b, st, e, "unknown op '%s'; 'millrace ops' lists them", e->text);
}

/* An error of an argument, at its place: byte `at` of the text. */
static mr_code at_argument(const op_call *c, const mr_expr *e, size_t at, mr_code rc,
                           const mr_status *why, mr_status *st)
{
    size_t size;
    const char *text = mr_expr_source(e, &size);
    if (rc == MR_INVALID_ARGUMENT && !c->b->body)
        return mr_expr_fail(st, rc, text, size, at, "%s", why->message);
    if (rc != MR_OK && st)
        *st = *why;
    return rc;
}

/* The expression to which an error of the whole node refers. If the message begins with the op's
 * name and a parameter's, as those of tables and check slots do, it is that argument; else the
 * op, or the only argument of a source with one parameter. */
static const mr_expr *at_fault(const op_call *c, const char *message)
{
    size_t n = strlen(c->op->name);
    const mr_param *p = c->op->params;
    if (c->op->max_inputs == 0 && p[0].name && !p[1].name && c->given[0])
        return c->given[0];
    if (strncmp(message, c->op->name, n) != 0 || strncmp(message + n, ": ", 2) != 0)
        return c->e;
    const char *word = message + n + 2;
    size_t length = strcspn(word, " :");
    for (size_t i = 0; i < c->args.n && i < MAX_PLACES; i++) {
        const char *name = c->op->params[i].name;
        if (c->given[i] && strlen(name) == length && strncmp(name, word, length) == 0)
            return c->given[i];
    }
    return c->e;
}

/* The i-th child of the call is an argument. */
static mr_code add_parameter(op_call *c, size_t i, mr_status *st)
{
    const char *key = c->e->keys ? c->e->keys[i] : NULL;
    const mr_expr *e = c->e->children[i];
    size_t begin = key && c->e->key_begins ? c->e->key_begins[i] : mr_expr_place(e), at = 0;
    mr_value v = {0};
    mr_status why;
    mr_status_init(&why);
    MR_TRY(at_argument(c, e, begin, mr__arguments_place(&c->args, key, &at, &why), &why, st));
    if (at < MAX_PLACES)
        c->given[at] = e;
    MR_TRY(build_argument(c, &c->op->params[at], e, &v, st));
    mr_code rc = mr__arguments_put(&c->args, at, key, &v, &why);
    mr_value_reset(&v);
    return at_argument(c, e, begin, rc, &why, st);
}

static mr_code not_a_dataset(const op_call *c, const mr_expr *e, mr_status *st)
{
    char hint[MR__HINT_ROOM];
    mr__hint_of_place(e, c->b->s, hint);
    if (*hint)
        return mr__build_fail(c->b, st, e, "%s takes datasets%s", c->op->name, hint);
    return mr__build_fail(c->b, st, e, "%s takes datasets, as in %s", c->op->name, c->op->example);
}

/* The inputs with their names. */
static mr_code add_record(op_call *c, const mr_expr *e, mr_status *st)
{
    if (e->kind != MR_EX_RECORD || e->n == 0)
        return mr__build_fail(c->b, st, e, "%s takes a record of datasets, as in %s", c->op->name,
                              c->op->example);
    c->named = e;
    for (size_t i = 0; i < e->n; i++) {
        if (!mr__is_dataset(e->children[i], c->b->s))
            return not_a_dataset(c, e->children[i], st);
        MR_TRY(add_input(c, e->children[i], st));
    }
    return MR_OK;
}

static mr_code add_argument(op_call *c, size_t index, mr_status *st)
{
    const char *key = c->e->keys ? c->e->keys[index] : NULL;
    const mr_expr *e = c->e->children[index];
    if (!key && (c->op->props & MR_OP_NAMES_INPUTS) && !c->named)
        return add_record(c, e, st);
    if (c->op->props & MR_OP_NAMES_INPUTS)
        return add_parameter(c, index, st);
    if (!key && takes_inputs(c) && mr__is_dataset(e, c->b->s))
        return add_input(c, e, st);
    if (!key && c->op->max_inputs < 0 && is_dataset_list(e, c->b->s)) {
        for (size_t i = 0; i < e->n; i++)
            MR_TRY(add_input(c, e->children[i], st));
        return MR_OK;
    }
    if (!key && mr__arguments_next(&c->args) < 0 && takes_inputs(c) && e->kind == MR_EX_CALL)
        return unknown_op(c->b, e, st);
    if (!key && mr__arguments_next(&c->args) < 0 && takes_inputs(c))
        return not_a_dataset(c, e, st);
    return add_parameter(c, index, st);
}

/* Records the node of a template; a node of an instance gets what the template knows of it. */
static mr_code match_template(const op_call *c, mr_dataset *ds, mr_status *st)
{
    dataset_body *r = c->b->record;
    if (r) {
        MR_TRY(MR_GROW(r->nodes, r->nodes_capacity, r->n_nodes + 1, 1 << 20, "ops", st));
        mr_spec *spec = mr_spec_ref(mr_dataset_spec(ds));
        r->nodes[r->n_nodes++] =
            (struct template_node){.e = c->e, .spec = spec, .is_literal = !mr_param_unknown(ds, 0)};
    }
    const struct template_node *known = c->b->body ? mr__template_node(c->b->body, c->e) : NULL;
    if (known)
        mr__dataset_widen(ds, known->spec);
    if (known && known->is_literal)
        mr__dataset_set_literal(ds);
    return MR_OK;
}

/* Makes the node. Inside a function an invalid value is an error of the call, not of the graph:
 * the template is then typed without the values. */
static mr_code make_node(op_call *c, mr_dataset **out, mr_status *st)
{
    mr_dataset **again = NULL;
    if (c->b->record) {
        again = mr_calloc(c->n_inputs + 1, sizeof *again);
        if (!again)
            return no_memory(st);
        for (size_t i = 0; i < c->n_inputs; i++)
            again[i] = mr_dataset_ref(c->inputs[i]);
    }
    size_t n = c->n_inputs;
    c->n_inputs = 0; /* taken over */
    mr_dataset *ds = mr_dataset_from_values(c->op, c->args.values, c->inputs, n);
    mr_status why;
    mr_code rc = mr_dataset_check(ds, &why);
    if (rc == MR_INVALID_ARGUMENT && c->b->record) {
        for (size_t i = 0; i < c->args.n; i++) {
            mr_spec *spec = NULL;
            mr_value *v = &c->args.values[i];
            if (v->kind == MR_V_UNSET || v->kind == MR_V_FN || v->kind == MR_V_NONE ||
                v->kind == MR_V_AUTO || mr__value_spec(v, &spec, NULL) != MR_OK)
                continue;
            mr_value_reset(v);
            *v = (mr_value){.kind = MR_V_UNKNOWN, .spec = spec};
        }
        mr_dataset_unref(ds);
        ds = mr_dataset_from_values(c->op, c->args.values, again, n);
        mr_free(again);
        again = NULL;
        rc = mr_dataset_check(ds, &why);
    }
    for (size_t i = 0; again && i < n; i++)
        mr_dataset_unref(again[i]);
    mr_free(again);
    if (rc == MR_OK)
        rc = match_template(c, ds, &why);
    if (rc != MR_OK) {
        mr_dataset_unref(ds);
        /* If the error already shows a place, it comes from a function of the op. */
        if (rc == MR_INVALID_ARGUMENT && !c->b->body && !strchr(why.message, '\n'))
            return mr_expr_fail_at(st, at_fault(c, why.message), "%s", why.message);
        if (st)
            *st = why;
        return rc;
    }
    *out = ds;
    return MR_OK;
}

/* Gives the inputs their names. */
static mr_code name_inputs(op_call *c, mr_status *st)
{
    mr_status why;
    size_t at = 0;
    mr_status_init(&why);
    if (!c->named)
        return MR_OK;
    while (strcmp(c->op->params[at].name, MR__WEIGHTS) != 0)
        at++;
    mr_code rc = mr__name_inputs(c->op->name, (const char *const *)c->named->keys, c->named->n,
                                 &c->args.values[at], &why);
    if (rc == MR_INVALID_ARGUMENT && !c->b->body)
        return mr_expr_fail_at(st, at_fault(c, why.message), "%s", why.message);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

/* Checks that all required arguments are given. */
static mr_code check_given(const op_call *c, mr_status *st)
{
    for (size_t i = 0; i < c->args.n; i++) {
        const mr_param *p = &c->op->params[i];
        if (mr__param_required(p) && !(p->flags & MR_P_VARIADIC) &&
            c->args.values[i].kind == MR_V_UNSET)
            return mr__build_fail(c->b, st, c->e, "%s: expected %s, which is missing, as in %s",
                                  c->op->name, p->name, c->op->example);
    }
    return MR_OK;
}

static mr_code call_op(const builder *b, const mr_expr *e, mr_dataset **out, mr_status *st)
{
    const mr_op *op = mr_op_find(e->text, strlen(e->text));
    bool method = e->kind == MR_EX_METHOD;
    if (!op || ((op->props & MR_OP_INTERNAL) && !b->body && b->env))
        return unknown_op(b, e, st);
    if (method && (op->max_inputs == 0 || (op->props & MR_OP_NAMES_INPUTS)))
        return mr__build_fail(b, st, e, "%s is a source and must come first%s", op->name,
                              mr__type_hint(e));
    if (!method && op->min_inputs > 0 && !(op->props & MR_OP_SOURCE_CALL))
        return mr__build_fail(b, st, e,
                              "%s is a method: write it after a dataset, as in "
                              "range(10).%s(...)",
                              op->name, op->name);
    op_call c = {.b = b, .e = e, .op = op};
    const mr_param_table table = {op->name, op->params, op->params_size};
    mr_code rc = mr__arguments_init(&c.args, &table, st);
    if (rc == MR_OK && method) {
        const mr_expr *receiver = e->children[0];
        if (receiver->kind == MR_EX_CALL && !mr_op_find(receiver->text, receiver->text_size) &&
            !mr_function_find(receiver->text))
            rc = unknown_op(b, receiver, st);
        else if (!mr__is_dataset(receiver, b->s)) {
            char hint[MR__HINT_ROOM];
            mr__hint_of_place(receiver, b->s, hint);
            rc = mr__build_fail(b, st, receiver, "%s expects a dataset before the point%s",
                                op->name, *hint ? hint : mr__type_hint(receiver));
        } else
            rc = add_input(&c, e->children[0], st);
    }
    for (size_t i = method; i < e->n && rc == MR_OK; i++)
        rc = add_argument(&c, i, st);
    if (rc == MR_OK && c.n_inputs < (size_t)op->min_inputs)
        rc = mr__build_fail(b, st, e, "%s expects %d dataset%s, found %zu", op->name,
                            op->min_inputs, op->min_inputs == 1 ? "" : "s", c.n_inputs);
    if (rc == MR_OK)
        rc = check_given(&c, st);
    if (rc == MR_OK)
        rc = name_inputs(&c, st);
    if (rc == MR_OK)
        rc = make_node(&c, out, st);
    mr__arguments_reset(&c.args);
    for (size_t i = 0; i < c.n_inputs; i++)
        mr_dataset_unref(c.inputs[i]);
    mr_free(c.inputs);
    return rc;
}

/* ---- names that are datasets ---- */

/* Placeholder in a template for a dataset that is only known in a call. */
struct given_params {
    const mr_spec *element; /* borrowed: the scope outlives the template */
};
static mr_code infer_given(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)st;
    *out = mr_spec_ref(((const struct given_params *)p)->element);
    return MR_OK;
}
static const mr_op given = {.abi = MR_ABI_VERSION,
                            .name = "given",
                            .doc = "The dataset that a function is called with.",
                            .params_size = sizeof(struct given_params),
                            .role = MR_ROLE_BARRIER,
                            .props = MR_OP_INTERNAL,
                            .infer = infer_given};

/* A dataset that a name or a component of one refers to, or the result of an if. */
static mr_code dataset_of_value(const builder *b, const mr_expr *e, mr_dataset **out, mr_status *st)
{
    if (!mr__is_dataset(e, b->s))
        return mr__build_fail(b, st, e, "'%s' is not a dataset",
                              e->kind == MR_EX_NAME ? e->text : "this expression");
    mr_value v = {0};
    mr_code rc = MR_OK;
    if (e->kind == MR_EX_NAME)
        rc = mr__build_name(b, (size_t)mr__scope_find(b->s, e->text), &v, st);
    else
        rc = mr__build_computed(b, e, &v, st);
    mr_dataset *ds = NULL;
    if (rc == MR_OK && v.kind == MR_V_UNKNOWN) {
        /* The type is kept alive by the scope, or by the typed tree that the template keeps. */
        ds = mr_dataset_new(&given, &(struct given_params){mr_spec_leaf(v.spec, 0)->element}, NULL,
                            0);
        rc = mr_dataset_check(ds, st);
    } else if (rc == MR_OK)
        ds = mr_dataset_ref(v.dataset);
    mr_value_reset(&v);
    if (rc == MR_OK)
        *out = ds;
    else
        mr_dataset_unref(ds);
    return rc;
}

mr_code mr__build_dataset(const builder *b, const mr_expr *e, mr_dataset **out, mr_status *st)
{
    if (e->kind == MR_EX_NAME || e->kind == MR_EX_INDEX || e->kind == MR_EX_IF)
        return dataset_of_value(b, e, out, st);
    if (e->kind == MR_EX_CALL || e->kind == MR_EX_METHOD)
        return call_op(b, e, out, st);
    return mr__build_fail(b, st, e, "expected a dataset here, as in range(10)");
}

/* ---- bodies ---- */

void mr__dataset_body_free(dataset_body *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < b->n_arguments; i++)
        mr__typed_free(b->arguments[i].tree);
    for (size_t i = 0; i < b->n_fns; i++) {
        mr_fn_unref(b->fns[i].fn);
        mr_free(b->fns[i].captured);
    }
    for (size_t i = 0; i < b->n_nodes; i++)
        mr_spec_unref(b->nodes[i].spec);
    for (size_t i = 0; i < b->s.n; i++) {
        if (b->own_names)
            mr_free(b->own_names[i]);
        if (b->own_specs)
            mr_spec_unref(b->own_specs[i]);
    }
    mr_free(b->own_names);
    mr_free(b->own_specs);
    mr_free(b->s.first);
    mr_free(b->s.constant);
    mr_free(b->arguments);
    mr_free(b->fns);
    mr_free(b->nodes);
    mr_expr_unref(b->e);
    mr_free(b);
}

static mr_code copy_scope(dataset_body *b, const scope *s, mr_status *st)
{
    b->own_names = mr_calloc(s->n + 1, sizeof *b->own_names);
    b->own_specs = mr_calloc(s->n + 1, sizeof *b->own_specs);
    b->s.first = mr_calloc(s->n + 1, sizeof *b->s.first);
    b->s.constant = mr_calloc(s->n + 1, sizeof *b->s.constant);
    if (!b->own_names || !b->own_specs || !b->s.first || !b->s.constant)
        return no_memory(st);
    for (size_t i = 0; i < s->n; i++) {
        b->s.n = i + 1;
        b->own_specs[i] = mr_spec_ref(s->specs[i]);
        b->s.first[i] = s->first[i];
        /* An instance sees one row of everything. */
        b->s.constant[i] = false;
        if (!(b->own_names[i] = mr_strdup(s->names[i])))
            return no_memory(st);
    }
    b->s.names = (const char **)b->own_names;
    b->s.specs = (const mr_spec **)b->own_specs;
    return MR_OK;
}

mr_code mr__dataset_body(const mr_expr *e, const scope *s, dataset_body **out, mr_spec **element,
                         mr_status *st)
{
    dataset_body *body = mr_calloc(1, sizeof *body);
    if (!body)
        return no_memory(st);
    body->e = mr_expr_ref(e);
    mr_dataset *ds = NULL;
    mr_code rc = copy_scope(body, s, st);
    if (rc == MR_OK) {
        builder b = {.s = &body->s, .record = body};
        rc = mr__build_dataset(&b, e, &ds, st);
    }
    if (rc == MR_OK) {
        mr__dataset_body_sort(body);
        body->count = mr__dataset_fixed_count(ds);
        *element = mr_spec_ref(mr_dataset_spec(ds));
        *out = body;
    } else
        mr__dataset_body_free(body);
    mr_dataset_unref(ds);
    return rc;
}

int64_t mr__dataset_body_count(const dataset_body *b)
{
    return b->count;
}

void mr__dataset_body_used(const dataset_body *b, bool *used)
{
    bool names[64];
    bool *u = b->s.n <= 64 ? names : mr_calloc(b->s.n, sizeof *u);
    /* If memory for the analysis is lacking, all of them. */
    if (u) {
        memset(u, 0, b->s.n * sizeof *u);
        mr__mark_names(b->e, &b->s, u);
    }
    for (size_t i = 0; i < b->s.n; i++)
        for (size_t k = 0; (!u || u[i]) && k < mr_spec_n_leaves(b->s.specs[i]); k++)
            used[b->s.first[i] + k] = true;
    if (u != names)
        mr_free(u);
}

mr_code mr__dataset_body_make(const dataset_body *body, const frame *f, size_t row,
                              mr_dataset **out, mr_status *st)
{
    mr_array few[16];
    bool few_used[16];
    mr_array *v = f->n <= 16 ? few : mr_calloc(f->n, sizeof *v);
    bool *used = f->n <= 16 ? few_used : mr_calloc(f->n, sizeof *used);
    mr_code rc = v && used ? MR_OK : no_memory(st);
    if (rc == MR_OK) {
        memset(v, 0, f->n * sizeof *v);
        memset(used, 0, f->n * sizeof *used);
        mr__dataset_body_used(body, used);
        for (size_t i = 0; i < f->n; i++)
            if (used[i])
                mr_array_slice(&v[i], &f->v[i], f->constant && f->constant[i] ? 0 : row, 1);
        mr_row_sink here = {.outer = f->sink, .base = row, .cancel = f->sink->cancel};
        frame one = {v, NULL, f->n, 1, &here, NULL};
        builder b = {.s = &body->s, .values = &one, .body = body};
        rc = mr__build_dataset(&b, body->e, out, st);
        for (size_t i = 0; i < f->n; i++)
            mr_array_reset(&v[i]);
    }
    if (f->n > 16) {
        mr_free(v);
        mr_free(used);
    }
    return rc;
}

/* ---- whole pipelines ---- */

/* The environment as a scope over columns of one row. Calls of its functions are computed first,
 * and are in the scope under their place in the text. */
typedef struct surroundings {
    scope s;
    mr_spec **specs;
    char **names;
    mr_array *columns;
    size_t n_columns, columns_capacity, capacity;
    frame f;
} surroundings;

static void surroundings_free(surroundings *x)
{
    for (size_t i = 0; i < x->s.n; i++) {
        mr_free(x->names[i]);
        mr_spec_unref(x->specs[i]);
    }
    for (size_t i = 0; i < x->n_columns; i++)
        mr_array_reset(&x->columns[i]);
    mr_free(x->names);
    mr_free(x->specs);
    mr_free(x->columns);
    mr_free(x->s.first);
    mr_free(x->s.constant);
}

static mr_code add_name(surroundings *x, const char *name, const mr_value *v, mr_status *st)
{
    size_t n = x->s.n;
    if (n == x->capacity) {
        size_t room = n * 2 + 8;
        char **names = mr_realloc(x->names, room * sizeof *names);
        if (names)
            x->names = names;
        mr_spec **specs = mr_realloc(x->specs, room * sizeof *specs);
        if (specs)
            x->specs = specs;
        size_t *first = mr_realloc(x->s.first, room * sizeof *first);
        if (first)
            x->s.first = first;
        bool *constant = mr_realloc(x->s.constant, room * sizeof *constant);
        if (constant)
            x->s.constant = constant;
        if (!names || !specs || !first || !constant)
            return no_memory(st);
        x->capacity = room;
    }
    mr_spec *spec = NULL;
    MR_TRY(mr__value_spec(v, &spec, st));
    size_t k = mr_spec_n_leaves(spec);
    mr_code rc = MR_GROW(x->columns, x->columns_capacity, x->n_columns + k, MR_EXPR_MAX_TEXT,
                         "arguments", st);
    char *copy = mr_strdup(name);
    if (rc == MR_OK && !copy)
        rc = no_memory(st);
    if (rc != MR_OK) {
        mr_spec_unref(spec);
        mr_free(copy);
        return rc;
    }
    memset(x->columns + x->n_columns, 0, k * sizeof *x->columns);
    x->names[n] = copy;
    x->specs[n] = spec;
    x->s.first[n] = x->n_columns;
    x->s.constant[n] = true;
    x->s.n = n + 1;
    x->n_columns += k;
    x->s.names = (const char **)x->names;
    x->s.specs = (const mr_spec **)x->specs;
    x->f = (frame){x->columns, NULL, x->n_columns, 1, NULL, NULL};
    return mr__value_columns(v, x->columns + x->s.first[n], st);
}

/* Computes the calls of the environment's functions in e, innermost first. */
static mr_code compute_calls(surroundings *x, const mr_env *env, const mr_expr *e, mr_status *st)
{
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(compute_calls(x, env, e->children[i], st));
    if (e->kind != MR_EX_CALL || mr_op_find(e->text, strlen(e->text)) || mr_function_find(e->text))
        return MR_OK;
    mr_value *args = mr_calloc(e->n + 1, sizeof *args), result = {0};
    mr_code rc = args ? MR_OK : no_memory(st);
    builder b = {.s = &x->s, .values = &x->f, .env = env};
    mr_status why;
    size_t got = 0;
    /* Arguments that cannot be computed here belong to a function of another kind. */
    for (; got < e->n && rc == MR_OK; got++)
        rc = mr__build_value(&b, e->children[got], &args[got], &why);
    bool ours = rc == MR_OK;
    if (ours)
        rc = env->call(env->ctx, e->text, args, e->n, &result, &why);
    if (ours && rc == MR_OK) {
        char place[32];
        snprintf(place, sizeof place, "@%" PRIu32, e->begin);
        rc = add_name(x, place, &result, st);
    } else if (ours && rc != MR_NOT_FOUND) {
        if (st)
            *st = why;
    } else if (rc != MR_RESOURCE_EXHAUSTED)
        rc = MR_OK;
    for (size_t i = 0; args && i < got; i++)
        mr_value_reset(&args[i]);
    mr_value_reset(&result);
    mr_free(args);
    return rc;
}

mr_code mr_dataset_from_text(const char *text, size_t size, const mr_env *env, mr_dataset **out,
                             mr_status *st)
{
    static const mr_env none;
    const mr_expr *e = NULL;
    MR_TRY(mr_expr_parse(text, size, &e, st));
    surroundings x = {.f = {.rows = 1}};
    mr_dataset *ds = NULL;
    mr_code rc = MR_OK;
    for (size_t i = 0; env && i < env->n && rc == MR_OK; i++)
        rc = add_name(&x, env->names[i], &env->values[i], st);
    if (rc == MR_OK && env && env->call)
        rc = compute_calls(&x, env, e, st);
    if (rc == MR_OK) {
        builder b = {.s = &x.s, .values = &x.f, .env = env ? env : &none};
        rc = mr__build_dataset(&b, e, &ds, st);
    }
    surroundings_free(&x);
    mr_expr_unref(e);
    if (rc == MR_OK)
        *out = ds;
    else
        mr_dataset_unref(ds);
    return rc;
}

mr_code mr_value_from_text(const char *text, size_t size, mr_value *out, mr_status *st)
{
    static const mr_env none;
    const mr_expr *e = NULL;
    mr_value v = {0};
    MR_TRY(mr_expr_parse(text, size, &e, st));
    const scope nothing = {0};
    const frame one = {.rows = 1};
    builder b = {.s = &nothing, .values = &one, .env = &none};
    mr_code rc = mr__build_value(&b, e, &v, st);
    mr_expr_unref(e);
    if (rc == MR_OK)
        *out = v;
    else
        mr_value_reset(&v);
    return rc;
}
