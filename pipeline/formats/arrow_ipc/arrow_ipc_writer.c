/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_writer.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc.h"
#include "pipeline/formats/compression_libraries.h"

enum { MOST_ROWS = 65536, BATCH_BYTES = 4 << 20, PADDING = 64, VERSION = 4, LEVEL = 3 };
#define MOST_BYTES (SIZE_MAX / 4)

typedef mr__table_bytes bytes;

typedef struct column {
    const mr__table_column *t;
    bytes ends[MR_MAX_RANK]; /* for such an axis: end of each list, int64 */
    bytes string_ends, values;
} column;

/* Place of a batch, as stored in the footer. */
typedef struct place {
    int64_t offset;
    int32_t metadata_bytes, zero;
    int64_t body_bytes;
} place;

/* Entry of a batch for a field or for a buffer. */
typedef struct pair {
    int64_t a, b;
} pair;

typedef struct arrow_writer {
    mr__table_writer base;
    mr_spec *spec;
    mr__table_column *described;
    column *columns;
    size_t n_columns, rows, batch_bytes;
    mr__table_put put;
    void *ctx;
    int64_t at; /* bytes written */
    mr__flat_writer flat;
    place *places;
    size_t n_places, places_capacity;
    ZSTD_CCtx *zstd; /* NULL: buffers are not compressed */
    /* of the batch being written */
    pair *nodes, *buffers;
    mr_bytes *data; /* of each buffer */
    size_t n_nodes, n_buffers, lists_capacity[3];
    bytes packed;
} arrow_writer;

static mr_code add(bytes *b, const void *data, size_t n, mr_status *st)
{
    return mr__table_add(b, data, n, MOST_BYTES, "a batch of rows", st);
}

/* ---- opening ---- */

static mr_code put_schema(arrow_writer *w, bool footer, mr_status *st);

static mr_code begin(arrow_writer *w, const mr__table_opts *o, mr_status *st)
{
    w->spec = mr_spec_ref(o->spec);
    MR_TRY(mr__table_columns(o, "Arrow", &w->described, &w->n_columns, st));
    w->columns = mr_calloc(w->n_columns, sizeof *w->columns);
    if (!w->columns)
        return mr_fail_memory(st, w->n_columns * sizeof *w->columns, "a writer of Arrow files");
    for (size_t i = 0; i < w->n_columns; i++)
        w->columns[i].t = &w->described[i];
    if (o->compression != MR_COMPRESSION_NONE) {
        MR_TRY(mr__zstd_need(st));
        w->zstd = mr__zstd.ZSTD_createCCtx_advanced(mr__zstd_memory());
        if (!w->zstd)
            return mr_fail_memory(st, 0, "zstd");
    }
    MR_TRY(w->put(w->ctx, MR__ARROW_FILE_HEAD, 8, st));
    w->at = 8;
    return put_schema(w, false, st);
}

static void close_writer(mr__table_writer *self)
{
    arrow_writer *w = (arrow_writer *)self;
    for (size_t i = 0; w->columns && i < w->n_columns; i++) {
        column *c = &w->columns[i];
        for (int k = 0; k < MR_MAX_RANK; k++)
            mr__table_bytes_reset(&c->ends[k]);
        mr__table_bytes_reset(&c->string_ends);
        mr__table_bytes_reset(&c->values);
    }
    mr_free(w->columns);
    mr__table_columns_free(w->described, w->n_columns);
    mr_spec_unref(w->spec);
    mr__flat_writer_reset(&w->flat);
    if (w->zstd)
        mr__zstd.ZSTD_freeCCtx(w->zstd);
    mr_free(w->places);
    mr_free(w->nodes);
    mr_free(w->buffers);
    mr_free(w->data);
    mr__table_bytes_reset(&w->packed);
    mr_free(w);
}

/* ---- rows ---- */

static mr_code add_ends(column *c, const mr_row *r, int k, mr_status *st)
{
    bytes *b = &c->ends[k];
    size_t n = mr__table_lists(r, k);
    if (n == 0)
        return MR_OK;
    MR_TRY(mr_grow(&b->v, &b->capacity, b->n + n * sizeof(int64_t), 1, MOST_BYTES,
                   "a batch of rows", st));
    int64_t *ends = (int64_t *)((char *)b->v + b->n), before = b->n ? ends[-1] : 0;
    for (size_t i = 0; i < n; i++) {
        before += r->splits && k == 1 ? r->splits[i + 1] - r->splits[i] : r->shape[k];
        ends[i] = before;
    }
    b->n += n * sizeof(int64_t);
    return MR_OK;
}

static mr_code add_strings(column *c, const mr_bytes *v, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        MR_TRY(add(&c->values, v[i].data, v[i].size, st));
        int64_t end = (int64_t)c->values.n;
        MR_TRY(add(&c->string_ends, &end, sizeof end, st));
    }
    return MR_OK;
}

static mr_code add_row(column *c, const mr_array *a, size_t row, mr_status *st)
{
    const mr__table_column *t = c->t;
    mr_row r;
    MR_TRY(mr__table_row(t, "Arrow", a, row, &r, st));
    for (int k = 0; k < t->rank; k++)
        if (t->shape[k] < 0)
            MR_TRY(add_ends(c, &r, k, st));
    size_t n = mr__table_lists(&r, t->rank);
    return t->dtype == MR_STRING ? add_strings(c, r.data, n, st)
                                 : add(&c->values, r.data, n * mr_dtype_size(t->dtype), st);
}

static mr_code put_batch(arrow_writer *w, mr_status *st);

static mr_code append(mr__table_writer *self, const mr_block *b, size_t row, mr_status *st)
{
    arrow_writer *w = (arrow_writer *)self;
    size_t held = 0;
    for (size_t i = 0; i < w->n_columns; i++) {
        MR_TRY(add_row(&w->columns[i], &b->columns[i], row, st));
        held += w->columns[i].values.n;
    }
    w->rows++;
    return held >= w->batch_bytes || w->rows == MOST_ROWS ? put_batch(w, st) : MR_OK;
}

/* ---- messages ---- */

static mr_code put_bytes(arrow_writer *w, const void *data, size_t n, mr_status *st)
{
    w->at += (int64_t)n;
    return n ? w->put(w->ctx, data, n, st) : MR_OK;
}

static mr_code put_zeros(arrow_writer *w, size_t n, mr_status *st)
{
    static const char zeros[PADDING];
    return put_bytes(w, zeros, n, st);
}

/* Writes the message whose header, of that kind, is at `header` in the buffer. */
static mr_code put_message(arrow_writer *w, int kind, size_t header, int64_t body_bytes,
                           int32_t *metadata_bytes, mr_status *st)
{
    mr__flat_writer *f = &w->flat;
    mr_bytes v;
    mr__flat_begin_table(f);
    mr__flat_put_int(f, 3, 8, body_bytes);
    mr__flat_put_place(f, 2, header);
    mr__flat_put_int(f, 0, 2, VERSION);
    mr__flat_put_int(f, 1, 1, kind);
    MR_TRY(mr__flat_finish(f, mr__flat_end_table(f), &v, st));
    uint32_t head[2] = {UINT32_MAX, (uint32_t)v.size};
    *metadata_bytes = (int32_t)(v.size + sizeof head);
    MR_TRY(put_bytes(w, head, sizeof head, st));
    return put_bytes(w, v.data, v.size, st);
}

/* ---- the schema ---- */

/* Writes the table of the type of values; *kind: its number. */
static size_t put_type(mr__flat_writer *f, mr_dtype t, int *kind)
{
    mr__flat_begin_table(f);
    if (t == MR_STRING)
        *kind = MR__ARROW_LARGE_BINARY;
    else if (t == MR_BOOL)
        *kind = MR__ARROW_BOOL;
    else if (mr_dtype_is_floating(t)) {
        *kind = MR__ARROW_FLOAT;
        mr__flat_put_int(f, 0, 2, t == MR_FLOAT16 ? 0 : t == MR_FLOAT32 ? 1 : 2);
    } else {
        bool is_signed = t == MR_INT8 || t == MR_INT16 || t == MR_INT32 || t == MR_INT64;
        *kind = MR__ARROW_INT;
        mr__flat_put_int(f, 0, 4, 8 * (int64_t)mr_dtype_size(t));
        mr__flat_put_int(f, 1, 1, is_signed);
    }
    return mr__flat_end_table(f);
}

/* Ends a field with that type and these children. */
static size_t end_field(mr__flat_writer *f, const char *name, int kind, size_t type,
                        size_t children)
{
    size_t text = mr__flat_put_string(f, name, strlen(name));
    mr__flat_begin_table(f);
    mr__flat_put_place(f, 0, text);
    mr__flat_put_place(f, 3, type);
    mr__flat_put_place(f, 5, children);
    mr__flat_put_int(f, 2, 1, kind);
    return mr__flat_end_table(f);
}

/* Writes axis k of the column; k = rank: its values. */
static size_t put_leaf(mr__flat_writer *f, const mr__table_column *c, int k, const char *name)
{
    int kind;
    size_t child = k < c->rank ? put_leaf(f, c, k + 1, "item") : 0, type;
    size_t children = mr__flat_put_places(f, &child, k < c->rank);
    if (k == c->rank)
        type = put_type(f, c->dtype, &kind);
    else {
        kind = c->shape[k] < 0 ? MR__ARROW_LARGE_LIST : MR__ARROW_FIXED_LIST;
        mr__flat_begin_table(f);
        if (c->shape[k] >= 0)
            mr__flat_put_int(f, 0, 4, c->shape[k]);
        type = mr__flat_end_table(f);
    }
    return end_field(f, name, kind, type, children);
}

static mr_code put_children(arrow_writer *w, const mr_spec *s, size_t *leaf, size_t *list,
                            mr_status *st);

/* Writes s, whose leaves begin at *leaf, and advances *leaf past them. */
static mr_code put_field(arrow_writer *w, const mr_spec *s, const char *name, size_t *leaf,
                         size_t *out, mr_status *st)
{
    mr__flat_writer *f = &w->flat;
    size_t children;
    if (mr_spec_kind_of(s) == MR_SPEC_LEAF) {
        *out = put_leaf(f, &w->described[(*leaf)++], 0, name);
        return MR_OK;
    }
    MR_TRY(put_children(w, s, leaf, &children, st));
    mr__flat_begin_table(f);
    *out = end_field(f, name, MR__ARROW_STRUCT, mr__flat_end_table(f), children);
    return MR_OK;
}

static mr_code put_children(arrow_writer *w, const mr_spec *s, size_t *leaf, size_t *list,
                            mr_status *st)
{
    size_t n = mr_spec_n_children(s);
    size_t *fields = mr_malloc((n + 1) * sizeof *fields);
    mr_code rc = fields ? MR_OK : mr_fail_memory(st, n * sizeof *fields, "a schema");
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        char number[MR__TABLE_NUMBER];
        rc = put_field(w, mr_spec_child(s, i), mr__table_child(s, i, number), leaf, &fields[i], st);
    }
    if (rc == MR_OK)
        *list = mr__flat_put_places(&w->flat, fields, n);
    mr_free(fields);
    return rc;
}

/* As a message, or in the footer of the file. */
static mr_code put_schema(arrow_writer *w, bool footer, mr_status *st)
{
    mr__flat_writer *f = &w->flat;
    size_t leaf = 0, list;
    int32_t unused;
    mr_bytes v;
    mr__flat_writer_clear(f);
    if (mr_spec_kind_of(w->spec) == MR_SPEC_LEAF) {
        size_t value = put_leaf(f, &w->described[0], 0, w->described[0].name);
        list = mr__flat_put_places(f, &value, 1);
    } else
        MR_TRY(put_children(w, w->spec, &leaf, &list, st));
    mr__flat_begin_table(f);
    mr__flat_put_place(f, 1, list);
    size_t schema = mr__flat_end_table(f);
    if (!footer)
        return put_message(w, MR__ARROW_IS_SCHEMA, schema, 0, &unused, st);
    size_t batches = mr__flat_put_structs(f, w->places, w->n_places, sizeof *w->places);
    size_t dictionaries = mr__flat_put_structs(f, NULL, 0, sizeof *w->places);
    mr__flat_begin_table(f);
    mr__flat_put_place(f, 1, schema);
    mr__flat_put_place(f, 2, dictionaries);
    mr__flat_put_place(f, 3, batches);
    mr__flat_put_int(f, 0, 2, VERSION);
    MR_TRY(mr__flat_finish(f, mr__flat_end_table(f), &v, st));
    if (v.size > INT32_MAX)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "an Arrow file has too many batches");
    const uint32_t size = (uint32_t)v.size;
    MR_TRY(put_bytes(w, v.data, v.size, st));
    MR_TRY(put_bytes(w, &size, sizeof size, st));
    return put_bytes(w, MR__ARROW_FILE_HEAD, 6, st);
}

/* ---- batches ---- */

static mr_code add_node(arrow_writer *w, size_t length, mr_status *st)
{
    MR_TRY(MR_GROW(w->nodes, w->lists_capacity[0], w->n_nodes + 1, INT32_MAX,
                   "the fields of a batch", st));
    w->nodes[w->n_nodes++] = (pair){(int64_t)length, 0};
    return MR_OK;
}

static mr_code add_buffer(arrow_writer *w, const void *data, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(w->buffers, w->lists_capacity[1], w->n_buffers + 1, INT32_MAX,
                   "the buffers of a batch", st));
    MR_TRY(MR_GROW(w->data, w->lists_capacity[2], w->n_buffers + 1, INT32_MAX,
                   "the buffers of a batch", st));
    w->data[w->n_buffers++] = (mr_bytes){data, n};
    return MR_OK;
}

/* Writes the ends with a leading 0. */
static mr_code add_offsets(arrow_writer *w, bytes *ends, mr_status *st)
{
    int64_t zero = 0;
    MR_TRY(add(ends, &zero, sizeof zero, st));
    memmove((char *)ends->v + sizeof zero, ends->v, ends->n - sizeof zero);
    memcpy(ends->v, &zero, sizeof zero);
    return add_buffer(w, ends->v, ends->n, st);
}

static mr_code add_column(arrow_writer *w, column *c, mr_status *st)
{
    size_t length = w->rows;
    for (int k = 0; k < c->t->rank; k++) {
        MR_TRY(add_node(w, length, st));
        MR_TRY(add_buffer(w, NULL, 0, st));
        if (c->t->shape[k] >= 0) {
            length *= (size_t)c->t->shape[k];
            continue;
        }
        const int64_t *ends = c->ends[k].v;
        size_t n = c->ends[k].n / sizeof *ends;
        length = n ? (size_t)ends[n - 1] : 0;
        MR_TRY(add_offsets(w, &c->ends[k], st));
    }
    MR_TRY(add_node(w, length, st));
    MR_TRY(add_buffer(w, NULL, 0, st));
    if (c->t->dtype == MR_STRING)
        MR_TRY(add_offsets(w, &c->string_ends, st));
    if (c->t->dtype == MR_BOOL)
        mr__table_pack_bits(&c->values);
    return add_buffer(w, c->values.v, c->values.n, st);
}

/* As put_field: a node and the validity of each struct, then its fields. */
static mr_code add_field(arrow_writer *w, const mr_spec *s, size_t *leaf, bool inner, mr_status *st)
{
    if (mr_spec_kind_of(s) == MR_SPEC_LEAF)
        return add_column(w, &w->columns[(*leaf)++], st);
    if (inner) {
        MR_TRY(add_node(w, w->rows, st));
        MR_TRY(add_buffer(w, NULL, 0, st));
    }
    for (size_t i = 0; i < mr_spec_n_children(s); i++)
        MR_TRY(add_field(w, mr_spec_child(s, i), leaf, true, st));
    return MR_OK;
}

/* Appends buffer i to w->packed in the form of a compressed file: its length, then a frame, or the
 * bytes themselves if the frame would not be shorter. */
static mr_code pack(arrow_writer *w, size_t i, mr_status *st)
{
    mr_bytes v = w->data[i];
    size_t before = w->packed.n, bound = mr__zstd.ZSTD_compressBound(v.size);
    int64_t length = (int64_t)v.size;
    if (v.size == 0)
        return MR_OK;
    MR_TRY(add(&w->packed, &length, sizeof length, st));
    MR_TRY(mr_grow(&w->packed.v, &w->packed.capacity, w->packed.n + bound, 1, MOST_BYTES,
                   "a compressed buffer", st));
    size_t n = mr__zstd.ZSTD_compressCCtx(w->zstd, (char *)w->packed.v + w->packed.n, bound, v.data,
                                          v.size, LEVEL);
    if (mr__zstd.ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
        return mr_fail_memory(st, bound, "zstd");
    if (mr__zstd.ZSTD_isError(n))
        return mr_fail(st, MR_INTERNAL, "zstd failed to compress: %s",
                       mr__zstd.ZSTD_getErrorName(n));
    if (n < v.size) {
        w->packed.n += n;
        return MR_OK;
    }
    w->packed.n = before;
    length = -1;
    MR_TRY(add(&w->packed, &length, sizeof length, st));
    return add(&w->packed, v.data, v.size, st);
}

/* Compresses all buffers; w->data then has the compressed ones. */
static mr_code pack_all(arrow_writer *w, mr_status *st)
{
    w->packed.n = 0;
    for (size_t i = 0; i < w->n_buffers; i++) {
        size_t before = w->packed.n;
        MR_TRY(pack(w, i, st));
        w->data[i].size = w->packed.n - before;
    }
    for (size_t i = 0, at = 0; i < w->n_buffers; at += w->data[i++].size)
        w->data[i].data = (const char *)w->packed.v + at;
    return MR_OK;
}

static size_t padded(size_t n)
{
    return (n + PADDING - 1) / PADDING * PADDING;
}

static mr_code put_lists(arrow_writer *w, mr_status *st)
{
    mr__flat_writer *f = &w->flat;
    size_t body = 0, packing = 0;
    for (size_t i = 0; i < w->n_buffers; body += padded(w->data[i++].size))
        w->buffers[i] = (pair){(int64_t)body, (int64_t)w->data[i].size};
    mr__flat_writer_clear(f);
    size_t buffers = mr__flat_put_structs(f, w->buffers, w->n_buffers, sizeof *w->buffers);
    size_t nodes = mr__flat_put_structs(f, w->nodes, w->n_nodes, sizeof *w->nodes);
    if (w->zstd) {
        mr__flat_begin_table(f);
        mr__flat_put_int(f, 0, 1, MR__ARROW_ZSTD);
        packing = mr__flat_end_table(f);
    }
    mr__flat_begin_table(f);
    mr__flat_put_int(f, 0, 8, (int64_t)w->rows);
    mr__flat_put_place(f, 1, nodes);
    mr__flat_put_place(f, 2, buffers);
    mr__flat_put_place(f, 3, packing);
    size_t header = mr__flat_end_table(f);
    MR_TRY(MR_GROW(w->places, w->places_capacity, w->n_places + 1, INT32_MAX,
                   "the batches of a file", st));
    place *p = &w->places[w->n_places];
    *p = (place){.offset = w->at, .body_bytes = (int64_t)body};
    MR_TRY(put_message(w, MR__ARROW_IS_BATCH, header, (int64_t)body, &p->metadata_bytes, st));
    for (size_t i = 0; i < w->n_buffers; i++) {
        size_t n = w->data[i].size;
        MR_TRY(put_bytes(w, w->data[i].data, n, st));
        MR_TRY(put_zeros(w, padded(n) - n, st));
    }
    w->n_places++;
    return MR_OK;
}

static mr_code put_batch(arrow_writer *w, mr_status *st)
{
    size_t leaf = 0;
    w->n_nodes = w->n_buffers = 0;
    MR_TRY(add_field(w, w->spec, &leaf, false, st));
    if (w->zstd)
        MR_TRY(pack_all(w, st));
    MR_TRY(put_lists(w, st));
    for (size_t i = 0; i < w->n_columns; i++) {
        column *c = &w->columns[i];
        for (int k = 0; k < c->t->rank; k++)
            c->ends[k].n = 0;
        c->string_ends.n = c->values.n = 0;
    }
    w->rows = 0;
    return MR_OK;
}

static mr_code finish(mr__table_writer *self, mr_status *st)
{
    arrow_writer *w = (arrow_writer *)self;
    static const uint32_t end[2] = {UINT32_MAX, 0};
    if (w->rows)
        MR_TRY(put_batch(w, st));
    MR_TRY(put_bytes(w, end, sizeof end, st));
    return put_schema(w, true, st);
}

int64_t mr__arrow_writer_memory(int64_t most_bytes, mr_compression c)
{
    int64_t batch = most_bytes < BATCH_BYTES ? most_bytes : BATCH_BYTES;
    return batch + batch / 4 + (c == MR_COMPRESSION_NONE ? 0 : batch);
}

mr_code mr__arrow_writer_open(mr__table_writer **out, const mr__table_opts *o, mr_status *st)
{
    static const mr__table_class class_ = {append, finish, close_writer};
    if (o->compression != MR_COMPRESSION_NONE && o->compression != MR_COMPRESSION_ZSTD)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the buffers of Arrow files are compressed by ZSTD, not by %s",
                       mr_compression_name(o->compression));
    arrow_writer *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a writer of Arrow files");
    w->base.class_ = &class_;
    w->batch_bytes = o->most_bytes < BATCH_BYTES ? o->most_bytes : BATCH_BYTES;
    w->put = o->put;
    w->ctx = o->ctx;
    mr_code rc = begin(w, o, st);
    if (rc == MR_OK)
        *out = &w->base;
    else
        close_writer(&w->base);
    return rc;
}
