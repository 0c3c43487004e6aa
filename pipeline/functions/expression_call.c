/* SPDX-License-Identifier: Apache-2.0 */
/* Typing of calls: the grammar's own functions, builtins from above, registered functions. */
#include <stdio.h>
#include <string.h>

#include "pipeline/functions/typing.h"

/* ---- functions of the grammar ---- */

typedef struct call {
    const mr_expr *e;
    typed **v;
    size_t n;
} call;

static mr_code arity(const call *c, size_t least, size_t most, mr_status *st)
{
    if (c->n >= least && c->n <= most)
        return MR_OK;
    if (least == most)
        return mr__type_fail(st, c->e, "%s takes %zu argument%s, not %zu", c->e->text, least,
                             least == 1 ? "" : "s", c->n);
    return mr__type_fail(st, c->e, "%s takes %zu to %zu arguments, not %zu", c->e->text, least,
                         most, c->n);
}

static mr_code numeric_argument(const call *c, size_t i, const mr_leaf **leaf, mr_status *st)
{
    MR_TRY(mr__type_want_tensor(c->v[i], c->e->children[i], c->e->text, leaf, st));
    MR_TRY(mr__type_settle_default(c->v[i], c->e->children[i], st));
    *leaf = mr__type_tensor_of(c->v[i]);
    if (!mr__type_is_numeric((*leaf)->dtype))
        return mr__type_fail(st, c->e->children[i], "%s wants numbers, not %s", c->e->text,
                             mr_dtype_name((*leaf)->dtype));
    return MR_OK;
}

static mr_code finish(typed_kind kind, const call *c, char op, const mr_leaf *leaf, typed **out,
                      mr_status *st)
{
    mr_leaf copy = *leaf; /* it may lie in a child's spec */
    MR_TRY(mr__type_node_of(kind, c->v, c->n, out, st));
    (*out)->op = op;
    (*out)->to = copy.dtype;
    return mr__type_set_leaf(*out, &copy, st);
}

static mr_code type_abs(const call *c, typed **out, mr_status *st)
{
    const mr_leaf *a;
    MR_TRY(arity(c, 1, 1, st));
    MR_TRY(numeric_argument(c, 0, &a, st));
    return finish(TYPED_ABS, c, 'a', a, out, st);
}

static mr_code type_reduce(const call *c, char op, typed **out, mr_status *st)
{
    const mr_leaf *a;
    MR_TRY(arity(c, 1, 1, st));
    MR_TRY(numeric_argument(c, 0, &a, st));
    return finish(TYPED_REDUCE, c, op, &(mr_leaf){.dtype = a->dtype}, out, st);
}

static mr_code type_extreme(const call *c, char op, typed **out, mr_status *st)
{
    if (c->n == 1)
        return type_reduce(c, op, out, st);
    const mr_leaf *a;
    mr_dtype t;
    MR_TRY(arity(c, 1, 1000, st));
    for (size_t i = 0; i < c->n; i++)
        MR_TRY(mr__type_want_tensor(c->v[i], c->e->children[i], c->e->text, &a, st));
    MR_TRY(mr__type_unify(c->v, c->e->children, c->n, c->e->text, &t, st));
    MR_TRY(numeric_argument(c, 0, &a, st));
    mr_leaf leaf = *a;
    for (size_t i = 1; i < c->n; i++) {
        mr_leaf so_far = leaf;
        MR_TRY(mr__type_broadcast(&so_far, mr__type_tensor_of(c->v[i]), &leaf, c->e, st));
    }
    return finish(TYPED_EXTREME, c, op == '<' ? '(' : ')', &leaf, out, st);
}

static mr_code type_size(const call *c, bool length, typed **out, mr_status *st)
{
    const mr_leaf *a;
    MR_TRY(arity(c, 1, 1, st));
    MR_TRY(mr__type_want_tensor(c->v[0], c->e->children[0], c->e->text, &a, st));
    MR_TRY(mr__type_settle_default(c->v[0], c->e->children[0], st));
    if (length && mr__type_tensor_of(c->v[0])->rank == 0)
        return mr__type_fail(st, c->e->children[0], "length of a scalar; it has no axis 0");
    return finish(length ? TYPED_LENGTH : TYPED_SIZE, c, 0, &(mr_leaf){.dtype = MR_INT64}, out, st);
}

mr_code mr__type_stack(const mr_expr *e, typed **v, size_t n, bool join, typed **out, mr_status *st)
{
    const char *what = e->kind == MR_EX_LIST ? "a list" : e->text;
    const mr_leaf *a;
    mr_dtype t;
    for (size_t i = 0; i < n; i++)
        MR_TRY(mr__type_want_tensor(v[i], e->children[i], what, &a, st));
    MR_TRY(mr__type_unify(v, e->children, n, what, &t, st));
    mr_leaf leaf = *mr__type_tensor_of(v[0]);
    if (join && leaf.rank == 0)
        return mr__type_fail(st, e->children[0], "%s of scalars; use stack", what);
    for (size_t i = 1; i < n; i++) {
        a = mr__type_tensor_of(v[i]);
        if (a->rank < 0 || leaf.rank < 0) {
            leaf.rank = -1;
            continue;
        }
        bool fits = a->rank == leaf.rank;
        for (int d = 0; fits && d < leaf.rank; d++) {
            if (join && d == 0)
                leaf.shape[0] =
                    leaf.shape[0] < 0 || a->shape[0] < 0 ? -1 : leaf.shape[0] + a->shape[0];
            else if (leaf.shape[d] < 0)
                leaf.shape[d] = a->shape[d];
            else if (a->shape[d] >= 0 && a->shape[d] != leaf.shape[d])
                fits = false;
        }
        if (!fits)
            return mr__type_fail(st, e->children[i], "%s holds tensors of unequal shapes", what);
    }
    if (!join && leaf.rank >= 0) {
        if (leaf.rank == MR_MAX_RANK)
            return mr__type_fail(st, e, "more than %d axes", MR_MAX_RANK);
        memmove(leaf.shape + 1, leaf.shape, (size_t)leaf.rank * sizeof *leaf.shape);
        leaf.shape[0] = (int64_t)n;
        leaf.rank++;
    }
    MR_TRY(mr__type_node_of(join ? TYPED_CONCAT : TYPED_STACK, v, n, out, st));
    return mr__type_set_leaf(*out, &leaf, st);
}

/* A shape argument: a weak or int64 vector (or one integer). Known where it is constant. */
static mr_code shape_argument(const call *c, size_t i, mr_leaf *leaf, bool *known, mr_status *st)
{
    const mr_leaf *a;
    const mr_expr *e = c->e->children[i];
    MR_TRY(mr__type_want_tensor(c->v[i], e, c->e->text, &a, st));
    if (c->v[i]->weak == 'f' && mr_array_row_values(&c->v[i]->value) == 0)
        c->v[i]->weak = 'i'; /* [] is an empty shape too */
    MR_TRY(mr__type_settle(c->v[i], MR_INT64, e, st));
    a = mr__type_tensor_of(c->v[i]);
    if (!mr_dtype_is_integer(a->dtype) || a->rank > 1)
        return mr__type_fail(st, e, "a shape must be a list of integers");
    *known = c->v[i]->kind == TYPED_CONST;
    leaf->rank = -1;
    if (*known) {
        size_t n = mr_array_row_values(&c->v[i]->value);
        if (n > MR_MAX_RANK)
            return mr__type_fail(st, e, "a shape has at most %d axes", MR_MAX_RANK);
        leaf->rank = (int8_t)n;
        for (size_t d = 0; d < n; d++)
            leaf->shape[d] = mr__int_at(&c->v[i]->value, d);
    } else if (a->rank == 1 && a->shape[0] >= 0 && a->shape[0] <= MR_MAX_RANK) {
        leaf->rank = (int8_t)a->shape[0];
        for (int d = 0; d < leaf->rank; d++)
            leaf->shape[d] = -1;
    }
    return MR_OK;
}

static mr_code type_reshape(const call *c, typed **out, mr_status *st)
{
    const mr_leaf *a;
    mr_leaf leaf = {0};
    bool known;
    MR_TRY(arity(c, 2, 2, st));
    MR_TRY(mr__type_want_tensor(c->v[0], c->e->children[0], "reshape", &a, st));
    MR_TRY(mr__type_settle_default(c->v[0], c->e->children[0], st));
    MR_TRY(shape_argument(c, 1, &leaf, &known, st));
    a = mr__type_tensor_of(c->v[0]);
    leaf.dtype = a->dtype;
    int64_t have = a->rank < 0 ? -1 : 1, want = 1;
    for (int d = 0; d < a->rank; d++)
        have = have < 0 || a->shape[d] < 0 ? -1 : have * a->shape[d];
    int free_axis = -1;
    for (int d = 0; known && d < leaf.rank; d++)
        if (leaf.shape[d] >= 0)
            want *= leaf.shape[d];
        else if (leaf.shape[d] < -1 || free_axis >= 0)
            return mr__type_fail(st, c->e->children[1], "a shape has at most one -1, and no less");
        else
            free_axis = d;
    if (known && have >= 0 &&
        (free_axis < 0 ? want != have
         : want == 0   ? have != 0
                       : have % want != 0))
        return mr__type_fail(st, c->e->children[1],
                             "a tensor of %lld values does not have that shape", (long long)have);
    if (known && free_axis >= 0 && have >= 0 && want > 0)
        leaf.shape[free_axis] = have / want;
    return finish(TYPED_RESHAPE, c, 0, &leaf, out, st);
}

static mr_code type_one_hot(const call *c, typed **out, mr_status *st)
{
    const mr_leaf *a, *n;
    MR_TRY(arity(c, 2, 2, st));
    MR_TRY(numeric_argument(c, 0, &a, st));
    MR_TRY(numeric_argument(c, 1, &n, st));
    if (!mr_dtype_is_integer(a->dtype) || !mr_dtype_is_integer(n->dtype) || n->rank > 0)
        return mr__type_fail(st, c->e, "one_hot wants integers and the number of classes");
    mr_leaf leaf = *a;
    leaf.dtype = MR_FLOAT32;
    if (leaf.rank == MR_MAX_RANK)
        return mr__type_fail(st, c->e, "more than %d axes", MR_MAX_RANK);
    if (leaf.rank >= 0) {
        leaf.shape[leaf.rank] = c->v[1]->kind == TYPED_CONST ? mr__int_at(&c->v[1]->value, 0) : -1;
        if (c->v[1]->kind == TYPED_CONST && leaf.shape[leaf.rank] < 0)
            return mr__type_fail(st, c->e->children[1], "a number of classes is not negative");
        leaf.rank++;
    }
    return finish(TYPED_ONE_HOT, c, 0, &leaf, out, st);
}

static mr_code dtype_argument(const mr_expr *e, mr_dtype *t, mr_status *st)
{
    if (!mr__builtin_dtype(&(mr_builtin_arg){.expr = e}, t, NULL))
        return MR_OK;
    return mr__type_fail(st, e, "a dtype is wanted, as in \"float32\"");
}

static mr_code type_fill(const call *c, const mr_expr *dtype, char op, typed **out, mr_status *st)
{
    mr_leaf leaf = {0};
    bool known;
    mr_dtype t = MR_FLOAT32;
    MR_TRY(arity(c, 1, 1, st));
    if (dtype)
        MR_TRY(dtype_argument(dtype, &t, st));
    if (!mr__type_is_numeric(t) && t != MR_BOOL)
        return mr__type_fail(st, dtype, "%s does not make %s", c->e->text, mr_dtype_name(t));
    MR_TRY(shape_argument(c, 0, &leaf, &known, st));
    for (int d = 0; known && d < leaf.rank; d++)
        if (leaf.shape[d] < 0)
            return mr__type_fail(st, c->e->children[0], "a dimension is negative");
    leaf.dtype = t;
    return finish(TYPED_FILL, c, op, &leaf, out, st);
}

static mr_code type_cast(const call *c, const mr_expr *dtype, typed **out, mr_status *st)
{
    const mr_leaf *a;
    mr_dtype t;
    if (!dtype)
        return mr__type_fail(st, c->e, "cast takes a value and a dtype");
    MR_TRY(dtype_argument(dtype, &t, st));
    MR_TRY(mr__type_want_tensor(c->v[0], c->e->children[0], "cast", &a, st));
    MR_TRY(mr__type_settle_default(c->v[0], c->e->children[0], st));
    a = mr__type_tensor_of(c->v[0]);
    if (a->dtype == MR_STRING || t == MR_STRING || t == MR_DATASET)
        return mr__type_fail(st, c->e, "cast converts between numbers and bools, not %s to %s",
                             mr_dtype_name(a->dtype), mr_dtype_name(t));
    mr_leaf leaf = *a;
    leaf.dtype = t;
    return finish(TYPED_CAST, c, 0, &leaf, out, st);
}

static mr_code type_builtin(const mr_builtin *b, const call *c, typed **out, mr_status *st)
{
    size_t n = c->e->n;
    mr_builtin_arg *args = mr_calloc(n + 1, sizeof *args);
    if (!args)
        return mr__type_no_memory(st);
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        args[i].key = c->e->keys ? c->e->keys[i] : NULL;
        args[i].expr = c->e->children[i];
        if (i < c->n) {
            rc = mr__type_settle_default(c->v[i], c->e->children[i], st);
            args[i].spec = c->v[i]->spec;
        }
    }
    mr_spec *spec = NULL;
    void *plan = NULL;
    mr_status why;
    if (rc == MR_OK && (rc = b->type(args, n, &spec, &plan, &why)) != MR_OK) {
        if (rc == MR_INVALID_ARGUMENT)
            mr__type_fail(st, c->e, "%s", why.message);
        else if (st)
            *st = why;
    }
    mr_free(args);
    if (rc != MR_OK)
        return rc;
    rc = mr__type_node_of(TYPED_BUILTIN, c->v, c->n, out, st);
    if (rc != MR_OK) {
        mr_spec_unref(spec);
        if (plan)
            b->free_plan(plan);
        return rc;
    }
    (*out)->spec = spec;
    (*out)->builtin = b;
    (*out)->plan = plan;
    return MR_OK;
}

static mr_code type_registered(mr_fn *fn, const call *c, typed **out, mr_status *st)
{
    mr_spec **specs = mr_calloc(c->n + 1, sizeof *specs);
    mr_code rc = specs ? MR_OK : mr__type_no_memory(st);
    for (size_t i = 0; i < c->n && rc == MR_OK; i++) {
        rc = mr__type_settle_default(c->v[i], c->e->children[i], st);
        specs[i] = mr_spec_ref(c->v[i]->spec);
    }
    mr_spec *in = rc == MR_OK ? mr_spec_tuple(specs, c->n) : NULL;
    mr_free(specs);
    if (rc == MR_OK && !in)
        rc = mr__type_no_memory(st);
    const mr_program *p = NULL;
    if (rc == MR_OK)
        rc = mr_program_get(fn, in, &p, st);
    mr_spec_unref(in);
    if (rc != MR_OK)
        return rc;
    rc = mr__type_node_of(TYPED_FUNCTION, c->v, c->n, out, st);
    if (rc != MR_OK) {
        mr_program_unref(p);
        return rc;
    }
    (*out)->constant = false;
    (*out)->program = p;
    (*out)->spec = mr_spec_ref(mr_program_output(p));
    return MR_OK;
}

static mr_code dispatch(const call *c, const mr_expr *dtype, const mr_builtin *b, mr_fn *fn,
                        typed **out, mr_status *st)
{
    const char *name = c->e->text;
    if (b)
        return type_builtin(b, c, out, st);
    if (fn)
        return type_registered(fn, c, out, st);
    if (strcmp(name, "cast") == 0)
        return type_cast(c, dtype, out, st);
    if (strcmp(name, "abs") == 0)
        return type_abs(c, out, st);
    if (strcmp(name, "min") == 0)
        return type_extreme(c, '<', out, st);
    if (strcmp(name, "max") == 0)
        return type_extreme(c, '>', out, st);
    if (strcmp(name, "sum") == 0)
        return type_reduce(c, 's', out, st);
    if (strcmp(name, "mean") == 0)
        return type_reduce(c, 'm', out, st);
    if (strcmp(name, "size") == 0)
        return type_size(c, false, out, st);
    if (strcmp(name, "length") == 0)
        return type_size(c, true, out, st);
    if (strcmp(name, "concat") == 0 || strcmp(name, "stack") == 0) {
        MR_TRY(arity(c, 1, 100000, st));
        return mr__type_stack(c->e, c->v, c->n, name[0] == 'c', out, st);
    }
    if (strcmp(name, "reshape") == 0)
        return type_reshape(c, out, st);
    if (strcmp(name, "one_hot") == 0)
        return type_one_hot(c, out, st);
    if (strcmp(name, "zeros") == 0)
        return type_fill(c, dtype, 0, out, st);
    if (strcmp(name, "ones") == 0)
        return type_fill(c, dtype, 1, out, st);
    return mr__type_fail(st, c->e,
                         "unknown function '%s'; expressions have abs, cast, concat, decode_raw, "
                         "length, max, mean, min, one_hot, ones, parse_example, reshape, size, "
                         "stack, sum, zeros and functions registered by name",
                         name);
}

mr_code mr__type_call(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    /* A function of the environment was computed before (build.c). */
    char place[32];
    snprintf(place, sizeof place, "@%u", (unsigned)e->begin);
    if (mr__scope_find(s, place) >= 0)
        return mr__type_name(e, place, s, out, st);
    const mr_builtin *b = mr__builtin_find(e->text);
    mr_fn *fn = b ? NULL : mr__fn_registered(e->text);
    bool has_dtype = strcmp(e->text, "cast") == 0 || strcmp(e->text, "zeros") == 0 ||
                     strcmp(e->text, "ones") == 0;
    size_t n = e->n;
    const mr_expr *dtype = has_dtype && n == 2 ? e->children[1] : NULL;
    if (dtype)
        n = 1;
    if (b && b->n_values >= 0 && (size_t)b->n_values < n)
        n = (size_t)b->n_values;
    mr_code rc = MR_OK;
    for (size_t i = 0; !b && i < e->n && rc == MR_OK; i++)
        if (e->keys && e->keys[i] && !(dtype && i == 1 && strcmp(e->keys[i], "dtype") == 0))
            rc = mr__type_fail(st, e->children[i], "%s has no argument '%s'", e->text, e->keys[i]);
    typed **v = mr_calloc(n + 1, sizeof *v);
    if (!v)
        rc = mr__type_no_memory(st);
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = mr__type(e->children[i], s, &v[i], st);
    typed *t = NULL;
    if (rc == MR_OK)
        rc = dispatch(&(call){e, v, n}, dtype, b, fn, &t, st);
    for (size_t i = 0; v && i < n; i++)
        mr__typed_free(v[i]);
    mr_free(v);
    mr_fn_unref(fn);
    if (rc == MR_OK)
        *out = t;
    else
        mr__typed_free(t);
    return rc;
}
