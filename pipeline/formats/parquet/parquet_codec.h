/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_PARQUET_PARQUET_CODEC_H
#define MR_PIPELINE_FORMATS_PARQUET_PARQUET_CODEC_H
/* Pages of Parquet files, compressed each by itself. The libraries of the codecs are opened when a
 * file first needs them.
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

/* *out = the n bytes that come out of the n_in bytes, which must be as many; owned. Memory grows
 * with what comes out, or is in a ratio to n_in that the codec can reach.
 * errors   MR_DATA_LOSS: they do not; MR_NOT_FOUND: the library is not installed
 *          MR_UNIMPLEMENTED: no codec of that number, or one that is not read */
mr_code mr__parquet_decompress(int32_t codec, const uint8_t *in, size_t n_in, size_t n,
                               mr_buffer **out, mr_status *st) MR_NODISCARD;
#endif
