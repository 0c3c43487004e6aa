/* SPDX-License-Identifier: Apache-2.0 */
/* csv: the rows of CSV files (RFC 4180), as records or tuples of typed fields. With a header,
 * columns are found by name in each file; else by position. Blank lines are ignored. */
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/text/byte_order_mark.h"
#include "pipeline/formats/text/csv_reader.h"
#include "pipeline/ops/sources.h"
#include "pipeline/streams/sources/text_rows.h"

enum { MOST_COLUMNS = 1 << 20 };
#define NO_FIELD SIZE_MAX

struct params {
    mr_strs files;
    char *features;
    mr_csv_opts o;
};

struct state {
    mr__text_rows rows;
    mr__csv_opts opts;
    size_t *fields; /* for each column: the field that it fills, or NO_FIELD */
    size_t n_columns, columns_room;
    char *name; /* of a column with doubled quotes */
    size_t name_room;
};

static char sep_of(const struct params *p)
{
    return p->o.sep ? *p->o.sep : ',';
}

static bool has_header(const struct params *p)
{
    return p->o.header != MR_NO;
}

/* ---- columns ---- */

static mr_code add_column(struct state *s, size_t field, mr_status *st)
{
    MR_TRY(MR_GROW(s->fields, s->columns_room, s->n_columns + 1, MOST_COLUMNS,
                   "the columns of a CSV file", st));
    s->fields[s->n_columns++] = field;
    return MR_OK;
}

/* Columns in the order in which the features are written. */
static mr_code columns_by_place(struct state *s, mr_status *st)
{
    const mr__features *f = s->rows.features;
    s->n_columns = 0;
    for (size_t place = 0; place < f->n; place++)
        for (size_t i = 0; i < f->n; i++)
            if (f->v[i].place == place)
                MR_TRY(add_column(s, i, st));
    return MR_OK;
}

/* The name with each quote once; valid until the next call. */
static mr_code plain_name(struct state *s, mr_bytes *v, bool doubled, mr_status *st)
{
    if (!doubled)
        return MR_OK;
    MR_TRY(MR_GROW(s->name, s->name_room, v->size, SIZE_MAX / 2, "a field of a CSV file", st));
    size_t n = 0;
    for (size_t i = 0; i < v->size; i++) {
        s->name[n++] = v->data[i];
        i += v->data[i] == '"';
    }
    *v = (mr_bytes){s->name, n};
    return MR_OK;
}

/* The next field of a row, which is number `column`. A row with an unclosed quote extends to the
 * end of the file. */
static mr_code next_field(const struct state *s, const char **at, const char *end, size_t column,
                          mr_bytes *out, bool *doubled, mr_status *st)
{
    const char *why = mr__csv_field(at, end, s->opts.sep, out, doubled);
    return why ? mr_fail(st, MR_INVALID_ARGUMENT, "column %zu: %s", column + 1, why) : MR_OK;
}

static mr_code add_named(struct state *s, const mr_bytes *name, mr_status *st)
{
    const mr__features *f = s->rows.features;
    for (size_t i = 0; i < f->n; i++) {
        if (strlen(f->v[i].name) != name->size || memcmp(f->v[i].name, name->data, name->size) != 0)
            continue;
        for (size_t k = 0; k < s->n_columns; k++)
            if (s->fields[k] == i)
                return mr_fail(st, MR_INVALID_ARGUMENT, "two columns are called %.80s",
                               f->v[i].name);
        return add_column(s, i, st);
    }
    return add_column(s, NO_FIELD, st);
}

static mr_code no_column(struct state *s, const char *name, const char *at, const char *end,
                         mr_status *st)
{
    enum { MOST = 10 };
    char all[400] = "";
    for (size_t n = 0; at && n <= MOST; n++) {
        mr_bytes other;
        bool doubled;
        MR_TRY(next_field(s, &at, end, n, &other, &doubled, st));
        MR_TRY(plain_name(s, &other, doubled, st));
        int most = other.size < 30 ? (int)other.size : 30;
        if (n < MOST)
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%.*s", n ? ", " : "", most,
                     other.data);
        else
            strcat(all, ", ...");
    }
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the header has no column %.80s, it has %s; is sep=\"%c\" right, and is there a "
                   "header?",
                   name, all, s->opts.sep);
}

/* The header of a file. */
static mr_code begin(mr_iter *it, const mr_bytes *line, mr_status *st)
{
    struct state *s = it->state;
    const mr__features *f = s->rows.features;
    const char *at = line->data, *end = at + line->size;
    if (!has_header(it->params))
        return MR_OK;
    if (!f->named)
        return MR_END;
    if (line->size == 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the first line, which names the columns, is blank; should header be false?");
    at += mr__byte_order_mark(at, line->size); /* a header that an earlier version saved */
    const char *names = at;
    s->n_columns = 0;
    while (at) {
        mr_bytes name;
        bool doubled;
        MR_TRY(next_field(s, &at, end, s->n_columns, &name, &doubled, st));
        MR_TRY(plain_name(s, &name, doubled, st));
        MR_TRY(add_named(s, &name, st));
    }
    for (size_t i = 0; i < f->n; i++) {
        size_t k = 0;
        while (k < s->n_columns && s->fields[k] != i)
            k++;
        if (k == s->n_columns && !f->v[i].preset)
            return no_column(s, f->v[i].name, names, end, st);
    }
    return MR_END;
}

/* ---- rows ---- */

enum { PLACE_BYTES = 128 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The place of a value: the column, and the name of the field if it has one. */
static const char *place(const mr__feature *f, size_t column, char out[PLACE_BYTES])
{
    if (f->name)
        snprintf(out, PLACE_BYTES, "field %.80s (column %zu)", f->name, column + 1);
    else
        snprintf(out, PLACE_BYTES, "column %zu", column + 1);
    return out;
}

static mr_code put_field(struct state *s, size_t column, mr_bytes v, bool doubled, mr_status *st)
{
    size_t i = s->fields[column];
    if (i == NO_FIELD)
        return MR_OK;
    const mr__feature *f = &s->rows.features->v[i];
    mr__sheet *to = &s->rows.sheet;
    char z[sizeof(uint64_t)], at[PLACE_BYTES];
    while (f->dtype != MR_STRING && v.size && is_blank(*v.data))
        v = (mr_bytes){v.data + 1, v.size - 1};
    while (f->dtype != MR_STRING && v.size && is_blank(v.data[v.size - 1]))
        v.size--;
    if (v.size == 0 && f->preset)
        return mr__sheet_put_missing(to, i, st);
    if (f->dtype == MR_STRING)
        return mr__sheet_put_quoted(to, i, &v, doubled, st);
    if (v.size == 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "%s: it is empty; give it a default if it may be, as in feature(int64, default=0)",
            place(f, column, at));
    if (mr__read_value(v.data, v.size, f->dtype, z))
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: expected %s, found '%.*s'",
                       place(f, column, at), mr_dtype_name(f->dtype),
                       (int)(v.size < 40 ? v.size : 40), v.data);
    return mr__sheet_put(to, i, z, st);
}

static mr_code parse(mr_iter *it, const mr_bytes *line, mr_status *st)
{
    struct state *s = it->state;
    const char *at = line->data, *end = at + line->size;
    const mr__features *f = s->rows.features;
    size_t column = 0;
    if (line->size == 0)
        return MR_END;
    for (; at; column++) {
        mr_bytes v;
        bool doubled;
        MR_TRY(next_field(s, &at, end, column, &v, &doubled, st));
        if (column < s->n_columns)
            MR_TRY(put_field(s, column, v, doubled, st));
    }
    if (column != s->n_columns)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%zu fields, expected %zu, as the %s", column,
                       s->n_columns,
                       has_header(it->params) && f->named ? "header has" : "features say");
    for (size_t i = 0; has_header(it->params) && f->named && i < f->n; i++) {
        size_t k = 0; /* a feature with a default, for which this file has no column */
        while (k < s->n_columns && s->fields[k] != i)
            k++;
        if (k == s->n_columns)
            MR_TRY(mr__sheet_put_missing(&s->rows.sheet, i, st));
    }
    return MR_OK;
}

static mr_code open(mr_iter *it, mr_status *st)
{
    struct state *s = it->state;
    s->opts.sep = sep_of(it->params);
    MR_TRY(mr__text_rows_open(it, st));
    s->rows.source.own = &s->opts;
    return columns_by_place(s, st);
}

static void close(mr_iter *it)
{
    struct state *s = it->state;
    mr__text_rows_close(it);
    mr_free(s->fields);
    mr_free(s->name);
}

static mr_code infer(const mr_dataset *self, const void *params, mr_spec **out, mr_status *st)
{
    MR_TRY(mr__text_rows_infer(self, params, out, st));
    for (size_t i = 0; i < mr_spec_n_leaves(*out); i++)
        if (mr_spec_leaf(*out, i)->rank != 0) {
            mr_spec_unref(*out);
            *out = NULL;
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "csv: features are scalars: a column holds one value");
        }
    return MR_OK;
}

static mr_code check(const void *params, mr_status *st)
{
    const struct params *p = params;
    if (p->o.sep && (strlen(p->o.sep) != 1 || strchr("\"\n\r", *p->o.sep)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "csv: sep must be one character, not a quote or a line end");
    return mr__file_source_check(params, st);
}

static const mr__text_kind kind = {
    .files = {.format = &mr__format_csv,
              .compression_at = offsetof(struct params, o.compression),
              .detects = true},
    .features_at = offsetof(struct params, features),
    .parse = parse,
    .begin = begin};

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, files, MR_P_POSITIONAL | MR_P_PATTERN,
                  .doc = "Paths, or patterns; several are read in the order given."),
    MR_PARAM_WITH(struct params, features, MR_P_POSITIONAL | MR_P_EXPRESSION,
                  .doc =
                      "{\"name\": feature, ...}, or a list of features by their places. A feature "
                      "is a dtype, or feature(dtype, default=v) if the field may be empty."),
    MR_OPT(struct params, header, .flags = MR_P_OPTIONAL, .def.b = true,
           .doc = "The first line of each file names its columns."),
    MR_OPT(struct params, sep, .doc = "The character between fields; a comma if absent."),
    MR_OPT(struct params, compression, .names = mr__compression_names,
           .doc = "Compression of the files as a whole; empty: detected by their first bytes."),
    {0}};

const mr_op mr_op_csv = {
    .abi = MR_ABI_VERSION,
    .name = "csv",
    .doc = "The rows of CSV files, as records or tuples of typed fields.",
    .example = "csv(\"table.csv\", {\"name\": bytes, \"x\": float32})",
    .order_doc = "by file, then by line",
    .memory_doc = "the current chunk, and the file's read-ahead",
    .state_doc = "file, offset and line",
    .count_doc = "unknown",
    .params = table,
    .params_size = sizeof(struct params),
    .iter_size = sizeof(struct state),
    .kind = &kind,
    MR__TEXT_ROWS_SLOTS,
    .check = check,
    .infer = infer,
    .open = open,
    .close = close,
};

mr_dataset *mr_csv(const char *const *files, size_t n, const char *features,
                   const mr_csv_opts *opts)
{
    struct params p = {.features = (char *)(uintptr_t)features};
    if (opts)
        p.o = *opts;
    return mr__file_names_dataset(&mr_op_csv, &p, files, n, p.o.paths);
}
