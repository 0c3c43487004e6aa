/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/spec_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/params/expr.h"
#include "pipeline/params/infer.h"
#include "pipeline/params/literal.h"

/* ---- writing ---- */

static mr_code put_axes(mr__text *t, const mr_leaf *leaf, mr_status *st)
{
    char piece[32];
    if (leaf->rank == 0)
        return MR_OK;
    MR_TRY(mr__text_puts(t, "[", st));
    for (int d = 0; d < leaf->rank && (leaf->rank > 1 || leaf->shape[d] >= 0); d++) {
        snprintf(piece, sizeof piece, "%" PRId64, leaf->shape[d]);
        MR_TRY(mr__text_puts(t, d ? ", " : "", st));
        MR_TRY(mr__text_puts(t, leaf->shape[d] < 0 ? "none" : piece, st));
    }
    return mr__text_puts(t, "]", st);
}

static mr_code put_leaf(mr__text *t, const mr_leaf *leaf, const char *name, mr_status *st)
{
    bool inner = leaf->rank > 1 && leaf->shape[1] < 0;
    if (leaf->rank < 0 || leaf->dtype == MR_DATASET || leaf->ragged != inner)
        return mr_fail(st, MR_UNIMPLEMENTED, "the type of component %.80s has no text form", name);
    MR_TRY(mr__text_puts(t, leaf->dtype == MR_STRING ? "bytes" : mr_dtype_name(leaf->dtype), st));
    return put_axes(t, leaf, st);
}

static mr_code put_record(mr__text *t, const mr_spec *spec, mr_status *st)
{
    if (mr_spec_kind_of(spec) != MR_SPEC_RECORD)
        return mr_fail(st, MR_UNIMPLEMENTED, "only record types have a text form");
    for (size_t i = 0; i < mr_spec_n_children(spec); i++) {
        const char *name = mr_spec_child_name(spec, i);
        const mr_spec *child = mr_spec_child(spec, i);
        MR_TRY(mr__text_puts(t, i ? ", " : "{", st));
        MR_TRY(mr__literal_string(t, name, strlen(name), st));
        MR_TRY(mr__text_puts(t, ": ", st));
        MR_TRY(mr_spec_kind_of(child) == MR_SPEC_LEAF
                   ? put_leaf(t, mr_spec_leaf(child, 0), name, st)
                   : put_record(t, child, st));
    }
    return mr__text_puts(t, "}", st);
}

mr_code mr__spec_text(const mr_spec *spec, char **out, mr_status *st)
{
    mr__text t = {0};
    mr_code rc = mr_spec_kind_of(spec) == MR_SPEC_LEAF ? put_leaf(&t, mr_spec_leaf(spec, 0), "", st)
                                                       : put_record(&t, spec, st);
    if (rc == MR_OK)
        rc = mr__text_finish(&t, out, st);
    mr_free(t.s);
    return rc;
}

/* ---- reading ---- */

static mr_code bad(const char *who, const char *name, mr_status *st)
{
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "%s: schema: %.80s: expected a type such as int64, bytes, float32[] (a list of "
        "any length), float32[3] or float32[none, 3], or feature(int64, default=0) where "
        "it may be null or missing",
        who, name);
}

static mr_code read_shape(const char *who, const char *name, const mr_expr *e, mr_leaf *leaf,
                          mr_status *st)
{
    bool several = e->kind == MR_EX_TUPLE || e->kind == MR_EX_LIST;
    size_t n = several ? e->n : 1;
    if (n > MR_MAX_RANK)
        return bad(who, name, st);
    leaf->rank = (int8_t)n;
    for (size_t d = 0; d < n; d++) {
        const mr_expr *at = several ? e->children[d] : e;
        if (at->kind != MR_EX_NONE && (at->kind != MR_EX_INT || at->i < 0))
            return bad(who, name, st);
        leaf->shape[d] = at->kind == MR_EX_NONE ? -1 : at->i;
    }
    leaf->ragged = n > 1 && leaf->shape[1] < 0;
    return MR_OK;
}

static mr_code read_leaf(const char *who, const char *name, const mr_expr *e, mr_leaf *leaf,
                         mr_status *st)
{
    const mr_expr *type = e->kind == MR_EX_INDEX ? e->children[0] : e;
    *leaf = (mr_leaf){.rank = 0};
    if (type->kind != MR_EX_NAME || !mr_dtype_find(type->text, strlen(type->text), &leaf->dtype) ||
        leaf->dtype == MR_DATASET)
        return bad(who, name, st);
    if (e->kind != MR_EX_INDEX)
        return MR_OK;
    if (e->n > 1)
        return read_shape(who, name, e->children[1], leaf, st);
    leaf->rank = 1;
    leaf->shape[0] = -1;
    return MR_OK;
}

const mr_expr *mr__schema_feature(const mr_expr *e, const mr_expr **shape, const mr_expr **value)
{
    *shape = *value = NULL;
    if (e->kind != MR_EX_CALL)
        return e;
    if (strcmp(e->text, "feature") != 0 || e->n == 0 || (e->keys && e->keys[0]))
        return NULL;
    for (size_t i = 1; i < e->n; i++) {
        const char *key = e->keys ? e->keys[i] : NULL;
        if (key ? strcmp(key, "shape") == 0 : i == 1)
            *shape = e->children[i];
        else if (key ? strcmp(key, "default") == 0 : i == 2)
            *value = e->children[i];
        else
            return NULL;
    }
    return e->children[0];
}

static mr_code read_record(const char *who, const mr_expr *e, mr_spec **out, mr_status *st);

static mr_code read_type(const char *who, const char *name, const mr_expr *e, mr_spec **out,
                         mr_status *st)
{
    mr_leaf leaf;
    const mr_expr *shape = NULL, *unused;
    if (e->kind == MR_EX_RECORD)
        return read_record(who, e, out, st);
    const mr_expr *type = mr__schema_feature(e, &shape, &unused);
    if (!type)
        return bad(who, name, st);
    MR_TRY(read_leaf(who, name, type, &leaf, st));
    if (shape)
        MR_TRY(read_shape(who, name, shape, &leaf, st));
    return mr__inferred(mr_spec_of_leaf(&leaf), out, st);
}

static mr_code read_record(const char *who, const mr_expr *e, mr_spec **out, mr_status *st)
{
    const char *twice = NULL;
    if (e->kind != MR_EX_RECORD || e->n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: schema must be {\"name\": dtype, ...}, as in {\"x\": float32[], "
                       "\"label\": int64}",
                       who);
    MR_TRY(mr__name_twice(e->keys, e->n, &twice, st));
    if (twice)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: schema: %.80s appears twice", who, twice);
    mr_spec **parts = mr_calloc(e->n, sizeof *parts);
    size_t made = 0;
    mr_code rc = parts ? MR_OK : mr_fail_memory(st, e->n * sizeof *parts, "a type");
    while (rc == MR_OK && made < e->n) {
        rc = read_type(who, e->keys[made], e->children[made], &parts[made], st);
        made += rc == MR_OK;
    }
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_record((const char *const *)e->keys, parts, e->n), out, st);
    else
        while (made > 0)
            mr_spec_unref(parts[--made]);
    mr_free(parts);
    return rc;
}

static mr_code type_of_text(const char *who, const char *text, bool record, mr_spec **out,
                            mr_status *st)
{
    const mr_expr *e = NULL;
    mr_status why;
    mr_code rc = mr_expr_parse(text, strlen(text), &e, &why);
    if (rc == MR_INVALID_ARGUMENT)
        return mr_fail(st, rc, "%s: schema has a syntax error: %.*s", who,
                       (int)strcspn(why.message, "\n"), why.message);
    if (rc == MR_OK)
        rc = record ? read_record(who, e, out, &why) : read_type(who, "the type", e, out, &why);
    mr_expr_unref(e);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

mr_code mr__spec_of_text(const char *who, const char *text, mr_spec **out, mr_status *st)
{
    return type_of_text(who, text, true, out, st);
}

mr_code mr__type_of_text(const char *who, const char *text, mr_spec **out, mr_status *st)
{
    return type_of_text(who, text, false, out, st);
}
