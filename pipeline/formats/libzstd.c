/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/libzstd.h"

#include "pipeline/memory/alloc.h"

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
