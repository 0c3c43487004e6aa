/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_batch.h"
#include "pipeline/formats/table_defaults.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/memory/arrow_import.h"

/* ---- messages ---- */

mr_code mr__arrow_message_read(const uint8_t *v, size_t n, mr__arrow_message *out, mr_status *st)
{
    mr__arrow_message m = {.flat = {.v = v, .n = n}};
    mr__flat_table t = mr__flat_root(&m.flat);
    m.version = mr__flat_int(&m.flat, &t, 0, 2, 0);
    m.kind = mr__flat_int(&m.flat, &t, 1, 1, 0);
    m.header = mr__flat_child(&m.flat, &t, 2);
    m.body_bytes = mr__flat_int(&m.flat, &t, 3, 8, 0);
    if (m.flat.bad || m.body_bytes < 0 || !m.header.at)
        return mr_fail(st, MR_DATA_LOSS, "damaged metadata: invalid message");
    *out = m;
    return MR_OK;
}

mr_code mr__arrow_message_rows(mr__arrow_message *m, int64_t *rows, mr_status *st)
{
    *rows = mr__flat_int(&m->flat, &m->header, 0, 8, 0);
    if (m->flat.bad || *rows < 0)
        return mr_fail(st, MR_DATA_LOSS, "damaged metadata: a batch without a number of rows");
    return MR_OK;
}

enum { BUFFERS = 3 };

/* A field of the current batch. */
typedef struct loaded_field {
    bool left_out; /* not requested: its buffers are not read */
    int64_t length, null_count;
    size_t first_buffer, n_buffers; /* in the list of the batch */
    const void *buffers[BUFFERS];
    size_t sizes[BUFFERS];
    struct ArrowArray a;
} loaded_field;

/* column NULL: the batch as a whole. */
static mr_code damaged(const char *column, const char *what, mr_status *st)
{
    return column ? mr_fail(st, MR_DATA_LOSS, "column '%.200s': %s", column, what)
                  : mr_fail(st, MR_DATA_LOSS, "damaged metadata: %s", what);
}

/* ---- lengths and offsets ---- */

static int64_t offset_of(const loaded_field *x, unsigned width, int64_t i)
{
    int64_t large;
    int32_t small;
    if (width == 8) {
        memcpy(&large, (const char *)x->buffers[1] + 8 * i, 8);
        return large;
    }
    memcpy(&small, (const char *)x->buffers[1] + 4 * i, 4);
    return small;
}

/* Whether `size` bytes have room for n values of `width` bytes, 0: bits. */
static bool has_room(size_t size, int64_t n, unsigned width)
{
    if (width == 0)
        return (uint64_t)n / 8 + (n % 8 != 0) <= size;
    return (uint64_t)n <= size / width;
}

/* Offsets must not decrease; *end is the last one. */
static mr_code check_offsets(const mr__arrow_field *a, const loaded_field *x, int64_t *end,
                             mr_status *st)
{
    *end = 0;
    if (x->length == 0)
        return MR_OK;
    if (x->length == INT64_MAX || !has_room(x->sizes[1], x->length + 1, a->width))
        return damaged(a->name, "it has fewer offsets than rows", st);
    int64_t before = 0;
    for (int64_t i = 0; i <= x->length; i++) {
        int64_t at = offset_of(x, a->width, i);
        if (at < before)
            return damaged(a->name, "its offsets go backwards", st);
        before = at;
    }
    *end = before;
    return MR_OK;
}

static mr_code check_validity(const mr__arrow_field *a, const loaded_field *x, mr_status *st)
{
    if (x->length < 0)
        return damaged(a->name, "it has a negative length", st);
    if (x->null_count != 0 && x->sizes[0] && !has_room(x->sizes[0], x->length, 0))
        return damaged(a->name, "its null bitmap covers fewer rows than it has", st);
    if (x->null_count > 0 && x->length > 0 && !x->sizes[0])
        return damaged(a->name, "its null bitmap is missing", st);
    return MR_OK;
}

static mr_code check_values(const mr__arrow_field *a, const loaded_field *x, mr_status *st)
{
    int64_t end = 0;
    if (!mr__arrow_is_string(a))
        return has_room(x->sizes[1], x->length, a->width)
                   ? MR_OK
                   : damaged(a->name, "it has fewer values than rows", st);
    MR_TRY(check_offsets(a, x, &end, st));
    return (uint64_t)end <= x->sizes[2]
               ? MR_OK
               : damaged(a->name, "its strings extend past the end of their bytes", st);
}

/* Checks the fields on the way, where v is those of the batch and `rows` entries of the first are
 * used. indices: it has the indices of a dictionary. The way does not begin with a struct. */
static mr_code check_way(const mr__arrow_schema *s, loaded_field *v, const mr__arrow_way *way,
                         int64_t rows, bool indices, mr_status *st)
{
    int64_t least = rows;
    for (size_t k = 0; k < way->n; k++) {
        const mr__arrow_field *a = &s->v[way->fields[k]];
        loaded_field *x = &v[way->fields[k]];
        MR_TRY(check_validity(a, x, st));
        if (x->length < least)
            return damaged(a->name, "it has fewer rows than its batch, or than its lists refer to",
                           st);
        x->a.length = x->length;
        x->a.null_count = 0;
        if (indices)
            return has_room(x->sizes[1], x->length, (unsigned)mr_dtype_size(a->index))
                       ? MR_OK
                       : damaged(a->name, "it has fewer indices than rows", st);
        if (k + 1 == way->n)
            return check_values(a, x, st);
        if (mr__arrow_is_list(a))
            MR_TRY(check_offsets(a, x, &least, st));
        else if (a->kind == MR__ARROW_STRUCT)
            least = x->length;
        else if (__builtin_mul_overflow(x->length, a->size, &least))
            return damaged(a->name, "it has an impossible number of values", st);
    }
    return MR_OK;
}

/* ---- nulls ---- */

static bool says_nulls(const loaded_field *x)
{
    return x->null_count != 0 && x->sizes[0];
}

static bool is_null(const loaded_field *x, int64_t i)
{
    const uint8_t *valid = x->buffers[0];
    return says_nulls(x) && !(valid[i / 8] >> (i % 8) & 1);
}

/* Entry e of field k of the way is null, or contains a null. */
static bool has_null(const mr__arrow_schema *s, const loaded_field *v, const mr__arrow_way *way,
                     size_t k, int64_t e)
{
    const mr__arrow_field *a = &s->v[way->fields[k]];
    const loaded_field *x = &v[way->fields[k]];
    int64_t from = e, to = e + 1;
    if (is_null(x, e))
        return true;
    if (k + 1 == way->n)
        return false;
    if (mr__arrow_is_list(a)) {
        from = offset_of(x, a->width, e);
        to = offset_of(x, a->width, e + 1);
    } else if (a->kind == MR__ARROW_FIXED_LIST) {
        from = e * a->size;
        to = from + a->size;
    }
    for (int64_t i = from; i < to; i++)
        if (has_null(s, v, way, k + 1, i))
            return true;
    return false;
}

/* Allocates *nulls for `rows` rows, unless it exists. */
static mr_code need_nulls(uint32_t **nulls, size_t rows, mr_status *st)
{
    if (!*nulls)
        *nulls = mr_calloc(rows, sizeof **nulls);
    return *nulls ? MR_OK : mr_fail_memory(st, rows * sizeof **nulls, "nulls of an Arrow file");
}

/* Flaws of the rows of one leaf. */
enum { WHOLE = 1 /* it is null */, HAS_NULL /* a list that contains a null */, UNEVEN };

/* Marks the rows that have a null on the way or, with `alone`, in its first field. */
static mr_code mark_nulls(const mr__arrow_schema *s, const loaded_field *v,
                          const mr__arrow_way *way, bool alone, size_t rows, uint32_t **flaws,
                          mr_status *st)
{
    bool any = false;
    for (size_t k = 0; !any && k < (alone ? 1 : way->n); k++)
        any = says_nulls(&v[way->fields[k]]);
    if (!any || rows == 0)
        return MR_OK;
    MR_TRY(need_nulls(flaws, rows, st));
    for (size_t r = 0; r < rows; r++)
        if ((*flaws)[r] == 0)
            (*flaws)[r] = is_null(&v[way->fields[0]], (int64_t)r)        ? WHOLE
                          : !alone && has_null(s, v, way, 0, (int64_t)r) ? HAS_NULL
                                                                         : 0;
    return MR_OK;
}

/* ---- loading ---- */

/* The dictionary that the indices of a field refer to. */
typedef struct dictionary {
    size_t field;
    bool there;
    mr_array values;
    size_t capacity; /* of values, in rows */
    uint8_t *nulls;  /* for each value: it is null; NULL: none */
    size_t nulls_capacity;
} dictionary;

struct mr__arrow_loader {
    const mr__arrow_schema *schema;
    const mr_spec *spec;
    size_t *columns; /* for each child of the spec: its field */
    size_t n_columns;
    bool all;
    const mr_array *defaults; /* of the leaves of the spec, or NULL */
    loaded_field *v;          /* for each field */
    mr_array *leaves;         /* columns of the batch that is loaded; NULL: a dictionary is */
    struct ArrowArray **pointers;
    dictionary *dictionaries;
    size_t n_dictionaries;
    mr__arrow_unpacker unpacker;
};

/* The RecordBatch being loaded. */
typedef struct batch {
    mr__flat *f;
    const mr__arrow_body *body;
    int64_t rows;
    mr__flat_vector nodes, buffers, variable;
    mr__arrow_codec codec;
} batch;

static mr_code read_batch(mr__flat *f, const mr__flat_table *t, const mr__arrow_body *body,
                          batch *out, mr_status *st)
{
    batch b = {.f = f, .body = body, .codec = MR__ARROW_PLAIN};
    b.rows = mr__flat_int(f, t, 0, 8, 0);
    b.nodes = mr__flat_items(f, t, 1, 16);
    b.buffers = mr__flat_items(f, t, 2, 16);
    mr__flat_table packed = mr__flat_child(f, t, 3);
    b.variable = mr__flat_items(f, t, 4, 8);
    if (packed.at) {
        int64_t codec = mr__flat_int(f, &packed, 0, 1, 0),
                method = mr__flat_int(f, &packed, 1, 1, 0);
        if (codec < 0 || codec > 1 || method != 0)
            return mr_fail(st, MR_UNIMPLEMENTED,
                           "unknown Arrow compression %" PRId64 "; LZ4 and zstd are supported",
                           codec);
        b.codec = (mr__arrow_codec)codec;
    }
    if (f->bad || b.rows < 0)
        return damaged(NULL, "invalid batch", st);
    *out = b;
    return MR_OK;
}

/* ---- opening ---- */

#define MISSING SIZE_MAX /* a column that the file lacks; it has a default */

static size_t after(const mr__arrow_schema *s, size_t field)
{
    return field + 1 + s->v[field].n_below;
}

/* Fields of the column that have dictionaries. */
static size_t each_dictionary(const mr__arrow_loader *l, size_t column, dictionary *out)
{
    const mr__arrow_schema *s = l->schema;
    size_t n = 0;
    for (size_t i = column; i < after(s, column); i = s->v[i].dictionary ? after(s, i) : i + 1)
        if (s->v[i].dictionary && !l->v[i].left_out) {
            if (out)
                out[n].field = i;
            n++;
        }
    return n;
}

/* Leaves out the fields below the end of the way that the spec, a record there, lacks. */
static void leave_out(mr__arrow_loader *l, const mr__arrow_way *way, const mr_spec *spec)
{
    const mr__arrow_schema *s = l->schema;
    size_t i = mr__arrow_way_end(way), child = i + 1;
    if (s->v[i].kind != MR__ARROW_STRUCT || s->v[i].dictionary)
        return;
    for (size_t k = 0; k < s->v[i].n_children; k++, child = after(s, child)) {
        int64_t at = mr_spec_find(spec, s->v[child].name);
        for (size_t f = child; at < 0 && f < after(s, child); f++)
            l->v[f].left_out = true;
        const mr__arrow_way on = mr__arrow_way_on(s, way, k, child);
        if (at >= 0)
            leave_out(l, &on, mr_spec_child(spec, (size_t)at));
    }
}

mr_code mr__arrow_loader_open(mr__arrow_loader **out, const mr__arrow_schema *schema,
                              const mr_spec *spec, bool all, const mr_array *defaults,
                              mr_status *st)
{
    MR_TRY(mr__arrow_schema_check(schema, spec, all, defaults, st));
    size_t n = mr_spec_n_children(spec), columns = 0;
    for (size_t i = 0; i < schema->n; i = after(schema, i))
        columns++;
    mr__arrow_loader *l = mr_calloc(1, sizeof *l);
    if (l) {
        l->schema = schema;
        l->spec = spec;
        l->n_columns = n;
        l->all = n == columns;
        l->defaults = defaults;
        l->columns = mr_calloc(n, sizeof *l->columns);
        l->v = mr_calloc(schema->n, sizeof *l->v);
        l->pointers = mr_calloc(schema->n, sizeof *l->pointers);
    }
    if (!l || !l->columns || !l->v || !l->pointers) {
        mr__arrow_loader_close(l);
        return mr_fail_memory(st, schema->n * sizeof *l->v, "columns of an Arrow file");
    }
    for (size_t k = 0; k < n; k++) {
        l->columns[k] = (size_t)mr__arrow_schema_find(schema, mr_spec_child_name(spec, k));
        if (l->columns[k] != MISSING && mr__arrow_is_null(&schema->v[l->columns[k]]))
            l->columns[k] = MISSING; /* it has a default */
        if (l->columns[k] == MISSING)
            continue;
        const mr__arrow_way way = mr__arrow_way_to(schema, l->columns[k], false);
        leave_out(l, &way, mr_spec_child(spec, k));
        l->n_dictionaries += each_dictionary(l, l->columns[k], NULL);
    }
    l->dictionaries = mr_calloc(l->n_dictionaries + 1, sizeof *l->dictionaries);
    if (!l->dictionaries) {
        mr__arrow_loader_close(l);
        return mr_fail_memory(st, sizeof *l->dictionaries, "dictionaries of an Arrow file");
    }
    for (size_t k = 0, at = 0; k < n; k++)
        if (l->columns[k] != MISSING)
            at += each_dictionary(l, l->columns[k], l->dictionaries + at);
    struct ArrowArray **next = l->pointers;
    for (size_t i = 0; i < schema->n; i++) {
        const mr__arrow_field *a = &schema->v[i];
        l->v[i].a = (struct ArrowArray){.n_buffers = BUFFERS,
                                        .n_children = (int64_t)a->n_children,
                                        .buffers = l->v[i].buffers,
                                        .children = next};
        for (size_t k = 0, child = i + 1; k < a->n_children; k++, child = after(schema, child))
            *next++ = &l->v[child].a;
    }
    *out = l;
    return MR_OK;
}

void mr__arrow_loader_forget(mr__arrow_loader *l)
{
    for (size_t i = 0; l->dictionaries && i < l->n_dictionaries; i++) {
        dictionary *d = &l->dictionaries[i];
        mr_array_reset(&d->values);
        mr_free(d->nulls);
        *d = (dictionary){.field = d->field};
    }
}

void mr__arrow_loader_close(mr__arrow_loader *l)
{
    if (!l)
        return;
    mr__arrow_loader_forget(l);
    mr__arrow_unpacker_reset(&l->unpacker);
    mr_free(l->dictionaries);
    mr_free(l->pointers);
    mr_free(l->v);
    mr_free(l->columns);
    mr_free(l);
}

bool mr__arrow_loader_wants(const mr__arrow_loader *l, int64_t id)
{
    for (size_t i = 0; i < l->n_dictionaries; i++)
        if (l->schema->v[l->dictionaries[i].field].id == id)
            return true;
    return false;
}

bool mr__arrow_loader_wants_all(const mr__arrow_loader *l)
{
    return l->all;
}

/* ---- layout of the fields ---- */

/* Assigns nodes and buffers to fields [from, end). values: field `from` stands for the values of
 * its dictionary. */
static mr_code lay_out(mr__arrow_loader *l, batch *b, size_t from, size_t end, bool values,
                       mr_status *st)
{
    const mr__arrow_schema *s = l->schema;
    size_t node = 0, buffer = 0, variable = 0;
    for (size_t i = from; i < end;) {
        const mr__arrow_field *a = &s->v[i];
        bool indices = a->dictionary && !(values && i == from);
        loaded_field *x = &l->v[i];
        if (node == b->nodes.n)
            return damaged(a->name, "the batch has too few columns", st);
        x->length = mr__flat_read(b->f, b->nodes.at + 16 * node, 8);
        x->null_count = mr__flat_read(b->f, b->nodes.at + 16 * node++ + 8, 8);
        x->first_buffer = buffer;
        x->n_buffers = indices ? 2 : a->n_buffers;
        if (!indices && mr__arrow_is_view(a)) {
            int64_t more = variable < b->variable.n
                               ? mr__flat_read(b->f, b->variable.at + 8 * variable++, 8)
                               : -1;
            if (more < 0 || more > (int64_t)b->buffers.n)
                return damaged(a->name, "the batch lacks its number of buffers", st);
            x->n_buffers += (size_t)more;
        }
        if (x->n_buffers > b->buffers.n - buffer)
            return damaged(a->name, "the batch has too few buffers", st);
        buffer += x->n_buffers;
        i = indices ? after(s, i) : i + 1;
    }
    return b->f->bad ? damaged(NULL, "invalid batch", st) : MR_OK;
}

static void buffer_at(const batch *b, size_t i, int64_t *offset, int64_t *size)
{
    *offset = mr__flat_read(b->f, b->buffers.at + 16 * i, 8);
    *size = mr__flat_read(b->f, b->buffers.at + 16 * i + 8, 8);
}

/* ---- reading buffers ---- */

/* Bytes read of a batch for some fields. */
typedef struct span {
    const uint8_t *data;
    int64_t low;       /* offset of data in the body */
    mr_buffer *keeper; /* keeps data and what is decompressed from it alive */
} span;

/* Reads the buffers of fields [from, end). */
static mr_code read_span(mr__arrow_loader *l, const batch *b, size_t from, size_t end, span *out,
                         mr_status *st)
{
    int64_t low = INT64_MAX, high = 0, offset, size;
    for (size_t i = from; i < end; i++)
        for (size_t k = 0; k < l->v[i].n_buffers && !l->v[i].left_out; k++) {
            buffer_at(b, l->v[i].first_buffer + k, &offset, &size);
            if (offset < 0 || size < 0 || offset > b->body->bytes - size)
                return damaged(l->schema->v[from].name, "a buffer lies outside its batch", st);
            low = size && offset < low ? offset : low;
            high = size && offset + size > high ? offset + size : high;
        }
    mr_buffer *owner = NULL;
    span s = {.low = low};
    MR_TRY(mr_buffer_wrap(&s.keeper, NULL, 0, true, NULL, NULL, st));
    mr_code rc = high > low
                     ? b->body->get(b->body->ctx, low, (size_t)(high - low), &owner, &s.data, st)
                     : MR_OK;
    if (rc == MR_OK && owner)
        rc = mr_buffer_hold(s.keeper, owner, st);
    mr_buffer_unref(owner);
    if (rc == MR_OK)
        *out = s;
    else
        mr_buffer_unref(s.keeper);
    return rc;
}

/* Returns buffer i of the batch, whose span has been read. */
static mr_code take_buffer(mr__arrow_loader *l, const batch *b, const span *s, size_t i,
                           const void **data, size_t *n, mr_status *st)
{
    int64_t offset, size;
    const uint8_t *at = NULL;
    mr_buffer *owner = NULL;
    buffer_at(b, i, &offset, &size);
    *data = NULL;
    *n = 0;
    if (size == 0)
        return MR_OK;
    MR_TRY(mr__arrow_unpack(&l->unpacker, b->codec, s->data + (offset - s->low), (size_t)size,
                            &owner, &at, n, st));
    *data = at;
    mr_code rc = owner ? mr_buffer_hold(s->keeper, owner, st) : MR_OK;
    mr_buffer_unref(owner);
    return rc;
}

static mr_code in_column(const mr__arrow_field *a, mr_code rc, mr_status *st)
{
    if (rc == MR_DATA_LOSS)
        mr_status_prefix(st, "column '%.200s'", a->name);
    return rc;
}

/* Reads the buffers of fields [from, end); *keeper keeps them alive. */
static mr_code read_buffers(mr__arrow_loader *l, const batch *b, size_t from, size_t end,
                            mr_buffer **keeper, mr_status *st)
{
    span s;
    MR_TRY(read_span(l, b, from, end, &s, st));
    mr_code rc = MR_OK;
    for (size_t i = from; i < end; i++) {
        loaded_field *x = &l->v[i];
        for (size_t k = 0; k < BUFFERS && rc == MR_OK; k++) {
            x->sizes[k] = 0;
            x->buffers[k] = NULL;
            if (k < x->n_buffers && !x->left_out)
                rc = take_buffer(l, b, &s, x->first_buffer + k, &x->buffers[k], &x->sizes[k], st);
        }
    }
    if (rc == MR_OK)
        *keeper = s.keeper;
    else
        mr_buffer_unref(s.keeper);
    return in_column(&l->schema->v[from], rc, st);
}

/* Widens 32-bit times to int64. i: the field of the values. */
static mr_code widen(mr__arrow_loader *l, size_t i, mr_buffer *keeper, mr_status *st)
{
    loaded_field *x = &l->v[i];
    mr_buffer *wide;
    size_t n = (size_t)x->length;
    if (!l->schema->v[i].widened || n == 0)
        return MR_OK;
    MR_TRY(mr_buffer_alloc(&wide, n * sizeof(int64_t), st));
    int64_t *to = mr_buffer_data(wide);
    for (size_t k = 0; k < n; k++) {
        int32_t v;
        memcpy(&v, (const char *)x->buffers[1] + 4 * k, 4);
        to[k] = v;
    }
    x->buffers[1] = to;
    mr_code rc = mr_buffer_hold(keeper, wide, st);
    mr_buffer_unref(wide);
    return rc;
}

/* ---- string views ----
 *
 *   offset  size  meaning
 *   0       4     int32: bytes of the string
 *   4       12    the string itself, if it is at most 12 bytes long; else
 *   8       4     int32: index of its buffer, counted after the first two
 *   12      4     int32: offset in that buffer */

static mr_code view_at(const mr__arrow_field *a, const char *view, const mr_bytes *data, size_t n,
                       mr_bytes *out, mr_status *st)
{
    enum { WITHIN = 12 };
    int32_t size, buffer, offset;
    memcpy(&size, view, 4);
    memcpy(&buffer, view + 8, 4);
    memcpy(&offset, view + 12, 4);
    if (size >= 0 && size <= WITHIN) {
        *out = (mr_bytes){view + 4, (size_t)size};
        return MR_OK;
    }
    if (size < 0 || buffer < 0 || (size_t)buffer >= n || offset < 0 ||
        (size_t)offset > data[buffer].size || (size_t)size > data[buffer].size - (size_t)offset)
        return damaged(a->name, "its strings extend past the end of their bytes", st);
    *out = (mr_bytes){data[buffer].data + offset, (size_t)size};
    return MR_OK;
}

/* ---- flaws of a leaf ---- */

/* Takes the flaws of the column of a leaf: replaces nulls by its default, and marks the other rows
 * in *nulls, as mr__arrow_load_batch gives them. above: for each row, nonzero if a struct around
 * leaf is null; NULL: none is. */
static mr_code settle(const mr__arrow_loader *l, uint32_t *flaws, const uint32_t *above,
                      size_t rows, mr_array *out, uint32_t **nulls, mr_status *st)
{
    size_t leaf = l->leaves ? (size_t)(out - l->leaves) : 0;
    mr_code rc = MR_OK;
    if (above)
        rc = need_nulls(&flaws, rows, st);
    for (size_t r = 0; r < rows && above && rc == MR_OK; r++)
        flaws[r] = above[r] ? WHOLE : flaws[r];
    if (rc == MR_OK && flaws && rows && l->leaves && mr__table_has_default(l->defaults, leaf)) {
        bool *null = mr_malloc(rows);
        rc = null ? MR_OK : mr_fail_memory(st, rows, "nulls of an Arrow file");
        for (size_t r = 0; r < rows && rc == MR_OK; r++) {
            null[r] = flaws[r] == WHOLE;
            flaws[r] = null[r] ? 0 : flaws[r];
        }
        if (rc == MR_OK)
            rc = mr__table_fill(out, null, &l->defaults[leaf], st);
        mr_free(null);
    }
    bool any = false;
    for (size_t r = 0; r < rows && flaws && !any; r++)
        any = flaws[r] != 0;
    if (rc == MR_OK && any)
        rc = need_nulls(nulls, rows, st);
    for (size_t r = 0; r < rows && any && rc == MR_OK; r++)
        if (flaws[r] && (*nulls)[r] == 0)
            (*nulls)[r] = ((uint32_t)leaf + 1) | (flaws[r] == UNEVEN     ? MR__ARROW_UNEVEN
                                                  : flaws[r] == HAS_NULL ? MR__ARROW_WITHIN
                                                                         : 0);
    mr_free(flaws);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static mr_code load_views(mr__arrow_loader *l, const batch *b, size_t i, size_t rows,
                          const uint32_t *above, uint32_t **nulls, mr_array *out, mr_status *st)
{
    const mr__arrow_field *a = &l->schema->v[i];
    loaded_field *x = &l->v[i];
    size_t n = x->n_buffers - 2;
    const mr__arrow_way way = mr__arrow_way_to(l->schema, i, true);
    mr_array made = {0};
    uint32_t *flaws = NULL;
    span s;
    mr_bytes *data = mr_calloc(n + 1, sizeof *data);
    if (!data)
        return mr_fail_memory(st, n * sizeof *data, "buffers of an Arrow file");
    mr_code rc = read_span(l, b, i, i + 1, &s, st);
    if (rc != MR_OK) {
        mr_free(data);
        return rc;
    }
    for (size_t k = 0; k < 2 && rc == MR_OK; k++)
        rc = take_buffer(l, b, &s, x->first_buffer + k, &x->buffers[k], &x->sizes[k], st);
    for (size_t k = 0; k < n && rc == MR_OK; k++) {
        const void *at;
        rc = take_buffer(l, b, &s, x->first_buffer + 2 + k, &at, &data[k].size, st);
        data[k].data = at;
    }
    rc = in_column(a, rc, st);
    if (rc == MR_OK)
        rc = check_way(l->schema, l->v, &way, (int64_t)rows, false, st);
    if (rc == MR_OK)
        rc = mark_nulls(l->schema, l->v, &way, true, rows, &flaws, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&made, MR_STRING, 0, NULL, rows, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(made.owner, s.keeper, st);
    for (size_t r = 0; r < rows && rc == MR_OK; r++) {
        mr_bytes *to = (mr_bytes *)made.data + r;
        *to = (mr_bytes){NULL, 0};
        if (!is_null(x, (int64_t)r))
            rc = view_at(a, (const char *)x->buffers[1] + 16 * r, data, n, to, st);
    }
    if (rc == MR_OK) {
        mr_array_move(out, &made);
        rc = settle(l, flaws, above, rows, out, nulls, st);
    } else
        mr_free(flaws);
    mr_array_reset(&made);
    mr_buffer_unref(s.keeper);
    mr_free(data);
    return rc;
}

/* ---- columns ---- */

/* Marks the uneven rows, unless they have a null. */
static mr_code mark_uneven(const uint8_t *uneven, size_t rows, uint32_t **flaws, mr_status *st)
{
    if (rows == 0 || !memchr(uneven, MR__ARROW_ROW_UNEVEN, rows))
        return MR_OK;
    MR_TRY(need_nulls(flaws, rows, st));
    for (size_t r = 0; r < rows; r++)
        if (uneven[r] && (*flaws)[r] == 0)
            (*flaws)[r] = UNEVEN;
    return MR_OK;
}

/* Imports the values that the way leads to, for `rows` entries of its first field. */
static mr_code load_values(mr__arrow_loader *l, const mr__arrow_way *way, size_t rows,
                           const uint32_t *above, uint32_t **nulls, mr_buffer *keeper,
                           mr_array *out, mr_status *st)
{
    enum { EVEN = 2 }; /* lists to this depth may have any lengths */
    const mr__arrow_schema *s = l->schema;
    size_t column = way->fields[0];
    uint8_t *uneven = NULL;
    uint32_t *flaws = NULL;
    MR_TRY(check_way(s, l->v, way, (int64_t)rows, false, st));
    MR_TRY(widen(l, mr__arrow_way_end(way), keeper, st));
    if (way->n - 1 - way->n_taken > EVEN) {
        uneven = mr_calloc(rows + 1, sizeof *uneven);
        if (!uneven)
            return mr_fail_memory(st, rows, "rows of an Arrow file");
    }
    mr_code rc = mark_nulls(s, l->v, way, false, rows, &flaws, st);
    if (rc == MR_OK)
        rc = mr__arrow_column(out, &l->v[column].a, 0, (int64_t)rows, &s->v[column].c, way->taken,
                              uneven, keeper, st);
    if (rc == MR_OK && uneven) {
        rc = mark_uneven(uneven, rows, &flaws, st);
        if (rc != MR_OK)
            mr_array_reset(out);
    }
    mr_free(uneven);
    if (rc == MR_OK)
        return settle(l, flaws, above, rows, out, nulls, st);
    mr_free(flaws);
    return rc;
}

/* Loads the part of the spec at the end of the way, which may be a struct. */
static mr_code load_way(mr__arrow_loader *l, const mr__arrow_way *way, size_t rows,
                        const mr_spec *spec, const uint32_t *above, uint32_t **nulls,
                        mr_buffer *keeper, mr_array *columns, mr_status *st)
{
    const mr__arrow_schema *s = l->schema;
    size_t i = mr__arrow_way_end(way), child = i + 1;
    if (way->n == 1 || s->v[i].kind != MR__ARROW_STRUCT)
        return load_values(l, way, rows, above, nulls, keeper, columns, st);
    for (size_t k = 0; k < s->v[i].n_children; k++, child = after(s, child)) {
        int64_t at = mr_spec_find(spec, s->v[child].name);
        if (at < 0) /* not requested */
            continue;
        const mr__arrow_way on = mr__arrow_way_on(s, way, k, child);
        MR_TRY(load_way(l, &on, rows, mr_spec_child(spec, (size_t)at), above, nulls, keeper,
                        columns + mr_spec_first_leaf(spec, (size_t)at), st));
    }
    return MR_OK;
}

/* Reads field i, which is not a struct, and imports its first entries, one for each row of the
 * batch. values: those of its dictionary. */
static mr_code load_column(mr__arrow_loader *l, const batch *b, size_t i, bool values,
                           const mr_spec *spec, const uint32_t *above, uint32_t **nulls,
                           mr_array *columns, mr_status *st)
{
    size_t rows = (size_t)b->rows;
    mr_buffer *keeper;
    if (mr__arrow_is_view(&l->schema->v[i]))
        return load_views(l, b, i, rows, above, nulls, columns, st);
    MR_TRY(read_buffers(l, b, i, after(l->schema, i), &keeper, st));
    const mr__arrow_way way = mr__arrow_way_to(l->schema, i, values);
    mr_code rc = load_way(l, &way, rows, spec, above, nulls, keeper, columns, st);
    mr_buffer_unref(keeper);
    return rc;
}

static dictionary *dictionary_of(const mr__arrow_loader *l, size_t field)
{
    for (size_t i = 0; i < l->n_dictionaries; i++)
        if (l->dictionaries[i].field == field)
            return &l->dictionaries[i];
    return NULL;
}

/* A column of null rows, for a dictionary without values. */
static mr_code no_values(const dictionary *d, size_t rows, mr_array *out, mr_status *st)
{
    const mr_array *v = &d->values;
    if (v->storage == MR_RAGGED)
        return mr_fail(st, MR_DATA_LOSS, "a dictionary has no values");
    MR_TRY(mr_array_alloc(out, v->dtype, v->rank, v->shape, rows, st));
    memset(out->data, 0, rows * mr_array_row_bytes(v));
    return MR_OK;
}

/* Reads the dictionary indices of the rows. */
static mr_code read_indices(const mr__arrow_loader *l, size_t field, const dictionary *d,
                            size_t rows, uint32_t **flaws, uint32_t *index, mr_status *st)
{
    const mr__arrow_field *a = &l->schema->v[field];
    const loaded_field *x = &l->v[field];
    size_t size = mr_dtype_size(a->index);
    const char *at = x->buffers[1];
    for (size_t r = 0; r < rows; r++, at += size) {
        uint64_t v = 0;
        index[r] = 0;
        if (is_null(x, (int64_t)r))
            continue;
        memcpy(&v, at, size); /* a negative index is too large below */
        if (v >= d->values.rows || v > UINT32_MAX)
            return mr_fail(st, MR_DATA_LOSS,
                           "column '%.200s': row %zu of the batch has an index beyond the %zu "
                           "values of its dictionary",
                           a->name, r, d->values.rows);
        index[r] = (uint32_t)v;
        if (!d->nulls || !d->nulls[v])
            continue;
        MR_TRY(need_nulls(flaws, rows, st));
        (*flaws)[r] = WHOLE;
    }
    return MR_OK;
}

static mr_code load_indices(mr__arrow_loader *l, const batch *b, size_t i, size_t rows,
                            const uint32_t *above, uint32_t **nulls, mr_array *out, mr_status *st)
{
    const dictionary *d = dictionary_of(l, i);
    mr_buffer *keeper;
    mr_array result = {0};
    uint32_t *flaws = NULL;
    if (!d->there)
        return mr_fail(st, MR_DATA_LOSS, "column '%.200s': its dictionary does not precede it",
                       l->schema->v[i].name);
    MR_TRY(read_buffers(l, b, i, i + 1, &keeper, st));
    uint32_t *index = NULL;
    const mr__arrow_way way = mr__arrow_way_to(l->schema, i, false);
    mr_code rc = check_way(l->schema, l->v, &way, (int64_t)rows, true, st);
    if (rc == MR_OK) /* that many rows exist */
        index = mr_malloc((rows + 1) * sizeof *index);
    if (rc == MR_OK && !index)
        rc = mr_fail_memory(st, rows * sizeof *index, "a dictionary's indices");
    if (rc == MR_OK)
        rc = mark_nulls(l->schema, l->v, &way, true, rows, &flaws, st);
    if (rc == MR_OK)
        rc = read_indices(l, i, d, rows, &flaws, index, st);
    if (rc == MR_OK && rows && d->values.rows == 0)
        rc = no_values(d, rows, &result, st);
    else if (rc == MR_OK) {
        rc = mr_array_start(&result, &d->values, rows ? rows : 1, st);
        if (rc == MR_OK)
            rc = mr_array_append_rows(&result, &d->values, index, rows, st);
    }
    if (rc == MR_OK) {
        mr_array_move(out, &result);
        rc = settle(l, flaws, above, rows, out, nulls, st);
    } else
        mr_free(flaws);
    mr_array_reset(&result);
    mr_free(index);
    mr_buffer_unref(keeper);
    return rc;
}

/* Reads only the validity of the structs of field i: marks those that are null. */
static mr_code load_struct(mr__arrow_loader *l, const batch *b, size_t i, size_t rows,
                           uint32_t **null, mr_status *st)
{
    mr_buffer *keeper;
    if (l->v[i].length < (int64_t)rows)
        return damaged(l->schema->v[i].name, "it has fewer rows than its batch", st);
    if (l->v[i].null_count == 0)
        return MR_OK;
    MR_TRY(read_buffers(l, b, i, i + 1, &keeper, st));
    const mr__arrow_way way = mr__arrow_way_to(l->schema, i, false);
    mr_code rc = check_validity(&l->schema->v[i], &l->v[i], st);
    if (rc == MR_OK)
        rc = mark_nulls(l->schema, l->v, &way, true, rows, null, st);
    mr_buffer_unref(keeper);
    return rc;
}

/* Structs nest at most as deep as a schema allows. above: as for settle. */
static mr_code load_field(mr__arrow_loader *l, const batch *b, size_t i, const mr_spec *spec,
                          const uint32_t *above, uint32_t **nulls, mr_array *columns, mr_status *st)
{
    const mr__arrow_schema *s = l->schema;
    const mr__arrow_field *a = &s->v[i];
    size_t rows = (size_t)b->rows;
    uint32_t *null = NULL;
    if (a->dictionary)
        return load_indices(l, b, i, rows, above, nulls, columns, st);
    if (a->kind != MR__ARROW_STRUCT)
        return load_column(l, b, i, false, spec, above, nulls, columns, st);
    mr_code rc = load_struct(l, b, i, rows, &null, st);
    for (size_t r = 0; r < rows && null && above; r++)
        null[r] |= above[r];
    for (size_t k = 0, child = i + 1; rc == MR_OK && k < a->n_children;
         k++, child = after(s, child)) {
        int64_t at = mr_spec_find(spec, s->v[child].name);
        if (at >= 0 && !mr__arrow_is_null(&s->v[child])) /* otherwise not requested, or a default */
            rc = load_field(l, b, child, mr_spec_child(spec, (size_t)at), null ? null : above,
                            nulls, columns + mr_spec_first_leaf(spec, (size_t)at), st);
    }
    mr_free(null);
    return rc;
}

mr_code mr__arrow_load_batch(mr__arrow_loader *l, mr__arrow_message *m, const mr__arrow_body *body,
                             mr_block *rows, uint32_t **nulls, mr_status *st)
{
    batch b;
    size_t n = mr_spec_n_leaves(l->spec);
    *nulls = NULL;
    MR_TRY(read_batch(&m->flat, &m->header, body, &b, st));
    MR_TRY(lay_out(l, &b, 0, l->schema->n, false, st));
    mr_code rc = mr_block_prepare(rows, n, st);
    l->leaves = rows->columns;
    for (size_t k = 0; k < l->n_columns && rc == MR_OK; k++)
        if (l->columns[k] != MISSING)
            rc = load_field(l, &b, l->columns[k], mr_spec_child(l->spec, k), NULL, nulls,
                            rows->columns + mr_spec_first_leaf(l->spec, k), st);
    for (size_t i = 0; i < n && rc == MR_OK; i++) /* what the file does not have */
        if (!rows->columns[i].owner && mr__table_has_default(l->defaults, i))
            rc = mr__table_repeat(&l->defaults[i], (size_t)b.rows, &rows->columns[i], st);
    l->leaves = NULL;
    if (rc == MR_OK) {
        rows->rows = (size_t)b.rows;
        return MR_OK;
    }
    mr_block_clear(rows);
    mr_free(*nulls);
    *nulls = NULL;
    return rc;
}

/* ---- dictionaries ---- */

/* Appends the n values of `more` with their nulls to those of d, whose capacity doubles. */
static mr_code add_values(dictionary *d, const mr_array *more, const uint32_t *nulls, mr_status *st)
{
    size_t before = d->values.rows, rows = before + more->rows;
    if (nulls || d->nulls) {
        bool first = !d->nulls;
        MR_TRY(MR_GROW(d->nulls, d->nulls_capacity, rows + 1, SIZE_MAX / 2, "a dictionary's nulls",
                       st));
        if (first)
            memset(d->nulls, 0, before);
        for (size_t i = 0; i < more->rows; i++)
            d->nulls[before + i] = nulls && nulls[i];
    }
    if (rows > d->capacity || !mr_buffer_writable(d->values.owner)) {
        mr_array larger = {0};
        size_t capacity = rows > 2 * d->capacity ? rows : 2 * d->capacity;
        MR_TRY(mr_array_start(&larger, more, capacity, st));
        mr_code rc = mr_array_append(&larger, &d->values, 0, before, st);
        if (rc != MR_OK) {
            mr_array_reset(&larger);
            return rc;
        }
        mr_array_reset(&d->values);
        mr_array_move(&d->values, &larger);
        d->capacity = capacity;
    }
    return mr_array_append(&d->values, more, 0, more->rows, st);
}

static mr_code take_dictionary(mr__arrow_loader *l, batch *b, dictionary *d, bool delta,
                               mr_status *st)
{
    mr_array values = {0};
    uint32_t *nulls = NULL;
    MR_TRY(lay_out(l, b, d->field, after(l->schema, d->field), true, st));
    MR_TRY(load_column(l, b, d->field, true, NULL, NULL, &nulls, &values, st));
    mr_code rc = MR_OK;
    if (!delta || !d->there) {
        mr_array_reset(&d->values);
        mr_free(d->nulls);
        *d = (dictionary){.field = d->field, .there = true, .capacity = values.rows};
        mr_array_move(&d->values, &values);
        if (nulls) {
            d->nulls = mr_calloc(d->capacity, 1);
            d->nulls_capacity = d->nulls ? d->capacity : 0;
            if (!d->nulls)
                rc = mr_fail_memory(st, d->capacity, "a dictionary's nulls");
        }
        for (size_t i = 0; i < d->capacity && d->nulls; i++)
            d->nulls[i] = nulls[i] != 0;
    } else
        rc = add_values(d, &values, nulls, st);
    mr_array_reset(&values);
    mr_free(nulls);
    return rc;
}

mr_code mr__arrow_load_dictionary(mr__arrow_loader *l, mr__arrow_message *m,
                                  const mr__arrow_body *body, mr_status *st)
{
    int64_t id = mr__flat_int(&m->flat, &m->header, 0, 8, 0);
    mr__flat_table data = mr__flat_child(&m->flat, &m->header, 1);
    bool delta = mr__flat_bool(&m->flat, &m->header, 2);
    batch b;
    if (m->flat.bad || !data.at)
        return damaged(NULL, "invalid dictionary", st);
    MR_TRY(read_batch(&m->flat, &data, body, &b, st));
    for (size_t i = 0; i < l->n_dictionaries; i++)
        if (l->schema->v[l->dictionaries[i].field].id == id)
            MR_TRY(take_dictionary(l, &b, &l->dictionaries[i], delta, st));
    return MR_OK;
}
