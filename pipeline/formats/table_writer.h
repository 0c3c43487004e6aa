/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TABLE_WRITER_H
#define MR_PIPELINE_FORMATS_TABLE_WRITER_H
/* Writers of files whose records are rows: elements with a column for each component. The
 * components of a tuple are named by their index, a single component is named "value". A record or
 * tuple inside an element becomes a struct or group of columns; a column with values is a leaf.
 *
 *     {"id": int64[], "at": {"x": int8[], "y": int8[]}}      id, at {x, y}
 *     (string[], float32[3])                                 0, 1
 *
 * Rows are copied as they are appended and written in large groups. Private to the formats room.
 *
 * thread   one at a time per object */
#include "pipeline/formats/codec.h"
#include "pipeline/memory/block.h"
#include "pipeline/params/spec.h"

/* Receives the bytes of a file in order. */
typedef mr_code (*mr__table_put)(void *ctx, const void *data, size_t n, mr_status *st);

typedef struct mr__table_opts {
    const mr_spec *spec;        /* of the elements; borrowed during the opening */
    const mr_block *first;      /* row 0 supplies the ranks that spec lacks; NULL: no rows */
    size_t most_bytes;          /* about the maximum of values held before they are written */
    mr_compression compression; /* of the parts of the file, as the format defines them */
    mr__table_put put;
    void *ctx; /* of put */
} mr__table_opts;

typedef struct mr__table_writer mr__table_writer;
typedef struct mr__table_class {
    /* Appends row `row` of b, which has the spec.
     * errors   MR_INVALID_ARGUMENT: a rank differs from the first row's; those of put */
    mr_code (*append)(mr__table_writer *w, const mr_block *b, size_t row, mr_status *st);
    /* Writes the remaining rows and the end of the file. errors: those of put */
    mr_code (*finish)(mr__table_writer *w, mr_status *st);
    void (*close)(mr__table_writer *w);
} mr__table_class;
/* First member of every table writer. */
struct mr__table_writer {
    const mr__table_class *class_;
};

void mr__table_writer_close(mr__table_writer *w); /* NULL: no effect */

/* ---- for the formats ---- */

/* A growable buffer. */
typedef struct mr__table_bytes {
    void *v;
    size_t n, capacity;
} mr__table_bytes;
/* Appends n bytes. what: the use of the memory, for errors.
 * errors   MR_RESOURCE_EXHAUSTED: out of memory, or more than `most` bytes */
mr_code mr__table_add(mr__table_bytes *b, const void *data, size_t n, size_t most, const char *what,
                      mr_status *st) MR_NODISCARD;
/* Packs bools of one byte each into bits in place, the first in the lowest bit of its byte; the
 * last byte is padded with zeros. */
void mr__table_pack_bits(mr__table_bytes *b);
void mr__table_bytes_reset(mr__table_bytes *b);

/* A leaf of the columns. */
typedef struct mr__table_column {
    char *name; /* "at.x" */
    char *path; /* "at", "x": n_parts consecutive strings */
    size_t n_parts;
    mr_dtype dtype;
    int rank;
    int64_t shape[MR_MAX_RANK]; /* -1: a list of any length */
} mr__table_column;

/* Name of component i of s; number has room for the index in a tuple. */
enum { MR__TABLE_NUMBER = 24 };
const char *mr__table_child(const mr_spec *s, size_t i, char number[MR__TABLE_NUMBER]);
/* Returns the leaves of o->spec in *out, *n of them. format is its name in errors, "Parquet".
 * errors   MR_INVALID_ARGUMENT: no columns, a record without columns, a leaf that is a dataset or
 *          bfloat16 */
mr_code mr__table_columns(const mr__table_opts *o, const char *format, mr__table_column **out,
                          size_t *n, mr_status *st) MR_NODISCARD;
void mr__table_columns_free(mr__table_column *c, size_t n); /* c NULL: no effect */
/* Returns row `row` of a, checked against column c.
 * errors   MR_INVALID_ARGUMENT: its type differs from the column's */
mr_code mr__table_row(const mr__table_column *c, const char *format, const mr_array *a, size_t row,
                      mr_row *out, mr_status *st) MR_NODISCARD;
/* Number of lists that a row has on axis k; k = rank: number of values. */
size_t mr__table_lists(const mr_row *r, int k);
#endif
