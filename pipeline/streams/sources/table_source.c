/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/table_source.h"

#include <string.h>

#include "pipeline/files/file_name.h"
#include "pipeline/files/glob.h"
#include "pipeline/formats/column_path.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/functions/library/features.h"
#include "pipeline/params/spec_text.h"
#include "pipeline/streams/sources/file_source.h"

const mr_param mr__table_param_list[] = {
    MR_PARAM_WITH(mr__table_params, files, MR_P_POSITIONAL | MR_P_VARIADIC | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_PARAM_WITH(mr__table_params, columns, MR_P_NONE | MR_P_OF_SPEC,
                  .doc = "The columns to read; \"x.a\" is field a of column x; default: all."),
    MR_PARAM_WITH(
        mr__table_params, schema, MR_P_EXPRESSION | MR_P_OF_SPEC,
        .doc = "{\"name\": dtype, ...}: the columns and their types, instead of those of the "
               "first file; dtype[] is a list, and feature(dtype, default=v) a column that may "
               "be null or missing."),
    {0}};

mr_code mr__table_check(const char *who, const mr__table_params *p, mr_status *st)
{
    const mr_strs *c = &p->columns;
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->v[i].data, c->v[k].data) == 0)
                return mr_fail(st, MR_INVALID_ARGUMENT, "%s: column '%.200s' is requested twice",
                               who, c->v[i].data);
    return mr__file_source_check(p, st);
}

bool mr__table_takes_all(const mr__table_params *p)
{
    return p->columns.n == 0 && !(p->schema && *p->schema);
}

/* true: the leaf of the record is the field at path, or within it. */
static bool is_at(const mr_spec *record, size_t leaf, const char *path)
{
    while (path && *path && mr_spec_kind_of(record) == MR_SPEC_RECORD) {
        size_t k = mr_spec_n_children(record) - 1;
        while (mr_spec_first_leaf(record, k) > leaf)
            k--;
        path = mr__column_path_after(path, mr_spec_child_name(record, k));
        leaf -= mr_spec_first_leaf(record, k);
        record = mr_spec_child(record, k);
    }
    return path && !*path;
}

static bool is_wanted(const mr_strs *columns, const mr_spec *record, size_t leaf)
{
    bool wanted = columns->n == 0;
    for (size_t i = 0; i < columns->n && !wanted; i++)
        wanted = is_at(record, leaf, columns->v[i].data);
    return wanted;
}

static mr_code by_schema(const char *who, const mr__table_params *p, mr_spec **out, mr_status *st)
{
    mr_spec *spec;
    MR_TRY(mr__spec_of_text(who, p->schema, &spec, st));
    const char *const *names = mr_spec_leaf_names(spec);
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++)
        if (!is_wanted(&p->columns, spec, i)) {
            mr_fail(st, MR_INVALID_ARGUMENT,
                    "%s: the schema has column '%.200s', which is not among columns", who,
                    names ? names[i] : "");
            mr_spec_unref(spec);
            return MR_INVALID_ARGUMENT;
        }
    mr_array *defaults = NULL;
    mr_code rc = mr__table_defaults(who, p, spec, &defaults, st);
    mr__table_defaults_free(defaults, spec);
    if (rc == MR_OK)
        *out = spec;
    else
        mr_spec_unref(spec);
    return rc;
}

/* ---- defaults ---- */

/* Reads the defaults of the features of the record e, whose spec it is. `to`: of its first leaf. */
static mr_code read_defaults(const char *who, const mr_expr *e, const mr_spec *spec,
                             const char *const *names, mr_array *to, bool *any, mr_status *st)
{
    for (size_t i = 0; i < e->n; i++) {
        size_t k = (size_t)mr_spec_find(spec, e->keys[i]), first = mr_spec_first_leaf(spec, k);
        const mr_spec *child = mr_spec_child(spec, k);
        const mr_expr *shape, *value;
        if (e->children[i]->kind == MR_EX_RECORD) {
            MR_TRY(read_defaults(who, e->children[i], child, names + first, to + first, any, st));
            continue;
        }
        mr__schema_feature(e->children[i], &shape, &value);
        if (!value)
            continue;
        *any = true;
        MR_TRY(
            mr__feature_default(who, names[first], mr_spec_leaf(child, 0), value, &to[first], st));
    }
    return MR_OK;
}

mr_code mr__table_defaults(const char *who, const mr__table_params *p, const mr_spec *spec,
                           mr_array **out, mr_status *st)
{
    const mr_expr *e = NULL;
    bool any = false;
    *out = NULL;
    if (!p->schema || !*p->schema)
        return MR_OK;
    const char *const *names = mr_spec_leaf_names(spec);
    mr_array *v = mr_calloc(mr_spec_n_leaves(spec), sizeof *v);
    mr_code rc = names && v ? mr_expr_parse(p->schema, strlen(p->schema), &e, st)
                            : mr_fail_memory(st, mr_spec_n_leaves(spec) * sizeof *v, "defaults");
    if (rc == MR_OK)
        rc = read_defaults(who, e, spec, names, v, &any, st);
    mr_expr_unref(e);
    if (rc == MR_OK && any)
        *out = v;
    else
        mr__table_defaults_free(v, spec);
    return rc;
}

void mr__table_defaults_free(mr_array *defaults, const mr_spec *spec)
{
    for (size_t i = 0; defaults && i < mr_spec_n_leaves(spec); i++)
        mr_array_reset(&defaults[i]);
    mr_free(defaults);
}

mr_code mr__table_infer(const mr_dataset *self, const mr__table_params *p, mr__table_look look,
                        mr_spec **out, mr_status *st)
{
    const char *who = mr_dataset_op(self)->name;
    char **paths = NULL;
    size_t n = 0;
    if (p->schema && *p->schema)
        return by_schema(who, p, out, st);
    if (mr_param_unknown(self, offsetof(mr__table_params, files)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: schema must be given where the name of the file is computed, as in "
                       "%s(f, schema={\"x\": float32, \"tags\": bytes[]})",
                       who, who);
    if (p->files.n == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s expects at least one file", who);
    char *whole = NULL;
    MR_TRY(mr__file_name(p->files.v[0].data, &whole, st));
    const char *name = whole;
    mr_code rc = MR_OK;
    if (mr__file_is_pattern(&p->files, 0) &&
        (rc = mr_data_files(&name, 1, &paths, &n, st)) == MR_OK)
        name = paths[0];
    if (rc == MR_OK) {
        rc = look(name, &p->columns, out, st);
        mr_status_at(st, name, -1, -1);
        if (rc == MR_INVALID_ARGUMENT) /* an error of the text has no file */
            mr_status_prefix(st, "%s: %.300s", who, name);
    }
    mr_glob_free(paths, n);
    mr_free(whole);
    return rc;
}
