/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PAGE_H
#define MR_PIPELINE_FORMATS_PARQUET_PAGE_H
/* Reading the pages of a chunk. Private to parquet_column.c. */
#include "pipeline/formats/parquet/parquet_column.h"

/* The head of a page. */
typedef struct mr__parquet_head {
    int64_t type, size, packed_size; /* bytes, and as they lie in the file */
    int64_t values, rows;            /* rows: -1 unless it is of version 2 */
    int64_t encoding, definition_encoding, repetition_encoding;
    int64_t definition_bytes, repetition_bytes; /* version 2 */
    bool compressed, has_crc;
    uint32_t crc;
} mr__parquet_head;

/* The rows of a page of lists; -1: it does not say. For them Arrow before 12 wrote the number of
 * values. */
static inline int64_t mr__parquet_rows_of(const mr__parquet_head *h)
{
    return h->rows < h->values ? h->rows : -1;
}

/* The head of the next page that is one of data or a dictionary; c->page_offset is set, c->at and
 * the window stand at its bytes. MR_END: the chunk has no more.
 * errors   MR_DATA_LOSS, those of reading */
mr_code mr__parquet_next_head(mr__parquet_column *c, mr__parquet_head *h,
                              mr_status *st) MR_NODISCARD;
/* Reads the bytes of the page and makes it the one at hand, or the chunk's dictionary. */
mr_code mr__parquet_take_page(mr__parquet_column *c, const mr__parquet_head *h,
                              mr_status *st) MR_NODISCARD;
/* Goes past the bytes of the page. */
void mr__parquet_pass_page(mr__parquet_column *c, const mr__parquet_head *h);
/* Releases the page at hand. */
void mr__parquet_drop_page(mr__parquet_column *c);
#endif
