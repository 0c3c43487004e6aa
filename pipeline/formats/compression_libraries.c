/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/compression_libraries.h"

#include "pipeline/memory/alloc.h"

struct mr__zlib mr__zlib;

mr_code mr__zlib_need(mr_status *st)
{
    static mr__late_library library =
        MR__LATE_LIBRARY("GZIP and ZLIB streams and positions are read and written", "libz.so.1",
                         "zlib1g", MR__ZLIB, mr__zlib);
    return mr__late_library_need(&library, st);
}

struct mr__lz4 mr__lz4;

mr_code mr__lz4_need(mr_status *st)
{
    static mr__late_library library = MR__LATE_LIBRARY("LZ4 buffers and pages are read",
                                                       "liblz4.so.1", "liblz4-1", MR__LZ4, mr__lz4);
    return mr__late_library_need(&library, st);
}

struct mr__zstd mr__zstd;

mr_code mr__zstd_need(mr_status *st)
{
    static mr__late_library library = MR__LATE_LIBRARY(
        "zstd streams are read and written", "libzstd.so.1", "libzstd1", MR__ZSTD, mr__zstd);
    return mr__late_library_need(&library, st);
}

static void *z_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return mr_malloc(bytes);
}

static void z_free(void *ctx, void *p)
{
    (void)ctx;
    mr_free(p);
}

ZSTD_customMem mr__zstd_memory(void)
{
    return (ZSTD_customMem){z_alloc, z_free, NULL};
}
