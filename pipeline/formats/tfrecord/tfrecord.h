/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_H
#define MR_PIPELINE_FORMATS_TFRECORD_TFRECORD_H
/* TFRecord files: records back to back, no header, no trailer, no alignment. Little-endian.
 *
 *   offset  size  meaning
 *   0       8     L, length of the data, uint64
 *   8       4     masked CRC-32C of the 8 length bytes
 *   12      L     data
 *   12+L    4     masked CRC-32C of the data; the next record starts at 16+L
 *
 * masked(c) = ((c >> 15) | (c << 17)) + 0xA282EAD8 mod 2^32. In a compressed file the whole of it
 * is one compressed stream. 1 to 11 bytes at the end are a clean end, as in TensorFlow, of which
 * the log warns; with mr_file_opts.strict they are MR_DATA_LOSS. Files are read by mr_reader_open
 * with &mr_format_tfrecord; messages begin with "corrupted record at" or "truncated record at".
 *
 * thread   one at a time per writer
 * since    0.1 */
#include "../reader.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that are no valid record, up to the next one that is, or to the end of the file. */
typedef struct mr_tfrecord_damage {
    const char *path;
    int64_t record;      /* number of the damaged record: the bytes count as one */
    int64_t offset, end; /* the bytes, in the uncompressed file */
    const char *what;    /* is wrong with the first of them, in words */
} mr_tfrecord_damage;

/* Options of mr_format_tfrecord (mr_file_opts.own); NULL: damage is MR_DATA_LOSS, and the rest of
 * the file is given up. */
typedef struct mr_tfrecord_read_opts {
    /* Goes on at the next valid record after damage. In a compressed stream only the damage of
     * records can be gone past, not that of the stream itself. */
    bool skip_corrupt;
    /* Gets the damaged bytes, in pieces, each time followed by skipped; NULL: nobody wants them.
     * An error is the reader's. */
    mr_code (*bytes)(void *ctx, const mr_tfrecord_damage *d, const void *p, size_t n,
                     mr_status *st);
    /* Reading goes on at d->end, unless this returns an error, which is then the reader's. */
    mr_code (*skipped)(void *ctx, const mr_tfrecord_damage *d, mr_status *st);
    void *ctx;
} mr_tfrecord_read_opts;

typedef struct mr_tfrecord_writer mr_tfrecord_writer;

typedef struct mr_tfrecord_writer_opts {
    mr_compression compression;
    bool sync; /* fsync before the file gets its name */
} mr_tfrecord_writer_opts;

/* Writes to a file beside path, .NAME. ... .partial; close renames it, so that the file is complete
 * or not there at all. opts NULL: uncompressed.
 * errors   as open(2) */
MR_API mr_code mr_tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                       const mr_tfrecord_writer_opts *opts,
                                       mr_status *st) MR_NODISCARD;
/* errors   MR_RESOURCE_EXHAUSTED (disk full, file size limit) and others as write(2); the partial
 *          file is gone then, and every later call returns the same code */
MR_API mr_code mr_tfrecord_writer_append(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st) MR_NODISCARD;
/* Writes what is left, gives the file its name and frees w, also on failure (then there is no
 * file). NULL: MR_OK. */
MR_API mr_code mr_tfrecord_writer_close(mr_tfrecord_writer *w, mr_status *st) MR_NODISCARD;
/* Removes what was written and frees w. NULL: nothing. */
MR_API void mr_tfrecord_writer_abort(mr_tfrecord_writer *w);

#ifdef __cplusplus
}
#endif
#endif
