/* SPDX-License-Identifier: Apache-2.0 */
/* Each column has a growing page and the finished pages of the row group, which are written when
 * the group is full: the chunks of a group are consecutive in the file. */
#include "pipeline/formats/parquet/parquet_writer.h"

#include <string.h>

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/formats/parquet/parquet_codec.h"
#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/parquet/thrift_compact.h"
#include "pipeline/varint.h"

enum { PAGE_BYTES = 1 << 20, PAGE_ENTRIES = 1 << 20, GROUP_ROWS = 1 << 20 };
#define MOST_PAGE  ((size_t)INT32_MAX)
#define MOST_CHUNK ((size_t)1 << 40)

typedef mr__table_bytes bytes;

typedef struct field {
    const mr__table_column *t; /* element of the writer's columns */
    mr__parquet_type type;
    bytes values;                   /* of the page; a byte for each bool */
    bytes repetitions, definitions; /* of the page, a byte for each entry of a list */
    size_t entries;                 /* of the page */
    bytes pages;                    /* finished pages of the group */
    int64_t in_pages, raw;          /* entries in them, and their uncompressed bytes */
} field;

/* Footer entry of a chunk. */
typedef struct chunk {
    int64_t offset, size, raw, entries;
} chunk;

typedef struct parquet_writer {
    mr__table_writer base;
    mr__table_put put;
    void *ctx;
    mr_compression compression;
    int64_t offset;
    size_t group_bytes, n;
    mr_spec *spec;
    mr__table_column *columns;
    field *fields;
    int64_t rows, bytes; /* of the group */
    int64_t all_rows;
    size_t n_groups, groups_room, chunks_room;
    int64_t *groups; /* rows of each */
    chunk *chunks;   /* n for each group */
    bytes page, packed;
} parquet_writer;

static mr_code append(bytes *b, const void *p, size_t n, size_t most, mr_status *st)
{
    return mr__table_add(b, p, n, most, "a Parquet file", st);
}

/* ---- opening ---- */

static mr__parquet_type type_of(mr_dtype t)
{
    static const mr__parquet_type types[MR_N_DTYPES] = {
        [MR_BOOL] = MR__PARQUET_BOOLEAN,     [MR_INT8] = MR__PARQUET_INT32,
        [MR_INT16] = MR__PARQUET_INT32,      [MR_INT32] = MR__PARQUET_INT32,
        [MR_INT64] = MR__PARQUET_INT64,      [MR_UINT8] = MR__PARQUET_INT32,
        [MR_UINT16] = MR__PARQUET_INT32,     [MR_UINT32] = MR__PARQUET_INT32,
        [MR_UINT64] = MR__PARQUET_INT64,     [MR_FLOAT16] = MR__PARQUET_FIXED,
        [MR_FLOAT32] = MR__PARQUET_FLOAT,    [MR_FLOAT64] = MR__PARQUET_DOUBLE,
        [MR_STRING] = MR__PARQUET_BYTE_ARRAY};
    return types[t];
}

static mr_code put(parquet_writer *w, const void *p, size_t n, mr_status *st)
{
    MR_TRY(w->put(w->ctx, p, n, st));
    w->offset += (int64_t)n;
    return MR_OK;
}

static mr_code begin(parquet_writer *w, const mr__table_opts *o, mr_status *st)
{
    MR_TRY(mr__zlib_need(st)); /* for checksums */
    w->spec = mr_spec_ref(o->spec);
    MR_TRY(mr__table_columns(o, "Parquet", &w->columns, &w->n, st));
    w->fields = mr_calloc(w->n, sizeof *w->fields);
    if (!w->fields)
        return mr_fail_memory(st, w->n * sizeof *w->fields, "a writer of Parquet files");
    for (size_t i = 0; i < w->n; i++)
        w->fields[i] = (field){.t = &w->columns[i], .type = type_of(w->columns[i].dtype)};
    return put(w, MR__PARQUET_MAGIC, 4, st);
}

static void close_writer(mr__table_writer *self)
{
    parquet_writer *w = (parquet_writer *)self;
    for (size_t i = 0; w->fields && i < w->n; i++) {
        field *f = &w->fields[i];
        mr__table_bytes_reset(&f->values);
        mr__table_bytes_reset(&f->repetitions);
        mr__table_bytes_reset(&f->definitions);
        mr__table_bytes_reset(&f->pages);
    }
    mr__table_bytes_reset(&w->page);
    mr__table_bytes_reset(&w->packed);
    mr__table_columns_free(w->columns, w->n);
    mr_spec_unref(w->spec);
    mr_free(w->fields);
    mr_free(w->groups);
    mr_free(w->chunks);
    mr_free(w);
}

/* ---- pages ---- */

/* Writes levels from 0 to `most` as one bit-packed run, preceded by its size. */
static mr_code put_levels(bytes *page, const bytes *levels, int most, mr_status *st)
{
    size_t groups = (levels->n + 7) / 8, head = groups << 1 | 1, width = 1;
    const uint8_t *v = levels->v;
    uint8_t first[4 + MR__VARINT_MOST];
    size_t n = (size_t)(mr__varint_put(first + 4, head) - first);
    while (most >> width)
        width++;
    uint32_t size = (uint32_t)(n - 4 + groups * width);
    memcpy(first, &size, sizeof size);
    MR_TRY(append(page, first, n, MOST_PAGE, st));
    for (size_t i = 0; i < levels->n; i += 8) { /* eight levels take `width` bytes */
        uint64_t packed = 0;
        for (size_t k = 0; k < 8 && i + k < levels->n; k++)
            packed |= (uint64_t)v[i + k] << (k * width);
        MR_TRY(append(page, &packed, width, MOST_PAGE, st)); /* little-endian */
    }
    return MR_OK;
}

/* Compresses w->page into w->packed. */
static mr_code pack(parquet_writer *w, mr_status *st)
{
    mr__codec *c;
    mr__codec_io io = {.in = w->page.v, .n_in = w->page.n};
    w->packed.n = 0;
    MR_TRY(mr__codec_encode_open(&c, w->compression, st));
    mr_code rc = MR_OK;
    while (rc == MR_OK) {
        size_t room = w->packed.capacity - w->packed.n;
        if (room < 1024) {
            rc = mr_grow(&w->packed.v, &w->packed.capacity, w->packed.n + (64 << 10), 1, MOST_PAGE,
                         "a Parquet file", st);
            continue;
        }
        io.out = (uint8_t *)w->packed.v + w->packed.n;
        io.n_out = room;
        rc = c->class_->step(c, &io, true, st);
        w->packed.n += room - io.n_out;
    }
    mr__codec_close(c);
    return rc == MR_END ? MR_OK : rc;
}

static mr_code end_page(parquet_writer *w, field *f, mr_status *st)
{
    mr__thrift_w head = {0};
    bytes *body = &w->page;
    if (f->entries == 0)
        return MR_OK;
    w->page.n = 0;
    if (f->t->rank) {
        MR_TRY(put_levels(&w->page, &f->repetitions, f->t->rank, st));
        MR_TRY(put_levels(&w->page, &f->definitions, f->t->rank, st));
    }
    if (f->t->dtype == MR_BOOL)
        mr__table_pack_bits(&f->values);
    MR_TRY(append(&w->page, f->values.v, f->values.n, MOST_PAGE, st));
    if (w->compression != MR_COMPRESSION_NONE) {
        MR_TRY(pack(w, st));
        body = &w->packed;
    }
    uint32_t crc = (uint32_t)mr__zlib.crc32_z(0, body->v, body->n);
    mr__thrift_put_int(&head, 1, MR__THRIFT_I32, MR__PARQUET_DATA_PAGE);
    mr__thrift_put_int(&head, 2, MR__THRIFT_I32, (int64_t)w->page.n);
    mr__thrift_put_int(&head, 3, MR__THRIFT_I32, (int64_t)body->n);
    mr__thrift_put_int(&head, 4, MR__THRIFT_I32, (int32_t)crc);
    mr__thrift_put_struct(&head, 5);
    mr__thrift_put_int(&head, 1, MR__THRIFT_I32, (int64_t)f->entries);
    mr__thrift_put_int(&head, 2, MR__THRIFT_I32, MR__PARQUET_PLAIN);
    mr__thrift_put_int(&head, 3, MR__THRIFT_I32, MR__PARQUET_RLE);
    mr__thrift_put_int(&head, 4, MR__THRIFT_I32, MR__PARQUET_RLE);
    mr__thrift_put_end(&head);
    mr__thrift_put_end(&head);
    mr_code rc = head.failed == MR_OK ? MR_OK : mr_fail_memory(st, head.n, "a Parquet file");
    if (rc == MR_OK)
        rc = append(&f->pages, head.v, head.n, MOST_CHUNK, st);
    if (rc == MR_OK)
        rc = append(&f->pages, body->v, body->n, MOST_CHUNK, st);
    f->raw += (int64_t)(head.n + w->page.n);
    f->in_pages += (int64_t)f->entries;
    mr__thrift_w_reset(&head);
    f->entries = f->values.n = f->repetitions.n = f->definitions.n = 0;
    return rc;
}

static mr_code end_group(parquet_writer *w, mr_status *st)
{
    if (w->rows == 0)
        return MR_OK;
    mr_code rc =
        MR_GROW(w->groups, w->groups_room, w->n_groups + 1, SIZE_MAX / 64, "a Parquet file", st);
    if (rc == MR_OK)
        rc = MR_GROW(w->chunks, w->chunks_room, (w->n_groups + 1) * w->n, SIZE_MAX / 64,
                     "a Parquet file", st);
    for (size_t i = 0; i < w->n && rc == MR_OK; i++) {
        field *f = &w->fields[i];
        rc = end_page(w, f, st);
        w->chunks[w->n_groups * w->n + i] = (chunk){.offset = w->offset,
                                                    .size = (int64_t)f->pages.n,
                                                    .raw = f->raw,
                                                    .entries = f->in_pages};
        if (rc == MR_OK)
            rc = put(w, f->pages.v, f->pages.n, st);
        f->pages.n = 0;
        f->raw = f->in_pages = 0;
    }
    if (rc != MR_OK)
        return rc;
    w->groups[w->n_groups++] = w->rows;
    w->all_rows += w->rows;
    w->rows = w->bytes = 0;
    return MR_OK;
}

/* ---- rows ---- */

/* Appends n values to the page in the encoding of the format. */
static mr_code add_values(field *f, const void *v, size_t n, mr_status *st)
{
    mr_dtype dtype = f->t->dtype;
    size_t size = mr_dtype_size(dtype);
    if (dtype == MR_STRING) {
        const mr_bytes *s = v;
        for (size_t i = 0; i < n; i++) {
            uint32_t length = (uint32_t)s[i].size;
            if (s[i].size > INT32_MAX)
                return mr_fail(st, MR_INVALID_ARGUMENT, "a string of %zu bytes", s[i].size);
            MR_TRY(append(&f->values, &length, sizeof length, MOST_PAGE, st));
            MR_TRY(append(&f->values, s[i].data, s[i].size, MOST_PAGE, st));
        }
        return MR_OK;
    }
    if (f->type != MR__PARQUET_INT32 || size == 4)
        return append(&f->values, v, n * size, MOST_PAGE, st);
    for (size_t i = 0; i < n; i++) {
        int32_t wide = dtype == MR_INT8    ? ((const int8_t *)v)[i]
                       : dtype == MR_INT16 ? ((const int16_t *)v)[i]
                       : dtype == MR_UINT8 ? ((const uint8_t *)v)[i]
                                           : ((const uint16_t *)v)[i];
        MR_TRY(append(&f->values, &wide, sizeof wide, MOST_PAGE, st));
    }
    return MR_OK;
}

/* Adds a value if `definition` is the number of axes, an empty list if it is less. The lists of the
 * first `repetition` axes continue from the previous entry. */
static mr_code add_entry(field *f, int repetition, int definition, mr_status *st)
{
    const uint8_t r = (uint8_t)repetition, d = (uint8_t)definition;
    MR_TRY(append(&f->repetitions, &r, 1, MOST_PAGE, st));
    MR_TRY(append(&f->definitions, &d, 1, MOST_PAGE, st));
    f->entries++;
    return MR_OK;
}

/* Adds the entries of list i of axis k. */
static mr_code add_list(field *f, const mr_row *r, int k, int64_t i, int repetition, mr_status *st)
{
    int64_t n = r->splits && k == 1 ? r->splits[i + 1] - r->splits[i] : r->shape[k];
    if (n == 0)
        return add_entry(f, repetition, k, st);
    for (int64_t j = 0; j < n; j++) {
        int of = j ? k + 1 : repetition;
        MR_TRY(k + 1 == f->t->rank ? add_entry(f, of, k + 1, st)
                                   : add_list(f, r, k + 1, j, of, st));
    }
    return MR_OK;
}

static mr_code add_row(parquet_writer *w, size_t i, const mr_array *a, size_t row, mr_status *st)
{
    field *f = &w->fields[i];
    size_t before = f->values.n;
    mr_row r;
    MR_TRY(mr__table_row(f->t, "Parquet", a, row, &r, st));
    MR_TRY(add_values(f, r.data, mr__table_lists(&r, f->t->rank), st));
    if (f->t->rank)
        MR_TRY(add_list(f, &r, 0, 0, 0, st));
    else
        f->entries++;
    w->bytes += (int64_t)(f->values.n - before);
    return f->values.n >= PAGE_BYTES || f->entries >= PAGE_ENTRIES ? end_page(w, f, st) : MR_OK;
}

static mr_code append_row(mr__table_writer *self, const mr_block *b, size_t row, mr_status *st)
{
    parquet_writer *w = (parquet_writer *)self;
    for (size_t i = 0; i < w->n; i++)
        MR_TRY(add_row(w, i, &b->columns[i], row, st));
    w->rows++;
    return w->rows >= GROUP_ROWS || (size_t)w->bytes >= w->group_bytes ? end_group(w, st) : MR_OK;
}

/* ---- footer ---- */

static void put_name(mr__thrift_w *t, const char *name)
{
    mr__thrift_put_bytes(t, 4, name, strlen(name));
}

/* The logical type of a value, where INT32, INT64 and FIXED are ambiguous. */
static void put_logical(mr__thrift_w *t, mr_dtype dtype)
{
    static const struct {
        int8_t bits;
        bool is_signed;
        int8_t converted;
    } of[MR_N_DTYPES] = {[MR_INT8] = {8, true, 15},     [MR_INT16] = {16, true, 16},
                         [MR_UINT8] = {8, false, 11},   [MR_UINT16] = {16, false, 12},
                         [MR_UINT32] = {32, false, 13}, [MR_UINT64] = {64, false, 14}};
    if (dtype == MR_FLOAT16) {
        mr__thrift_put_struct(t, 10);
        mr__thrift_put_struct(t, 15);
        mr__thrift_put_end(t);
        mr__thrift_put_end(t);
    } else if (of[dtype].bits) {
        mr__thrift_put_int(t, 6, MR__THRIFT_I32, of[dtype].converted);
        mr__thrift_put_struct(t, 10);
        mr__thrift_put_struct(t, 10);
        mr__thrift_put_int(t, 1, MR__THRIFT_I8, of[dtype].bits);
        mr__thrift_put_bool(t, 2, of[dtype].is_signed);
        mr__thrift_put_end(t);
        mr__thrift_put_end(t);
    }
}

static void put_leaf(mr__thrift_w *t, const field *f, const char *name)
{
    mr_dtype dtype = f->t->dtype;
    mr__thrift_item_struct(t);
    mr__thrift_put_int(t, 1, MR__THRIFT_I32, (int64_t)f->type);
    if (f->type == MR__PARQUET_FIXED)
        mr__thrift_put_int(t, 2, MR__THRIFT_I32, (int64_t)mr_dtype_size(dtype));
    mr__thrift_put_int(t, 3, MR__THRIFT_I32, MR__PARQUET_REQUIRED);
    put_name(t, name);
    put_logical(t, dtype);
    mr__thrift_put_end(t);
}

/* Begins a group of the n nodes that follow. The caller ends it. */
static void begin_group(mr__thrift_w *t, const char *name, int repetition, size_t n)
{
    mr__thrift_item_struct(t);
    mr__thrift_put_int(t, 3, MR__THRIFT_I32, repetition);
    put_name(t, name);
    mr__thrift_put_int(t, 5, MR__THRIFT_I32, (int64_t)n);
}

/* A list in a list for each axis. */
static void put_column(mr__thrift_w *t, const field *f, const char *name)
{
    enum { LIST = 3 };
    for (int k = 0; k < f->t->rank; k++) {
        begin_group(t, k ? "element" : name, MR__PARQUET_REQUIRED, 1);
        mr__thrift_put_int(t, 6, MR__THRIFT_I32, LIST);
        mr__thrift_put_struct(t, 10);
        mr__thrift_put_struct(t, LIST);
        mr__thrift_put_end(t);
        mr__thrift_put_end(t);
        mr__thrift_put_end(t);
        begin_group(t, "list", MR__PARQUET_REPEATED, 1);
        mr__thrift_put_end(t);
    }
    put_leaf(t, f, f->t->rank ? "element" : name);
}

/* Writes the nodes of the components of s, whose leaves begin at *leaf. */
static void put_nodes(mr__thrift_w *t, const parquet_writer *w, const mr_spec *s, size_t *leaf)
{
    for (size_t i = 0; i < mr_spec_n_children(s); i++) {
        char number[MR__TABLE_NUMBER];
        const char *name = mr__table_child(s, i, number);
        const mr_spec *child = mr_spec_child(s, i);
        if (mr_spec_kind_of(child) == MR_SPEC_LEAF) {
            put_column(t, &w->fields[(*leaf)++], name);
            continue;
        }
        begin_group(t, name, MR__PARQUET_REQUIRED, mr_spec_n_children(child));
        mr__thrift_put_end(t);
        put_nodes(t, w, child, leaf);
    }
}

/* Groups in s, without s itself. */
static size_t count_groups(const mr_spec *s)
{
    size_t n = 0;
    for (size_t i = 0; i < mr_spec_n_children(s); i++)
        if (mr_spec_kind_of(mr_spec_child(s, i)) != MR_SPEC_LEAF)
            n += 1 + count_groups(mr_spec_child(s, i));
    return n;
}

static void put_chunk(mr__thrift_w *t, const parquet_writer *w, const field *f, const chunk *c)
{
    static const int8_t codecs[] = {[MR_COMPRESSION_NONE] = MR__PARQUET_UNCOMPRESSED,
                                    [MR_COMPRESSION_GZIP] = MR__PARQUET_GZIP,
                                    [MR_COMPRESSION_ZSTD] = MR__PARQUET_ZSTD};
    mr__thrift_item_struct(t);
    mr__thrift_put_int(t, 2, MR__THRIFT_I64, c->offset);
    mr__thrift_put_struct(t, 3);
    mr__thrift_put_int(t, 1, MR__THRIFT_I32, (int64_t)f->type);
    mr__thrift_put_list(t, 2, MR__THRIFT_I32, 2);
    mr__thrift_item_int(t, MR__PARQUET_PLAIN);
    mr__thrift_item_int(t, MR__PARQUET_RLE);
    mr__thrift_put_list(t, 3, MR__THRIFT_BINARY, f->t->n_parts + 2 * (size_t)f->t->rank);
    const char *part = f->t->path;
    for (size_t i = 0; i < f->t->n_parts; i++, part += strlen(part) + 1)
        mr__thrift_item_bytes(t, part, strlen(part));
    for (int k = 0; k < f->t->rank; k++) {
        mr__thrift_item_bytes(t, "list", 4);
        mr__thrift_item_bytes(t, "element", 7);
    }
    mr__thrift_put_int(t, 4, MR__THRIFT_I32, codecs[w->compression]);
    mr__thrift_put_int(t, 5, MR__THRIFT_I64, c->entries);
    mr__thrift_put_int(t, 6, MR__THRIFT_I64, c->raw);
    mr__thrift_put_int(t, 7, MR__THRIFT_I64, c->size);
    mr__thrift_put_int(t, 9, MR__THRIFT_I64, c->offset);
    mr__thrift_put_end(t);
    mr__thrift_put_end(t);
}

static void put_group(mr__thrift_w *t, const parquet_writer *w, size_t group)
{
    const chunk *c = w->chunks + group * w->n;
    int64_t raw = 0;
    mr__thrift_item_struct(t);
    mr__thrift_put_list(t, 1, MR__THRIFT_STRUCT, w->n);
    for (size_t i = 0; i < w->n; i++) {
        put_chunk(t, w, &w->fields[i], &c[i]);
        raw += c[i].raw;
    }
    mr__thrift_put_int(t, 2, MR__THRIFT_I64, raw);
    mr__thrift_put_int(t, 3, MR__THRIFT_I64, w->groups[group]);
    mr__thrift_put_end(t);
}

static void put_footer(mr__thrift_w *t, const parquet_writer *w)
{
    static const char root[] = "schema", writer[] = "millrace version " MR_VERSION;
    bool alone = mr_spec_kind_of(w->spec) == MR_SPEC_LEAF;
    size_t nodes = 1 + count_groups(w->spec), leaf = 0;
    for (size_t i = 0; i < w->n; i++)
        nodes += 1 + 2 * (size_t)w->columns[i].rank;
    mr__thrift_put_int(t, 1, MR__THRIFT_I32, 2);
    mr__thrift_put_list(t, 2, MR__THRIFT_STRUCT, nodes);
    mr__thrift_item_struct(t);
    put_name(t, root);
    mr__thrift_put_int(t, 5, MR__THRIFT_I32, alone ? 1 : (int64_t)mr_spec_n_children(w->spec));
    mr__thrift_put_end(t);
    if (alone)
        put_column(t, w->fields, w->columns->path);
    else
        put_nodes(t, w, w->spec, &leaf);
    mr__thrift_put_int(t, 3, MR__THRIFT_I64, w->all_rows);
    mr__thrift_put_list(t, 4, MR__THRIFT_STRUCT, w->n_groups);
    for (size_t i = 0; i < w->n_groups; i++)
        put_group(t, w, i);
    mr__thrift_put_bytes(t, 6, writer, sizeof writer - 1);
    mr__thrift_put_end(t);
}

static mr_code finish(mr__table_writer *self, mr_status *st)
{
    parquet_writer *w = (parquet_writer *)self;
    mr__thrift_w t = {0};
    MR_TRY(end_group(w, st));
    put_footer(&t, w);
    uint32_t size = (uint32_t)t.n;
    mr_code rc = t.failed == MR_OK ? MR_OK : mr_fail_memory(st, t.n, "a Parquet file");
    if (rc == MR_OK)
        rc = put(w, t.v, t.n, st);
    if (rc == MR_OK)
        rc = put(w, &size, sizeof size, st);
    if (rc == MR_OK)
        rc = put(w, MR__PARQUET_MAGIC, 4, st);
    mr__thrift_w_reset(&t);
    return rc;
}

int64_t mr__parquet_writer_memory(int64_t most_bytes, int64_t lists)
{
    int64_t page = most_bytes < PAGE_BYTES ? most_bytes : PAGE_BYTES;
    int64_t levels =
        lists < most_bytes / page ? 2 * lists * page : 2 * most_bytes; /* a byte for each value */
    return most_bytes + most_bytes / 8 + 4 * page + levels;
}

mr_code mr__parquet_writer_open(mr__table_writer **out, const mr__table_opts *o, mr_status *st)
{
    static const mr__table_class class_ = {append_row, finish, close_writer};
    if (o->compression == MR_COMPRESSION_ZLIB)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the pages of Parquet files are compressed by ZSTD or GZIP, not by %s",
                       mr_compression_name(o->compression));
    parquet_writer *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "a writer of Parquet files");
    w->base.class_ = &class_;
    w->put = o->put;
    w->ctx = o->ctx;
    w->compression = o->compression;
    w->group_bytes = o->most_bytes;
    mr_code rc = begin(w, o, st);
    if (rc == MR_OK)
        *out = &w->base;
    else
        close_writer(&w->base);
    return rc;
}
