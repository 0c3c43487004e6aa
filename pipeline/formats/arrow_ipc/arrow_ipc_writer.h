/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_WRITER_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_WRITER_H
/* Writes elements as rows of an Arrow IPC file with a footer (arrow_ipc.h), with a column for each
 * leaf, as mr_export_arrow makes them:
 *
 *   leaf                            Arrow
 *   numbers, bools                  the same
 *   strings                         large_binary
 *   an axis of one size             fixed_size_list
 *   an axis of several, ragged ones large_list
 *
 * A record batch is written at 65,536 rows, or when the values of the rows have most_bytes bytes or
 * 4 MiB. */
#include "pipeline/formats/table_writer.h"

/* Compression: NONE, or ZSTD for each buffer.
 * errors   MR_INVALID_ARGUMENT: another compression; those of mr__table_columns and of put */
mr_code mr__arrow_writer_open(mr__table_writer **out, const mr__table_opts *o,
                              mr_status *st) MR_NODISCARD;
/* Maximum bytes of memory of a writer with that most_bytes, in addition to a row and to the memory
 * of the compression itself. */
int64_t mr__arrow_writer_memory(int64_t most_bytes, mr_compression c);
#endif
