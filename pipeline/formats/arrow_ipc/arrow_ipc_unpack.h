/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_UNPACK_H
#define MR_PIPELINE_FORMATS_ARROW_IPC_ARROW_IPC_UNPACK_H
/* Decompression of buffers of Arrow files.
 *
 *   offset  size  meaning
 *   0       8     int64: uncompressed bytes; -1: the rest is not compressed
 *   8             one LZ4 frame, or one zstd frame
 *
 * An empty buffer has neither.
 *
 * thread   one at a time per object */
#include "pipeline/memory/buffer.h"

typedef enum mr__arrow_codec { MR__ARROW_LZ4, MR__ARROW_ZSTD, MR__ARROW_PLAIN } mr__arrow_codec;

typedef struct mr__arrow_unpacker {
    void *zstd, *lz4; /* NULL: not needed yet */
} mr__arrow_unpacker;

/* Returns the bytes of the buffer in *data and *size. *owner: a new buffer that holds them; NULL:
 * they are in the packed one. Memory grows with the bytes decompressed, not with the stated length.
 * errors   MR_DATA_LOSS; MR_NOT_FOUND: the library is not installed; MR_RESOURCE_EXHAUSTED */
mr_code mr__arrow_unpack(mr__arrow_unpacker *u, mr__arrow_codec codec, const uint8_t *packed,
                         size_t n, mr_buffer **owner, const uint8_t **data, size_t *size,
                         mr_status *st) MR_NODISCARD;
void mr__arrow_unpacker_reset(mr__arrow_unpacker *u);
#endif
