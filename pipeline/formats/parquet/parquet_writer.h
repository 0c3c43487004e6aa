/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_WRITER_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_WRITER_H
/* Parquet files as they are written: pages of version 1 with checksums, values PLAIN, each page
 * compressed by itself. Columns are required; a list has the three levels of the format, its
 * entries required. A row group has a million rows at most, and most_bytes bytes of values.
 * Within the formats room. */
#include "pipeline/formats/table_writer.h"

/* Compression: of each page, not ZLIB.
 * errors   MR_INVALID_ARGUMENT: ZLIB; a component with more than one axis; those of
 *          mr__table_columns and of put */
mr_code mr__parquet_writer_open(mr__table_writer **out, const mr__table_opts *o,
                                mr_status *st) MR_NODISCARD;
/* Bytes that one takes at most, with that most_bytes and so many columns of lists, beside a row and
 * the compression's own. */
int64_t mr__parquet_writer_memory(int64_t most_bytes, int64_t lists);
#endif
