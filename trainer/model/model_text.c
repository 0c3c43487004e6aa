/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a model's text into layers. A chain is a left-leaning tree: the last layer is its root.
 *
 * If the text names values (statements.h), it is a graph: the layers of each statement follow those
 * of earlier statements, so that a layer follows everything it reads. A named chain without an
 * input is a block: its first use creates its layers, later uses create layers that share their
 * variables. */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/model_impl.h"
#include "trainer/builtins.h"
#include "trainer/model/statements.h"

struct input_params {
    mr_ints shape;
};
static const mr_param input_params[] = {
    MR_PARAM_WITH(struct input_params, shape, MR_P_OPTIONAL | MR_P_VARIADIC, .min.i = 1,
                  .max.i = 1 << 30, .doc = "Shape of one example."),
    {0}};
static const mr_param_table input = {"input", input_params, sizeof(struct input_params)};

static bool is_input(const mr_expr *e)
{
    return e->kind == MR_EX_CALL && strcmp(e->text, input.name) == 0;
}

static mr_code read_input(const mr_expr *e, mr_dims *out, mr_status *st)
{
    void *params = NULL;
    MR_TRY(mr_params_parse(&input, e, &params, st));
    const mr_ints *shape = &((struct input_params *)params)->shape;
    mr_code rc = MR_OK;
    if (shape->n > MR_MAX_RANK)
        rc = mr_expr_fail_at(st, e, "input: at most %d dimensions, found %zu", MR_MAX_RANK,
                             shape->n);
    for (size_t i = 0; rc == MR_OK && i < shape->n; i++)
        out->shape[i] = shape->v[i];
    if (rc == MR_OK)
        out->rank = (int)shape->n;
    mr_params_free(&input, params);
    return rc;
}

/* The data of a layer: its table with the name added, the struct that it fills, the name. */
enum { MAX_PARAMS = 32, MAX_NAME = 63, MAX_LAYERS = 1 << 16 };
struct mr__layer_own {
    mr_param params[MAX_PARAMS + 2];
    mr_param_table table;
    void *values;
    char name[MAX_NAME + 1];
};

void mr__layer_clear(mr_layer *l)
{
    mr_free(l->sources);
    mr_free((void *)(uintptr_t)l->ins);
    l->sources = NULL;
    l->ins = NULL;
    if (!l->own)
        return;
    mr_params_free(&l->own->table, l->own->values);
    mr_free(l->own);
    l->own = NULL;
}

static size_t count_params(const mr_param *p)
{
    size_t n = 0;
    while (p && p[n].name)
        n++;
    return n;
}

/* Builds the layer's table, with a field for the name after the struct that it describes. */
static void extend_table(const mr_component *c, struct mr__layer_own *own)
{
    static const char *const doc = "Name of the layer, and of its variables.";
    size_t n = count_params(c->params), at = (c->params_size + 7) / 8 * 8;
    for (size_t i = 0; i < n; i++)
        own->params[i] = c->params[i];
    own->params[n] = (mr_param){.name = "name", .doc = doc, .type = MR_PT_STR, .at = (uint32_t)at};
    own->table = (mr_param_table){c->name, own->params, at + sizeof(char *)};
}

/* Names become parts of the names of variables, and of keys in files. */
static bool is_good_name(const char *s)
{
    return *s && *s != '.' && strlen(s) <= MAX_NAME &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
               strlen(s);
}

static mr_code take_name(const mr_expr *e, mr_layer *l, mr_status *st)
{
    const struct mr__layer_own *own = l->own;
    const char *given =
        *(char *const *)((const char *)own->values + own->table.size - sizeof(char *));
    if (given && !is_good_name(given))
        return mr_expr_fail_at(st, e,
                               "%s: a name consists of letters, digits, '_', '-' and '.' (not "
                               "first), at most %d in all, not \"%.40s\"",
                               l->desc->is.name, MAX_NAME, given);
    l->name = given;
    return MR_OK;
}

static mr_code make_layer(const mr_expr *e, mr_layer *l, mr_status *st)
{
    const mr_component *c;
    MR_TRY(mr__registry_find(&mr__layers, e, &c, st));
    if (((const mr_layer_desc *)c)->merges && !l->sources)
        return mr_expr_fail_at(st, e,
                               "%s joins several inputs: name them, as in a = input(4); b = "
                               "a.dense(4); %s(a, b).dense(1)",
                               c->name, c->name);
    if (count_params(c->params) > MAX_PARAMS)
        return mr_expr_fail_at(st, e, "%s has more than %d parameters", c->name, MAX_PARAMS);
    l->desc = (const mr_layer_desc *)c;
    l->own = mr_calloc(1, sizeof *l->own);
    if (!l->own)
        return mr_fail_memory(st, sizeof *l->own, "a layer");
    extend_table(c, l->own);
    MR_TRY(mr_params_parse(&l->own->table, e, &l->own->values, st));
    l->params = l->own->values;
    return take_name(e, l, st);
}

/* Names an unnamed layer by its kind and, from the second one on, a number. */
static void call_by_kind(const mr_model *m, mr_layer *l)
{
    const mr_layer_desc *kind = l->desc == &mr__residual_begin ? &mr__layer_residual : l->desc;
    size_t before = 0;
    for (const mr_layer *k = m->layers; k < l; k++)
        before += k->own && k->desc == l->desc && k->name == k->own->name;
    l->name = l->own->name;
    if (before > 0)
        snprintf(l->own->name, sizeof l->own->name, "%.40s_%zu", kind->is.name, before);
    else
        snprintf(l->own->name, sizeof l->own->name, "%.40s", kind->is.name);
}

/* The layers of a residual share the name of its first. */
static mr_code name_layers(mr_model *m, const mr_expr *e, mr_status *st)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        mr_layer *l = &m->layers[i];
        if (!l->own) {
            l->name = m->layers[l->shares > 0 ? l->shares - 1 : l->begin].name;
            continue;
        }
        if (!l->name)
            call_by_kind(m, l);
        for (size_t k = 0; k < i; k++)
            if (m->layers[k].own && strcmp(m->layers[k].name, l->name) == 0)
                return mr_expr_fail_at(st, e,
                                       "two layers are called \"%s\"; give one a name=", l->name);
    }
    return MR_OK;
}

/* Appends a layer, which reads the output of the previous one. */
static mr_code add_layer(mr_model *m, size_t *capacity, mr_layer **out, mr_status *st)
{
    MR_TRY(MR_GROW(m->layers, *capacity, m->n_layers + 1, MAX_LAYERS, "a model's layers", st));
    *out = &m->layers[m->n_layers];
    **out = (mr_layer){.source = m->n_layers, .n_inputs = 1};
    m->n_layers++;
    return MR_OK;
}

static mr_code add_chain(mr_model *m, size_t *capacity, const mr_expr *e, size_t depth,
                         mr_status *st);

static mr_code make_inputs(mr_layer *l, size_t n, mr_status *st)
{
    l->n_inputs = n;
    l->sources = mr_calloc(n, sizeof *l->sources);
    l->ins = mr_calloc(n, sizeof *l->ins);
    return l->sources && l->ins ? MR_OK : mr_fail_memory(st, n * sizeof *l->ins, "a layer");
}

/* The last layer of the list is a residual: inserts its other layers before it. */
static mr_code open_residual(mr_model *m, size_t *capacity, size_t depth, mr_status *st)
{
    mr_layer sum = m->layers[m->n_layers - 1], *l = &m->layers[m->n_layers - 1];
    const mr__residual_params *o = sum.params;
    size_t begin = m->n_layers - 1, source = sum.source;
    *l = (mr_layer){.desc = &mr__residual_begin,
                    .name = sum.name,
                    .params = o,
                    .source = source,
                    .n_inputs = 1,
                    .depth = depth};
    l->own = sum.own; /* freed with the residual's first layer */
    mr_code rc = MR_OK;
    if (o->projection) {
        rc = add_layer(m, capacity, &l, st);
        if (rc == MR_OK)
            *l = (mr_layer){.desc = &mr__residual_projection,
                            .params = o,
                            .source = begin + 1,
                            .n_inputs = 1,
                            .begin = begin,
                            .depth = depth};
    }
    size_t first = m->n_layers;
    if (rc == MR_OK)
        rc = add_chain(m, capacity, o->layers, depth + 1, st);
    if (rc == MR_OK) {
        m->layers[first].source = begin + 1;
        rc = add_layer(m, capacity, &l, st);
    }
    if (rc != MR_OK)
        return rc;
    size_t own_source = l->source;
    *l = sum;
    l->own = NULL;
    l->source = own_source;
    l->begin = begin;
    l->depth = depth;
    MR_TRY(make_inputs(l, 2, st));
    l->sources[0] = own_source;
    l->sources[1] = begin + 1 + o->projection;
    return MR_OK;
}

/* Adds the layers of a chain, a left-leaning tree whose innermost node is the first layer. */
static mr_code add_chain(mr_model *m, size_t *capacity, const mr_expr *e, size_t depth,
                         mr_status *st)
{
    mr_layer *l;
    if (e->kind == MR_EX_METHOD)
        MR_TRY(add_chain(m, capacity, e->children[0], depth, st));
    else if (e->kind != MR_EX_CALL)
        return mr_expr_fail_at(
            st, e, "a model is a chain of layers, such as input(28, 28).flatten().dense(10)");
    else if (depth == 0 && is_input(e))
        return MR_OK;
    MR_TRY(add_layer(m, capacity, &l, st));
    MR_TRY(make_layer(e, l, st));
    return l->desc == &mr__layer_residual ? open_residual(m, capacity, depth, st) : MR_OK;
}

/* ---- graphs ---- */

/* The meaning of a name. */
typedef struct named {
    const mr__statement *s;
    bool used, is_block, open; /* open: its layers are being created */
    size_t at;                 /* a value: the layer that computes it, plus 1 */
    size_t first, last;        /* a used block: its layers, [first, last) */
} named;

typedef struct graph {
    mr_model *m;
    size_t capacity, n, n_statements;
    named *names; /* n of n_statements so far */
} graph;

static named *find_name(graph *g, const char *name)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->names[i].s->name && strcmp(g->names[i].s->name, name) == 0)
            return &g->names[i];
    return NULL;
}

static const mr_layer_desc *find_kind(const char *name)
{
    const mr_component *c;
    for (size_t i = 0; (c = mr__registry_at(&mr__layers, i)); i++)
        if (strcmp(c->name, name) == 0 || (c->alias && strcmp(c->alias, name) == 0))
            return (const mr_layer_desc *)c;
    return NULL;
}

static mr_code fail_unknown(const graph *g, const mr_expr *e, mr_status *st)
{
    for (size_t i = g->n; i < g->n_statements; i++)
        if (g->names[i].s->name && strcmp(g->names[i].s->name, e->text) == 0)
            return mr_expr_fail_at(st, e,
                                   "%s is used before it is defined: a name refers to a statement "
                                   "above, and a model has no cycles",
                                   e->text);
    return mr_expr_fail_at(st, e, "%s is not defined", e->text);
}

static mr_code read_value(graph *g, const mr_expr *e, const char *name, size_t *at, mr_status *st);

/* The number of arguments that are layer outputs: those without a name, including the receiver. */
static size_t count_results(const mr_expr *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->n; i++)
        n += !e->keys || !e->keys[i];
    return n;
}

/* concat(a, b, axis=-1) */
static mr_code add_merge(graph *g, const mr_expr *e, size_t *at, mr_status *st)
{
    size_t n = count_results(e), kept = 0;
    mr_layer *l, filled = {.n_inputs = 1};
    if (n < 2)
        return mr_expr_fail_at(st, e, "%s joins two or more inputs, found %zu", e->text, n);
    mr_code rc = make_inputs(&filled, n, st);
    const mr_expr **children = mr_calloc(e->n, sizeof(const mr_expr *));
    char **keys = mr_calloc(e->n, sizeof *keys);
    mr_expr rest = *e; /* with only the named arguments */
    if (rc == MR_OK && !(children && keys))
        rc = mr_fail_memory(st, e->n * sizeof *keys, "a layer");
    for (size_t i = 0, k = 0; rc == MR_OK && i < e->n; i++)
        if (e->keys && e->keys[i]) {
            children[kept] = e->children[i];
            keys[kept++] = e->keys[i];
        } else
            rc = read_value(g, e->children[i], NULL, &filled.sources[k++], st);
    if (rc == MR_OK)
        rc = add_layer(g->m, &g->capacity, &l, st);
    if (rc == MR_OK) {
        *l = filled;
        l->source = l->sources[0];
        rest.kind = MR_EX_CALL;
        rest.children = children;
        rest.keys = keys;
        rest.key_begins = NULL;
        rest.n = kept;
        rc = make_layer(&rest, l, st);
        *at = g->m->n_layers;
    } else
        mr__layer_clear(&filled);
    mr_free(keys);
    mr_free(children);
    return rc;
}

/* Another use of a block: adds copies of its layers that share their variables. */
static mr_code copy_block(graph *g, const named *b, size_t *at, mr_status *st)
{
    size_t shift = g->m->n_layers - b->first;
    for (size_t i = b->first; i < b->last; i++) {
        mr_layer *l;
        MR_TRY(add_layer(g->m, &g->capacity, &l, st));
        const mr_layer *of = &g->m->layers[i];
        *l = *of;
        l->own = NULL;
        l->sources = NULL;
        l->ins = NULL;
        l->copies = 0;
        l->shares = of->shares > 0 ? of->shares : i + 1;
        l->begin = of->begin + shift;
        l->source = i == b->first ? *at : of->source + shift;
        g->m->layers[l->shares - 1].copies++;
        if (!of->sources)
            continue;
        MR_TRY(make_inputs(l, of->n_inputs, st));
        for (size_t k = 0; k < of->n_inputs; k++)
            l->sources[k] = of->sources[k] + shift;
    }
    *at = g->m->n_layers;
    return MR_OK;
}

static mr_code apply(graph *g, const mr_expr *e, size_t *at, mr_status *st);

static mr_code apply_chain(graph *g, const mr_expr *e, size_t *at, mr_status *st)
{
    if (e->kind == MR_EX_METHOD)
        MR_TRY(apply_chain(g, e->children[0], at, st));
    return apply(g, e, at, st);
}

static mr_code apply_block(graph *g, named *b, size_t *at, mr_status *st)
{
    b->used = true;
    if (b->open)
        return mr_expr_fail_at(st, b->s->e, "%s is defined by itself", b->s->name);
    if (b->last > b->first)
        return copy_block(g, b, at, st);
    b->first = g->m->n_layers;
    b->open = true;
    MR_TRY(apply_chain(g, b->s->e, at, st));
    b->open = false;
    b->last = g->m->n_layers;
    return MR_OK;
}

/* Applies the layer or block that e calls: *at is its input, then its output. */
static mr_code apply(graph *g, const mr_expr *e, size_t *at, mr_status *st)
{
    mr_layer *l;
    named *b = find_name(g, e->text);
    if (b && !b->is_block)
        return mr_expr_fail_at(st, e, "%s is a layer's output, not a layer: it cannot be applied",
                               e->text);
    if (b && e->n > (e->kind == MR_EX_METHOD ? 1 : 0))
        return mr_expr_fail_at(st, e, "%s has its arguments already", e->text);
    if (b)
        return apply_block(g, b, at, st);
    if (!find_kind(e->text))
        for (size_t i = g->n; i < g->n_statements; i++)
            if (g->names[i].s->name && strcmp(g->names[i].s->name, e->text) == 0)
                return fail_unknown(g, e, st);
    MR_TRY(add_layer(g->m, &g->capacity, &l, st));
    l->source = *at;
    MR_TRY(make_layer(e, l, st));
    if (l->desc == &mr__layer_residual)
        MR_TRY(open_residual(g->m, &g->capacity, 0, st));
    *at = g->m->n_layers;
    return MR_OK;
}

static mr_code add_input(graph *g, const mr_expr *e, const char *name, size_t *at, mr_status *st)
{
    mr_model *m = g->m;
    mr_layer *l;
    mr_dims shape = {0};
    if (m->n_inputs == MR_MAX_INPUTS)
        return mr_expr_fail_at(st, e, "a model has at most %d inputs", MR_MAX_INPUTS);
    MR_TRY(read_input(e, &shape, st));
    MR_TRY(add_layer(m, &g->capacity, &l, st));
    *l = (mr_layer){.desc = &mr__layer_input, .in = shape, .out = shape, .input = m->n_inputs + 1};
    if (!(l->own = mr_calloc(1, sizeof *l->own)))
        return mr_fail_memory(st, sizeof *l->own, "a layer");
    if (name && strlen(name) > MAX_NAME)
        return mr_expr_fail_at(st, e, "the name of an input has at most %d letters", MAX_NAME);
    if (name) {
        snprintf(l->own->name, sizeof l->own->name, "%s", name);
        l->name = l->own->name;
    }
    if (m->n_inputs == 0)
        m->input = shape;
    m->input_layers[m->n_inputs++] = m->n_layers;
    *at = m->n_layers;
    return MR_OK;
}

static mr_code read_name_use(graph *g, const mr_expr *e, size_t *at, mr_status *st)
{
    named *n = find_name(g, e->text);
    if (!n)
        return fail_unknown(g, e, st);
    if (n->is_block)
        return mr_expr_fail_at(st, e, "%s is a layer, not a layer's output: apply it, as in %s(x)",
                               e->text, e->text);
    n->used = true;
    *at = n->at;
    return MR_OK;
}

/* *at = the layer, plus 1, that computes e. name: for an input. */
static mr_code read_value(graph *g, const mr_expr *e, const char *name, size_t *at, mr_status *st)
{
    const mr_layer_desc *kind;
    if (e->kind == MR_EX_NAME)
        return read_name_use(g, e, at, st);
    if (e->kind != MR_EX_CALL && e->kind != MR_EX_METHOD)
        return mr_expr_fail_at(st, e,
                               "expected a layer's output, such as x.dense(10) or concat(a, b)");
    kind = find_name(g, e->text) ? NULL : find_kind(e->text);
    if (kind && kind->merges)
        return add_merge(g, e, at, st);
    if (e->kind == MR_EX_METHOD) {
        MR_TRY(read_value(g, e->children[0], NULL, at, st));
        return apply(g, e, at, st);
    }
    if (is_input(e))
        return add_input(g, e, name, at, st);
    if (!find_name(g, e->text)) {
        if (!kind)
            return fail_unknown(g, e, st);
        return mr_expr_fail_at(st, e, "%s has no input: write x.%s(...), or give it a name first",
                               e->text, e->text);
    }
    if (e->n != 1 || count_results(e) != 1)
        return mr_expr_fail_at(st, e, "%s takes one input, found %zu arguments", e->text, e->n);
    mr_expr call = *e;
    MR_TRY(read_value(g, e->children[0], NULL, at, st));
    call.n = 0;
    return apply(g, &call, at, st);
}

/* Whether e is a chain without an input, to be applied later. */
static bool is_block(graph *g, const mr_expr *e)
{
    while (e->kind == MR_EX_METHOD) {
        const mr_layer_desc *kind = find_kind(e->text);
        if (kind && kind->merges)
            return false;
        e = e->children[0];
    }
    const mr_layer_desc *kind = e->kind == MR_EX_CALL ? find_kind(e->text) : NULL;
    return kind && !kind->merges && !find_name(g, e->text);
}

static mr_code read_statement(graph *g, const mr__statement *s, bool last, mr_status *st)
{
    named *n = &g->names[g->n];
    if (!s->name && !last)
        return mr_expr_fail_at(st, s->e,
                               "only the last statement may be without a name: it is the model's "
                               "output; give each of several outputs a name");
    if (s->name && find_name(g, s->name))
        return mr_expr_fail_at(st, s->e, "%s is defined twice", s->name);
    if (s->name && (find_kind(s->name) || strcmp(s->name, input.name) == 0))
        return mr_expr_fail_at(st, s->e, "%s is the name of a kind of layer; choose another name",
                               s->name);
    n->is_block = is_block(g, s->e);
    if (n->is_block && last)
        return mr_expr_fail_at(
            st, s->e, "the last statement is the model's output and must start from a named value");
    if (!n->is_block)
        MR_TRY(read_value(g, s->e, s->name, &n->at, st));
    g->n++;
    return MR_OK;
}

static mr_code check_prepared(const mr_model *m, const mr_expr *e, mr_status *st);

/* Losses, metrics and their validation values are named after outputs. */
static mr_code add_output(mr_model *m, const named *n, mr_status *st)
{
    const char *name = n->s->name;
    if (m->n_outputs == MR_MAX_OUTPUTS)
        return mr_expr_fail_at(st, n->s->e, "a model has at most %d outputs", MR_MAX_OUTPUTS);
    if (name && strlen(name) > MAX_NAME)
        return mr_expr_fail_at(st, n->s->e, "the name of an output has at most %d letters",
                               MAX_NAME);
    if (name && (strcmp(name, "val") == 0 || strncmp(name, "val_", 4) == 0))
        return mr_expr_fail_at(
            st, n->s->e,
            "an output cannot be called %s: the names of validation values begin with val_", name);
    if (name && !(m->output_names[m->n_outputs] = mr_strdup(name)))
        return mr_fail_memory(st, strlen(name), "a model's text");
    m->outputs[m->n_outputs++] = n->at;
    return MR_OK;
}

/* The last statement and, if it has a name, the preceding ones that nothing reads. */
static mr_code find_outputs(graph *g, mr_status *st)
{
    size_t first = g->n - 1;
    while (first > 0 && g->names[g->n - 1].s->name && !g->names[first - 1].used &&
           !g->names[first - 1].is_block && !is_input(g->names[first - 1].s->e))
        first--;
    for (size_t i = first; i < g->n; i++) {
        g->names[i].used = true;
        MR_TRY(add_output(g->m, &g->names[i], st));
    }
    return MR_OK;
}

static mr_code read_graph(mr_model *m, const mr__statements *all, mr_status *st)
{
    graph g = {.m = m, .n_statements = all->n, .names = mr_calloc(all->n, sizeof *g.names)};
    mr_code rc = g.names ? MR_OK : mr_fail_memory(st, all->n * sizeof *g.names, "a model");
    for (size_t i = 0; rc == MR_OK && i < all->n; i++)
        g.names[i].s = &all->v[i];
    for (size_t i = 0; rc == MR_OK && i < all->n; i++)
        rc = read_statement(&g, &all->v[i], i + 1 == all->n, st);
    if (rc == MR_OK)
        rc = find_outputs(&g, st);
    for (size_t i = 0; rc == MR_OK && i < all->n; i++)
        if (!g.names[i].used)
            rc = mr_expr_fail_at(st, all->v[i].e,
                                 "%s is not used: the model's result does not "
                                 "depend on it",
                                 all->v[i].name);
    if (rc == MR_OK) {
        const mr_expr *e = all->v[all->n - 1].e;
        if (m->n_layers == m->n_inputs)
            rc = mr_expr_fail_at(st, e, "a model needs at least one layer after input");
        if (rc == MR_OK)
            rc = check_prepared(m, e, st);
        if (rc == MR_OK)
            rc = name_layers(m, e, st);
    }
    mr_free(g.names);
    return rc;
}

/* Preprocessing runs before data reach the devices: it must read an input, possibly preprocessed
 * already, that nothing else reads. */
static mr_code check_prepared(const mr_model *m, const mr_expr *e, mr_status *st)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        if (!l->desc->prepare)
            continue;
        const mr_layer *from = &m->layers[l->source - 1];
        size_t readers = 0;
        for (size_t k = 0; k < m->n_layers; k++)
            for (size_t j = 0; j < m->layers[k].n_inputs; j++)
                readers += mr__source_of(&m->layers[k], j) == l->source;
        if (from->input == 0 && !from->desc->prepare)
            return mr_expr_fail_at(
                st, e,
                "%s preprocesses features before they reach the devices, and cannot follow %s",
                l->desc->is.name, from->desc->is.name);
        if (readers > 1)
            return mr_expr_fail_at(
                st, e,
                "%s preprocesses an input that another layer reads too; give each its own input",
                l->desc->is.name);
    }
    return MR_OK;
}

static mr_code read_chain(mr_model *m, const mr_expr *e, mr_status *st)
{
    size_t capacity = 0;
    const mr_expr *first = e;
    while (first->kind == MR_EX_METHOD)
        first = first->children[0];
    m->input.rank = -1;
    if (is_input(first))
        MR_TRY(read_input(first, &m->input, st));
    MR_TRY(add_chain(m, &capacity, e, 0, st));
    if (m->n_layers == 0)
        return mr_expr_fail_at(st, e, "a model needs at least one layer after input");
    m->n_inputs = 1;
    m->outputs[0] = m->n_layers;
    m->n_outputs = 1;
    for (size_t i = 1; i < m->n_layers; i++)
        if (m->layers[i].desc->prepare && !m->layers[i - 1].desc->prepare)
            return mr_expr_fail_at(
                st, e,
                "%s preprocesses features before they reach the devices, and cannot follow %s",
                m->layers[i].desc->is.name, m->layers[i - 1].desc->is.name);
    return name_layers(m, e, st);
}

mr_code mr_layer_register(const mr_layer_desc *d, mr_status *st)
{
    if (!d)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the layer is NULL");
    bool complete = (d->view || !d->prepare) &&
                    (d->view ? !d->forward && !d->backward : d->forward && d->backward);
    if (d->is.name && strcmp(d->is.name, input.name) == 0)
        return mr_fail(st, MR_ALREADY_EXISTS, "input begins a model, it is not a layer");
    for (const mr_param *p = d->is.params; p && p->name; p++)
        if (strcmp(p->name, "name") == 0)
            return mr_fail(st, MR_INVALID_ARGUMENT, "every layer has the parameter name already");
    return mr__registry_add(&mr__layers, &d->is, complete, st);
}

mr_code mr_model_parse(mr_model **out, const char *text, mr_status *st)
{
    mr__statements all;
    MR_TRY(mr__statements_parse(text, &all, st));
    mr_model *m = mr_calloc(1, sizeof *m);
    mr_code rc = !m          ? mr_fail_memory(st, sizeof *m, "a model")
                 : all.n > 1 ? read_graph(m, &all, st)
                             : read_chain(m, all.v[0].e, st);
    mr__statements_drop(&all);
    if (rc == MR_OK && !(m->text = mr_strdup(text)))
        rc = mr_fail_memory(st, strlen(text), "a model");
    if (rc != MR_OK) {
        mr_model_free(m);
        return rc;
    }
    *out = m;
    return MR_OK;
}
