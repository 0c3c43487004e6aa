/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_ARROW_FILE_H
#define MR_TESTS_ARROW_FILE_H
/* Arrow files of the elements of graphs, and streams of such files. */
#include "pipeline/formats/arrow_ipc/arrow_ipc_writer.h"
#include "tests/pipeline/ops/table_file.h"

/* File `name` of the test's directory is an Arrow file of the graph's elements: a batch is written
 * after every batch_bytes bytes of values. */
static inline void arrow_file_packed(const char *name, const char *graph, size_t batch_bytes)
{
    table_file(mr__arrow_writer_open, name, graph, batch_bytes, MR_COMPRESSION_ZSTD);
}

static inline void arrow_file(const char *name, const char *graph, size_t batch_bytes)
{
    table_file(mr__arrow_writer_open, name, graph, batch_bytes, MR_COMPRESSION_NONE);
}

/* Stream `name` is what file `from` has between its head and its footer. */
static inline void arrow_stream(const char *name, const char *from)
{
    size_t n;
    unsigned char *v = table_bytes(from, &n);
    size_t footer = v[n - 10] | (size_t)v[n - 9] << 8 | (size_t)v[n - 8] << 16;
    table_write(name, v + 8, n - 10 - footer - 8);
    free(v);
}
#endif
