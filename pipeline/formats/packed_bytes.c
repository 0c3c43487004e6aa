/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/packed_bytes_internal.h"

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"

enum { LEVEL = 3 };

mr_code mr__pack_bytes(const void *bytes, size_t n, size_t head, unsigned char **out, size_t *size,
                       mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    size_t most = mr__zstd.ZSTD_compressBound(n), got = 0;
    unsigned char *all = mr_malloc(head + most);
    ZSTD_CCtx *zstd = mr__zstd.ZSTD_createCCtx();
    if (all && zstd)
        got = mr__zstd.ZSTD_compressCCtx(zstd, all + head, most, bytes, n, LEVEL);
    bool failed = !all || !zstd || mr__zstd.ZSTD_isError(got);
    mr__zstd.ZSTD_freeCCtx(zstd);
    if (failed) {
        mr_free(all);
        return mr_fail_memory(st, n, "compressed bytes");
    }
    *out = all;
    *size = head + got;
    return MR_OK;
}

mr_code mr__unpack_bytes(const void *packed, size_t size, size_t n, unsigned char **out,
                         mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    unsigned char *bytes = mr_malloc(n + 1);
    if (!bytes)
        return mr_fail_memory(st, n, "compressed bytes");
    size_t got = mr__zstd.ZSTD_decompress(bytes, n, packed, size);
    if (mr__zstd.ZSTD_isError(got) || got != n) {
        mr_free(bytes);
        return mr_fail(st, MR_INVALID_ARGUMENT, "the bytes cannot be decompressed");
    }
    *out = bytes;
    return MR_OK;
}
