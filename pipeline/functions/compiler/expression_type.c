/* SPDX-License-Identifier: Apache-2.0 */
/* Typing: makes a typed tree from a syntax tree and the specs of the names in scope.
 *
 * Numeric literals are weak: combined with a tensor they take its type; combined with each other
 * they are computed here, as in Python; alone an integer is int64 and a float is float32. Nothing
 * else is converted except by cast. */
#include <string.h>

#include "pipeline/functions/compiler/type_check.h"
#include "pipeline/params/infer.h"
#include "pipeline/params/hints.h"

int64_t mr__scope_find(const scope *s, const char *name)
{
    for (size_t i = s->n; i-- > 0;)
        if (strcmp(s->names[i], name) == 0)
            return (int64_t)i;
    return -1;
}

const char *mr__type_hint(const mr_expr *e)
{
    size_t size = 0;
    const char *source = mr_expr_source(e, &size);
    return mr__hint(source, size, mr_expr_place(e));
}

void mr__typed_free(typed *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++)
        mr__typed_free(t->children[i]);
    mr_spec_unref(t->spec);
    mr_array_reset(&t->value);
    if (t->plan)
        t->function->free_plan(t->plan);
    if (t->params)
        mr__function_params_free(t->function, t->params);
    mr_program_unref(t->program);
    mr__dataset_body_free(t->body);
    mr_free(t);
}

static typed *new_typed(typed_kind kind, size_t n)
{
    typed *t = mr_calloc(1, sizeof *t + n * sizeof *t->children);
    if (t) {
        t->kind = kind;
        t->n = n;
    }
    return t;
}

mr_code mr__type_no_memory(mr_status *st)
{
    return mr_fail_memory(st, sizeof(typed), "an expression");
}

static void set_constant(typed *t)
{
    t->constant = true;
    for (size_t i = 0; i < t->n; i++)
        t->constant = t->constant && t->children[i]->constant;
}

/* The leaf of a node that must be one tensor; NULL if it is not. */
const mr_leaf *mr__type_tensor_of(const typed *t)
{
    if (mr_spec_kind_of(t->spec) != MR_SPEC_LEAF)
        return NULL;
    const mr_leaf *leaf = mr_spec_leaf(t->spec, 0);
    return leaf->dtype == MR_DATASET ? NULL : leaf;
}

static bool is_numeric(mr_dtype t)
{
    return mr_dtype_is_integer(t) || mr_dtype_is_floating(t);
}

mr_code mr__type_want_tensor(const typed *t, const mr_expr *e, const char *what,
                             const mr_leaf **leaf, mr_status *st)
{
    *leaf = mr__type_tensor_of(t);
    if (!*leaf) {
        char found[128], hint[MR__HINT_ROOM];
        mr_spec_format(t->spec, found, sizeof found);
        mr__hint_of_datasets(t->spec, e->kind == MR_EX_NAME ? e->text : NULL, hint);
        return mr_expr_fail_at(st, e, "%s expects a tensor, not %s%s", what, found, hint);
    }
    if ((*leaf)->ragged)
        return mr_expr_fail_at(st, e, "%s does not take ragged tensors", what);
    return MR_OK;
}

/* ---- literals ---- */

mr_code mr__type_constant(mr_array *value, char weak, typed **out, mr_status *st)
{
    typed *t = new_typed(TYPED_CONST, 0);
    if (!t) {
        mr_array_reset(value);
        return mr__type_no_memory(st);
    }
    t->constant = true;
    t->weak = weak;
    mr_array_move(&t->value, value);
    t->spec = mr_spec_tensor(t->value.dtype, t->value.rank, t->value.shape);
    if (!t->spec) {
        mr__typed_free(t);
        return mr__type_no_memory(st);
    }
    *out = t;
    return MR_OK;
}

static mr_code literal(const mr_expr *e, typed **out, mr_status *st)
{
    mr_array a = {0};
    switch (e->kind) {
    case MR_EX_INT:
        MR_TRY(mr_array_alloc(&a, MR_INT64, 0, NULL, 1, st));
        *(int64_t *)a.data = e->i;
        return mr__type_constant(&a, 'i', out, st);
    case MR_EX_FLOAT:
        MR_TRY(mr_array_alloc(&a, MR_FLOAT64, 0, NULL, 1, st));
        *(double *)a.data = e->f;
        return mr__type_constant(&a, 'f', out, st);
    case MR_EX_BOOL:
        MR_TRY(mr_array_alloc(&a, MR_BOOL, 0, NULL, 1, st));
        *(uint8_t *)a.data = e->i != 0;
        return mr__type_constant(&a, 0, out, st);
    default: {
        mr_buffer *text;
        MR_TRY(mr_buffer_alloc(&text, e->text_size, st));
        if (e->text_size)
            memcpy(mr_buffer_data(text), e->text, e->text_size);
        mr_code rc = mr_array_alloc(&a, MR_STRING, 0, NULL, 1, st);
        if (rc == MR_OK) {
            *(mr_bytes *)a.data = (mr_bytes){mr_buffer_data(text), e->text_size};
            rc = mr_buffer_hold(a.owner, text, st);
        }
        mr_buffer_unref(text);
        if (rc != MR_OK) {
            mr_array_reset(&a);
            return rc;
        }
        return mr__type_constant(&a, 0, out, st);
    }
    }
}

/* Literals must be in the range of the integer type: with a uint8, 300 or -1 is a mistake. */
static bool literals_fit(const mr_array *a, mr_dtype to)
{
    bool is_unsigned = to >= MR_UINT8 && to <= MR_UINT64;
    int bits = (int)mr_dtype_size(to) * 8;
    int64_t most = is_unsigned && bits < 64 ? (INT64_C(1) << bits) - 1
                   : bits < 64              ? (INT64_C(1) << (bits - 1)) - 1
                                            : INT64_MAX;
    int64_t least = is_unsigned ? 0 : -most - 1;
    size_t n = mr_array_row_values(a);
    for (size_t i = 0; i < n; i++)
        if (mr__int_at(a, i) < least || mr__int_at(a, i) > most)
            return false;
    return true;
}

/* Makes a weak node of type `to`; strong ones stay. */
mr_code mr__type_settle(typed *t, mr_dtype to, const mr_expr *e, mr_status *st)
{
    if (!t->weak)
        return MR_OK;
    if (!is_numeric(to))
        return mr_expr_fail_at(st, e, "a number cannot be combined with a %s", mr_dtype_name(to));
    if (t->weak != 'i' && mr_dtype_is_integer(to))
        return mr_expr_fail_at(
            st, e, "a float literal cannot be combined with an %s; use cast, or an integer literal",
            mr_dtype_name(to));
    if (mr_dtype_is_integer(to) && !literals_fit(&t->value, to))
        return mr_expr_fail_at(st, e,
                               "a literal exceeds the range of the %s that it is combined with",
                               mr_dtype_name(to));
    mr_array value = {0};
    MR_TRY(mr__kernel_cast(&t->value, to, &value, st));
    mr_spec *spec = mr_spec_tensor(to, value.rank, value.shape);
    if (!spec) {
        mr_array_reset(&value);
        return mr__type_no_memory(st);
    }
    mr_array_reset(&t->value);
    t->value = value;
    mr_spec_unref(t->spec);
    t->spec = spec;
    t->weak = 0;
    return MR_OK;
}

/* The stronger of two kinds of literals, and its default type. */
char mr__type_stronger(char a, char b)
{
    return a == 'd' || b == 'd' ? 'd' : a == 'f' || b == 'f' ? 'f' : a == 'i' || b == 'i' ? 'i' : 0;
}

static mr_dtype literal_type(char weak)
{
    return weak == 'd' ? MR_FLOAT64 : weak == 'f' ? MR_FLOAT32 : MR_INT64;
}

mr_code mr__type_settle_default(typed *t, const mr_expr *e, mr_status *st)
{
    return mr__type_settle(t, literal_type(t->weak), e, st);
}

/* Gives all nodes one type: weak ones take that of the first strong one. */
mr_code mr__type_unify(typed **v, const mr_expr *const *es, size_t n, const char *what, mr_dtype *t,
                       mr_status *st)
{
    const typed *strong = NULL;
    char weak = 0;
    for (size_t i = 0; i < n; i++) {
        if (!v[i]->weak && !strong)
            strong = v[i];
        weak = mr__type_stronger(weak, v[i]->weak);
    }
    *t = strong ? mr_spec_leaf(strong->spec, 0)->dtype : literal_type(weak);
    for (size_t i = 0; i < n; i++) {
        MR_TRY(mr__type_settle(v[i], *t, es[i], st));
        mr_dtype other = mr_spec_leaf(v[i]->spec, 0)->dtype;
        if (other != *t)
            return mr_expr_fail_at(st, es[i],
                                   "%s has operands of different types, %s and %s; use cast", what,
                                   mr_dtype_name(*t), mr_dtype_name(other));
    }
    return MR_OK;
}

/* ---- operators ---- */

/* A node over n typed children (taken, also on failure). */
mr_code mr__type_node_of(typed_kind kind, typed **children, size_t n, typed **out, mr_status *st)
{
    typed *t = new_typed(kind, n);
    for (size_t i = 0; i < n; i++) {
        if (t)
            t->children[i] = children[i];
        else
            mr__typed_free(children[i]);
        children[i] = NULL;
    }
    if (!t)
        return mr__type_no_memory(st);
    set_constant(t);
    *out = t;
    return MR_OK;
}

/* A written operator over its typed children. `and` and `or` of single bools evaluate their right
 * side only if it decides: they become choices between it and a constant. */
static mr_code type_operator(const mr_expr *e, typed **v, typed **out, mr_status *st)
{
    const char *name = mr_expr_operator(e);
    MR_TRY(mr__type_function(mr__operator(name, e->n), e, v, e->children, e->n, NULL, out, st));
    bool is_and = strcmp(name, "and") == 0;
    if (!is_and && strcmp(name, "or") != 0)
        return MR_OK;
    typed *t = *out, *c[3] = {t->children[0], NULL, NULL}, *other = NULL;
    if (mr_spec_leaf(t->spec, 0)->rank != 0)
        return MR_OK;
    mr_array value = {0};
    MR_TRY(mr_array_alloc(&value, MR_BOOL, 0, NULL, 1, st));
    *(uint8_t *)value.data = !is_and;
    MR_TRY(mr__type_constant(&value, 0, &other, st));
    c[is_and ? 1 : 2] = t->children[1];
    c[is_and ? 2 : 1] = other;
    t->children[0] = t->children[1] = NULL;
    *out = NULL;
    mr_code rc = mr__type_node_of(TYPED_CHOICE, c, 3, out, st);
    if (rc == MR_OK) {
        (*out)->e = e;
        (*out)->spec = mr_spec_ref(t->spec);
    }
    mr__typed_free(t);
    return rc;
}

static mr_code type_if(const mr_expr *e, typed **v, typed **out, mr_status *st)
{
    /* Written value, condition, other; run condition first. */
    typed *c[3] = {v[1], v[0], v[2]};
    const mr_leaf *condition;
    MR_TRY(mr__type_want_tensor(c[0], e->children[1], "if", &condition, st));
    if (condition->dtype != MR_BOOL || condition->rank > 0) {
        char found[96];
        mr_spec_format(c[0]->spec, found, sizeof found);
        return mr_expr_fail_at(st, e->children[1], "if expects a single bool, not %s", found);
    }
    if (c[1]->weak || c[2]->weak) {
        const mr_leaf *leaf;
        MR_TRY(mr__type_want_tensor(c[1], e->children[0], "if", &leaf, st));
        MR_TRY(mr__type_want_tensor(c[2], e->children[2], "if", &leaf, st));
        mr_dtype t;
        const mr_expr *const es[2] = {e->children[0], e->children[2]};
        MR_TRY(mr__type_unify(c + 1, es, 2, "if", &t, st));
    }
    if (!mr_spec_same_types(c[1]->spec, c[2]->spec)) {
        char a[128], b[128];
        mr_spec_format(c[1]->spec, a, sizeof a);
        mr_spec_format(c[2]->spec, b, sizeof b);
        return mr_expr_fail_at(st, e, "the two sides of if have different types, %s and %s", a, b);
    }
    for (size_t i = 0; i < mr_spec_n_leaves(c[1]->spec); i++) {
        int yes = mr_spec_leaf(c[1]->spec, i)->rank, no = mr_spec_leaf(c[2]->spec, i)->rank;
        if (yes >= 0 && no >= 0 && yes != no)
            return mr_expr_fail_at(st, e, "the two sides of if have %d and %d axes", yes, no);
    }
    mr_spec *spec = mr_spec_merge(c[1]->spec, c[2]->spec);
    if (!spec)
        return mr__type_no_memory(st);
    v[0] = v[1] = v[2] = NULL;
    mr_code rc = mr__type_node_of(TYPED_CHOICE, c, 3, out, st);
    if (rc != MR_OK) {
        mr_spec_unref(spec);
        return rc;
    }
    (*out)->e = e;
    (*out)->spec = spec;
    return MR_OK;
}

/* ---- tuples, records, lists, parts ---- */

static mr_code type_group(const mr_expr *e, typed **v, typed **out, mr_status *st)
{
    for (size_t i = 0; i < e->n; i++)
        MR_TRY(mr__type_settle_default(v[i], e->children[i], st));
    mr_spec **specs = mr_calloc(e->n + 1, sizeof *specs);
    typed **sorted = mr_calloc(e->n + 1, sizeof *sorted);
    mr_code rc = specs && sorted ? MR_OK : mr__type_no_memory(st);
    for (size_t i = 0; i < e->n && rc == MR_OK; i++)
        specs[i] = mr_spec_ref(v[i]->spec);
    mr_spec *spec = NULL;
    if (rc == MR_OK) {
        spec = e->kind == MR_EX_RECORD ? mr_spec_record((const char *const *)e->keys, specs, e->n)
                                       : mr_spec_tuple(specs, e->n);
        mr_status why;
        if (!spec)
            rc = mr__type_no_memory(st);
        else if (mr__spec_check(spec, &why) != MR_OK)
            rc = mr_expr_fail_at(st, e, "%s", why.message);
    }
    /* A record's components are in order of their names. */
    for (size_t i = 0; i < e->n && rc == MR_OK; i++)
        sorted[e->kind == MR_EX_RECORD ? (size_t)mr_spec_find(spec, e->keys[i]) : i] = v[i];
    if (rc == MR_OK) {
        memset(v, 0, e->n * sizeof *v);
        rc = mr__type_node_of(TYPED_GROUP, sorted, e->n, out, st);
    }
    if (rc == MR_OK)
        (*out)->spec = spec;
    else
        mr_spec_unref(spec);
    mr_free(specs);
    mr_free(sorted);
    return rc;
}

static mr_code type_list(const mr_expr *e, typed **v, typed **out, mr_status *st)
{
    if (e->n == 0) {
        mr_array none = {0};
        const int64_t zero = 0;
        MR_TRY(mr_array_alloc(&none, MR_FLOAT64, 1, &zero, 1, st));
        return mr__type_constant(&none, 'f', out, st);
    }
    bool weak = true;
    char kind = 0;
    for (size_t i = 0; i < e->n; i++) {
        weak = weak && v[i]->weak && v[i]->value.rank == v[0]->value.rank &&
               memcmp(v[i]->value.shape, v[0]->value.shape,
                      (size_t)v[0]->value.rank * sizeof(int64_t)) == 0;
        kind = mr__type_stronger(kind, v[i]->weak);
    }
    if (!weak || v[0]->value.rank >= MR_MAX_RANK) /* [a, b] means stack(a, b) */
        return mr__type_function(mr_function_find("stack"), e, v, e->children, e->n, NULL, out, st);
    /* Numbers alone stay weak, as one tensor. */
    mr_array all = {0};
    int64_t shape[MR_MAX_RANK];
    shape[0] = (int64_t)e->n;
    memcpy(shape + 1, v[0]->value.shape, (size_t)v[0]->value.rank * sizeof *shape);
    MR_TRY(mr_array_alloc(&all, kind == 'i' ? MR_INT64 : MR_FLOAT64, v[0]->value.rank + 1, shape, 1,
                          st));
    size_t bytes = mr_array_row_values(&v[0]->value) * 8;
    for (size_t i = 0; i < e->n; i++) {
        mr_array x = {0};
        mr_code rc = mr__kernel_cast(&v[i]->value, all.dtype, &x, st);
        if (rc != MR_OK) {
            mr_array_reset(&all);
            return rc;
        }
        if (bytes)
            memcpy((char *)all.data + i * bytes, x.data, bytes);
        mr_array_reset(&x);
    }
    return mr__type_constant(&all, kind, out, st);
}

static mr_code part_of(typed *t, size_t child, typed **out, mr_status *st)
{
    mr_spec *spec = mr_spec_ref(mr_spec_child(t->spec, child));
    size_t first = mr_spec_first_leaf(t->spec, child);
    mr_code rc = mr__type_node_of(TYPED_PART, &t, 1, out, st);
    if (rc != MR_OK) {
        mr_spec_unref(spec);
        return rc;
    }
    (*out)->spec = spec;
    (*out)->first = first;
    return MR_OK;
}

/* true: brackets contain more than one index: ranges, or indices of several axes. */
static bool is_slice(const mr_expr *at)
{
    return at->kind == MR_EX_SLICE || (at->kind == MR_EX_TUPLE && at->n > 0);
}

/* x[i:j, k]: the numbers given are the inputs of one call. */
static mr_code type_slice(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    const mr_expr *at = e->children[1], *const *parts =
                                            at->kind == MR_EX_TUPLE ? at->children : &at;
    size_t n_parts = at->kind == MR_EX_TUPLE ? at->n : 1, n = 0;
    typed **v = mr_calloc(3 * n_parts + 1, sizeof *v);
    const mr_expr **places = mr_calloc(3 * n_parts + 1, sizeof *places);
    mr_code rc = v && places ? MR_OK : mr__type_no_memory(st);
    if (rc == MR_OK) {
        places[0] = e->children[0];
        rc = mr__type(places[0], s, &v[n++], st);
    }
    for (size_t i = 0; i < n_parts && rc == MR_OK; i++) {
        bool range = parts[i]->kind == MR_EX_SLICE;
        for (size_t k = 0; k < (range ? 3 : 1) && rc == MR_OK; k++) {
            const mr_expr *bound = range ? parts[i]->children[k] : parts[i];
            if (range && bound->kind == MR_EX_NONE)
                continue;
            places[n] = bound;
            rc = mr__type(bound, s, &v[n++], st);
        }
    }
    if (rc == MR_OK)
        rc = mr__type_function(mr__operator("[:]", 2), e, v, places, n, NULL, out, st);
    for (size_t i = 0; v && i < n; i++)
        mr__typed_free(v[i]);
    mr_free(v);
    mr_free(places);
    return rc;
}

static mr_code type_index(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    if (e->n != 2)
        return mr_expr_fail_at(st, e, "an index is missing between [ and ]");
    if (is_slice(e->children[1]))
        return type_slice(e, s, out, st);
    typed *v[2] = {NULL, NULL};
    mr_code rc = mr__type(e->children[0], s, &v[0], st);
    const mr_expr *at = e->children[1];
    if (rc == MR_OK && at->kind == MR_EX_STRING) {
        int64_t k =
            mr_spec_kind_of(v[0]->spec) == MR_SPEC_RECORD ? mr_spec_find(v[0]->spec, at->text) : -1;
        if (k >= 0)
            return part_of(v[0], (size_t)k, out, st);
        char found[160];
        mr_spec_format(v[0]->spec, found, sizeof found);
        rc = mr_expr_fail_at(st, at, "there is no component \"%s\" in %s", at->text, found);
    } else if (rc == MR_OK)
        rc = mr__type(at, s, &v[1], st);
    if (rc == MR_OK && mr_spec_kind_of(v[0]->spec) == MR_SPEC_TUPLE) {
        int64_t n = (int64_t)mr_spec_n_children(v[0]->spec);
        int64_t k = v[1]->weak == 'i' && v[1]->value.rank == 0 ? mr__int_at(&v[1]->value, 0) : n;
        if (k >= -n && k < n) {
            mr__typed_free(v[1]);
            return part_of(v[0], (size_t)(k < 0 ? k + n : k), out, st);
        }
        rc = mr_expr_fail_at(st, at, "a tuple of %lld is indexed with an integer from %lld to %lld",
                             (long long)n, (long long)-n, (long long)(n - 1));
    } else if (rc == MR_OK && mr_spec_kind_of(v[0]->spec) == MR_SPEC_RECORD)
        rc = mr_expr_fail_at(st, at, "a record is indexed with a name, as in x[\"label\"]");
    if (rc == MR_OK)
        rc = mr__type_function(mr__operator("[ ]", 2), e, v, e->children, 2, NULL, out, st);
    mr__typed_free(v[0]);
    mr__typed_free(v[1]);
    return rc;
}

/* ---- the walk ---- */

mr_code mr__type_name(const mr_expr *e, const char *name, const scope *s, typed **out,
                      mr_status *st)
{
    int64_t i = mr__scope_find(s, name);
    if (i < 0)
        return mr_expr_fail_at(st, e, "unknown name '%s'%s", name, mr__type_hint(e));
    typed *t = new_typed(TYPED_COLUMN, 0);
    if (!t)
        return mr__type_no_memory(st);
    t->spec = mr_spec_ref(s->specs[i]);
    t->first = s->first[i];
    t->constant = s->constant[i];
    *out = t;
    return MR_OK;
}

static mr_code type_dataset(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    typed *t = new_typed(TYPED_DATASET, 0);
    mr_spec *element = NULL;
    if (!t)
        return mr__type_no_memory(st);
    mr_code rc = mr__dataset_body(e, s, &t->body, &element, st);
    if (rc == MR_OK && !(t->spec = mr_spec_dataset(element)))
        rc = mr__type_no_memory(st);
    if (rc != MR_OK) {
        mr__typed_free(t);
        return rc;
    }
    *out = t;
    return MR_OK;
}

static mr_code type_children(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    typed **v = mr_calloc(e->n + 1, sizeof *v), *t = NULL;
    mr_code rc = v ? MR_OK : mr__type_no_memory(st);
    for (size_t i = 0; i < e->n && rc == MR_OK; i++)
        rc = mr__type(e->children[i], s, &v[i], st);
    if (rc == MR_OK)
        switch (e->kind) {
        case MR_EX_TUPLE:
        case MR_EX_RECORD:
            rc = e->n ? type_group(e, v, &t, st)
                      : mr_expr_fail_at(st, e, "an element has at least one component");
            break;
        case MR_EX_LIST:
            rc = type_list(e, v, &t, st);
            break;
        case MR_EX_UNARY:
        case MR_EX_BINARY:
            rc = type_operator(e, v, &t, st);
            break;
        default:
            rc = type_if(e, v, &t, st);
        }
    for (size_t i = 0; v && i < e->n; i++)
        mr__typed_free(v[i]);
    mr_free(v);
    if (rc == MR_OK)
        *out = t;
    else
        mr__typed_free(t);
    return rc;
}

mr_code mr__type(const mr_expr *e, const scope *s, typed **out, mr_status *st)
{
    if ((e->kind == MR_EX_CALL || e->kind == MR_EX_METHOD) && mr__is_dataset(e, s))
        return type_dataset(e, s, out, st);
    switch (e->kind) {
    case MR_EX_INT:
    case MR_EX_FLOAT:
    case MR_EX_STRING:
    case MR_EX_BOOL:
        return literal(e, out, st);
    case MR_EX_NAME:
        return mr__type_name(e, e->text, s, out, st);
    case MR_EX_CALL:
        return mr__type_call(e, s, out, st);
    case MR_EX_INDEX:
        return type_index(e, s, out, st);
    case MR_EX_TUPLE:
    case MR_EX_RECORD:
    case MR_EX_LIST:
    case MR_EX_UNARY:
    case MR_EX_BINARY:
    case MR_EX_IF:
        return type_children(e, s, out, st);
    case MR_EX_METHOD:
        return mr_expr_fail_at(st, e, "unknown op '%s'%s", e->text, mr__type_hint(e));
    case MR_EX_LAMBDA:
        return mr_expr_fail_at(st, e, "a function cannot be a value here");
    default:
        return mr_expr_fail_at(st, e, "none and auto are not values of an expression");
    }
}
