/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_CODEC_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_CODEC_H
/* Decompression of Parquet pages, each compressed separately. The library of a codec is loaded when
 * a file first needs it.
 *
 * thread   any
 * source   Compression.md of apache/parquet-format */
#include "pipeline/formats/codec_impl.h"
#include "pipeline/memory/buffer.h"

enum {
    MR__PARQUET_UNCOMPRESSED,
    MR__PARQUET_SNAPPY,
    MR__PARQUET_GZIP,
    MR__PARQUET_LZO,
    MR__PARQUET_BROTLI,
    MR__PARQUET_LZ4,
    MR__PARQUET_ZSTD,
    MR__PARQUET_LZ4_RAW
};

/* Why chunks with the codec of this number cannot be read; NULL: they can. */
const char *mr__parquet_codec_refusal(int64_t codec);
/* *out = the decompressed bytes, which must be exactly n; owned. Memory grows with the bytes
 * decompressed, or is within the compression ratio of the codec.
 * errors   MR_DATA_LOSS: damaged, or not n bytes; MR_NOT_FOUND: the library is not installed
 *          MR_UNIMPLEMENTED: an unknown or unsupported codec */
mr_code mr__parquet_decompress(int32_t codec, const uint8_t *in, size_t n_in, size_t n,
                               mr_buffer **out, mr_status *st) MR_NODISCARD;
#endif
