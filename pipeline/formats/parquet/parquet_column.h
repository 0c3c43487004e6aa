/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_COLUMN_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_COLUMN_H
/* The rows of a column chunk, page after page. A page is read, checked and decompressed when its
 * first row is requested; strings are views into the page or the dictionary.
 *
 *   page   head (Thrift)  |  bytes, compressed: levels, then values
 *                            version 2: levels, not compressed, then values
 *
 * thread   one at a time per column */
#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/parquet/parquet_values.h"

/* Reads n bytes at an offset of the file to p. errors: those of reading; the file ends before */
typedef mr_code mr__parquet_read_fn(void *ctx, int64_t offset, void *p, size_t n, mr_status *st);

enum { MR__PARQUET_LEVELS = 256 };

typedef struct mr__parquet_column {
    const mr__parquet_leaf *leaf; /* borrowed */
    mr__parquet_read_fn *read;
    void *read_ctx;
    int32_t codec;
    bool always_compressed, padded; /* as of its chunk */
    int64_t at, end;                /* unread bytes of the chunk */
    int64_t values_left;            /* values of the chunk in pages not yet read */

    mr_buffer *window; /* bytes of the file from `at` on */
    size_t window_at, window_n;

    int64_t page_offset; /* of the current page, for messages */
    mr_buffer *page;     /* its decompressed bytes; may be the window */
    size_t page_left;    /* its entries not yet taken */
    /* Lists of the page that have not begun; all of them end in it. -1: the page does not say. */
    int64_t rows_left;
    mr__hybrid definitions, repetitions;
    mr__parquet_values values;
    mr_array dictionary; /* rows 0: none yet */
    bool has_dictionary;

    /* Entries of a list whose levels are read and whose values are not. */
    uint32_t definition[MR__PARQUET_LEVELS], repetition[MR__PARQUET_LEVELS];
    size_t level_at, level_n;
    bool row_open;
} mr__parquet_column;

/* Why a row cannot be an element. */
enum {
    MR__PARQUET_NULL = 1,   /* it is null */
    MR__PARQUET_WITHIN = 2, /* it is a list that contains a null */
    MR__PARQUET_UNEVEN = 3  /* its lists from the third level on differ in length */
};

/* Rows of a column. Lists of depth two are ragged rows; deeper ones are inner axes of those, with
 * one size for the whole row. */
typedef struct mr__parquet_rows {
    mr_array a;
    mr_buffer *flaws; /* a byte per row, 0: no flaw; NULL: all rows are valid */
} mr__parquet_rows;

/* Starts a chunk of the leaf; *c is zeroed or as the previous chunk left it. */
void mr__parquet_column_start(mr__parquet_column *c, const mr__parquet_leaf *leaf,
                              const mr__parquet_chunk *chunk, mr__parquet_read_fn *read,
                              void *read_ctx);
void mr__parquet_column_reset(mr__parquet_column *c); /* also for a zeroed one */

/* Returns the next 1 to n rows; *out must be empty. Fewer than n if they take much memory. The
 * contents of a row with a flaw are undefined.
 * errors   MR_DATA_LOSS, with the offset of the page; those of mr__parquet_decompress and of
 *          reading; MR_UNIMPLEMENTED. *out then has the rows before it, and the column must not be
 *          read further */
mr_code mr__parquet_column_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out,
                                mr_status *st) MR_NODISCARD;
/* Skips n rows; whole pages are skipped unread if their heads state the number of rows. errors as
 * above */
mr_code mr__parquet_column_skip(mr__parquet_column *c, int64_t n, mr_status *st) MR_NODISCARD;
/* Checks that the chunk has no bytes left, after all rows of the group have been taken.
 * errors   MR_DATA_LOSS, with the offset of the page; the column must not be read further */
mr_code mr__parquet_column_end(mr__parquet_column *c, mr_status *st) MR_NODISCARD;
void mr__parquet_rows_reset(mr__parquet_rows *r); /* also for a zeroed one */
#endif
