/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/sources/arrow_stream.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/arrow_import.h"

enum { MOST_FIELDS = 65536, MOST_LEVELS = 64 };

struct mr__arrow_stream {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    mr_spec *spec;
    atomic_bool started;
    bool ended;
    mr_block rows;  /* of the current array */
    size_t at;      /* rows of it already returned */
    int64_t before; /* rows of the arrays before it */
    /* Of the rows of the array, why they cannot be elements; NULL: all can. */
    struct flaw {
        uint32_t leaf;
        uint8_t what;
    } * flaws;
    uint8_t *marks; /* while a column is imported */
};

/* A field of a column, the column itself, or a field of structs within its lists. */
typedef struct place {
    const struct ArrowSchema *root, *at;
    int64_t way[MOST_LEVELS]; /* of the structs between them, which field */
    int n;
    int levels; /* above it */
} place;

/* The struct that p's lists contain, if they contain one. */
static place strip_lists(const place *p)
{
    place below = *p;
    for (int k = 0; mr__arrow_is_list_of(below.at) && k <= MR_MAX_RANK; k++)
        below.at = below.at->children[0];
    return below;
}

/* Field c of a struct. If no list is above it, the field is a column. */
static place field_of(const place *record, bool in_list, int64_t c)
{
    place field = *record;
    field.at = record->at->children[c];
    field.levels++;
    if (in_list)
        field.way[field.n++] = c;
    else
        field.root = field.at;
    return field;
}

static mr_code spec_of(const place *p, mr_spec **out, mr_status *st);

static mr_code record_of(const place *p, bool in_list, mr_spec **out, mr_status *st)
{
    const struct ArrowSchema *s = p->at;
    size_t n = (size_t)s->n_children;
    if (s->n_children < 1 || s->n_children > MOST_FIELDS || p->levels == MOST_LEVELS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "field '%s': a struct must have 1 to %d fields, %d levels deep at most",
                       s->name ? s->name : "", MOST_FIELDS, MOST_LEVELS);
    const char **names = mr_calloc(n, sizeof *names);
    mr_spec **children = mr_calloc(n, sizeof *children);
    size_t made = 0;
    mr_code rc = names && children ? MR_OK : mr_fail_memory(st, n * sizeof *names, "a type");
    while (rc == MR_OK && made < n) {
        const char *name = s->children[made]->name;
        const place field = field_of(p, in_list, (int64_t)made);
        names[made] = name ? name : "";
        for (size_t i = 0; i < made && rc == MR_OK; i++)
            if (strcmp(names[i], names[made]) == 0)
                rc = mr_fail(st, MR_INVALID_ARGUMENT, "there are two fields called '%s'", names[i]);
        if (rc == MR_OK)
            rc = spec_of(&field, &children[made], st);
        made += rc == MR_OK;
    }
    if (rc == MR_OK) {
        *out = mr_spec_record(names, children, n);
        if (!*out)
            rc = mr_fail_memory(st, n * sizeof *names, "a type");
    } else
        for (size_t i = 0; i < made; i++)
            mr_spec_unref(children[i]);
    mr_free(names);
    mr_free(children);
    return rc;
}

static mr_code spec_of(const place *p, mr_spec **out, mr_status *st)
{
    mr__arrow_type t;
    const place below = strip_lists(p);
    if (mr__arrow_is_struct(below.at))
        return record_of(&below, below.n > 0 || below.at != p->at, out, st);
    MR_TRY(mr__arrow_type_of(p->root, p->way, &t, st));
    mr_leaf leaf = {.dtype = t.dtype, .rank = (int8_t)t.rank, .ragged = t.ragged};
    memcpy(leaf.shape, t.shape, sizeof t.shape);
    *out = mr_spec_of_leaf(&leaf);
    return *out ? MR_OK : mr_fail_memory(st, sizeof leaf, "a type");
}

static mr_code fail_producer(mr__arrow_stream *s, int error, const char *what, mr_status *st)
{
    const char *words = s->stream.get_last_error ? s->stream.get_last_error(&s->stream) : NULL;
    mr_fail(st, MR_UNKNOWN, "the Arrow stream returned no %s: %s", what,
            words && *words ? words : strerror(error));
    if (st)
        st->sys_errno = error;
    mr_status_of_no_element(st); /* nothing can follow */
    return MR_UNKNOWN;
}

mr_code mr__arrow_stream_new(struct ArrowArrayStream *stream, mr__arrow_stream **out, mr_status *st)
{
    mr__arrow_stream *s = mr_calloc(1, sizeof *s);
    if (!s) {
        if (stream->release)
            stream->release(stream);
        return mr_fail_memory(st, sizeof *s, "an arrow stream");
    }
    s->stream = *stream;
    stream->release = NULL;
    mr_code rc = MR_OK;
    if (!s->stream.release)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the Arrow stream was already released");
    int error = rc == MR_OK ? s->stream.get_schema(&s->stream, &s->schema) : 0;
    if (error) {
        s->schema.release = NULL;
        rc = fail_producer(s, error, "schema", st);
    }
    if (rc == MR_OK)
        rc = spec_of(&(const place){.root = &s->schema, .at = &s->schema}, &s->spec, st);
    if (rc == MR_OK)
        *out = s;
    else
        mr__arrow_stream_free(s);
    return rc;
}

void mr__arrow_stream_free(mr__arrow_stream *s)
{
    if (!s)
        return;
    mr_block_reset(&s->rows);
    mr_free(s->flaws);
    mr_free(s->marks);
    mr_spec_unref(s->spec);
    if (s->schema.release)
        s->schema.release(&s->schema);
    if (s->stream.release)
        s->stream.release(&s->stream);
    mr_free(s);
}

const mr_spec *mr__arrow_stream_spec(const mr__arrow_stream *s)
{
    return s->spec;
}

mr_code mr__arrow_stream_start(mr__arrow_stream *s, mr_status *st)
{
    if (!atomic_exchange(&s->started, true))
        return MR_OK;
    mr_fail(st, MR_FAILED_PRECONDITION,
            "an Arrow stream can be read only once; put cache() after it to read its rows again");
    mr_status_of_no_element(st);
    return MR_FAILED_PRECONDITION;
}

/* Adds the marks of n rows to their flaws; those rows have other flaws, or this one at leaf. */
static mr_code take_marks(mr__arrow_stream *s, size_t leaf, int64_t n, mr_status *st)
{
    for (int64_t i = 0; i < n; i++) {
        if (!s->marks[i])
            continue;
        if (!s->flaws)
            s->flaws = mr_calloc((size_t)n, sizeof *s->flaws);
        if (!s->flaws)
            return mr_fail_memory(st, (size_t)n * sizeof *s->flaws, "rows of an Arrow stream");
        if (!s->flaws[i].what)
            s->flaws[i] = (struct flaw){(uint32_t)leaf, s->marks[i]};
        s->marks[i] = 0;
    }
    return MR_OK;
}

/* The columns of entries [from, from + n) of the root, in the order of the spec's leaves, of which
 * `leaf` is the first here. */
static mr_code import_fields(mr__arrow_stream *s, const struct ArrowArray *a, const place *p,
                             const mr_spec *spec, int64_t from, int64_t n, mr_buffer *keeper,
                             size_t leaf, mr_status *st)
{
    const place below = strip_lists(p);
    const struct ArrowSchema *type = below.at;
    bool in_list = below.n > 0 || type != p->at;
    if (!mr__arrow_is_struct(type)) {
        MR_TRY(mr__arrow_column(&s->rows.columns[leaf], a, from, n, p->root, p->way, s->marks,
                                keeper, st));
        return take_marks(s, leaf, n, st);
    }
    if (!in_list) {
        if (a->n_children != type->n_children)
            return mr_fail(st, MR_INVALID_ARGUMENT, "expected %" PRId64 " fields, found %" PRId64,
                           type->n_children, a->n_children);
        if (from > a->length - n)
            return mr_fail(st, MR_INVALID_ARGUMENT, "field '%s' has fewer entries than its struct",
                           type->name ? type->name : "");
        mr__arrow_mark_nulls(a, from, n, s->marks);
        MR_TRY(take_marks(s, leaf, n, st));
        from += a->offset;
    }
    for (int64_t c = 0; c < type->n_children; c++) {
        const place field = field_of(&below, in_list, c);
        const char *name = type->children[c]->name ? type->children[c]->name : "";
        size_t i = (size_t)mr_spec_find(spec, name);
        MR_TRY(import_fields(s, in_list ? a : a->children[c], &field, mr_spec_child(spec, i), from,
                             n, keeper, leaf + mr_spec_first_leaf(spec, i), st));
    }
    return MR_OK;
}

/* Takes *array over. */
static mr_code import_array(mr__arrow_stream *s, struct ArrowArray *array, mr_status *st)
{
    mr_buffer *keeper = NULL;
    int64_t n = array->length;
    mr_code rc = mr__arrow_keep(array, &keeper, st);
    if (rc != MR_OK) {
        array->release(array);
        return rc;
    }
    rc = mr_block_prepare(&s->rows, mr_spec_n_leaves(s->spec), st);
    if (rc == MR_OK && n > 0) {
        s->marks = mr_calloc((size_t)n, 1);
        if (!s->marks)
            rc = mr_fail_memory(st, (size_t)n, "rows of an Arrow stream");
    }
    if (rc == MR_OK)
        rc = import_fields(s, mr_buffer_data(keeper),
                           &(const place){.root = &s->schema, .at = &s->schema}, s->spec, 0, n,
                           keeper, 0, st);
    mr_buffer_unref(keeper);
    mr_free(s->marks);
    s->marks = NULL;
    if (rc == MR_OK)
        s->rows.rows = (size_t)n;
    else
        mr_block_clear(&s->rows);
    return rc;
}

/* Forgets the current array. */
static void leave_array(mr__arrow_stream *s)
{
    s->before += (int64_t)s->rows.rows;
    mr_block_clear(&s->rows);
    mr_free(s->flaws);
    s->flaws = NULL;
    s->at = 0;
}

static mr_code fail_row(const mr__arrow_stream *s, size_t row, mr_status *st)
{
    const struct flaw *f = &s->flaws[row];
    const char *const *names = mr_spec_leaf_names(s->spec);
    char path[200];
    snprintf(path, sizeof path, "%s", names ? names[f->leaf] : "");
    for (char *c = path; (c = strchr(c, '/'));)
        *c = '.';
    mr_fail(st, MR_INVALID_ARGUMENT, "column '%s': %s", path,
            f->what == MR__ARROW_ROW_UNEVEN
                ? "the row's lists from the third level on differ in length, which is not possible "
                  "in an element; pad them first, or skip such rows with ignore_errors()"
            : f->what == MR__ARROW_ROW_WITHIN
                ? "the row has a null within a list, which elements cannot have; fill or drop "
                  "nulls first, or skip such rows with ignore_errors()"
                : "the row has a null, which elements cannot have; fill or drop nulls first, or "
                  "skip such rows with ignore_errors()");
    if (st)
        st->record = s->before + (int64_t)row;
    return MR_INVALID_ARGUMENT;
}

/* Reads the next array that has rows. */
static mr_code next_array(mr__arrow_stream *s, mr_status *st)
{
    while (s->at == s->rows.rows) {
        struct ArrowArray array = {.release = NULL};
        leave_array(s);
        if (s->ended)
            return MR_END;
        int error = s->stream.get_next(&s->stream, &array);
        if (error) {
            s->ended = true;
            return fail_producer(s, error, "rows", st);
        }
        if (!array.release) {
            s->ended = true;
            return MR_END;
        }
        MR_TRY(import_array(s, &array, st));
    }
    return MR_OK;
}

mr_code mr__arrow_stream_next(mr__arrow_stream *s, size_t want, mr_block *out, mr_status *st)
{
    MR_TRY(next_array(s, st));
    size_t left = s->rows.rows - s->at, n = 0;
    while (n < want && n < left && !(s->flaws && s->flaws[s->at + n].what))
        n++;
    if (n == 0)
        return fail_row(s, s->at++, st);
    MR_TRY(mr_block_slice(out, &s->rows, s->at, n, st));
    s->at += n;
    return MR_OK;
}
