/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LIBZSTD_H
#define MR_PIPELINE_FORMATS_LIBZSTD_H
/* The functions of libzstd that are used, in a table that is filled with the first of its streams,
 * and the memory that its contexts take, of alloc.h's table. Within the formats room. */
#define ZSTD_STATIC_LINKING_ONLY /* for contexts that take their memory from a table */
#include <zdict.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "pipeline/system/late_library.h"

#define MR__ZSTD(X)                                                                                \
    X(ZSTD_isError)                                                                                \
    X(ZSTD_getErrorCode)                                                                           \
    X(ZSTD_getErrorName)                                                                           \
    X(ZSTD_createDCtx_advanced)                                                                    \
    X(ZSTD_freeDCtx)                                                                               \
    X(ZSTD_DCtx_reset)                                                                             \
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

/* errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed. thread any */
mr_code mr__zstd_need(mr_status *st) MR_NODISCARD;
ZSTD_customMem mr__zstd_memory(void);
#endif
