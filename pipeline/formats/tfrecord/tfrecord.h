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
 * masked(c) = ((c >> 15) | (c << 17)) + 0xA282EAD8 mod 2^32. A compressed file is one compressed
 * stream. 1 to 11 bytes after the last record are logged as a warning and otherwise ignored, as in
 * TensorFlow; with mr_file_opts.strict they are MR_DATA_LOSS. mr_reader_open with
 * &mr_format_tfrecord reads these files; its messages begin with "corrupted record at" or
 * "truncated record at".
 *
 * thread   one at a time per writer
 * since    0.1 */
#include "../reader.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A damaged range: bytes up to the next valid record or the end of the file. */
typedef struct mr_tfrecord_damage {
    const char *path;
    int64_t record;      /* number of the damaged record; the whole range counts as one record */
    int64_t offset, end; /* the range, in the uncompressed file */
    const char *what;    /* what is wrong with the first of these bytes, in words */
} mr_tfrecord_damage;

/* Options of mr_format_tfrecord (mr_file_opts.own). NULL: damage is MR_DATA_LOSS, and the rest of
 * the file is given up. */
typedef struct mr_tfrecord_read_opts {
    /* Continue at the next valid record after damage. In a compressed file this covers damaged
     * records, but not damage to the compressed stream itself. */
    bool skip_corrupt;
    /* Receives the damaged bytes in pieces, before `skipped` is called for the range. NULL: they
     * are dropped. An error ends reading and is returned by the reader. */
    mr_code (*bytes)(void *ctx, const mr_tfrecord_damage *d, const void *p, size_t n,
                     mr_status *st);
    /* Called for each damaged range; reading continues at d->end. An error ends reading and is
     * returned by the reader. */
    mr_code (*skipped)(void *ctx, const mr_tfrecord_damage *d, mr_status *st);
    void *ctx;
} mr_tfrecord_read_opts;

typedef struct mr_tfrecord_writer mr_tfrecord_writer;

typedef struct mr_tfrecord_writer_opts {
    mr_compression compression;
    bool sync; /* fsync before the file gets its final name */
} mr_tfrecord_writer_opts;

/* Writes to a temporary file next to path, .NAME. ... .partial; close renames it, so path never
 * has a part of the records. opts NULL: uncompressed.
 * errors   as open(2) */
MR_API mr_code mr_tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                       const mr_tfrecord_writer_opts *opts,
                                       mr_status *st) MR_NODISCARD;
/* Appends a record.
 * errors   MR_RESOURCE_EXHAUSTED (disk full, file size limit) and others, as write(2). The partial
 *          file has then been removed, and every later call returns the same code */
MR_API mr_code mr_tfrecord_writer_append(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st) MR_NODISCARD;
/* Flushes, renames the file to its final name and frees w. On failure it frees w as well and leaves
 * no file. NULL: MR_OK. */
MR_API mr_code mr_tfrecord_writer_close(mr_tfrecord_writer *w, mr_status *st) MR_NODISCARD;
/* Removes the partial file and frees w. NULL: no effect. */
MR_API void mr_tfrecord_writer_abort(mr_tfrecord_writer *w);

#ifdef __cplusplus
}
#endif
#endif
