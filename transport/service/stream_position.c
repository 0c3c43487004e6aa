/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/stream_position.h"

#include <string.h>

#include "pipeline/memory/alloc.h"

void mr__stream_position_put(uint8_t out[MR__STREAM_POSITION_BYTES])
{
    memset(out, 0, MR__STREAM_POSITION_BYTES);
}

static mr_code get(const void *position, size_t bytes, uint32_t *again, uint64_t *skip,
                   mr_status *st)
{
    *again = 0;
    *skip = 0;
    if (bytes == 0)
        return MR_OK;
    if (bytes < MR__STREAM_POSITION_BYTES)
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged position: that of a stream is too short");
    memcpy(again, position, 4); /* little-endian, like the whole library */
    memcpy(skip, (const char *)position + 4, 8);
    return MR_OK;
}

mr_code mr__stream_position_again(const void *position, size_t bytes, uint64_t skip, void **out,
                                  size_t *size, mr_status *st)
{
    uint32_t again;
    uint64_t before;
    MR_TRY(get(position, bytes, &again, &before, st));
    if (again) /* the format cannot represent them; few graphs have state that depends on them */
        skip = 0;
    size_t n = bytes ? bytes : MR__STREAM_POSITION_BYTES;
    uint8_t *p = mr_calloc(1, n);
    if (!p)
        return mr_fail_memory(st, n, "a position");
    if (bytes)
        memcpy(p, position, bytes);
    again++;
    before += skip;
    memcpy(p, &again, 4);
    memcpy(p + 4, &before, 8);
    *out = p;
    *size = n;
    return MR_OK;
}

mr_code mr__stream_skip(mr_iterator *it, uint64_t n, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status why;
    mr_code rc = MR_OK;
    while (n && rc == MR_OK) {
        rc = mr_iterator_next(it, n < 4096 ? (size_t)n : 4096, &b, &why);
        n -= rc == MR_OK ? b.rows : 1;
        if (rc == MR_END)
            mr_fail(&why, rc = MR_INVALID_ARGUMENT, "a place is past the end of its stream");
        else if (rc != MR_OK && rc != MR_CANCELLED && rc != MR_RESOURCE_EXHAUSTED)
            rc = MR_OK;
    }
    mr_block_reset(&b);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

mr_code mr__stream_position_go(mr_iterator *it, const void *position, size_t bytes, mr_status *st)
{
    uint32_t again;
    uint64_t skip;
    MR_TRY(get(position, bytes, &again, &skip, st));
    if (bytes > MR__STREAM_POSITION_BYTES)
        MR_TRY(mr_iterator_restore(it, (const char *)position + MR__STREAM_POSITION_BYTES,
                                   bytes - MR__STREAM_POSITION_BYTES, st));
    MR_TRY(mr__stream_skip(it, skip, st));
    for (; again; again--)
        MR_TRY(mr_iterator_rewind(it, st));
    return MR_OK;
}
