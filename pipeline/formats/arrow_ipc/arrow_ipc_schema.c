/* SPDX-License-Identifier: Apache-2.0 */
/*   table               fields by number
 *   Schema              endianness (1: big), fields
 *   Field               name, nullable, type's number and its table (2, 3), dictionary, children
 *   DictionaryEncoding  id, type of the indices, ordered
 *   Int                 bits, signed          FloatingPoint     precision
 *   Time                unit, bits            FixedSizeBinary   bytes
 *   Date                unit                  FixedSizeList     entries */
#include "pipeline/formats/arrow_ipc/arrow_ipc_schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/column_path.h"
#include "pipeline/memory/arrow_import.h"
#include "pipeline/formats/table_defaults.h"
#include "pipeline/formats/table_flaws.h"

static const struct kind {
    const char *name, *format; /* format NULL: from the table of the type, or none */
    uint8_t n_buffers, width;
} kinds[MR__ARROW_N_KINDS] = {
    [MR__ARROW_NONE] = {"unknown", NULL, 0, 0},
    [MR__ARROW_NULL] = {"null", NULL, 0, 0},
    [MR__ARROW_INT] = {"int", NULL, 2, 0},
    [MR__ARROW_FLOAT] = {"float", NULL, 2, 0},
    [MR__ARROW_BINARY] = {"binary", "z", 3, 4},
    [MR__ARROW_UTF8] = {"utf8", "u", 3, 4},
    [MR__ARROW_BOOL] = {"bool", "b", 2, 0},
    [MR__ARROW_DECIMAL] = {"decimal", NULL, 2, 0},
    [MR__ARROW_DATE] = {"date", NULL, 2, 0},
    [MR__ARROW_TIME] = {"time", NULL, 2, 0},
    [MR__ARROW_TIMESTAMP] = {"timestamp", "l", 2, 8},
    [MR__ARROW_INTERVAL] = {"interval", NULL, 2, 0},
    [MR__ARROW_LIST] = {"list", "+l", 2, 4},
    [MR__ARROW_STRUCT] = {"struct", "+s", 1, 0},
    [MR__ARROW_UNION] = {"union", NULL, 1, 0},
    [MR__ARROW_FIXED_BINARY] = {"fixed_size_binary", NULL, 2, 0},
    [MR__ARROW_FIXED_LIST] = {"fixed_size_list", NULL, 1, 0},
    [MR__ARROW_MAP] = {"map", "+m", 2, 4},
    [MR__ARROW_DURATION] = {"duration", "l", 2, 8},
    [MR__ARROW_LARGE_BINARY] = {"large_binary", "Z", 3, 8},
    [MR__ARROW_LARGE_UTF8] = {"large_utf8", "U", 3, 8},
    [MR__ARROW_LARGE_LIST] = {"large_list", "+L", 2, 8},
    [MR__ARROW_RUN_ENDS] = {"run_end_encoded", NULL, 0, 0},
    [MR__ARROW_BINARY_VIEW] = {"binary_view", "z", 2, 16},
    [MR__ARROW_UTF8_VIEW] = {"utf8_view", "u", 2, 16},
    [MR__ARROW_LIST_VIEW] = {"list_view", NULL, 3, 0},
    [MR__ARROW_LARGE_LIST_VIEW] = {"large_list_view", NULL, 3, 0},
};

void mr__arrow_schema_reset(mr__arrow_schema *s)
{
    for (size_t i = 0; i < s->n; i++)
        mr_free(s->v[i].name);
    mr_free(s->v);
    mr_free(s->pointers);
    mr_free((void *)(uintptr_t)s->columns);
    *s = (mr__arrow_schema){0};
}

/* ---- types ---- */

static void set_format(mr__arrow_field *a, const char *format, unsigned width)
{
    snprintf(a->format, sizeof a->format, "%s", format);
    a->width = width;
}

/* The format of an integer, or "". */
static const char *int_format(int64_t bits, bool is_signed, mr_dtype *dtype)
{
    static const struct {
        const char *format[2];
        mr_dtype dtype[2];
    } all[] = {{{"C", "c"}, {MR_UINT8, MR_INT8}},
               {{"S", "s"}, {MR_UINT16, MR_INT16}},
               {{"I", "i"}, {MR_UINT32, MR_INT32}},
               {{"L", "l"}, {MR_UINT64, MR_INT64}}};
    for (size_t i = 0; i < 4; i++)
        if (bits == 8 << i) {
            *dtype = all[i].dtype[is_signed];
            return all[i].format[is_signed];
        }
    return "";
}

static void read_type(mr__arrow_field *a, mr__flat *f, const mr__flat_table *t, int version)
{
    static const char *const floats[] = {"e", "f", "g"};
    mr_dtype dtype;
    int64_t v;
    a->n_buffers = kinds[a->kind].n_buffers;
    if (kinds[a->kind].format)
        set_format(a, kinds[a->kind].format, kinds[a->kind].width);
    switch (a->kind) {
    case MR__ARROW_INT:
        v = mr__flat_int(f, t, 0, 4, 0);
        set_format(a, int_format(v, mr__flat_bool(f, t, 1), &dtype), (unsigned)(v & 127) / 8);
        break;
    case MR__ARROW_FLOAT:
        v = mr__flat_int(f, t, 0, 2, 0);
        if (v >= 0 && v < 3)
            set_format(a, floats[v], 2u << v);
        break;
    case MR__ARROW_DATE: /* days have 32 bits, milliseconds 64 */
        a->widened = mr__flat_int(f, t, 0, 2, 1) == 0;
        set_format(a, "l", a->widened ? 4 : 8);
        break;
    case MR__ARROW_TIME:
        a->widened = mr__flat_int(f, t, 1, 4, 32) == 32;
        set_format(a, "l", a->widened ? 4 : 8);
        break;
    case MR__ARROW_FIXED_BINARY:
    case MR__ARROW_FIXED_LIST:
        a->size = mr__flat_int(f, t, 0, 4, 0);
        if (a->size < 1)
            break;
        snprintf(a->format, sizeof a->format, "%s:%" PRId64,
                 a->kind == MR__ARROW_FIXED_LIST ? "+w" : "w", a->size);
        a->width = a->kind == MR__ARROW_FIXED_BINARY ? (unsigned)a->size : 0;
        break;
    case MR__ARROW_UNION: /* dense ones have offsets; old ones have nulls too */
        a->n_buffers = (uint8_t)(1 + (mr__flat_int(f, t, 0, 2, 0) == 1) + (version == 4));
        break;
    default:
        break;
    }
}

/* ---- fields ---- */

static mr_code damaged(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "damaged schema: %s", what);
}

static mr_code read_field(mr__arrow_schema *s, mr__flat *f, const mr__flat_table *t, int level,
                          mr_status *st)
{
    if (level == MR__ARROW_MOST_LEVELS)
        return damaged("its types are nested too deep", st);
    MR_TRY(MR_GROW(s->v, s->capacity, s->n + 1, MR__ARROW_MOST_FIELDS, "columns of an Arrow file",
                   st));
    size_t i = s->n++;
    s->v[i] = (mr__arrow_field){.kind = MR__ARROW_NONE};
    mr_bytes name = mr__flat_string(f, t, 0);
    int64_t kind = mr__flat_int(f, t, 2, 1, 0);
    mr__flat_table type = mr__flat_child(f, t, 3), encoding = mr__flat_child(f, t, 4);
    mr__flat_vector children = mr__flat_items(f, t, 5, 4);
    if (f->bad || (name.size && memchr(name.data, 0, name.size)))
        return damaged("invalid field", st);
    mr__arrow_field *a = &s->v[i];
    a->name = mr_strndup(name.size ? name.data : "", name.size);
    if (!a->name)
        return mr_fail_memory(st, name.size, "a column's name");
    a->kind = kind > 0 && kind < MR__ARROW_N_KINDS ? (mr__arrow_kind)kind : MR__ARROW_NONE;
    read_type(a, f, &type, s->version);
    if (encoding.at) {
        mr__flat_table index = mr__flat_child(f, &encoding, 1);
        a->dictionary = true;
        a->id = mr__flat_int(f, &encoding, 0, 8, 0);
        a->index = MR_INT32;
        if (index.at &&
            !*int_format(mr__flat_int(f, &index, 0, 4, 0), mr__flat_bool(f, &index, 1), &a->index))
            return damaged("a dictionary's indices are not integers", st);
    }
    a->n_children = children.n;
    for (size_t k = 0; k < children.n; k++) {
        mr__flat_table child = mr__flat_table_at(f, &children, k);
        MR_TRY(read_field(s, f, &child, level + 1, st));
    }
    s->v[i].n_below = s->n - i - 1;
    return f->bad ? damaged("invalid field", st) : MR_OK;
}

/* A list has one child; fields of a type without children have none. */
static bool has_right_children(const mr__arrow_field *a)
{
    switch (a->kind) {
    case MR__ARROW_LIST:
    case MR__ARROW_LARGE_LIST:
    case MR__ARROW_FIXED_LIST:
    case MR__ARROW_MAP:
    case MR__ARROW_LIST_VIEW:
    case MR__ARROW_LARGE_LIST_VIEW:
        return a->n_children == 1;
    case MR__ARROW_NONE:
    case MR__ARROW_STRUCT:
    case MR__ARROW_UNION:
        return true;
    case MR__ARROW_RUN_ENDS:
        return a->n_children == 2;
    default:
        return a->n_children == 0;
    }
}

/* Makes the forms of the fields for the import. */
static mr_code make_forms(mr__arrow_schema *s, mr_status *st)
{
    s->pointers = mr_malloc((s->n + 1) * sizeof *s->pointers);
    if (!s->pointers)
        return mr_fail_memory(st, s->n * sizeof *s->pointers, "columns of an Arrow file");
    struct ArrowSchema **next = s->pointers;
    for (size_t i = 0; i < s->n; i++) {
        mr__arrow_field *a = &s->v[i];
        if (!has_right_children(a))
            return damaged("a type with too few or too many fields in it", st);
        a->c = (struct ArrowSchema){.format = a->format,
                                    .name = a->name,
                                    .n_children = (int64_t)a->n_children,
                                    .children = a->n_children ? next : NULL};
        for (size_t k = 0, child = i + 1; k < a->n_children; k++) {
            *next++ = &s->v[child].c;
            child += 1 + s->v[child].n_below;
        }
    }
    return MR_OK;
}

static int by_name(const void *a, const void *b)
{
    const mr__arrow_field *x = *(const mr__arrow_field *const *)a;
    const mr__arrow_field *y = *(const mr__arrow_field *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static mr_code sort_columns(mr__arrow_schema *s, mr_status *st)
{
    s->columns = mr_malloc((s->n + 1) * sizeof *s->columns);
    if (!s->columns)
        return mr_fail_memory(st, s->n * sizeof *s->columns, "columns of an Arrow file");
    for (size_t i = 0; i < s->n; i += 1 + s->v[i].n_below)
        s->columns[s->n_columns++] = &s->v[i];
    qsort((void *)(uintptr_t)s->columns, s->n_columns, sizeof *s->columns, by_name);
    return MR_OK;
}

mr_code mr__arrow_schema_read(mr__arrow_schema *s, mr__flat *f, const mr__flat_table *schema,
                              int64_t version, mr_status *st)
{
    if (version < 3 || version > 4)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "the file has Arrow metadata version V%" PRId64 "; V4 and V5 are supported",
                       version + 1);
    s->version = (int)version + 1;
    if (mr__flat_int(f, schema, 0, 2, 0) != 0)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "the file is big-endian, which is not supported; write it little-endian");
    mr__flat_vector fields = mr__flat_items(f, schema, 1, 4);
    for (size_t i = 0; i < fields.n && !f->bad; i++) {
        mr__flat_table t = mr__flat_table_at(f, &fields, i);
        MR_TRY(read_field(s, f, &t, 0, st));
    }
    if (f->bad)
        return damaged("an invalid offset", st);
    MR_TRY(make_forms(s, st));
    return sort_columns(s, st);
}

/* ---- columns ---- */

/* Index of the column with that name, or the index where it would be inserted. */
static size_t place_of(const mr__arrow_schema *s, const char *name)
{
    size_t low = 0, high = s->n_columns;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(s->columns[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_called(const mr__arrow_schema *s, size_t place, const char *name)
{
    return place < s->n_columns && strcmp(s->columns[place]->name, name) == 0;
}

int64_t mr__arrow_schema_find(const mr__arrow_schema *s, const char *name)
{
    size_t place = place_of(s, name);
    return is_called(s, place, name) ? s->columns[place] - s->v : -1;
}

static mr_code fail_type(const mr__arrow_field *column, const mr__arrow_field *a, mr_status *st)
{
    if (column == a && a->kind == MR__ARROW_NULL)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "column '%.200s' cannot be read: " MR__TABLE_ALL_NULL
                       "; columns=[...] selects the columns to read",
                       column->name);
    if (a->kind == MR__ARROW_NULL)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "column '%.200s' cannot be read: " MR__TABLE_NULL_LISTS, column->name);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "column '%.200s' cannot be read: it %s Arrow's type %s; columns=[...] selects "
                   "the columns to read",
                   column->name, column == a ? "is of" : "holds values of", kinds[a->kind].name);
}

/* MR_OK: the formats of the field and of all fields below it are set. */
static mr_code check_kinds(const mr__arrow_schema *s, size_t column, size_t field, mr_status *st)
{
    for (size_t i = field; i <= field + s->v[field].n_below; i++)
        if (!s->v[i].format[0])
            return fail_type(&s->v[column], &s->v[i], st);
    return MR_OK;
}

static void go_through_lists(const mr__arrow_schema *s, bool values, mr__arrow_way *way)
{
    const mr__arrow_field *a = &s->v[mr__arrow_way_end(way)];
    for (; mr__arrow_is_list(a) || a->kind == MR__ARROW_FIXED_LIST; a++) {
        if (a->dictionary && !(values && way->n == 1))
            return;
        way->fields[way->n] = way->fields[way->n - 1] + 1; /* a schema has no more levels */
        way->n++;
    }
}

mr__arrow_way mr__arrow_way_to(const mr__arrow_schema *s, size_t i, bool values)
{
    mr__arrow_way way = {.n = 1};
    way.fields[0] = i;
    go_through_lists(s, values, &way);
    return way;
}

mr__arrow_way mr__arrow_way_on(const mr__arrow_schema *s, const mr__arrow_way *way, size_t k,
                               size_t child)
{
    if (way->n == 1)
        return mr__arrow_way_to(s, child, false);
    mr__arrow_way on = *way;
    on.taken[on.n_taken++] = (int64_t)k;
    on.fields[on.n++] = child;
    go_through_lists(s, false, &on);
    return on;
}

static mr_code spec_of(const mr__arrow_schema *s, const mr__arrow_way *way, const bool *wanted,
                       mr_spec **out, mr_status *st);

/* *out = the record of n parts, if rc is MR_OK; takes names and parts in any case. */
static mr_code make_record(mr_code rc, const char **names, mr_spec **parts, size_t n, mr_spec **out,
                           mr_status *st)
{
    if (rc == MR_OK) {
        *out = mr_spec_record(names, parts, n);
        if (!*out)
            rc = mr_fail_memory(st, n * sizeof *parts, "a type");
    } else
        for (size_t i = 0; parts && i < n; i++)
            mr_spec_unref(parts[i]);
    mr_free((void *)(uintptr_t)names);
    mr_free(parts);
    return rc;
}

static mr_code record_of(const mr__arrow_schema *s, const mr__arrow_way *way, const bool *wanted,
                         mr_spec **out, mr_status *st)
{
    size_t i = mr__arrow_way_end(way);
    const mr__arrow_field *a = &s->v[i];
    const char **names = mr_calloc(a->n_children + 1, sizeof *names);
    mr_spec **parts = mr_calloc(a->n_children + 1, sizeof *parts);
    mr_code rc = names && parts ? MR_OK : mr_fail_memory(st, sizeof *names, "a type");
    if (rc == MR_OK && (a->n_children == 0 || a->dictionary))
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "column '%.200s' cannot be read: it is a struct %s; columns=[...] selects the "
                     "columns to read",
                     a->name, a->dictionary ? "in a dictionary" : "without fields");
    size_t made = 0;
    for (size_t n = 0, child = i + 1; rc == MR_OK && n < a->n_children;
         n++, child += 1 + s->v[child].n_below) {
        if (wanted && !wanted[child])
            continue;
        const mr__arrow_way on = mr__arrow_way_on(s, way, n, child);
        names[made] = s->v[child].name;
        for (size_t k = 0; k < made && rc == MR_OK; k++)
            if (strcmp(names[k], names[made]) == 0)
                rc = mr_fail(st, MR_INVALID_ARGUMENT,
                             "column '%.200s' has two fields that are called '%.200s'", a->name,
                             names[k]);
        if (rc == MR_OK)
            rc = spec_of(s, &on, wanted, &parts[made], st);
        made += rc == MR_OK;
    }
    return make_record(rc, names, parts, made, out, st);
}

/* What lists and dictionaries of lists cannot contain; NULL: no such field. */
static const char *odd_in_lists(const mr__arrow_schema *s, const mr__arrow_way *way)
{
    size_t from = way->n > 1 ? mr__arrow_way_end(way) : way->fields[0] + 1;
    size_t end = mr__arrow_way_end(way) + s->v[mr__arrow_way_end(way)].n_below;
    for (size_t k = from; k <= end; k++)
        if (s->v[k].kind == MR__ARROW_STRUCT || s->v[k].dictionary || mr__arrow_is_view(&s->v[k]))
            return s->v[k].dictionary                 ? "a dictionary's values"
                   : s->v[k].kind == MR__ARROW_STRUCT ? "structs"
                                                      : "string views";
    return NULL;
}

/* wanted: for each field, whether structs include it; NULL: all. */
static mr_code spec_of(const mr__arrow_schema *s, const mr__arrow_way *way, const bool *wanted,
                       mr_spec **out, mr_status *st)
{
    const mr__arrow_field *column = &s->v[way->fields[0]], *a = &s->v[mr__arrow_way_end(way)];
    mr__arrow_type t;
    if (a->kind == MR__ARROW_STRUCT && (!a->dictionary || way->n == 1))
        return record_of(s, way, wanted, out, st);
    for (size_t k = 0; k < way->n; k++)
        if (!s->v[way->fields[k]].format[0])
            return fail_type(column, &s->v[way->fields[k]], st);
    MR_TRY(check_kinds(s, way->fields[0], mr__arrow_way_end(way), st));
    const char *odd = odd_in_lists(s, way);
    if (odd)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "column '%.200s' cannot be read: it holds lists of %s; columns=[...] "
                       "selects the columns to read",
                       column->name, odd);
    MR_TRY(mr__arrow_type_of(&column->c, way->taken, &t, st));
    mr_leaf leaf = {.dtype = t.dtype, .rank = (int8_t)t.rank, .ragged = t.ragged};
    memcpy(leaf.shape, t.shape, sizeof t.shape);
    *out = mr_spec_of_leaf(&leaf);
    return *out ? MR_OK : mr_fail_memory(st, sizeof leaf, "a type");
}

static mr_code no_column(const mr__arrow_schema *s, const char *name, mr_status *st)
{
    enum { MOST = 10 };
    char all[400] = "";
    for (size_t i = 0; i < s->n_columns && i < MOST; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%.30s", i ? ", " : "",
                 s->columns[i]->name);
    return mr_fail(st, MR_INVALID_ARGUMENT, "there is no column '%.200s'; the file has %s %s%s",
                   name, s->n_columns == 1 ? "the column" : "the columns", all,
                   s->n_columns > MOST ? ", ..." : "");
}

static mr_code find_once(const mr__arrow_schema *s, const char *name, size_t *out, mr_status *st)
{
    size_t place = place_of(s, name);
    if (!is_called(s, place, name))
        return no_column(s, name, st);
    if (is_called(s, place + 1, name))
        return mr_fail(st, MR_INVALID_ARGUMENT, "two columns are called '%.200s'", name);
    *out = (size_t)(s->columns[place] - s->v);
    return MR_OK;
}

/* Marks in wanted the field that the path leads to from field i, "": the whole field, and the
 * fields that contain it. false: it leads to no field. */
static bool want(const mr__arrow_schema *s, size_t i, const char *path, bool *wanted)
{
    const mr__arrow_way way = mr__arrow_way_to(s, i, false);
    size_t end = mr__arrow_way_end(&way);
    const mr__arrow_field *a = &s->v[end];
    bool found = !*path;
    if (found)
        memset(wanted + i, true, 1 + s->v[i].n_below);
    else if (a->kind == MR__ARROW_STRUCT && !a->dictionary)
        for (size_t n = 0, child = end + 1; n < a->n_children;
             n++, child += 1 + s->v[child].n_below) {
            const char *rest = mr__column_path_after(path, s->v[child].name);
            if (rest && want(s, child, rest, wanted))
                found = true;
        }
    wanted[i] |= found;
    return found;
}

struct chosen {
    size_t *columns, n; /* in the order of the request */
    bool *wanted;       /* which fields of them are included */
};

static bool choose(const mr__arrow_schema *s, size_t column, const char *path, struct chosen *c)
{
    bool before = c->wanted[column];
    if (!path || !want(s, column, path, c->wanted))
        return false;
    if (!before)
        c->columns[c->n++] = column;
    return true;
}

/* A column named "x.a" takes precedence over field a of x. */
static mr_code choose_named(const mr__arrow_schema *s, const char *name, struct chosen *c,
                            mr_status *st)
{
    int64_t whole = mr__arrow_schema_find(s, name);
    bool found = whole >= 0 && choose(s, (size_t)whole, "", c);
    for (size_t i = 0; whole < 0 && i < s->n; i += 1 + s->v[i].n_below)
        found |= choose(s, i, mr__column_path_after(name, s->v[i].name), c);
    return found ? MR_OK : no_column(s, name, st);
}

mr_code mr__arrow_schema_spec(const mr__arrow_schema *s, const mr_bytes *asked, size_t n,
                              mr_spec **out, mr_status *st)
{
    size_t made = 0;
    if (s->n_columns == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the file has no columns");
    const char **names = mr_calloc(s->n_columns, sizeof *names);
    mr_spec **parts = mr_calloc(s->n_columns, sizeof *parts);
    struct chosen c = {.columns = mr_calloc(s->n_columns, sizeof *c.columns),
                       .wanted = mr_calloc(s->n, sizeof *c.wanted)};
    mr_code rc = names && parts && c.columns && c.wanted
                     ? MR_OK
                     : mr_fail_memory(st, s->n * sizeof *names, "a type");
    for (size_t k = 0; rc == MR_OK && k < n; k++)
        rc = choose_named(s, asked[k].data, &c, st);
    for (size_t i = 0; rc == MR_OK && n == 0 && i < s->n; i += 1 + s->v[i].n_below)
        choose(s, i, "", &c);
    while (rc == MR_OK && made < c.n) {
        size_t i;
        const mr__arrow_way way = mr__arrow_way_to(s, c.columns[made], false);
        names[made] = s->v[c.columns[made]].name;
        rc = find_once(s, names[made], &i, st);
        if (rc == MR_OK)
            rc = spec_of(s, &way, c.wanted, &parts[made], st);
        made += rc == MR_OK;
    }
    mr_free(c.columns);
    mr_free(c.wanted);
    return make_record(rc, names, parts, made, out, st);
}

/* Checks that the end of the way, in that column, has this type. */
static mr_code check_type(const mr__arrow_schema *s, size_t column, const mr__arrow_way *way,
                          const mr_spec *want, mr_status *st)
{
    mr_spec *here;
    size_t i = mr__arrow_way_end(way);
    MR_TRY(spec_of(s, way, NULL, &here, st));
    bool same = mr_spec_equal(here, want), whole = way->n_taken == 0 && way->fields[0] == column;
    bool casts = mr_spec_kind_of(here) == MR_SPEC_LEAF && mr_spec_kind_of(want) == MR_SPEC_LEAF;
    if (casts) {
        const mr_leaf *a = mr_spec_leaf(here, 0), *b = mr_spec_leaf(want, 0);
        casts = a->rank == b->rank && a->dtype < MR_STRING && b->dtype < MR_STRING;
    }
    char text[160], first[160];
    mr_spec_format(here, text, sizeof text);
    mr_spec_format(want, first, sizeof first);
    mr_spec_unref(here);
    return same
               ? MR_OK
               : mr_fail(st, MR_INVALID_ARGUMENT,
                         "column '%.200s' is %s here%s%.100s, and %s in the first file or the "
                         "schema%s",
                         s->v[column].name, text, whole ? "" : " in field ",
                         whole ? "" : s->v[i].name, first,
                         casts ? "; values are not converted on reading: use cast() in a map" : "");
}

/* true: all leaves of the spec have defaults. */
static bool may_lack(const mr_spec *spec, const mr_array *defaults)
{
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++)
        if (!mr__table_has_default(defaults, i))
            return false;
    return true;
}

static const mr_array *defaults_of(const mr_array *defaults, const mr_spec *spec, size_t child)
{
    return defaults ? defaults + mr_spec_first_leaf(spec, child) : NULL;
}

#define GIVE_DEFAULT "; a schema may give it a default, as in feature(int64, default=0)"

/* The same for a struct, which may have more fields. */
static mr_code check_field(const mr__arrow_schema *s, size_t column, const mr__arrow_way *way,
                           const mr_spec *want, const mr_array *defaults, mr_status *st)
{
    size_t i = mr__arrow_way_end(way);
    const mr__arrow_field *a = &s->v[i];
    if (a->kind != MR__ARROW_STRUCT || a->dictionary || mr_spec_kind_of(want) != MR_SPEC_RECORD)
        return check_type(s, column, way, want, st);
    for (size_t k = 0; k < mr_spec_n_children(want); k++) {
        const char *name = mr_spec_child_name(want, k);
        size_t found = i, at = 0; /* not found */
        for (size_t n = 0, child = i + 1; n < a->n_children; n++, child += 1 + s->v[child].n_below)
            if (strcmp(s->v[child].name, name) == 0) {
                if (found != i)
                    return mr_fail(st, MR_INVALID_ARGUMENT,
                                   "column '%.200s' has two fields that are called '%.200s'",
                                   s->v[column].name, name);
                found = child;
                at = n;
            }
        const mr_array *own = defaults_of(defaults, want, k);
        if ((found == i || (way->n == 1 && mr__arrow_is_null(&s->v[found]))) &&
            may_lack(mr_spec_child(want, k), own))
            continue;
        if (found == i)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "column '%.200s' has no field '%.200s', which the first file or the "
                           "schema has" GIVE_DEFAULT,
                           s->v[column].name, name);
        const mr__arrow_way on = mr__arrow_way_on(s, way, at, found);
        MR_TRY(check_field(s, column, &on, mr_spec_child(want, k), own, st));
    }
    return MR_OK;
}

mr_code mr__arrow_schema_check(const mr__arrow_schema *s, const mr_spec *spec, bool all,
                               const mr_array *defaults, mr_status *st)
{
    for (size_t k = 0; k < mr_spec_n_children(spec); k++) {
        size_t at;
        const char *name = mr_spec_child_name(spec, k);
        const mr_spec *want = mr_spec_child(spec, k);
        const mr_array *own = defaults_of(defaults, spec, k);
        int64_t found = mr__arrow_schema_find(s, name);
        if ((found < 0 || mr__arrow_is_null(&s->v[found])) && may_lack(want, own))
            continue;
        if (found < 0)
            return mr_fail(
                st, MR_INVALID_ARGUMENT,
                "there is no column '%.200s', which the first file or the schema has" GIVE_DEFAULT,
                name);
        MR_TRY(find_once(s, name, &at, st));
        const mr__arrow_way way = mr__arrow_way_to(s, at, false);
        MR_TRY(all ? check_type(s, at, &way, want, st) : check_field(s, at, &way, want, own, st));
    }
    for (size_t i = 0; all && i < s->n; i += 1 + s->v[i].n_below)
        if (mr_spec_find(spec, s->v[i].name) < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "column '%.200s' is not in the first file; columns=[...] selects the "
                           "columns to read",
                           s->v[i].name);
    return MR_OK;
}
