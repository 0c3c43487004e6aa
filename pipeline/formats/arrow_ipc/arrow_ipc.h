/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_H
/* Arrow's IPC files, streams and files with a footer, known by their first bytes.
 *
 *   message (all padded to a multiple of 8 bytes)
 *     0    4  ffffffff; files before Arrow 0.15 lack it
 *     4    4  u32 bytes of the metadata; 0: the end of the stream
 *     8       metadata, a FlatBuffer: Message (arrow_ipc_batch.h)
 *             body: buffers
 *   stream: a Schema, then dictionaries and record batches, then the end or nothing
 *   file:   "ARROW1", 0, 0, a stream, a FlatBuffer Footer, u32 bytes of it, "ARROW1"
 *   Footer: version, schema, dictionaries, record batches; the last two are lists of places
 *     0    8  offset of a message in the file
 *     8    4  bytes of its metadata, those of the first 8 bytes included
 *     16   8  bytes of its body
 *
 * A record is a row. Of a file with a footer, and of a stream in a regular file, rows are found and
 * counted by the metadata alone. A file without a good footer is read as the stream that it holds,
 * and ends with an error; one in a pipe is read so without.
 *
 * thread   as readers; mr__arrow_file_spec and mr__arrow_file_count any
 * source   Arrow columnar format 1.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_batch.h"
#include "pipeline/formats/reader.h"

/* Options of mr__format_arrow. own NULL: rows are not read, only counted. */
typedef struct mr__arrow_opts {
    const mr_spec *spec; /* a record of the columns wanted; borrowed until the reader is closed */
    bool all;            /* a file with others is an error */
} mr__arrow_opts;

/* mr_reader_read says how many rows there are: its array has no data. They are taken from the
 * reader with mr__arrow_take_rows. An error of a batch is final, and comes after the rows before
 * it. */
extern const mr_format mr__format_arrow;

/* What the last mr_reader_read read: *rows, and nulls as mr__arrow_load_batch gives them, borrowed
 * until the next call; *batch is the number of the batch. */
mr_code mr__arrow_take_rows(mr_reader *r, mr_block *rows, const uint32_t **nulls, int64_t *batch,
                            mr_status *st) MR_NODISCARD;

/* A record of the columns called so, "x.a": field a of x, n 0: of all, of the file, "-" is standard
 * input. What is read of a pipe there is kept for the first reader of it.
 * errors   as of opening and reading; MR_INVALID_ARGUMENT: a pipe of another name; those of
 *          mr__arrow_schema_spec */
mr_code mr__arrow_file_spec(const char *path, const mr_bytes *names, size_t n, mr_spec **out,
                            mr_status *st) MR_NODISCARD;
/* Rows of a regular file.
 * errors   as of opening and reading; MR_FAILED_PRECONDITION: a pipe */
mr_code mr__arrow_file_count(const char *path, int64_t *rows, mr_status *st) MR_NODISCARD;
#endif
