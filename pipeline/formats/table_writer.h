/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TABLE_WRITER_H
#define MR_PIPELINE_FORMATS_TABLE_WRITER_H
/* Files whose records are rows: elements, with a column for each component, called by its place in
 * a tuple, and "value" where it is the only one. A record or a tuple in it is a struct or group of
 * columns; what holds values is a leaf.
 *
 *     {"id": int64[], "at": {"x": int8[], "y": int8[]}}      id, at {x, y}
 *     (string[], float32[3])                                 0, 1
 *
 * Rows are copied as they come, and written when there are many. Within the formats room.
 *
 * thread   one at a time per object */
#include "pipeline/formats/codec.h"
#include "pipeline/memory/block.h"
#include "pipeline/params/spec.h"

/* Where the bytes of a file go, in order. */
typedef mr_code (*mr__table_put)(void *ctx, const void *data, size_t n, mr_status *st);

typedef struct mr__table_opts {
    const mr_spec *spec; /* of the elements; need not outlive the opening */
    const mr_block
        *first;        /* NULL, or some, of which row 0 says the ranks that spec does not know */
    size_t most_bytes; /* of values that are held before they are written, about */
    mr_compression compression; /* of the parts of the file, as its format does */
    mr__table_put put;
    void *ctx; /* of put */
} mr__table_opts;

typedef struct mr__table_writer mr__table_writer;
typedef struct mr__table_class {
    /* Row `row` of b, which is of the spec.
     * errors   MR_INVALID_ARGUMENT: another rank than the first's; those of put */
    mr_code (*append)(mr__table_writer *w, const mr_block *b, size_t row, mr_status *st);
    /* Writes what is left, and the end of the file. errors: those of put */
    mr_code (*finish)(mr__table_writer *w, mr_status *st);
    void (*close)(mr__table_writer *w);
} mr__table_class;
/* First in what it is. */
struct mr__table_writer {
    const mr__table_class *class_;
};

void mr__table_writer_close(mr__table_writer *w); /* NULL: nothing */

/* ---- for the formats ---- */

/* Bytes that grow. */
typedef struct mr__table_bytes {
    void *v;
    size_t n, capacity;
} mr__table_bytes;
/* Appends n bytes; what: whose memory it is, for errors.
 * errors   MR_RESOURCE_EXHAUSTED: no memory, or more than `most` bytes */
mr_code mr__table_add(mr__table_bytes *b, const void *data, size_t n, size_t most, const char *what,
                      mr_status *st) MR_NODISCARD;
/* Bools of a byte each become bits in their place, the first one the lowest of its byte; the last
 * byte ends with zeros. */
void mr__table_pack_bits(mr__table_bytes *b);
void mr__table_bytes_reset(mr__table_bytes *b);

/* A leaf. */
typedef struct mr__table_column {
    char *name; /* "at.x" */
    char *path; /* "at", "x": n_parts strings that follow each other */
    size_t n_parts;
    mr_dtype dtype;
    int rank;
    int64_t shape[MR_MAX_RANK]; /* -1: a list of any length */
} mr__table_column;

/* What component i of s is called; number has room for that of a tuple's. */
enum { MR__TABLE_NUMBER = 24 };
const char *mr__table_child(const mr_spec *s, size_t i, char number[MR__TABLE_NUMBER]);
/* The leaves of o->spec, *n of them. format names it in errors, "Parquet".
 * errors   MR_INVALID_ARGUMENT: no columns, a record without any, a leaf that is a dataset or
 *          bfloat16 */
mr_code mr__table_columns(const mr__table_opts *o, const char *format, mr__table_column **out,
                          size_t *n, mr_status *st) MR_NODISCARD;
void mr__table_columns_free(mr__table_column *c, size_t n); /* c NULL: nothing */
/* What row `row` of a, for column c, is.
 * errors   MR_INVALID_ARGUMENT: it has another type than the column */
mr_code mr__table_row(const mr__table_column *c, const char *format, const mr_array *a, size_t row,
                      mr_row *out, mr_status *st) MR_NODISCARD;
/* Lists that a row has on axis k; k = rank: values. */
size_t mr__table_lists(const mr_row *r, int k);
#endif
