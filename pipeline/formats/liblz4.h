/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LIBLZ4_H
#define MR_PIPELINE_FORMATS_LIBLZ4_H
/* The functions of liblz4 that are used, in a table that is filled when one is first needed. */
#include <lz4.h>
#include <lz4frame.h>

#include "pipeline/system/late_library.h"

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

/* errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed. thread any */
mr_code mr__lz4_need(mr_status *st) MR_NODISCARD;
#endif
