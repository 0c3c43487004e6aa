/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_WRITER_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_WRITER_H
/* Writes Parquet files: pages of version 1 with checksums, values PLAIN, each page compressed
 * separately. Columns are required; a list has the three levels of the format, with required
 * entries. A row group has at most a million rows and most_bytes bytes of values. Private to the
 * formats room. */
#include "pipeline/formats/table_writer.h"

/* Compression: for each page, not ZLIB.
 * errors   MR_INVALID_ARGUMENT: ZLIB; a component with more than one axis; those of
 *          mr__table_columns and of put */
mr_code mr__parquet_writer_open(mr__table_writer **out, const mr__table_opts *o,
                                mr_status *st) MR_NODISCARD;
/* Maximum bytes of memory of a writer with that most_bytes and number of columns of lists, in
 * addition to a row and to the memory of the compression itself. */
int64_t mr__parquet_writer_memory(int64_t most_bytes, int64_t lists);
#endif
