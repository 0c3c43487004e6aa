/* SPDX-License-Identifier: Apache-2.0 */
/* Derives from a node that reads a list of files a function that reads one of them. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/params/literal.h"
#include "pipeline/params/spec_text.h"

enum { MAX_PARAMS = 32 };

/* The text of the function, f => op(f, a, b=b). A parameter that is set becomes an argument and a
 * capture, both with the parameter's name. Parameters that determine the type of the elements are
 * written out: expressions, and the names of the components, as given or as found in the first
 * file. */
typedef struct call {
    mr__text text;
    size_t n;
    const char *names[MAX_PARAMS];
    mr_value values[MAX_PARAMS];
} call;

static mr_code put(call *c, const char *s, mr_status *st)
{
    return mr__text_puts(&c->text, s, st);
}

/* Starts an argument: the comma, and its name unless it is positional. */
static mr_code begin_argument(call *c, const mr_param *p, mr_status *st)
{
    MR_TRY(put(c, ", ", st));
    if (p->flags & MR_P_POSITIONAL)
        return MR_OK;
    MR_TRY(put(c, p->name, st));
    return put(c, "=", st);
}

static mr_code put_param(call *c, const mr_dataset *ds, size_t i, mr_status *st)
{
    const mr_param *p = &mr_dataset_op(ds)->params[i];
    if (c->n == MAX_PARAMS)
        return mr_fail(st, MR_UNIMPLEMENTED, "more than %d parameters", MAX_PARAMS);
    mr_value *v = &c->values[c->n];
    MR_TRY(mr_dataset_param(ds, i, v, st));
    if (v->kind == MR_V_UNSET)
        return MR_OK;
    c->names[c->n++] = p->name;
    MR_TRY(begin_argument(c, p, st));
    bool written = (p->flags & MR_P_EXPRESSION) && v->kind == MR_V_STRING;
    return put(c, written ? v->s : p->name, st);
}

/* Puts the names of the components, ["a", "b"]. */
static mr_code put_names(call *c, const mr_spec *spec, mr_status *st)
{
    const char *const *names = mr_spec_leaf_names(spec);
    if (!names)
        return mr_fail_memory(st, 0, "names of components");
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        MR_TRY(put(c, i ? ", " : "[", st));
        MR_TRY(mr__literal_string(&c->text, names[i], strlen(names[i]), st));
    }
    return put(c, "]", st);
}

static mr_code put_strings(call *c, const mr_strs *strings, mr_status *st)
{
    for (size_t i = 0; i < strings->n; i++) {
        MR_TRY(put(c, i ? ", " : "[", st));
        MR_TRY(mr__literal_string(&c->text, strings->v[i].data, strings->v[i].size, st));
    }
    return put(c, "]", st);
}

/* Puts the names of the components, with their types if the parameter accepts types; or what was
 * given, which may say more than the names. */
static mr_code put_components(call *c, const mr_dataset *ds, const mr_param *p, mr_status *st)
{
    char *types;
    MR_TRY(begin_argument(c, p, st));
    const mr_strs *given = (const mr_strs *)((const char *)mr_dataset_params(ds) + p->at);
    if (p->type != MR_PT_STR && given->n)
        return put_strings(c, given, st);
    if (p->type != MR_PT_STR)
        return put_names(c, mr_dataset_spec(ds), st);
    MR_TRY(mr__spec_text(mr_dataset_spec(ds), &types, st));
    mr_code rc = put(c, types, st);
    mr_free(types);
    return rc;
}

static bool is_given(const mr_dataset *ds, const mr_param *p)
{
    const char *text = *(char *const *)((const char *)mr_dataset_params(ds) + p->at);
    return text && *text;
}

static mr_code put_call(call *c, const mr_dataset *ds, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    const mr_param *of_spec = NULL; /* one with types is preferred: it includes the names */
    MR_TRY(put(c, "f => ", st));
    MR_TRY(put(c, op->name, st));
    MR_TRY(put(c, "(f", st));
    for (size_t i = 0; op->params[i].name; i++) {
        const mr_param *p = &op->params[i];
        if (p->flags & MR_P_OF_SPEC)
            of_spec = of_spec && of_spec->type == MR_PT_STR ? of_spec : p;
        else if (!(p->flags & (MR_P_PATTERN | MR_P_READS)))
            MR_TRY(put_param(c, ds, i, st));
    }
    size_t at = of_spec ? (size_t)(of_spec - op->params) : 0;
    if (of_spec && of_spec->type == MR_PT_STR && is_given(ds, of_spec)) /* it may have defaults */
        MR_TRY(put_param(c, ds, at, st));
    else if (of_spec)
        MR_TRY(put_components(c, ds, of_spec, st));
    return put(c, ")", st);
}

mr_code mr_dataset_read_function(const mr_dataset *ds, mr_fn **out, mr_status *st)
{
    call c = {.n = 0};
    const mr_expr *e = NULL;
    mr_code rc = put_call(&c, ds, st);
    if (rc == MR_OK)
        rc = mr_expr_parse(c.text.s, c.text.n, &e, st);
    if (rc == MR_OK)
        rc = mr__fn_of_expr(e, c.names, c.values, c.n, out, st);
    if (rc == MR_OK)
        (*out)->reads_given = true;
    for (size_t i = 0; i < MAX_PARAMS; i++)
        mr_value_reset(&c.values[i]);
    mr_expr_unref(e);
    mr_free(c.text.s);
    return rc;
}
