/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_PARQUET_TABLE_H
#define MR_TESTS_PARQUET_TABLE_H
/* Parquet files for tests: the elements of a graph, in a given number of row groups. */
#include "pipeline/formats/parquet/parquet_writer.h"
#include "tests/pipeline/ops/table_file.h"

/* File `name` of the test's directory holds the records that `graph` emits. group_bytes: of values
 * in a row group. */
static inline void parquet_file(const char *name, const char *graph, size_t group_bytes,
                                mr_compression compression)
{
    table_file(mr__parquet_writer_open, name, graph, group_bytes, compression);
}
#endif
