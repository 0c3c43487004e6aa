/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a chain of nodes as a chain of methods, driven by the tables of the ops: positional
 * parameters in order, then key=value for those that do not have their default. */
#include <string.h>

#include "pipeline/graph/named_inputs.h"
#include "pipeline/params/params.h"
#include "pipeline/graph/text_print.h"
#include "pipeline/params/token.h"

/* The arguments of one call. */
struct call {
    mr__printer *p;
    bool any;        /* an argument was printed */
    bool positional; /* the next one may be positional */
};

static mr_code put(mr__printer *p, const char *s)
{
    return mr__text_puts(&p->text, s, p->st);
}

/* Starts the next argument: a comma if needed, and the key unless NULL. */
static mr_code begin_argument(struct call *c, const char *key)
{
    if (c->any)
        MR_TRY(put(c->p, ", "));
    c->any = true;
    if (!key)
        return MR_OK;
    MR_TRY(put(c->p, key));
    return put(c->p, "=");
}

static bool is_pattern(const mr_value *v)
{
    for (size_t i = 0; v->kind == MR_V_STRING && i < v->size; i++)
        if (v->s[i] && strchr("*?[", v->s[i]))
            return true;
    return false;
}

/* Prints a file name. A literal with wildcards would be a pattern; a computed name is a path, so it
 * is printed as a computed expression. */
static mr_code print_name(mr__printer *p, const mr_value *v)
{
    if (v->computed && is_pattern(v))
        MR_TRY(put(p, "\"\" + "));
    return mr__print_value(p, v, MR__BIND_LAMBDA);
}

static mr_code print_param_value(mr__printer *p, const mr_param *param, const mr_value *v)
{
    if ((param->flags & MR_P_EXPRESSION) && v->kind == MR_V_STRING)
        return put(p, v->s);
    if (!(param->flags & MR_P_PATTERN))
        return mr__print_value(p, v, MR__BIND_LAMBDA);
    if (v->kind != MR_V_LIST)
        return print_name(p, v);
    MR_TRY(put(p, "["));
    for (size_t i = 0; i < v->n; i++) {
        MR_TRY(put(p, i ? ", " : ""));
        MR_TRY(print_name(p, &v->items[i]));
    }
    return put(p, "]");
}

/* True if the record's components can be printed as key=value among the op's parameters. */
static bool names_are_keys(const mr_op *op, const mr_value *v)
{
    for (size_t i = 0; i < v->n; i++) {
        if (!mr__is_name(v->names[i], strlen(v->names[i])))
            return false;
        for (const mr_param *p = op->params; p->name; p++)
            if (strcmp(p->name, v->names[i]) == 0)
                return false;
    }
    return true;
}

static mr_code print_variadic(struct call *c, const mr_op *op, const mr_param *param,
                              const mr_value *v)
{
    bool keyed = v->kind == MR_V_RECORD && names_are_keys(op, v);
    bool several = v->kind == MR_V_TUPLE || keyed ||
                   (v->kind == MR_V_LIST && param->type == MR_PT_STRS && v->n > 0);
    for (size_t i = 0; several && i < v->n; i++) {
        MR_TRY(begin_argument(c, keyed ? v->names[i] : NULL));
        MR_TRY(print_param_value(c->p, param, &v->items[i]));
    }
    if (several)
        return MR_OK;
    MR_TRY(begin_argument(c, NULL));
    return print_param_value(c->p, param, v);
}

/* True if the parameter is printed without its name: repeat(2), range(0, 10, 2), but
 * shuffle(10, seed=2). */
static bool stands(const struct call *c, const mr_op *op, const mr_param *param)
{
    if (param->flags & (MR_P_POSITIONAL | MR_P_VARIADIC))
        return true;
    return (param->flags & MR_P_OPTIONAL) && (!c->any || op->max_inputs == 0);
}

static mr_code print_param(struct call *c, const mr_op *op, const mr_param *param,
                           const mr_value *v)
{
    bool may_stand = stands(c, op, param);
    if (v->kind == MR_V_UNSET) {
        c->positional = c->positional && !may_stand;
        return MR_OK;
    }
    if (c->positional && (param->flags & MR_P_VARIADIC)) {
        c->positional = false;
        return print_variadic(c, op, param, v);
    }
    c->positional = c->positional && may_stand;
    MR_TRY(begin_argument(c, c->positional ? NULL : param->name));
    return print_param_value(c->p, param, v);
}

/* {"a": ..., "b": ...} */
static mr_code print_named_inputs(struct call *c, const mr_dataset *ds)
{
    size_t n = mr_dataset_n_inputs(ds);
    MR_TRY(begin_argument(c, NULL));
    if (c->p->outline)
        return put(c->p, "{...}");
    MR_TRY(put(c->p, "{"));
    for (size_t i = 0; i < n; i++) {
        const char *name = mr__dataset_input_name(ds, i);
        if (!name)
            return mr_fail(c->p->st, MR_FAILED_PRECONDITION, "%s: the names are not known yet",
                           mr_dataset_op(ds)->name);
        MR_TRY(put(c->p, i ? ", " : ""));
        MR_TRY(mr__literal_string(&c->p->text, name, strlen(name), c->p->st));
        MR_TRY(put(c->p, ": "));
        MR_TRY(mr__print_dataset(c->p, mr_dataset_input(ds, i)));
    }
    return put(c->p, "}");
}

static mr_code print_inputs(struct call *c, const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    if (op->props & MR_OP_NAMES_INPUTS)
        return print_named_inputs(c, ds);
    size_t n = mr_dataset_n_inputs(ds), first = op->props & MR_OP_SOURCE_CALL ? 0 : 1;
    size_t listed = op->props & MR_OP_LISTS_INPUTS ? n - (size_t)op->min_inputs + 1 : 0;
    if (listed)
        MR_TRY(put(c->p, "["));
    for (size_t i = first; i < n; i++) {
        MR_TRY(begin_argument(c, NULL));
        MR_TRY(mr__print_dataset(c->p, mr_dataset_input(ds, i)));
        if (i + 1 == listed)
            MR_TRY(put(c->p, "]"));
    }
    return MR_OK;
}

/* An op of callbacks with a label is shown, though it cannot be parsed. */
static bool has_label(const mr_dataset *ds)
{
    mr_value v = {0};
    bool yes = mr_dataset_op(ds)->params[0].type == MR_PT_FN &&
               mr_dataset_param(ds, 0, &v, NULL) == MR_OK && v.kind == MR_V_FN && v.fn->label;
    mr_value_reset(&v);
    return yes;
}

static mr_code print_call(mr__printer *p, const mr_dataset *ds)
{
    const mr_op *op = mr_dataset_op(ds);
    struct call c = {.p = p, .positional = true};
    if ((op->props & MR_OP_INTERNAL) && !has_label(ds))
        return mr_fail(p->st, MR_FAILED_PRECONDITION,
                       "%s exists only in C: a graph that contains it has no text form", op->name);
    MR_TRY(put(p, op->name));
    MR_TRY(put(p, "("));
    MR_TRY(print_inputs(&c, ds));
    bool outline = p->outline && (op->props & MR_OP_NAMES_INPUTS);
    for (size_t i = 0; i < mr__params_count(op->params); i++) {
        mr_value v = {0};
        if (outline && strcmp(op->params[i].name, MR__WEIGHTS) == 0)
            continue;
        MR_TRY(mr_dataset_param(ds, i, &v, p->st));
        mr_code rc = print_param(&c, op, &op->params[i], &v);
        mr_value_reset(&v);
        if (rc != MR_OK)
            return rc;
    }
    return put(p, ")");
}

/* True if ds starts a chain: in text it is a function, not a method. */
static bool begins(const mr_dataset *ds)
{
    return mr_dataset_n_inputs(ds) == 0 || (mr_dataset_op(ds)->props & MR_OP_SOURCE_CALL);
}

static mr_code print_chain(mr__printer *p, const mr_dataset *const *chain, size_t n)
{
    const bool outline = p->outline;
    size_t keeps = 0; /* the op nearest the sink that keeps the graph below it */
    while (keeps < n && !(mr_dataset_op(chain[keeps])->props & MR_OP_KEEPS_GRAPH))
        keeps++;
    mr_code rc = MR_OK;
    while (n-- > 0 && rc == MR_OK) {
        p->outline = outline && n <= keeps;
        rc = print_call(p, chain[n]);
        if (rc == MR_OK && n > 0)
            rc = put(p, ".");
    }
    p->outline = outline;
    return rc;
}

mr_code mr__print_dataset(mr__printer *p, const mr_dataset *ds)
{
    const mr_dataset **chain = NULL;
    size_t n = 0, capacity = 0;
    MR_TRY(mr_dataset_check(ds, p->st));
    MR_TRY(mr__print_enter(p));
    mr_code rc = MR_OK;
    for (bool last = false; rc == MR_OK && !last; n++) {
        rc = MR_GROW(chain, capacity, n + 1, MR_EXPR_MAX_TEXT, "the text of a graph", p->st);
        if (rc != MR_OK)
            break;
        chain[n] = ds;
        last = begins(ds);
        ds = last ? NULL : mr_dataset_input(ds, 0);
    }
    if (rc == MR_OK)
        rc = print_chain(p, chain, n);
    mr_free(chain);
    p->level--;
    return rc;
}

mr_code mr_dataset_to_text(const mr_dataset *ds, char **out, mr_status *st)
{
    mr__printer p = {.st = st};
    mr_code rc = mr__print_dataset(&p, ds);
    if (rc == MR_OK)
        rc = mr__text_finish(&p.text, out, st);
    mr_free(p.text.s);
    return rc;
}
