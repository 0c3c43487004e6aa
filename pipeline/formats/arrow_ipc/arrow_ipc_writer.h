/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_WRITER_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_WRITER_H
/* Elements as rows of an Arrow IPC file with a footer (arrow_ipc.h), a column for each leaf:
 *
 *   leaf                            Arrow
 *   numbers, bools                  the same
 *   strings                         large_binary
 *   an axis of one size             fixed_size_list
 *   an axis of several, ragged ones large_list
 *
 * as mr_export_arrow makes of columns. Rows become a record batch when there are 65,536, or when
 * their values have most_bytes bytes or 4 MiB. */
#include "pipeline/formats/table_writer.h"

/* Compression: NONE, or ZSTD, of each buffer.
 * errors   MR_INVALID_ARGUMENT: another compression; those of mr__table_columns and of put */
mr_code mr__arrow_writer_open(mr__table_writer **out, const mr__table_opts *o,
                              mr_status *st) MR_NODISCARD;
/* Bytes that one takes at most, with that most_bytes, beside a row and the compression's own. */
int64_t mr__arrow_writer_memory(int64_t most_bytes, mr_compression c);
#endif
