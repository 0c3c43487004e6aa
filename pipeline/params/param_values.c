/* SPDX-License-Identifier: Apache-2.0 */
/* Converts values to fields of a params struct, and back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/hide_secrets.h"
#include "pipeline/params/literal.h"
#include "pipeline/params/params.h"

/* Describes v for a message. */
static const char *describe(const mr_value *v, char *buf, size_t size)
{
    static const char *const kinds[] = {[MR_V_UNSET] = "nothing",
                                        [MR_V_NONE] = "none",
                                        [MR_V_AUTO] = "auto",
                                        [MR_V_LIST] = "a list",
                                        [MR_V_TUPLE] = "a tuple",
                                        [MR_V_RECORD] = "a record",
                                        [MR_V_FN] = "a function",
                                        [MR_V_DATASET] = "a dataset",
                                        [MR_V_UNKNOWN] = "an unknown value"};
    char text[1024];
    size_t n;
    switch (v->kind) {
    case MR_V_BOOL:
        return v->i ? "true" : "false";
    case MR_V_INT:
        snprintf(buf, size, "%" PRId64, v->i);
        return buf;
    case MR_V_FLOAT:
        mr__literal_double(v->f, buf);
        return buf;
    case MR_V_STRING:
        snprintf(text, sizeof text, "%s", v->s);
        mr__hide_secrets(text, 0); /* before it is cut */
        snprintf(buf, size, "\"%.40s\"%s", text, v->size > 40 ? "..." : "");
        return buf;
    case MR_V_TENSOR:
        n = (size_t)snprintf(buf, size, "a tensor of %s ", mr_dtype_name(v->tensor.dtype));
        mr_shape_format(v->tensor.rank, mr_array_row_shape(&v->tensor, 0), buf + n, size - n);
        return buf;
    case MR_V_UNKNOWN:
        if (!v->spec)
            return kinds[v->kind];
        n = (size_t)snprintf(buf, size, "a value of type ");
        mr_spec_format(v->spec, buf + n, size - n);
        return buf;
    default:
        return kinds[v->kind];
    }
}

static mr_code wrong_type(const char *owner, const mr_param *p, const char *what, const mr_value *v,
                          mr_status *st)
{
    char found[96];
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must be %s, not %s", owner, p->name, what,
                   describe(v, found, sizeof found));
}

/* True if v is an integer or an integer tensor of rank 0. */
static bool as_int(const mr_value *v, int64_t *out)
{
    if (v->kind == MR_V_INT) {
        *out = v->i;
        return true;
    }
    if (v->kind != MR_V_TENSOR || v->tensor.rank != 0)
        return false;
    return mr__literal_int_at(&v->tensor, 0, out);
}

static bool as_double(const mr_value *v, double *out)
{
    int64_t i;
    if (as_int(v, &i)) {
        *out = (double)i;
        return true;
    }
    if (v->kind == MR_V_FLOAT) {
        *out = v->f;
        return true;
    }
    return v->kind == MR_V_TENSOR && v->tensor.rank == 0 &&
           mr__literal_double_at(&v->tensor, 0, out);
}

enum { NUMBER_INT, NUMBER_FLOAT };

/* The numbers of a list, in order. */
struct numbers {
    int kind;
    int64_t *i;
    double *f;
    size_t n;
    bool unknown;
};

static bool add_number(struct numbers *to, const mr_value *v)
{
    if (v->kind == MR_V_UNKNOWN) {
        to->unknown = true;
        return true;
    }
    int64_t i = 0;
    double f = 0;
    if (to->kind == NUMBER_INT ? !as_int(v, &i) : !as_double(v, &f))
        return false;
    if (to->i)
        to->i[to->n] = i;
    if (to->f)
        to->f[to->n] = f;
    to->n++;
    return true;
}

static bool add_tensor(struct numbers *to, const mr_array *a)
{
    size_t n = a->rank == 1 ? (size_t)mr_array_row_shape(a, 0)[0] : 1;
    if (a->rank > 1)
        return false;
    if (n == 0)
        return true; /* [] is a float tensor, but also an empty list of any type */
    for (size_t k = 0; k < n; k++) {
        int64_t i = 0;
        double f = 0;
        if (to->kind == NUMBER_INT ? !mr__literal_int_at(a, k, &i)
                                   : !mr__literal_double_at(a, k, &f))
            return false;
        if (to->i)
            to->i[to->n] = i;
        if (to->f)
            to->f[to->n] = f;
        to->n++;
    }
    return true;
}

/* depth: maximum number of nested lists. */
static bool add_numbers(struct numbers *to, const mr_value *v, int depth)
{
    if (v->kind == MR_V_TENSOR && depth > 0)
        return add_tensor(to, &v->tensor);
    if (depth == 0 || (v->kind != MR_V_LIST && v->kind != MR_V_TUPLE))
        return add_number(to, v);
    for (size_t i = 0; i < v->n; i++)
        if (!add_numbers(to, &v->items[i], depth - 1))
            return false;
    return true;
}

static int list_depth(const mr_param *p)
{
    return p->flags & MR_P_VARIADIC ? 2 : 1;
}

static mr_code set_numbers(const char *owner, const mr_param *p, void *own, const mr_value *v,
                           bool *unknown, mr_status *st)
{
    int kind = p->type == MR_PT_INTS ? NUMBER_INT : NUMBER_FLOAT, depth = list_depth(p);
    struct numbers count = {.kind = kind}, fill = {.kind = kind};
    if (!add_numbers(&count, v, depth))
        return wrong_type(
            owner, p, kind == NUMBER_INT ? "an integer or a list of integers" : "a list of numbers",
            v, st);
    *unknown = count.unknown;
    if (count.unknown)
        return MR_OK;
    void *list = mr_calloc(count.n + 1, sizeof(int64_t)); /* a double has the same size */
    if (!list)
        return mr_fail_memory(st, count.n * sizeof(int64_t), "a list of numbers");
    void *field = mr__param_field(p, own);
    if (kind == NUMBER_INT)
        *(mr_ints *)field = (mr_ints){.v = fill.i = list, .n = count.n};
    else
        *(mr_floats *)field = (mr_floats){.v = fill.f = list, .n = count.n};
    add_numbers(&fill, v, depth);
    return mr__param_check_lists(owner, p, own, st);
}

/* True if a value of this type, not yet known, may be assigned to p. */
static bool type_fits(const mr_param *p, const mr_spec *spec)
{
    if (!spec || p->type == MR_PT_VALUE)
        return true;
    if (mr_spec_kind_of(spec) != MR_SPEC_LEAF)
        return false;
    const mr_leaf *leaf = mr_spec_leaf(spec, 0);
    bool list = p->type == MR_PT_INTS || p->type == MR_PT_FLOATS || p->type == MR_PT_STRS;
    if (leaf->rank > (list ? 1 : 0))
        return false;
    switch (p->type) {
    case MR_PT_I64:
    case MR_PT_INTS:
        return mr_dtype_is_integer(leaf->dtype);
    case MR_PT_F64:
    case MR_PT_FLOATS:
        return mr_dtype_is_integer(leaf->dtype) || mr_dtype_is_floating(leaf->dtype);
    case MR_PT_BOOL:
    case MR_PT_TRI:
        return leaf->dtype == MR_BOOL;
    case MR_PT_STR:
    case MR_PT_STRS:
        return leaf->dtype == MR_STRING;
    default:
        return false;
    }
}

/* The strings of a value; collected in two passes, which count and then copy. */
struct strings {
    mr_strs list;
    char *text; /* NULL: counting */
    size_t n, bytes;
    bool unknown;
    const mr_param *param;
    const mr_value *wrong; /* the first value that is not a string */
};

static void add_string(struct strings *to, const char *s, size_t size, bool path)
{
    if (to->text)
        mr__strs_put(&to->list, to->n, s, size, path, &to->text);
    to->n++;
    to->bytes += size;
}

/* depth: maximum number of nested lists. */
static bool add_strings(struct strings *to, const mr_value *v, int depth)
{
    if (v->kind == MR_V_STRING)
        add_string(to, v->s, v->size, v->computed);
    else if (v->kind == MR_V_UNKNOWN && type_fits(to->param, v->spec))
        to->unknown = true;
    else if (v->kind == MR_V_TENSOR && v->tensor.rank <= depth && v->tensor.rank <= 1) {
        const mr_array *a = &v->tensor;
        size_t n = a->rank == 1 ? (size_t)mr_array_row_shape(a, 0)[0] : 1;
        if (n && a->dtype != MR_STRING) {
            to->wrong = v;
            return false;
        }
        const mr_bytes *b = n ? mr__literal_values(a) : NULL;
        for (size_t i = 0; i < n; i++)
            add_string(to, b[i].data, b[i].size, v->computed);
    } else if (depth > 0 && (v->kind == MR_V_LIST || v->kind == MR_V_TUPLE)) {
        for (size_t i = 0; i < v->n; i++)
            if (!add_strings(to, &v->items[i], depth - 1))
                return false;
    } else {
        to->wrong = v;
        return false;
    }
    return true;
}

static mr_code set_strs(const char *owner, const mr_param *p, void *own, const mr_value *v,
                        bool *unknown, mr_status *st)
{
    struct strings s = {.param = p};
    int depth = list_depth(p);
    if (!add_strings(&s, v, depth))
        return wrong_type(owner, p, "a string or a list of strings", s.wrong, st);
    *unknown = s.unknown;
    if (s.unknown)
        return MR_OK;
    MR_TRY(mr__strs_new(s.n, s.bytes, &s.list, &s.text, st));
    s.n = 0;
    add_strings(&s, v, depth);
    mr_strs *list = mr__param_field(p, own);
    *list = s.list;
    return MR_OK;
}

static mr_code set_str(const char *owner, const mr_param *p, void *own, const mr_value *v,
                       mr_status *st)
{
    mr_bytes b = {.data = v->s, .size = v->size};
    if (v->kind == MR_V_AUTO && (p->flags & MR_P_AUTO))
        b = (mr_bytes){"auto", 4};
    else if (v->kind == MR_V_TENSOR && v->tensor.rank == 0 && v->tensor.dtype == MR_STRING)
        b = *(const mr_bytes *)mr__literal_values(&v->tensor);
    else if (v->kind != MR_V_STRING)
        return wrong_type(owner, p, "a string", v, st);
    if (b.size && memchr(b.data, 0, b.size))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must not hold a NUL byte", owner, p->name);
    char *copy = mr_strndup(b.data ? b.data : "", b.size);
    if (!copy)
        return mr_fail_memory(st, b.size + 1, "a parameter");
    char **s = mr__param_field(p, own);
    mr_free(*s);
    *s = copy;
    return mr__param_check_word(owner, p, copy, st);
}

static const char *const type_names[] = {[MR_PT_I64] = "an integer",
                                         [MR_PT_F64] = "a number",
                                         [MR_PT_BOOL] = "true or false",
                                         [MR_PT_TRI] = "true or false",
                                         [MR_PT_STR] = "a string",
                                         [MR_PT_FN] = "a function, such as x => x",
                                         [MR_PT_VALUE] = "a value",
                                         [MR_PT_INTS] = "an integer or a list of integers",
                                         [MR_PT_FLOATS] = "a list of numbers",
                                         [MR_PT_STRS] = "a string or a list of strings",
                                         [MR_PT_OWN] = "written in place"};

static mr_code set_i64(const char *owner, const mr_param *p, void *own, const mr_value *v,
                       mr_status *st)
{
    int64_t i = MR_AUTO;
    if (!(v->kind == MR_V_AUTO && (p->flags & MR_P_AUTO)) && !as_int(v, &i))
        return wrong_type(owner, p, p->flags & MR_P_AUTO ? "an integer or auto" : "an integer", v,
                          st);
    i = mr__param_auto(p, i);
    MR_TRY(mr__param_check_i64(owner, p, i, st));
    *(int64_t *)mr__param_field(p, own) = i;
    return MR_OK;
}

static mr_code set_known(const char *owner, const mr_param *p, void *own, const mr_value *v,
                         bool *unknown, mr_status *st)
{
    double f;
    switch (p->type) {
    case MR_PT_I64:
        return set_i64(owner, p, own, v, st);
    case MR_PT_F64:
        if (!as_double(v, &f))
            break;
        MR_TRY(mr__param_check_f64(owner, p, f, st));
        *(double *)mr__param_field(p, own) = f;
        return MR_OK;
    case MR_PT_BOOL:
        if (v->kind != MR_V_BOOL)
            break;
        *(bool *)mr__param_field(p, own) = v->i != 0;
        return MR_OK;
    case MR_PT_TRI:
        if (v->kind != MR_V_BOOL)
            break;
        *(mr_tri *)mr__param_field(p, own) = v->i ? MR_YES : MR_NO;
        return MR_OK;
    case MR_PT_STR:
        return set_str(owner, p, own, v, st);
    case MR_PT_FN:
        if (v->kind != MR_V_FN)
            break;
        *(void **)mr__param_field(p, own) = mr__reference(v->fn);
        return MR_OK;
    case MR_PT_VALUE:
        return mr_value_copy(mr__param_field(p, own), v, st);
    case MR_PT_INTS:
    case MR_PT_FLOATS:
        return set_numbers(owner, p, own, v, unknown, st);
    case MR_PT_STRS:
        return set_strs(owner, p, own, v, unknown, st);
    case MR_PT_OWN: /* parsed by its kind, never set from a value */
        break;
    }
    return wrong_type(owner, p, type_names[p->type], v, st);
}

mr_code mr__param_set(const char *owner, const mr_param *p, void *own, const mr_value *v,
                      bool *unknown, mr_status *st)
{
    *unknown = false;
    MR_TRY(mr__param_default(p, own, st));
    if (v->kind == MR_V_UNSET || (v->kind == MR_V_NONE && (p->flags & MR_P_NONE))) {
        if (!mr__param_required(p))
            return MR_OK;
        return mr__param_fail_missing(owner, p, st);
    }
    if (v->kind == MR_V_UNKNOWN) {
        if (!type_fits(p, v->spec))
            return wrong_type(owner, p, type_names[p->type], v, st);
        *unknown = true;
        return p->type == MR_PT_VALUE ? mr_value_copy(mr__param_field(p, own), v, st) : MR_OK;
    }
    MR_TRY(set_known(owner, p, own, v, unknown, st));
    bool *has = mr__param_has(p, own);
    if (has)
        *has = !*unknown;
    return MR_OK;
}

bool mr__value_unknown(const mr_value *v)
{
    if (v->kind == MR_V_UNKNOWN)
        return true;
    for (size_t i = 0; v->items && i < v->n; i++)
        if (mr__value_unknown(&v->items[i]))
            return true;
    return false;
}

/* ---- to values ---- */

static mr_code copy_text(mr_value *out, const char *s, size_t size, mr_status *st)
{
    char *copy = mr_strndup(size ? s : "", size);
    if (!copy)
        return mr_fail_memory(st, size + 1, "a string");
    *out = (mr_value){.kind = MR_V_STRING, .s = copy, .size = size};
    return MR_OK;
}

static mr_code new_list(mr_value *out, size_t n, mr_status *st)
{
    mr_value *items = mr_calloc(n ? n : 1, sizeof *items);
    if (!items)
        return mr_fail_memory(st, n * sizeof *items, "a list of values");
    *out = (mr_value){.kind = MR_V_LIST, .items = items, .n = n};
    return MR_OK;
}

static mr_code get_numbers(const mr_ints *ints, const mr_floats *floats, mr_value *out,
                           mr_status *st)
{
    if (ints && ints->n == 1) {
        *out = (mr_value){.kind = MR_V_INT, .i = ints->v[0]};
        return MR_OK;
    }
    MR_TRY(new_list(out, ints ? ints->n : floats->n, st));
    for (size_t i = 0; i < out->n; i++)
        out->items[i] = ints ? (mr_value){.kind = MR_V_INT, .i = ints->v[i]}
                             : (mr_value){.kind = MR_V_FLOAT, .f = floats->v[i]};
    return MR_OK;
}

static mr_code get_strs(const mr_strs *list, mr_value *out, mr_status *st)
{
    mr_value v = {0};
    if (list->n != 1)
        MR_TRY(new_list(&v, list->n, st));
    for (size_t i = 0; i < list->n; i++) {
        mr_value *to = list->n == 1 ? &v : &v.items[i];
        mr_code rc = copy_text(to, list->v[i].data, list->v[i].size, st);
        if (rc != MR_OK) {
            mr_value_reset(&v);
            return rc;
        }
        to->computed = list->is_path && list->is_path[i];
    }
    *out = v;
    return MR_OK;
}

/* True if the parameter is not required and has its default. */
static bool at_default(const mr_param *p, const void *own)
{
    const void *f = mr__param_field(p, own);
    const bool *has = mr__param_has(p, own);
    if (mr__param_required(p))
        return false;
    if (has)
        return !*has;
    switch (p->type) {
    case MR_PT_I64:
        return *(const int64_t *)f == p->def.i;
    case MR_PT_F64:
        return memcmp(f, &p->def.f, sizeof p->def.f) == 0;
    case MR_PT_BOOL:
        return *(const bool *)f == p->def.b;
    case MR_PT_TRI:
        return *(const mr_tri *)f == MR_DEFAULT;
    case MR_PT_STR: {
        const char *s = *(char *const *)f;
        return !s || (p->def.s && strcmp(s, p->def.s) == 0);
    }
    case MR_PT_FN:
        return !*(void *const *)f;
    case MR_PT_INTS:
        return ((const mr_ints *)f)->n == 0;
    case MR_PT_FLOATS:
        return ((const mr_floats *)f)->n == 0;
    case MR_PT_STRS:
        return ((const mr_strs *)f)->n == 0;
    case MR_PT_VALUE:
        return ((const mr_value *)f)->kind == MR_V_UNSET;
    case MR_PT_OWN:
        return true;
    }
    return false;
}

mr_code mr__param_get(const mr_param *p, const void *own, mr_value *out, mr_status *st)
{
    const void *f = mr__param_field(p, own);
    mr_value v = {0};
    if (at_default(p, own)) {
        *out = v;
        return MR_OK;
    }
    switch (p->type) {
    case MR_PT_I64:
        v.i = *(const int64_t *)f;
        v.kind = (p->flags & MR_P_AUTO) && v.i == MR_AUTO ? MR_V_AUTO : MR_V_INT;
        break;
    case MR_PT_F64:
        v = (mr_value){.kind = MR_V_FLOAT, .f = *(const double *)f};
        break;
    case MR_PT_BOOL:
        v = (mr_value){.kind = MR_V_BOOL, .i = *(const bool *)f};
        break;
    case MR_PT_TRI:
        v = (mr_value){.kind = MR_V_BOOL, .i = *(const mr_tri *)f == MR_YES};
        break;
    case MR_PT_STR: {
        const char *s = *(char *const *)f;
        return copy_text(out, s, strlen(s), st);
    }
    case MR_PT_FN:
        v = (mr_value){.kind = MR_V_FN, .fn = mr__reference(*(void *const *)f)};
        break;
    case MR_PT_VALUE:
        return mr_value_copy(out, f, st);
    case MR_PT_INTS:
        return get_numbers(f, NULL, out, st);
    case MR_PT_FLOATS:
        return get_numbers(NULL, f, out, st);
    case MR_PT_STRS:
        return get_strs(f, out, st);
    case MR_PT_OWN:
        break;
    }
    *out = v;
    return MR_OK;
}
