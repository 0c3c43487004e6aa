/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_H
/* Arrow IPC files, with a footer or as a stream; the first bytes tell which.
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
 * A record is a row. In a file with a footer, and in a stream in a regular file, rows are located
 * and counted from the metadata alone. A file without a valid footer is read as the stream it
 * contains and ends with an error; from a pipe it is read in the same way, without the error.
 *
 * thread   as readers; mr__arrow_file_spec and mr__arrow_file_count any
 * source   Arrow columnar format 1.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_batch.h"
#include "pipeline/formats/reader.h"

/* Options of mr__format_arrow. own NULL: rows are counted, not read. */
typedef struct mr__arrow_opts {
    /* a record of the requested columns; borrowed until the reader is closed */
    const mr_spec *spec;
    bool all;                 /* other columns in the file are an error */
    const mr_array *defaults; /* of the leaves of spec, or NULL; borrowed as well */
} mr__arrow_opts;

/* mr_reader_read returns an array without data, whose number of rows counts. mr__arrow_take_rows
 * takes the rows from the reader. An error of a batch is final and comes after the rows before
 * it. */
extern const mr_format mr__format_arrow;

/* Returns the rows of the last mr_reader_read: *rows, and nulls as in mr__arrow_load_batch,
 * borrowed until the next call; *batch is the number of the batch. */
mr_code mr__arrow_take_rows(mr_reader *r, mr_block *rows, const uint32_t **nulls, int64_t *batch,
                            mr_status *st) MR_NODISCARD;

/* Returns the spec of the named columns, a record; "x.a" is field a of x, n 0: all columns. path
 * "-" is standard input. Bytes read from a pipe there are kept for its first reader.
 * errors   those of opening and reading; MR_INVALID_ARGUMENT: a pipe other than "-"; those of
 *          mr__arrow_schema_spec */
mr_code mr__arrow_file_spec(const char *path, const mr_bytes *names, size_t n, mr_spec **out,
                            mr_status *st) MR_NODISCARD;
/* Number of rows of a regular file. *mark: as mr_file_opts.mark.
 * errors   those of opening and reading; MR_FAILED_PRECONDITION: a pipe */
mr_code mr__arrow_file_count(const char *path, int64_t *rows, uint64_t *mark,
                             mr_status *st) MR_NODISCARD;
#endif
