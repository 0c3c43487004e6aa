/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_READER_H
#define MR_PIPELINE_FORMATS_READER_H
/* Files of records, read from front to back: one interface, whatever the format.
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
 * The path "-" is standard input. What is not a regular file (a pipe, a terminal) is read once,
 * from where it stands.
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

/* A format is data: one descriptor, at the end of its file. */
typedef struct mr_format mr_format;

/* TFRecord files: tfrecord.h. A record is the data without its framing. */
MR_API extern const mr_format mr_format_tfrecord;

/* Lines of a text file, without their \n; every \r is removed, wherever it stands. A last line
 * without \n is delivered if anything but \r is in it. Blank lines are kept. A line may be at most
 * 1 GiB long (MR_RESOURCE_EXHAUSTED). */
MR_API extern const mr_format mr_format_text_line;

/* Records of one length between a header and a footer. It needs mr_fixed_length_opts.
 *
 *   offset          size              meaning
 *   0               header_bytes      skipped
 *   header_bytes    n * record_bytes  the records
 *   ...             footer_bytes      skipped
 *
 * A body that is not a multiple of record_bytes is MR_INVALID_ARGUMENT when the file is opened; in
 * a compressed file or a pipe, whose size is not known, MR_DATA_LOSS after the records. */
MR_API extern const mr_format mr_format_fixed_length;
typedef struct mr_fixed_length_opts {
    int64_t record_bytes;               /* at least 1 */
    int64_t header_bytes, footer_bytes; /* at least 0 */
} mr_fixed_length_opts;

/* All zero: an uncompressed file, through the page cache. */
typedef struct mr_file_opts {
    mr_compression compression; /* MR_COMPRESSION_DETECT: by the file's first bytes */
    bool direct;                /* read past the page cache (O_DIRECT) where that is possible */
    bool no_uring;              /* never read through io_uring */
    mr_cancel *cancel; /* ends every wait with MR_CANCELLED; NULL, or borrowed until the reader
                                   is closed */
    bool strict;       /* also what the format forgives is an error: 1 to 11 bytes after the
                                   last record of a TFRecord file, bytes after a ZLIB stream */
    void (*on_read)(void *ctx, size_t bytes); /* called for every piece read, as it lies in the
                                   file; may be NULL */
    void *on_read_ctx;
    const void *own; /* options of the format; borrowed while the file is opened */
    bool no_ahead;   /* keep no reads in flight: they take 3 MiB */
    size_t chunk;    /* bytes of a file that are in memory at once; 0: 512 KiB, and what
                                   is more is read in pieces of that. More where a record needs
                                   it */
    const mr_read_slots *read_slots; /* memory for what is read from the page cache, or decoded;
                                   NULL: the pool's. Borrowed until the reader is closed */
} mr_file_opts;

/* Where in a file a reader is. */
typedef struct mr_file_position {
    int64_t offset; /* in the uncompressed bytes, of the next record */
    int64_t record; /* number of the next record, from 0 */
    bool ended;     /* at the end, or given up after an error */
} mr_file_position;

/* Opens path. opts NULL: all zero. Returns owned in *out.
 * errors   MR_NOT_FOUND and others: as open(2), with the file; MR_RESOURCE_EXHAUSTED
 *          MR_INVALID_ARGUMENT: bad options.
 *          MR_FAILED_PRECONDITION: a directory; standard input that is a pipe and was read
 *          before */
MR_API mr_code mr_reader_open(mr_reader **out, const mr_format *format, const char *path,
                              const mr_file_opts *opts, mr_status *st) MR_NODISCARD;
MR_API void mr_reader_close(mr_reader *r); /* NULL: nothing */

/* The next 1 to `want` records as a scalar BYTES array of views into the bytes as they were read;
 * *out (empty before) holds what they point into. Stops after about max_bytes of payload (at least
 * one record) and where going on would mean another read.
 *
 * MR_END at the end, and after an error.
 * errors   MR_DATA_LOSS: damage, also a compressed stream that stops before its own end, with file,
 *          byte offset and record number; the records before it are returned first, the file is
 *          given up.
 *          MR_RESOURCE_EXHAUSTED, and what read(2) may say
 * memory   no copy of a record that lies whole in a chunk; memory grows with what was read, not
 *          with a length that the file claims. Chunks are reused when *out of the call before has
 *          been released */
MR_API mr_code mr_reader_read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out,
                              mr_status *st) MR_NODISCARD;

/* Reads over up to n records; *skipped is their number, less than n only at the end or before an
 * error, which is returned. */
MR_API mr_code mr_reader_skip(mr_reader *r, int64_t n, int64_t *skipped,
                              mr_status *st) MR_NODISCARD;

/* Where the next record starts. */
MR_API void mr_reader_position(const mr_reader *r, mr_file_position *out);
/* Continues there, also in another reader of the same file. A compressed file is decoded up to it.
 * errors   MR_OUT_OF_RANGE: the file ends before it; those of mr_reader_read on the way
 *          MR_FAILED_PRECONDITION: a pipe, and it does not stand there */
MR_API mr_code mr_reader_seek(mr_reader *r, const mr_file_position *to, mr_status *st) MR_NODISCARD;

/* What the file is compressed with: as opened, or as detected. */
MR_API mr_compression mr_reader_compression(const mr_reader *r);

#ifdef __cplusplus
}
#endif
#endif
