/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_COMPRESSION_LIBRARIES_H
#define MR_PIPELINE_FORMATS_COMPRESSION_LIBRARIES_H
/* Function tables of zlib, LZ4 and zstd. Each is filled when its library is first needed.
 *
 * thread   any */
#include <lz4.h>
#include <lz4frame.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* for contexts that take their memory from a table */
#include <zdict.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "pipeline/system/late_library.h"

/* ---- zlib ---- */

#define MR__ZLIB(X)                                                                                \
    X(inflateInit2_)                                                                               \
    X(inflate)                                                                                     \
    X(inflateReset)                                                                                \
    X(inflateEnd)                                                                                  \
    X(deflateInit2_)                                                                               \
    X(deflate)                                                                                     \
    X(deflateEnd)                                                                                  \
    X(crc32_z)
extern struct mr__zlib {
    MR__ZLIB(MR__LATE_MEMBER)
} mr__zlib;

/* Loads zlib. errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed */
mr_code mr__zlib_need(mr_status *st) MR_NODISCARD;

/* ---- LZ4 ---- */

#define MR__LZ4(X)                                                                                 \
    X(LZ4_decompress_safe)                                                                         \
    X(LZ4F_createDecompressionContext)                                                             \
    X(LZ4F_freeDecompressionContext)                                                               \
    X(LZ4F_resetDecompressionContext)                                                              \
    X(LZ4F_decompress)                                                                             \
    X(LZ4F_isError)                                                                                \
    X(LZ4F_getErrorName)
extern struct mr__lz4 {
    MR__LZ4(MR__LATE_MEMBER)
} mr__lz4;

/* Loads liblz4. errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed */
mr_code mr__lz4_need(mr_status *st) MR_NODISCARD;

/* ---- zstd ---- */

#define MR__ZSTD(X)                                                                                \
    X(ZSTD_isError)                                                                                \
    X(ZSTD_getErrorCode)                                                                           \
    X(ZSTD_getErrorName)                                                                           \
    X(ZSTD_createDCtx_advanced)                                                                    \
    X(ZSTD_freeDCtx)                                                                               \
    X(ZSTD_DCtx_reset)                                                                             \
    X(ZSTD_DCtx_setParameter)                                                                      \
    X(ZSTD_decompressStream)                                                                       \
    X(ZSTD_decompressDCtx)                                                                         \
    X(ZSTD_decompress)                                                                             \
    X(ZSTD_DCtx_loadDictionary)                                                                    \
    X(ZSTD_createCCtx)                                                                             \
    X(ZSTD_createCCtx_advanced)                                                                    \
    X(ZSTD_freeCCtx)                                                                               \
    X(ZSTD_CCtx_setParameter)                                                                      \
    X(ZSTD_compressStream2)                                                                        \
    X(ZSTD_compress2)                                                                              \
    X(ZSTD_compressCCtx)                                                                           \
    X(ZSTD_compressBound)                                                                          \
    X(ZSTD_getDictID_fromDict)                                                                     \
    X(ZSTD_getDictID_fromFrame)                                                                    \
    X(ZSTD_findFrameCompressedSize)                                                                \
    X(ZSTD_getFrameContentSize)                                                                    \
    X(ZSTD_decompressBound)                                                                        \
    X(ZSTD_getCParams)                                                                             \
    X(ZSTD_estimateCDictSize_advanced)                                                             \
    X(ZSTD_initStaticCDict)                                                                        \
    X(ZSTD_CCtx_refCDict)                                                                          \
    X(ZDICT_isError)                                                                               \
    X(ZDICT_getDictHeaderSize)                                                                     \
    X(ZDICT_trainFromBuffer)

extern struct mr__zstd {
    MR__ZSTD(MR__LATE_MEMBER)
} mr__zstd;

/* Loads libzstd. errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed */
mr_code mr__zstd_need(mr_status *st) MR_NODISCARD;
/* Memory functions for zstd contexts, from the table of alloc.h. */
ZSTD_customMem mr__zstd_memory(void);
#endif
