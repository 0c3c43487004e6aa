/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_LIBZ_H
#define MR_PIPELINE_FORMATS_LIBZ_H
/* The functions of zlib that are used, in a table that is filled when one is first needed. */
#include <zlib.h>

#include "pipeline/system/late_library.h"

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

/* errors MR_NOT_FOUND, MR_FAILED_PRECONDITION: it is not installed. thread any */
mr_code mr__zlib_need(mr_status *st) MR_NODISCARD;
#endif
