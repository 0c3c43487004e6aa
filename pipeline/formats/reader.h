/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_READER_H
#define MR_PIPELINE_FORMATS_READER_H
/* Record files, read from front to back through one interface for all formats.
 *
 *     mr_reader *r = NULL;
 *     mr_array records = {0};
 *     if (mr_reader_open(&r, &mr_format_text_line, "notes.txt", NULL, &st) != MR_OK) ...
 *     while ((rc = mr_reader_read(r, 1000, 1 << 20, &records, &st)) == MR_OK) {
 *         ... records.rows views in records.data, as mr_bytes
 *         mr_array_reset(&records);
 *     }
 *     mr_reader_close(r);
 *
 * The path "-" is standard input. A path that is not a regular file (a pipe, a terminal) is read
 * once, from its current position.
 *
 * thread   one at a time per reader
 * since    0.1 */
#include "../memory/array.h"
#include "../wait/cancel.h"
#include "codec.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_reader mr_reader;

/* A format is data: one descriptor at the end of the source file that implements it. */
typedef struct mr_format mr_format;

/* TFRecord files, see tfrecord.h. A record is the data without its framing. */
MR_API extern const mr_format mr_format_tfrecord;

/* Lines of a text file, without their ends, which are \n, \r\n or \r, also mixed. A last line
 * without an end is returned unless it is empty. Blank lines are kept. A byte order mark at the
 * beginning of the file is skipped; that of UTF-16 is an error (MR_UNIMPLEMENTED). A line is at
 * most 1 GiB long (MR_RESOURCE_EXHAUSTED). */
MR_API extern const mr_format mr_format_text_line;

/* Records of fixed length between a header and a footer. Requires mr_fixed_length_opts.
 *
 *   offset          size              meaning
 *   0               header_bytes      skipped
 *   header_bytes    n * record_bytes  the records
 *   ...             footer_bytes      skipped
 *
 * If the body is not a multiple of record_bytes, opening fails with MR_INVALID_ARGUMENT. The size
 * of a compressed file or a pipe is unknown, so reading fails with MR_DATA_LOSS after the last
 * record. */
MR_API extern const mr_format mr_format_fixed_length;
typedef struct mr_fixed_length_opts {
    int64_t record_bytes;               /* at least 1 */
    int64_t header_bytes, footer_bytes; /* at least 0 */
} mr_fixed_length_opts;

/* All zero: an uncompressed file, read through the page cache. */
typedef struct mr_file_opts {
    mr_compression compression; /* MR_COMPRESSION_DETECT: by the first bytes of the file */
    bool direct;                /* bypass the page cache (O_DIRECT) where possible */
    bool no_uring;              /* never read through io_uring */
    /* ends every wait with MR_CANCELLED; NULL: none; borrowed until the reader is closed */
    mr_cancel *cancel;
    /* Also fail on what the format tolerates: 1 to 11 bytes after the last record of a TFRecord
     * file, bytes after a ZLIB stream. */
    bool strict;
    /* Called for each piece read, with its size as stored in the file; may be NULL. */
    void (*on_read)(void *ctx, size_t bytes);
    void *on_read_ctx;
    const void *own; /* format-specific options; borrowed during mr_reader_open */
    bool no_ahead;   /* keep no reads in flight, which saves 3 MiB */
    /* Bytes of the file in memory at once, more if a record needs it; larger chunks are read in
     * pieces of 512 KiB. 0: 512 KiB. */
    size_t chunk;
    /* Memory for bytes read from the page cache and for decoded bytes; NULL: the pool. Borrowed
     * until the reader is closed. */
    const mr_read_slots *read_slots;
    /* Set while the file is opened: tells versions of a remote object apart. Unchanged if nothing
     * is known, and for local files and listed objects; NULL: not needed. */
    uint64_t *mark;
} mr_file_opts;

/* Position of a reader in a file. */
typedef struct mr_file_position {
    int64_t offset; /* of the next record, in the uncompressed bytes */
    int64_t record; /* number of the next record, from 0 */
    bool ended;     /* at the end of the file, or the reader gave up after an error */
} mr_file_position;

/* Opens path. opts NULL: all zero. Returns owned in *out.
 * errors   MR_NOT_FOUND and others: as open(2), with the file; MR_RESOURCE_EXHAUSTED
 *          MR_INVALID_ARGUMENT: bad options
 *          MR_FAILED_PRECONDITION: a directory; standard input is a pipe and was read before */
MR_API mr_code mr_reader_open(mr_reader **out, const mr_format *format, const char *path,
                              const mr_file_opts *opts, mr_status *st) MR_NODISCARD;
MR_API void mr_reader_close(mr_reader *r); /* NULL: nothing */

/* Returns the next 1 to `want` records as a scalar BYTES array of views into the bytes as read;
 * *out, which must be empty, keeps those bytes alive. Returns at least one record, and stops after
 * about max_bytes of payload or where the next record would need another read.
 *
 * Returns MR_END at the end of the file and after an error.
 * errors   MR_DATA_LOSS, with file, byte offset and record number: damage, including a compressed
 *          stream cut short. The records before the damage are returned first; the rest of the file
 *          is given up.
 *          MR_RESOURCE_EXHAUSTED, and the errors of read(2)
 * memory   no copy of a record that is contiguous in a chunk. Memory grows with the bytes read, not
 *          with a length stated in the file. Chunks are reused if *out of the previous call has
 *          been released. */
MR_API mr_code mr_reader_read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out,
                              mr_status *st) MR_NODISCARD;

/* Skips up to n records. *skipped is the number skipped, less than n only at the end of the file or
 * before an error, which is returned. */
MR_API mr_code mr_reader_skip(mr_reader *r, int64_t n, int64_t *skipped,
                              mr_status *st) MR_NODISCARD;

/* Returns the position of the next record. */
MR_API void mr_reader_position(const mr_reader *r, mr_file_position *out);
/* Continues at `to`, which may come from another reader of the same file. A compressed file is
 * decoded up to it.
 * errors   MR_OUT_OF_RANGE: the file ends before it; those of mr_reader_read on the way
 *          MR_FAILED_PRECONDITION: a pipe that is not at this position */
MR_API mr_code mr_reader_seek(mr_reader *r, const mr_file_position *to, mr_status *st) MR_NODISCARD;

/* Compression of the file, as specified at opening or as detected. */
MR_API mr_compression mr_reader_compression(const mr_reader *r);

#ifdef __cplusplus
}
#endif
#endif
