/* SPDX-License-Identifier: Apache-2.0 */
/* parquet: the rows of Parquet files, as records of their columns. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/column_path.h"
#include "pipeline/engine/op_source.h"
#include "pipeline/formats/parquet/parquet_file.h"
#include "pipeline/formats/table_defaults.h"
#include "pipeline/ops/sources.h"
#include "pipeline/params/infer.h"
#include "pipeline/streams/sources/file_source.h"
#include "pipeline/streams/sources/table_source.h"

enum { MOST_LOOKUPS = 1024 };

struct state {
    mr__file_source source; /* its list of files and the position in it; no reader */
    mr__parquet *file;      /* number source.file of the list; NULL: none is open */
    mr_array *defaults;     /* of the components; NULL: no component has one */
};

static mr_code count(const void *params, const char *path, int64_t *n, uint64_t *mark,
                     mr_status *st)
{
    mr__parquet *file = NULL;
    (void)params;
    MR_TRY(mr__parquet_open(&file, path, &(mr_file_opts){.mark = mark}, st));
    *n = mr__parquet_count(file);
    mr__parquet_close(file);
    return MR_OK;
}

static const mr__file_kind kind = {.compression_at = offsetof(mr__table_params, compression),
                                   .count = count};

/* ---- selection of columns ---- */

static const char *part_of(const mr__parquet_leaf *leaf, size_t k)
{
    const char *part = leaf->path;
    while (k-- > 0)
        part += strlen(part) + 1;
    return part;
}

static mr_code no_column(const mr__parquet_footer *f, const char *name, mr_status *st)
{
    enum { MOST = 10 };
    char all[400] = "";
    const char *before = "";
    size_t n = 0;
    for (size_t i = 0; i < f->n_leaves; i++) {
        if (strcmp(before, f->leaves[i].path) == 0) /* of one group */
            continue;
        before = f->leaves[i].path;
        if (n < MOST)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%.30s", n ? ", " : "", before);
        n++;
    }
    return mr_fail(st, MR_INVALID_ARGUMENT, "there is no column '%.200s'; the file has %s %s%s",
                   name, n == 1 ? "the column" : "the columns", all, n > MOST ? ", ..." : "");
}

/* true: the leaf is the field at path, or within it. */
static bool is_at(const mr__parquet_leaf *leaf, const char *path)
{
    for (size_t k = 0; k < leaf->n_parts && path && *path; k++)
        path = mr__column_path_after(path, part_of(leaf, k));
    return path && !*path;
}

/* wanted[k]: leaf k is requested. A column called "x.a" takes precedence over field a of x. */
static mr_code find_wanted(const mr__parquet_footer *f, const mr_strs *columns, bool *wanted,
                           mr_status *st)
{
    for (size_t k = 0; k < f->n_leaves; k++)
        wanted[k] = columns->n == 0;
    for (size_t i = 0; i < columns->n; i++) {
        const char *name = columns->v[i].data;
        bool whole = false, found = false;
        for (size_t k = 0; k < f->n_leaves; k++)
            whole = whole || strcmp(f->leaves[k].path, name) == 0;
        for (size_t k = 0; k < f->n_leaves; k++)
            if (whole ? strcmp(f->leaves[k].path, name) == 0 : is_at(&f->leaves[k], name))
                wanted[k] = found = true;
        if (!found)
            return no_column(f, name, st);
    }
    return MR_OK;
}

static mr_spec *spec_of_leaf(const mr__parquet_leaf *leaf)
{
    mr_leaf l = {.dtype = leaf->dtype, .rank = (int8_t)leaf->lists, .ragged = leaf->lists > 1};
    for (int d = 0; d < leaf->lists; d++)
        l.shape[d] = -1;
    return mr_spec_of_leaf(&l);
}

/* The end of the leaves from `at` on that are in the same group, `depth` groups deep; if leaf
 * `at` is not in a group, at + 1. */
static size_t end_of_group(const mr__parquet_footer *f, size_t at, size_t end, size_t depth)
{
    const mr__parquet_leaf *leaf = &f->leaves[at];
    size_t i = at + 1;
    while (leaf->n_parts > depth + 1 && i < end && f->leaves[i].n_parts > depth + 1 &&
           strcmp(part_of(leaf, depth), part_of(&f->leaves[i], depth)) == 0)
        i++;
    return i;
}

/* A record of the requested leaves in [from, to), whose paths have `depth` parts before its
 * names. */
static mr_code record_of(const mr__parquet_footer *f, size_t from, size_t to, size_t depth,
                         const bool *wanted, mr_spec **out, mr_status *st)
{
    const char **names = mr_calloc(to - from + 1, sizeof *names), *twice = NULL;
    mr_spec **parts = mr_calloc(to - from + 1, sizeof *parts);
    size_t n = 0;
    mr_code rc = names && parts ? MR_OK : mr_fail_memory(st, (to - from) * sizeof *names, "a type");
    for (size_t i = from, end; i < to && rc == MR_OK; i = end) {
        const mr__parquet_leaf *leaf = &f->leaves[i];
        end = end_of_group(f, i, to, depth);
        if (!memchr(wanted + i, true, end - i))
            continue;
        if (leaf->n_parts > depth + 1)
            rc = record_of(f, i, end, depth + 1, wanted, &parts[n], st);
        else if (leaf->refusal)
            rc = mr_fail(
                st, MR_INVALID_ARGUMENT,
                "column '%.200s' cannot be read: %s; columns=[...] selects the columns to read",
                leaf->name, leaf->refusal);
        else if (mr__parquet_footer_refusal(f, i))
            rc = mr_fail(
                st, MR_UNIMPLEMENTED,
                "column '%.200s' cannot be read: %s; columns=[...] selects the columns to read",
                leaf->name, mr__parquet_footer_refusal(f, i));
        else if (!(parts[n] = spec_of_leaf(leaf)))
            rc = mr_fail_memory(st, sizeof(mr_leaf), "a type");
        names[n] = part_of(leaf, depth);
        n += rc == MR_OK;
    }
    if (rc == MR_OK && n == 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the file has no columns");
    if (rc == MR_OK)
        rc = mr__name_twice((char *const *)(uintptr_t)names, n, &twice, st);
    if (rc == MR_OK && twice)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "two columns are called '%.200s'", twice);
    if (rc == MR_OK)
        rc = mr__inferred(mr_spec_record(names, parts, n), out, st);
    else
        for (size_t i = 0; parts && i < n; i++)
            mr_spec_unref(parts[i]);
    mr_free((void *)(uintptr_t)names);
    mr_free(parts);
    return rc;
}

static mr_code spec_of(const mr__parquet_footer *f, const mr_strs *columns, mr_spec **out,
                       mr_status *st)
{
    bool *wanted = mr_malloc(f->n_leaves + 1);
    mr_code rc = wanted ? find_wanted(f, columns, wanted, st)
                        : mr_fail_memory(st, f->n_leaves, "columns of a Parquet file");
    if (rc == MR_OK)
        rc = record_of(f, 0, f->n_leaves, 0, wanted, out, st);
    mr_free(wanted);
    return rc;
}

/* The component of the elements for the leaf; -1: not a component. */
static int64_t component_of(const mr_spec *spec, const mr__parquet_leaf *leaf)
{
    size_t at = 0;
    for (size_t k = 0; k < leaf->n_parts; k++) {
        int64_t i =
            mr_spec_kind_of(spec) == MR_SPEC_RECORD ? mr_spec_find(spec, part_of(leaf, k)) : -1;
        if (i < 0)
            return -1;
        at += mr_spec_first_leaf(spec, (size_t)i);
        spec = mr_spec_child(spec, (size_t)i);
    }
    return mr_spec_kind_of(spec) == MR_SPEC_LEAF ? (int64_t)at : -1;
}

/* The leaf can be a component of this type. */
static mr_code check_leaf(const mr__parquet_leaf *leaf, const mr_leaf *want, mr_status *st)
{
    if (leaf->refusal)
        return mr_fail(st, MR_INVALID_ARGUMENT, "column '%.200s' cannot be read: %s", leaf->name,
                       leaf->refusal);
    if (leaf->dtype == want->dtype && leaf->lists == want->rank)
        return MR_OK;
    char is[64] = "", wanted[64] = "";
    mr_spec *here = spec_of_leaf(leaf), *there = mr_spec_of_leaf(want);
    if (here)
        mr_spec_format(here, is, sizeof is);
    if (there)
        mr_spec_format(there, wanted, sizeof wanted);
    mr_spec_unref(here);
    mr_spec_unref(there);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "column '%.200s' is %s here, and %s in the first file or the schema%s",
                   leaf->name, is, wanted,
                   leaf->lists == want->rank && leaf->dtype < MR_STRING && want->dtype < MR_STRING
                       ? "; values are not converted on reading: use cast() in a map"
                       : "");
}

/* leaves[i]: the leaf of component i, below f->n_leaves. If all columns are read, every leaf
 * must be used. */
static mr_code find_leaves(const mr__table_params *p, const mr_spec *spec,
                           const mr__parquet_footer *f, const mr_array *defaults, size_t *leaves,
                           mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec);
    bool all = mr__table_takes_all(p);
    for (size_t i = 0; i < n; i++)
        leaves[i] = f->n_leaves;
    for (size_t k = 0; k < f->n_leaves; k++) {
        int64_t i = component_of(spec, &f->leaves[k]);
        if (i >= 0 && leaves[i] < f->n_leaves)
            return mr_fail(st, MR_INVALID_ARGUMENT, "two columns are called '%.200s'",
                           f->leaves[k].name);
        if (i >= 0)
            leaves[i] = k;
        else if (all)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "column '%.200s' is not in the first file; columns=[...] selects the "
                           "columns to read",
                           f->leaves[k].name);
    }
    for (size_t i = 0; i < n; i++) {
        const char *const *names = mr_spec_leaf_names(spec);
        const mr__parquet_leaf *leaf = leaves[i] < f->n_leaves ? &f->leaves[leaves[i]] : NULL;
        if ((!leaf || (leaf->nulls && leaf->lists == 0)) && mr__table_has_default(defaults, i)) {
            leaves[i] = MR__PARQUET_NO_LEAF;
            continue;
        }
        if (!leaf)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "there is no column '%.200s', which the first file or the schema has; "
                           "a schema may give it a default, as in feature(int64, default=0)",
                           names ? names[i] : "");
        MR_TRY(check_leaf(leaf, mr_spec_leaf(spec, i), st));
    }
    return MR_OK;
}

static mr_code select_columns(const mr__table_params *p, const mr_spec *spec, mr__parquet *file,
                              const mr_array *defaults, mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec);
    size_t *leaves = mr_calloc(n, sizeof *leaves);
    mr_code rc = leaves ? find_leaves(p, spec, mr__parquet_footer_of(file), defaults, leaves, st)
                        : mr_fail_memory(st, n * sizeof *leaves, "columns");
    if (rc == MR_OK)
        rc = mr__parquet_select(file, leaves, n, defaults, st);
    mr_free(leaves);
    return rc;
}

/* ---- reading ---- */

static void close_file(struct state *s)
{
    mr__parquet_close(s->file);
    s->file = NULL;
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    close_file(s);
    mr__table_defaults_free(s->defaults, it->spec);
    mr__file_source_close(it);
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    MR_TRY(mr__table_defaults("parquet", it->params, it->spec, &s->defaults, st));
    return mr__file_source_open(it, st);
}

static mr_code open_file(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    const char *path = mr__file_source_path(&s->source, s->source.file);
    uint64_t mark = 0;
    const mr_file_opts o = {.mark = &mark,
                            .cancel = mr_iter_cancel(it),
                            .on_read = mr_iter_opts(it)->on_read,
                            .on_read_ctx = mr_iter_opts(it)->on_read_ctx};
    char *whole = NULL;
    mr_code rc = mr_iter_file_path(it, path, &whole, st);
    if (rc == MR_OK)
        rc = mr__parquet_open(&s->file, whole, &o, st);
    if (rc == MR_OK)
        rc = mr__file_source_set_mark(&s->source, mark, st);
    mr_free(whole);
    if (rc != MR_OK)
        mr_iter_fail_open(it, rc, st);
    if (rc == MR_OK)
        rc = select_columns(it->params, it->spec, s->file, s->defaults, st);
    int64_t row = s->source.has_resume ? s->source.resume.record : 0;
    if (rc == MR_OK && row > mr__parquet_count(s->file))
        rc = mr_fail(st, MR_OUT_OF_RANGE,
                     "the file has %" PRId64 " rows, but the position is its row %" PRId64
                     "; is it the file of the saved position?",
                     mr__parquet_count(s->file), row);
    if (rc == MR_OK) {
        mr__parquet_seek(s->file, row);
        s->source.has_resume = false;
    } else
        close_file(s);
    mr_status_at(st, path, -1, -1);
    return rc;
}

static size_t n_files(const struct state *s)
{
    return s->source.list ? s->source.list->n : s->source.names->n;
}

/* Opens the list of files. A failure is the only element, or of no element. */
static mr_code list_files(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    mr_code rc = MR_OK;
    if (s->source.patterns && !s->source.list)
        rc = mr__file_list_match(it, s->source.names, false, &s->source.list, st);
    if (rc != MR_OK)
        mr_iter_fail_given(it, rc, st);
    s->source.failed = rc != MR_OK && !mr_status_is_of_no_element(st);
    return rc;
}

static void leave_file(struct state *s)
{
    close_file(s);
    s->source.has_resume = false;
    s->source.mark = 0;
    s->source.file++;
}

static mr_code read_rows(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (!s->file)
        MR_TRY(open_file(it, st));
    int64_t row = mr__parquet_row(s->file);
    MR_TRY(mr_block_prepare(out, mr_spec_n_leaves(it->spec), st));
    MR_TRY(mr__parquet_read(s->file, want, out->columns, &out->rows, st));
    return mr__file_source_identify(it, out, s->source.file, (uint64_t)row, st);
}

static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct state *s = it->state;
    if (s->source.failed)
        return MR_END;
    MR_TRY(list_files(it, st));
    while (s->source.file < n_files(s)) {
        mr_code rc = read_rows(it, want, out, st);
        if (rc == MR_UNIMPLEMENTED) /* a codec or an encoding, which other files will have too */
            mr_status_of_no_element(st);
        if (rc == MR_OK || (rc < 0 && mr_status_is_of_no_element(st)))
            return rc;
        /* A row with a null is one error; any other error ends the file. */
        bool more = s->file && mr__parquet_row(s->file) < mr__parquet_count(s->file);
        if (rc == MR_END || !more)
            leave_file(s);
        if (rc != MR_END)
            return rc;
    }
    return MR_END;
}

static mr_code skip(mr_iter *it, uint64_t n, uint64_t *skipped, mr_status *st)
{
    struct state *s = it->state;
    mr_status unused;
    if (s->source.failed || list_files(it, &unused) != MR_OK) {
        s->source.failed = false; /* the next pull reports it */
        return MR_OK;
    }
    while (*skipped < n && s->source.file < n_files(s)) {
        mr_code rc = s->file ? MR_OK : open_file(it, st);
        if (rc != MR_OK) {
            if (!mr_status_is_of_no_element(st))
                leave_file(s);
            return rc;
        }
        int64_t row = mr__parquet_row(s->file);
        uint64_t left = (uint64_t)(mr__parquet_count(s->file) - row), more = n - *skipped;
        *skipped += more < left ? more : left;
        if (more < left)
            mr__parquet_seek(s->file, row + (int64_t)more);
        else
            leave_file(s);
    }
    return MR_OK;
}

static mr_code seek(mr_iter *it, uint64_t to, mr_status *st)
{
    struct state *s = it->state;
    int64_t row;
    size_t file = mr__file_source_place(&s->source, to, &row);
    (void)st;
    s->source.failed = false;
    if (s->file && s->source.file == file) {
        mr__parquet_seek(s->file, row);
        return MR_OK;
    }
    close_file(s);
    s->source.file = file;
    s->source.resume = (mr_file_position){.record = row};
    s->source.has_resume = true;
    s->source.mark = 0;
    return MR_OK;
}

static mr_code at(mr_iter *it, const uint64_t *index, size_t n, mr_block *out, mr_status *st)
{
    return mr_iter_at_by_seeking(it, seek, index, n < MOST_LOOKUPS ? n : MOST_LOOKUPS, out, st);
}

/* Position: as for a source of records, with the offset unused. */
static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct state *s = it->state;
    mr_file_position at = {.record = s->file ? mr__parquet_row(s->file) : 0};
    return mr__file_source_save_at(it, s->file ? &at : NULL, s->source.file, w, st);
}

static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    close_file(it->state);
    return mr__file_source_restore(it, r, st);
}

/* ---- known when the graph is built ---- */

static mr_code look(const char *path, const mr_strs *columns, mr_spec **out, mr_status *st)
{
    mr__parquet *file = NULL;
    MR_TRY(mr__parquet_open(&file, path, NULL, st));
    mr_code rc = spec_of(mr__parquet_footer_of(file), columns, out, st);
    mr__parquet_close(file);
    return rc;
}

/* The types that a schema may state for a column of these files. */
static mr_code check_types(const mr_spec *spec, mr_status *st)
{
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        const char *const *names = mr_spec_leaf_names(spec);
        bool any = leaf->rank <= MR__PARQUET_LISTS;
        for (int d = 0; d < leaf->rank; d++)
            any = any && leaf->shape[d] < 0;
        if (!any)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "parquet: schema: %.80s: columns are values, lists of any length ([]) "
                           "and lists of those ([none, none], [none, none, none])",
                           names ? names[i] : "");
    }
    return MR_OK;
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    mr_spec *spec = NULL;
    MR_TRY(mr__table_infer(self, params, look, &spec, st));
    mr_code rc = check_types(spec, st);
    if (rc == MR_OK)
        *out = spec;
    else
        mr_spec_unref(spec);
    return rc;
}

static mr_code check(const void *params, mr_status *st)
{
    return mr__table_check("parquet", params, st);
}

const mr_op mr_op_parquet = {
    .abi = MR_ABI_VERSION,
    .name = "parquet",
    .doc = "The rows of Parquet files, as records of their columns.",
    .example = "parquet(\"people-*.parquet\", schema={\"name\": bytes, \"age\": int64})",
    .order_doc = "by file, then by row",
    .memory_doc = "a page of each column, its dictionary, and about 256 KiB of decoded rows",
    .state_doc = "file and row",
    .count_doc = "the number of rows stated in the files",
    .params = mr__table_param_list,
    .params_size = sizeof(mr__table_params),
    .iter_size = sizeof(struct state),
    .role = MR_ROLE_FILES,
    .props = MR_OP_LATE_COUNT,
    .kind = &kind,
    .check = check,
    .cardinality = mr__file_source_counted,
    .infer = infer,
    .open = open,
    .next = next,
    .close = close,
    .save = save,
    .restore = restore,
    .skip = skip,
    .count = mr__file_source_count,
    .at = at,
    .save_shared = mr__file_list_save_shared,
    .restore_shared = mr__file_list_restore_shared,
};

mr_dataset *mr_parquet(const char *const *files, size_t n, const mr_table_opts *opts)
{
    static const mr_table_opts unset = {0};
    const mr_table_opts *o = opts ? opts : &unset;
    mr__table_params p = {.columns = o->columns, .schema = o->schema};
    return mr__file_names_dataset(&mr_op_parquet, &p, files, n, o->paths);
}
