/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_COLUMN_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_COLUMN_H
/* The rows of a column chunk, page after page. A page is read, checked and decompressed when its
 * first row is wanted; strings are views into it, or into the dictionary.
 *
 *   page   head (Thrift)  |  bytes, compressed: levels, then values
 *                            version 2: levels, not compressed, then values
 *
 * thread   one at a time per column */
#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/parquet/parquet_values.h"

/* Reads n bytes at an offset of the file to p. errors: of reading, also that the file ends */
typedef mr_code mr__parquet_read_fn(void *ctx, int64_t offset, void *p, size_t n, mr_status *st);

enum { MR__PARQUET_LEVELS = 256 };

typedef struct mr__parquet_column {
    const mr__parquet_leaf *leaf; /* borrowed */
    mr__parquet_read_fn *read;
    void *read_ctx;
    int32_t codec;
    int64_t at, end;     /* bytes of the chunk still to be read */
    int64_t values_left; /* of the chunk, in pages that are not read yet */

    mr_buffer *window; /* bytes of the file from `at` on */
    size_t window_at, window_n;

    int64_t page_offset; /* of the page at hand, for messages */
    mr_buffer *page;     /* its bytes, decompressed; may be the window */
    size_t page_left;    /* its entries that are not taken yet */
    int64_t rows_left;   /* lists of it that have not begun, none of which goes on in the next page;
                            -1: it does not say */
    mr__hybrid definitions, repetitions;
    mr__parquet_values values;
    mr_array dictionary; /* rows 0: there is none yet */
    bool has_dictionary;

    /* Entries of a list whose levels are taken, not yet their values. */
    uint32_t definition[MR__PARQUET_LEVELS], repetition[MR__PARQUET_LEVELS];
    size_t level_at, level_n;
    bool row_open;
} mr__parquet_column;

/* Why a row cannot be an element. */
enum {
    MR__PARQUET_NULL = 1,  /* it holds one */
    MR__PARQUET_UNEVEN = 2 /* its lists from the third level on differ in length */
};

/* Rows of a column. Lists two deep are ragged rows; deeper ones are inner axes of those, which are
 * the same for all of a row. */
typedef struct mr__parquet_rows {
    mr_array a;
    mr_buffer *flaws; /* a byte a row, 0: none; NULL: there are none */
} mr__parquet_rows;

/* Begins with a chunk of the leaf; *c is what it was before, or zeroed. */
void mr__parquet_column_start(mr__parquet_column *c, const mr__parquet_leaf *leaf,
                              const mr__parquet_chunk *chunk, mr__parquet_read_fn *read,
                              void *read_ctx);
void mr__parquet_column_reset(mr__parquet_column *c); /* also of a zeroed one */

/* The next 1 to n rows, *out being empty. Fewer than n where they take much memory. What a row with
 * a flaw holds means nothing.
 * errors   MR_DATA_LOSS, with the offset of the page; what mr__parquet_decompress and reading say;
 *          MR_UNIMPLEMENTED. *out has the rows before it then; the column is not to be read on */
mr_code mr__parquet_column_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out,
                                mr_status *st) MR_NODISCARD;
/* Goes past n rows, past whole pages without reading them where their heads say how many there
 * are. errors as above */
mr_code mr__parquet_column_skip(mr__parquet_column *c, int64_t n, mr_status *st) MR_NODISCARD;
/* That nothing is left of the chunk, all rows of the group having been taken.
 * errors   MR_DATA_LOSS, with the offset of the page; the column is not to be read on */
mr_code mr__parquet_column_end(mr__parquet_column *c, mr_status *st) MR_NODISCARD;
void mr__parquet_rows_reset(mr__parquet_rows *r); /* also of a zeroed one */
#endif
