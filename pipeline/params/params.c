/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pipeline/memory/object.h"

size_t mr__params_count(const mr_param *params)
{
    size_t n = 0;
    while (params && params[n].name)
        n++;
    return n;
}

void *mr__reference(void *object)
{
    if (object)
        mr__object_ref(object);
    return object;
}

void *mr__param_field(const mr_param *p, const void *params)
{
    return (char *)(uintptr_t)params + p->at;
}

bool *mr__param_has(const mr_param *p, const void *params)
{
    return p->has_at ? (bool *)((char *)(uintptr_t)params + p->has_at) : NULL;
}

bool mr__param_required(const mr_param *p)
{
    return (p->flags & (MR_P_POSITIONAL | MR_P_OPTIONAL)) == MR_P_POSITIONAL;
}

/* ---- freeing, defaults ---- */

static void clear(const mr_param *p, void *own)
{
    void *f = mr__param_field(p, own);
    switch (p->type) {
    case MR_PT_STR:
        mr_free(*(char **)f);
        *(char **)f = NULL;
        break;
    case MR_PT_FN:
        mr__object_unref(*(mr__object **)f);
        *(mr__object **)f = NULL;
        break;
    case MR_PT_VALUE:
        mr_value_reset(f);
        break;
    case MR_PT_INTS:
        mr_free(((mr_ints *)f)->v);
        *(mr_ints *)f = (mr_ints){0};
        break;
    case MR_PT_FLOATS:
        mr_free(((mr_floats *)f)->v);
        *(mr_floats *)f = (mr_floats){0};
        break;
    case MR_PT_STRS:
        mr_free(((mr_strs *)f)->v);
        *(mr_strs *)f = (mr_strs){0};
        break;
    case MR_PT_OWN:
        if (p->kind->clear)
            p->kind->clear(f);
        memset(f, 0, p->kind->size);
        break;
    case MR_PT_I64:
    case MR_PT_F64:
    case MR_PT_BOOL:
    case MR_PT_TRI:
        break;
    }
}

void mr_params_free(const mr_param_table *t, void *own)
{
    for (const mr_param *p = t->params; own && p && p->name; p++)
        clear(p, own);
    mr_free(own);
}

/* Parses the default of a custom type. */
static mr_code parse_default(const mr_param *p, void *f, mr_status *st)
{
    const mr_expr *e;
    if (!p->def.s)
        return MR_OK;
    MR_TRY(mr_expr_parse(p->def.s, strlen(p->def.s), &e, st));
    mr_code rc = p->kind->parse(p, e, f, st);
    mr_expr_unref(e);
    return rc;
}

mr_code mr__param_default(const mr_param *p, void *own, mr_status *st)
{
    void *f = mr__param_field(p, own);
    bool *has = mr__param_has(p, own);
    clear(p, own);
    if (has)
        *has = false;
    if (p->type == MR_PT_I64)
        *(int64_t *)f = p->def.i;
    else if (p->type == MR_PT_F64)
        *(double *)f = p->def.f;
    else if (p->type == MR_PT_BOOL)
        *(bool *)f = p->def.b;
    else if (p->type == MR_PT_TRI)
        *(mr_tri *)f = MR_DEFAULT;
    else if (p->type == MR_PT_STR && p->def.s && !(*(char **)f = mr_strdup(p->def.s)))
        return mr_fail_memory(st, strlen(p->def.s) + 1, "a parameter");
    else if (p->type == MR_PT_OWN)
        return parse_default(p, f, st);
    return MR_OK;
}

mr_code mr__params_defaults(const mr_param_table *t, void **own, mr_status *st)
{
    void *params = mr_calloc(1, t->size);
    if (!params)
        return mr_fail_memory(st, t->size, "parameters");
    for (const mr_param *p = t->params; p && p->name; p++) {
        mr_code rc = mr__param_default(p, params, st);
        if (rc != MR_OK) {
            mr_params_free(t, params);
            return rc;
        }
    }
    *own = params;
    return MR_OK;
}

/* ---- lists ---- */

static mr_code copy_numbers(const void *v, size_t n, size_t size, void *list_v, size_t *list_n,
                            mr_status *st)
{
    void *copy = mr_memdup(v, n * size);
    if (!copy)
        return mr_fail_memory(st, n * size, "a list of numbers");
    memcpy(list_v, &copy, sizeof copy);
    *list_n = n;
    return MR_OK;
}

mr_code mr__strs_new(size_t n, size_t bytes, mr_strs *out, char **text, mr_status *st)
{
    size_t size = n * (sizeof(mr_bytes) + sizeof(bool) + 1) + bytes;
    mr_bytes *v = mr_calloc(1, size ? size : 1);
    if (!v)
        return mr_fail_memory(st, size, "a list of strings");
    *out = (mr_strs){.v = v, .n = n, .is_path = (bool *)(v + n)};
    *text = (char *)(out->is_path + n);
    return MR_OK;
}

void mr__strs_put(mr_strs *list, size_t i, const char *s, size_t size, bool path, char **text)
{
    if (size)
        memcpy(*text, s, size);
    list->v[i] = (mr_bytes){.data = *text, .size = size};
    list->is_path[i] = path;
    *text += size + 1;
}

static mr_code copy_strs(const mr_strs *src, mr_strs *dst, mr_status *st)
{
    size_t bytes = 0;
    for (size_t i = 0; i < src->n; i++)
        bytes += src->v[i].size;
    mr_strs list;
    char *text = NULL;
    MR_TRY(mr__strs_new(src->n, bytes, &list, &text, st));
    for (size_t i = 0; i < src->n; i++)
        mr__strs_put(&list, i, src->v[i].data, src->v[i].size, src->is_path && src->is_path[i],
                     &text);
    *dst = list;
    return MR_OK;
}

/* ---- copies ---- */

/* Copies what a field points to from src to own, where pointers are zeroed. */
static mr_code copy_field(const mr_param *p, const void *src, void *own, mr_status *st)
{
    const void *from = mr__param_field(p, src);
    void *f = mr__param_field(p, own);
    switch (p->type) {
    case MR_PT_STR: {
        const char *s = *(char *const *)from;
        if (s && !(*(char **)f = mr_strdup(s)))
            return mr_fail_memory(st, strlen(s) + 1, "a parameter");
        return MR_OK;
    }
    case MR_PT_FN:
        *(void **)f = mr__reference(*(void *const *)from);
        return MR_OK;
    case MR_PT_VALUE:
        return mr_value_copy(f, from, st);
    case MR_PT_INTS: {
        const mr_ints *list = from;
        mr_ints *to = f;
        return list->n ? copy_numbers(list->v, list->n, sizeof *list->v, &to->v, &to->n, st)
                       : MR_OK;
    }
    case MR_PT_FLOATS: {
        const mr_floats *list = from;
        mr_floats *to = f;
        return list->n ? copy_numbers(list->v, list->n, sizeof *list->v, &to->v, &to->n, st)
                       : MR_OK;
    }
    case MR_PT_STRS:
        return copy_strs(from, f, st);
    case MR_PT_OWN: /* ops have none, and only their params are copied */
    case MR_PT_I64:
    case MR_PT_F64:
    case MR_PT_BOOL:
    case MR_PT_TRI:
        break;
    }
    return MR_OK;
}

/* Size of a field that has a pointer; 0 for types without one. */
static size_t pointer_size(mr_ptype t)
{
    static const size_t sizes[] = {
        [MR_PT_STR] = sizeof(char *),       [MR_PT_FN] = sizeof(mr_fn *),
        [MR_PT_VALUE] = sizeof(mr_value),   [MR_PT_INTS] = sizeof(mr_ints),
        [MR_PT_FLOATS] = sizeof(mr_floats), [MR_PT_STRS] = sizeof(mr_strs)};
    return (size_t)t < sizeof sizes / sizeof *sizes ? sizes[t] : 0;
}

mr_code mr__params_copy(const mr_param_table *t, const void *src, void **out, mr_status *st)
{
    void *own = mr_malloc(t->size);
    if (!own)
        return mr_fail_memory(st, t->size, "parameters");
    if (t->size)
        memcpy(own, src, t->size);
    for (const mr_param *p = t->params; p && p->name; p++)
        memset(mr__param_field(p, own), 0, pointer_size(p->type));
    for (const mr_param *p = t->params; p && p->name; p++) {
        mr_code rc = copy_field(p, src, own, st);
        if (rc != MR_OK) {
            mr_params_free(t, own);
            return rc;
        }
    }
    *out = own;
    return MR_OK;
}

/* ---- checks ---- */

static bool has_range(const mr_param *p)
{
    if (p->type == MR_PT_F64 || p->type == MR_PT_FLOATS)
        return p->min.f < p->max.f;
    return p->min.i < p->max.i;
}

int64_t mr__param_auto(const mr_param *p, int64_t v)
{
    return v == -1 && (p->flags & MR_P_AUTO) ? MR_AUTO : v;
}

mr_code mr__param_check_i64(const char *owner, const mr_param *p, int64_t v, mr_status *st)
{
    if (!has_range(p) || ((p->flags & MR_P_AUTO) && v == MR_AUTO))
        return MR_OK;
    if (v < p->min.i)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must be at least %" PRId64 ", not %" PRId64,
                       owner, p->name, p->min.i, v);
    if (v > p->max.i)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must be at most %" PRId64 ", not %" PRId64,
                       owner, p->name, p->max.i, v);
    return MR_OK;
}

/* Prints v so that it reads back equal, without a trailing ".0": 1, 0.9999999. */
static void print_exactly(double v, char *out, size_t room)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, room, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

mr_code mr__param_check_f64(const char *owner, const mr_param *p, double v, mr_status *st)
{
    if (!has_range(p) || (v >= p->min.f && v <= p->max.f))
        return MR_OK;
    bool above = v > p->max.f;
    char bound[32], found[32];
    print_exactly(above ? p->max.f : p->min.f, bound, sizeof bound);
    print_exactly(v, found, sizeof found);
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must be at %s %s, not %s", owner, p->name,
                   above ? "most" : "least", bound, found);
}

mr_code mr__param_check_word(const char *owner, const mr_param *p, const char *s, mr_status *st)
{
    char words[256];
    const char *meant = NULL;
    size_t n = 0;
    if (!p->names)
        return MR_OK;
    for (size_t i = 0; p->names[i]; i++) {
        if (strcmp(p->names[i], s) == 0)
            return MR_OK;
        if (strcasecmp(p->names[i], s) == 0)
            meant = p->names[i];
        const char *between = i == 0 ? "" : p->names[i + 1] ? ", " : " or ";
        int k = snprintf(words + n, sizeof words - n, "%s\"%s\"", between, p->names[i]);
        n += k > 0 && n + (size_t)k < sizeof words ? (size_t)k : 0;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s must be %s, not \"%.40s\"%s%s%s", owner,
                   p->name, words, s, meant ? "; write \"" : "", meant ? meant : "",
                   meant ? "\"" : "");
}

mr_code mr__param_check_lists(const char *owner, const mr_param *p, const void *own, mr_status *st)
{
    if (p->type == MR_PT_INTS) {
        const mr_ints *list = mr__param_field(p, own);
        for (size_t i = 0; i < list->n; i++)
            MR_TRY(mr__param_check_i64(owner, p, list->v[i], st));
    } else if (p->type == MR_PT_FLOATS) {
        const mr_floats *list = mr__param_field(p, own);
        for (size_t i = 0; i < list->n; i++)
            MR_TRY(mr__param_check_f64(owner, p, list->v[i], st));
    }
    return MR_OK;
}

mr_code mr__param_fail_missing(const char *owner, const mr_param *p, mr_status *st)
{
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s: expected %s, which is missing", owner, p->name);
}

static bool is_missing(const mr_param *p, const void *own)
{
    if (!mr__param_required(p))
        return false;
    const void *f = mr__param_field(p, own);
    if (p->type == MR_PT_STR)
        return !*(char *const *)f;
    if (p->type == MR_PT_FN)
        return !*(void *const *)f;
    return p->type == MR_PT_VALUE && ((const mr_value *)f)->kind == MR_V_UNSET;
}

/* True if 0 is not a legal value, so that a C caller's 0 means unset. */
static bool zero_is_unset(const mr_param *p)
{
    if (mr__param_required(p) || p->has_at || !has_range(p))
        return false;
    if (p->type == MR_PT_I64)
        return p->min.i > 0 || p->max.i < 0;
    return p->type == MR_PT_F64 && (p->min.f > 0 || p->max.f < 0);
}

static mr_code settle_number(const char *owner, const mr_param *p, void *own, mr_status *st)
{
    const bool *has = mr__param_has(p, own);
    bool unset = has && !*has;
    if (p->type == MR_PT_I64) {
        int64_t *v = mr__param_field(p, own);
        *v = mr__param_auto(p, *v);
        if (unset || (*v == 0 && zero_is_unset(p)))
            *v = p->def.i;
        return unset || (!mr__param_required(p) && *v == p->def.i)
                   ? MR_OK
                   : mr__param_check_i64(owner, p, *v, st);
    }
    double *v = mr__param_field(p, own);
    if (unset || (*v == 0 && zero_is_unset(p)))
        *v = p->def.f;
    return unset || (!mr__param_required(p) && *v == p->def.f)
               ? MR_OK
               : mr__param_check_f64(owner, p, *v, st);
}

static mr_code settle(const char *owner, const mr_param *p, void *own, mr_status *st)
{
    if (is_missing(p, own))
        return mr__param_fail_missing(owner, p, st);
    switch (p->type) {
    case MR_PT_I64:
    case MR_PT_F64:
        return settle_number(owner, p, own, st);
    case MR_PT_STR: {
        char **s = mr__param_field(p, own);
        if (!*s)
            return mr__param_default(p, own, st);
        return mr__param_check_word(owner, p, *s, st);
    }
    default:
        return mr__param_check_lists(owner, p, own, st);
    }
}

mr_code mr__params_of_c(const mr_param_table *t, const void *given, void **out, mr_status *st)
{
    void *own;
    MR_TRY(mr__params_copy(t, given, &own, st));
    for (const mr_param *p = t->params; p && p->name; p++) {
        mr_code rc = settle(t->name, p, own, st);
        if (rc != MR_OK) {
            mr_params_free(t, own);
            return rc;
        }
    }
    *out = own;
    return MR_OK;
}

/* ---- checks of a table ---- */

static bool good_name(const char *s)
{
    if (!s || *s < 'a' || *s > 'z')
        return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static size_t field_size(const mr_param *p)
{
    switch (p->type) {
    case MR_PT_I64:
        return sizeof(int64_t);
    case MR_PT_F64:
        return sizeof(double);
    case MR_PT_BOOL:
        return sizeof(bool);
    case MR_PT_TRI:
        return sizeof(mr_tri);
    case MR_PT_OWN:
        return p->kind && p->kind->parse ? p->kind->size : 0;
    default:
        return pointer_size(p->type);
    }
}

static const char *bad_param(const mr_param_table *t, const mr_param *p)
{
    size_t size = field_size(p);
    if (!good_name(p->name))
        return "a name that is not [a-z][a-z0-9_]*";
    if (!p->doc || !*p->doc)
        return "no doc";
    if (size == 0 || p->at + size > t->size || p->has_at >= t->size)
        return "a field outside the params struct";
    for (const mr_param *q = t->params; q < p; q++)
        if (strcmp(p->name, q->name) == 0 || p->at == q->at)
            return "the name or the field of another";
    if (p->type == MR_PT_I64 && !mr__param_required(p) && p->def.i != 0 && p->def.i != MR_AUTO &&
        has_range(p) && (p->def.i < p->min.i || p->def.i > p->max.i))
        return "a default outside its range";
    return NULL;
}

mr_code mr_params_check(const mr_param_table *t, mr_status *st)
{
    if (!good_name(t->name))
        return mr_fail(st, MR_INVALID_ARGUMENT, "a name must be [a-z][a-z0-9_]*, not \"%s\"",
                       t->name ? t->name : "");
    for (const mr_param *p = t->params; p && p->name; p++) {
        const char *bad = bad_param(t, p);
        if (bad)
            return mr_fail(st, MR_INVALID_ARGUMENT, "parameter %s of %s has %s", p->name, t->name,
                           bad);
    }
    return MR_OK;
}
