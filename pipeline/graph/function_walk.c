/* SPDX-License-Identifier: Apache-2.0 */
/* Walks graphs and the functions in them, to find ops by role (never by name), calls of functions,
 * and file names. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/rewrite.h"

/* Callbacks for each op: as a node of a graph, and as a call in the text of a function. */
typedef struct walk {
    mr_code (*node)(struct walk *w, const mr_dataset *ds, mr_status *st);
    mr_code (*call)(struct walk *w, const mr_op *op, const mr_expr *e, mr_status *st);
    void *ctx;
    mr_file_name_fn name;             /* of mr_dataset_file_names */
    mr_role role;                     /* of mr_dataset_functions_have_role */
    bool (*is)(const char *function); /* of mr__dataset_calls; otherwise NULL */
    bool (*is_fn)(const mr_fn *fn);   /* of mr__dataset_has_fn; otherwise NULL */
    uint16_t flag;                    /* of parameters that name files to write */
    const mr_op *op;                  /* the op looked for, or found */
    const mr_dataset *runs;           /* of mr__stored_dataset_reads */
    bool all_values;                  /* walks datasets in every parameter, not only functions */
    bool found;
} walk;

/* The names bound by a lambda and the lambdas around it. */
typedef struct scope {
    const struct scope *outer;
    const mr_expr *lambda;
} scope;

static bool is_bound(const scope *s, const char *name)
{
    for (; s; s = s->outer)
        for (size_t i = 0; i < s->lambda->n_params; i++)
            if (strcmp(s->lambda->params[i], name) == 0)
                return true;
    return false;
}

/* The op that e calls, or refers to as a function (map(tfrecord)). */
static const mr_op *op_of(const mr_expr *e, const scope *s)
{
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL && e->kind != MR_EX_METHOD)
        return NULL;
    if (e->kind == MR_EX_NAME && is_bound(s, e->text))
        return NULL;
    const mr_op *op = mr_op_find(e->text, strlen(e->text));
    bool method = op && op->min_inputs > 0 && !(op->props & MR_OP_SOURCE_CALL);
    return method && e->kind != MR_EX_METHOD ? NULL : op; /* split(x) is a function */
}

/* The recursion is bounded by MR_EXPR_MAX_DEPTH. */
static mr_code walk_expr(walk *w, const mr_expr *e, const scope *s, mr_status *st)
{
    const mr_op *op = op_of(e, s);
    bool named = e->kind == MR_EX_CALL || (e->kind == MR_EX_NAME && !is_bound(s, e->text));
    if (w->is && named)
        w->found = w->found || w->is(e->text);
    if (op)
        MR_TRY(w->call(w, op, e, st));
    scope inner = {s, e};
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(walk_expr(w, e->children[i], e->kind == MR_EX_LAMBDA ? &inner : s, st));
    return MR_OK;
}

static mr_code walk_functions(walk *w, const mr_dataset *ds, mr_status *st);

static mr_code walk_graph(walk *w, const mr_dataset *ds, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    mr_code rc = MR_OK;
    for (size_t i = 0; i < nodes.n && rc == MR_OK; i++) {
        rc = w->node(w, nodes.v[i], st);
        if (rc == MR_OK)
            rc = walk_functions(w, nodes.v[i], st);
    }
    mr__nodes_reset(&nodes);
    return rc;
}

/* The recursion is bounded by the depth of the text or protobuf that the values came from. */
static mr_code walk_value(walk *w, const mr_value *v, mr_status *st)
{
    if (v->kind == MR_V_DATASET)
        MR_TRY(walk_graph(w, v->dataset, st));
    if (v->kind == MR_V_FN && w->is_fn)
        w->found = w->found || w->is_fn(v->fn);
    if (v->kind == MR_V_FN && v->fn->kind == MR_FN_EXPR && v->fn->expr)
        MR_TRY(walk_expr(w, v->fn->expr, NULL, st));
    for (size_t i = 0; v->kind == MR_V_FN && i < v->fn->n_captures; i++)
        MR_TRY(walk_value(w, &v->fn->captures[i], st));
    for (size_t i = 0; i < v->n; i++)
        MR_TRY(walk_value(w, &v->items[i], st));
    return MR_OK;
}

static mr_code walk_functions(walk *w, const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    mr_code rc = MR_OK;
    for (size_t i = 0; op && op->params && op->params[i].name && rc == MR_OK; i++) {
        bool value = w->all_values && op->params[i].type == MR_PT_VALUE;
        if (op->params[i].type != MR_PT_FN && !value)
            continue;
        mr_value v = {0};
        MR_TRY(mr_dataset_param(ds, i, &v, st));
        rc = walk_value(w, &v, st);
        mr_value_reset(&v);
    }
    return rc;
}

/* ---- roles ---- */

static mr_code role_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    (void)st;
    const mr_op *op = mr_dataset_op(ds);
    w->found |= op && op->role == w->role;
    return MR_OK;
}

static mr_code role_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    (void)e;
    (void)st;
    w->found |= op->role == w->role;
    return MR_OK;
}

mr_code mr_dataset_functions_have_role(const mr_dataset *ds, mr_role role, bool *out, mr_status *st)
{
    walk w = {.node = role_of_node, .call = role_of_call, .role = role};
    MR_TRY(walk_functions(&w, ds, st));
    *out = w.found;
    return MR_OK;
}

/* ---- functions ---- */

static mr_code nothing_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    (void)w;
    (void)ds;
    (void)st;
    return MR_OK;
}

static mr_code nothing_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    (void)w;
    (void)op;
    (void)e;
    (void)st;
    return MR_OK;
}

mr_code mr__dataset_calls(const mr_dataset *ds, bool (*is)(const char *function), bool *out,
                          mr_status *st)
{
    walk w = {.node = nothing_of_node, .call = nothing_of_call, .is = is};
    MR_TRY(walk_graph(&w, ds, st));
    *out = w.found;
    return MR_OK;
}

mr_code mr__dataset_has_fn(const mr_dataset *ds, bool (*is)(const mr_fn *fn), bool *out,
                           mr_status *st)
{
    walk w = {.node = nothing_of_node, .call = nothing_of_call, .is_fn = is};
    MR_TRY(walk_graph(&w, ds, st));
    *out = w.found;
    return MR_OK;
}

bool mr__expr_calls(const mr_expr *e, bool (*is)(const char *function))
{
    walk w = {.node = nothing_of_node, .call = nothing_of_call, .is = is};
    return walk_expr(&w, e, NULL, NULL) == MR_OK && w.found;
}

/* The parameter for child i of a call, or NULL. */
static const mr_param *param_of(const mr_op *op, const mr_expr *e, size_t i)
{
    const char *key = e->keys ? e->keys[i] : NULL;
    if (e->kind == MR_EX_METHOD && i-- == 0)
        return NULL; /* the receiver */
    for (size_t k = 0; op->params && op->params[k].name; k++) {
        const mr_param *p = &op->params[k];
        if (key ? strcmp(p->name, key) == 0 : k == i || (p->flags & MR_P_VARIADIC))
            return p;
    }
    return NULL;
}

/* ---- ops that write ---- */

static mr_code writes_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    (void)st;
    const mr_op *op = mr_dataset_op(ds);
    for (const mr_param *p = op ? op->params : NULL; p && p->name && !w->op; p++) {
        const char *name = p->flags & w->flag
                               ? *(char *const *)((const char *)mr_dataset_params(ds) + p->at)
                               : NULL;
        if (name && *name)
            w->op = op;
    }
    return MR_OK;
}

/* A name that is computed may be any. */
static mr_code writes_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    (void)st;
    for (size_t i = 0; e->kind != MR_EX_NAME && i < e->n && !w->op; i++) {
        const mr_param *p = param_of(op, e, i);
        const mr_expr *name = e->children[i];
        bool none = name->kind == MR_EX_NONE || (name->kind == MR_EX_STRING && !*name->text);
        if (p && (p->flags & w->flag) && !none)
            w->op = op;
    }
    return MR_OK;
}

static mr_code find_writer(const mr_dataset *ds, uint16_t flag, bool below, const mr_op **op,
                           mr_status *st)
{
    walk w = {.node = writes_of_node, .call = writes_of_call, .flag = flag, .all_values = true};
    MR_TRY((below ? walk_functions : walk_graph)(&w, ds, st));
    *op = w.op;
    return MR_OK;
}

mr_code mr_dataset_functions_keep_files(const mr_dataset *ds, const mr_op **op, mr_status *st)
{
    return find_writer(ds, MR_P_KEEPS_FILE, true, op, st);
}

mr_code mr_dataset_writes(const mr_dataset *ds, const mr_op **op, mr_status *st)
{
    return find_writer(ds, MR_P_WRITES, false, op, st);
}

/* ---- datasets that are stored as values ---- */

static bool is_outside(const mr_op *op)
{
    bool files = op->role == MR_ROLE_FILES || (op->props & (MR_OP_FILE_NAMES | MR_OP_OUTSIDE));
    return files || !mr__op_is_built_in(op);
}

static mr_code op_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    (void)st;
    w->found |= mr_dataset_op(ds) == w->op;
    return MR_OK;
}

static mr_code op_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    (void)e;
    (void)st;
    w->found |= op == w->op;
    return MR_OK;
}

/* True if the graph, a function of it or a dataset among its values uses the op. */
static bool runs_op(const mr_dataset *graph, const mr_op *op)
{
    walk w = {.node = op_of_node, .call = op_of_call, .op = op, .all_values = true};
    return walk_graph(&w, graph, NULL) == MR_OK && w.found;
}

static mr_code outside_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    (void)st;
    const mr_op *op = mr_dataset_op(ds);
    if (op && !w->op && is_outside(op) && !(w->runs && runs_op(w->runs, op)))
        w->op = op;
    return MR_OK;
}

static mr_code outside_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    (void)e;
    (void)st;
    if (!w->op && is_outside(op) && !(w->runs && runs_op(w->runs, op)))
        w->op = op;
    return MR_OK;
}

mr_code mr__stored_dataset_writes(const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = NULL;
    MR_TRY(find_writer(ds, MR_P_WRITES, false, &op, st));
    return op ? mr_fail(st, MR_PERMISSION_DENIED,
                        "a dataset that is an element contains %s, which writes files; such "
                        "datasets are neither stored nor run from where they are stored: make them "
                        "in a function (flat_map) of the graph that runs them",
                        op->name)
              : MR_OK;
}

mr_code mr__stored_dataset_reads(const mr_dataset *ds, const mr_dataset *runs,
                                 bool (*reads)(const char *function), mr_status *st)
{
    walk w = {.node = outside_of_node,
              .call = outside_of_call,
              .runs = runs,
              .is = reads,
              .all_values = true};
    bool too = false;
    MR_TRY(walk_graph(&w, ds, st));
    if (w.found && runs)
        MR_TRY(mr__dataset_calls(runs, reads, &too, st));
    if (!w.op && (!w.found || too))
        return MR_OK;
    const char *what = w.op ? w.op->name : "in a function";
    return runs ? mr_fail(st, MR_PERMISSION_DENIED,
                          "a stored element is a dataset that reads what is outside of it (%s), "
                          "which the graph itself does not do; it was not made by this graph, and "
                          "is not run",
                          what)
                : mr_fail(st, MR_PERMISSION_DENIED,
                          "an element from another process is a dataset that reads what is outside "
                          "of it (%s), and is not run; send the names of the files, and read "
                          "them in a function (flat_map) of this graph",
                          what);
}

/* ---- names of files ---- */

static bool is_file_list(const mr_op *op, const mr_param *p)
{
    bool files = op->role == MR_ROLE_FILES && (p->flags & MR_P_PATTERN); /* not e.g. columns */
    return p->type == MR_PT_STRS && (files || (op->props & MR_OP_FILE_NAMES));
}

static mr_code names_of_node(walk *w, const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    for (const mr_param *p = op ? op->params : NULL; p && p->name; p++) {
        if (!is_file_list(op, p))
            continue;
        const mr_strs *names = (const mr_strs *)((const char *)mr_dataset_params(ds) + p->at);
        for (size_t i = 0; i < names->n; i++)
            if (!(names->is_path && names->is_path[i])) /* paths are computed names */
                MR_TRY(w->name(w->ctx, names->v[i].data, st));
    }
    return MR_OK;
}

static mr_code names_of_argument(walk *w, const mr_expr *e, mr_status *st)
{
    if (e->kind == MR_EX_STRING)
        return w->name(w->ctx, e->text, st);
    for (size_t i = 0; e->kind == MR_EX_LIST && i < e->n; i++)
        MR_TRY(names_of_argument(w, e->children[i], st));
    return MR_OK;
}

static mr_code names_of_call(walk *w, const mr_op *op, const mr_expr *e, mr_status *st)
{
    for (size_t i = 0; e->kind == MR_EX_CALL && i < e->n; i++) {
        const mr_param *p = param_of(op, e, i);
        if (p && is_file_list(op, p))
            MR_TRY(names_of_argument(w, e->children[i], st));
    }
    return MR_OK;
}

mr_code mr_dataset_file_names(const mr_dataset *ds, mr_file_name_fn fn, void *ctx, mr_status *st)
{
    walk w = {.node = names_of_node, .call = names_of_call, .name = fn, .ctx = ctx};
    return walk_graph(&w, ds, st);
}
