/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/streams/arrow_stream.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "pipeline/memory/arrow_import.h"

enum { MOST_FIELDS = 65536, MOST_LEVELS = 64 };

struct mr__arrow_stream {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    mr_spec *spec;
    atomic_bool started;
    bool ended;
    mr_block rows; /* of the array at hand */
    size_t at;     /* rows of it that were given */
};

static bool is_struct(const struct ArrowSchema *s)
{
    return s->format && strcmp(s->format, "+s") == 0;
}

static mr_code spec_of(const struct ArrowSchema *s, int levels, mr_spec **out, mr_status *st);

static mr_code record_of(const struct ArrowSchema *s, int levels, mr_spec **out, mr_status *st)
{
    size_t n = (size_t)s->n_children;
    if (s->n_children < 1 || s->n_children > MOST_FIELDS || levels == MOST_LEVELS)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "field '%s': a struct must have 1 to %d fields, %d levels deep at most",
                       s->name ? s->name : "", MOST_FIELDS, MOST_LEVELS);
    const char **names = mr_calloc(n, sizeof *names);
    mr_spec **children = mr_calloc(n, sizeof *children);
    size_t made = 0;
    mr_code rc = names && children ? MR_OK : mr_fail_memory(st, n * sizeof *names, "a type");
    while (rc == MR_OK && made < n) {
        const char *name = s->children[made]->name;
        names[made] = name ? name : "";
        for (size_t i = 0; i < made && rc == MR_OK; i++)
            if (strcmp(names[i], names[made]) == 0)
                rc = mr_fail(st, MR_INVALID_ARGUMENT, "there are two fields called '%s'", names[i]);
        if (rc == MR_OK)
            rc = spec_of(s->children[made], levels + 1, &children[made], st);
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

static mr_code spec_of(const struct ArrowSchema *s, int levels, mr_spec **out, mr_status *st)
{
    mr__arrow_type t;
    if (is_struct(s))
        return record_of(s, levels, out, st);
    MR_TRY(mr__arrow_type_of(s, &t, st));
    mr_leaf leaf = {.dtype = t.dtype, .rank = (int8_t)t.rank, .ragged = t.ragged};
    memcpy(leaf.shape, t.shape, sizeof t.shape);
    *out = mr_spec_of_leaf(&leaf);
    return *out ? MR_OK : mr_fail_memory(st, sizeof leaf, "a type");
}

static mr_code fail_producer(mr__arrow_stream *s, int error, const char *what, mr_status *st)
{
    const char *words = s->stream.get_last_error ? s->stream.get_last_error(&s->stream) : NULL;
    mr_fail(st, MR_UNKNOWN, "the Arrow stream gave no %s: %s", what,
            words && *words ? words : strerror(error));
    if (st)
        st->sys_errno = error;
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
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "the Arrow stream was released before");
    int error = rc == MR_OK ? s->stream.get_schema(&s->stream, &s->schema) : 0;
    if (error) {
        s->schema.release = NULL;
        rc = fail_producer(s, error, "schema", st);
    }
    if (rc == MR_OK)
        rc = spec_of(&s->schema, 0, &s->spec, st);
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
    if (atomic_exchange(&s->started, true))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "an Arrow stream can be read once; put cache() after it to go over its rows "
                       "again");
    return MR_OK;
}

/* The columns of entries [from, from + n), in the order of the spec's leaves. */
static mr_code import_fields(const struct ArrowArray *a, const struct ArrowSchema *s,
                             const mr_spec *spec, int64_t from, int64_t n, mr_buffer *keeper,
                             mr_array *columns, mr_status *st)
{
    if (!is_struct(s))
        return mr__arrow_column(columns, a, from, n, s, keeper, st);
    MR_TRY(mr__arrow_no_nulls(a, from, n, s, st));
    if (a->n_children != s->n_children)
        return mr_fail(st, MR_INVALID_ARGUMENT, "expected %" PRId64 " fields, found %" PRId64,
                       s->n_children, a->n_children);
    for (int64_t c = 0; c < s->n_children; c++) {
        const char *name = s->children[c]->name ? s->children[c]->name : "";
        size_t i = (size_t)mr_spec_find(spec, name);
        MR_TRY(import_fields(a->children[c], s->children[c], mr_spec_child(spec, i),
                             from + a->offset, n, keeper, columns + mr_spec_first_leaf(spec, i),
                             st));
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
    if (rc == MR_OK)
        rc = import_fields(mr_buffer_data(keeper), &s->schema, s->spec, 0, n, keeper,
                           s->rows.columns, st);
    mr_buffer_unref(keeper);
    s->at = 0;
    if (rc == MR_OK)
        s->rows.rows = (size_t)n;
    else
        mr_block_clear(&s->rows);
    return rc;
}

mr_code mr__arrow_stream_next(mr__arrow_stream *s, size_t want, mr_block *out, mr_status *st)
{
    while (s->at == s->rows.rows) {
        struct ArrowArray array = {.release = NULL};
        mr_block_clear(&s->rows);
        s->at = 0;
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
    size_t n = s->rows.rows - s->at;
    n = n < want ? n : want;
    MR_TRY(mr_block_slice(out, &s->rows, s->at, n, st));
    s->at += n;
    return MR_OK;
}
