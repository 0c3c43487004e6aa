/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc_unpack.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/formats/compression_libraries.h"

/* A stated length is trusted up to this multiple of the packed bytes, and this many bytes. */
enum { BELIEVED_TIMES = 16, BELIEVED = 1 << 20 };

typedef struct step_io {
    const uint8_t *in;
    size_t n_in;
    uint8_t *out;
    size_t n_out;
} step_io;

static mr_code damaged(const char *why, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "a compressed buffer is damaged: %s", why);
}

/* Both advance io by the bytes used; *ended: the frame is complete. */
static mr_code zstd_step(mr__arrow_unpacker *u, step_io *io, bool *ended, mr_status *st)
{
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    size_t left = mr__zstd.ZSTD_decompressStream(u->zstd, &out, &in);
    if (mr__zstd.ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
        return mr_fail_memory(st, 0, "zstd");
    if (mr__zstd.ZSTD_isError(left))
        return damaged(mr__zstd.ZSTD_getErrorName(left), st);
    *io = (step_io){io->in + in.pos, io->n_in - in.pos, io->out + out.pos, io->n_out - out.pos};
    *ended = left == 0;
    return MR_OK;
}

static mr_code lz4_step(mr__arrow_unpacker *u, step_io *io, bool *ended, mr_status *st)
{
    size_t n_out = io->n_out, n_in = io->n_in;
    size_t left = mr__lz4.LZ4F_decompress(u->lz4, io->out, &n_out, io->in, &n_in, NULL);
    if (mr__lz4.LZ4F_isError(left))
        return damaged(mr__lz4.LZ4F_getErrorName(left), st);
    *io = (step_io){io->in + n_in, io->n_in - n_in, io->out + n_out, io->n_out - n_out};
    *ended = left == 0;
    return MR_OK;
}

static mr_code begin(mr__arrow_unpacker *u, mr__arrow_codec codec, mr_status *st)
{
    if (codec == MR__ARROW_ZSTD) {
        MR_TRY(mr__zstd_need(st));
        if (!u->zstd)
            u->zstd = mr__zstd.ZSTD_createDCtx_advanced(mr__zstd_memory());
        if (!u->zstd)
            return mr_fail_memory(st, 0, "zstd");
        mr__zstd.ZSTD_DCtx_reset(u->zstd, ZSTD_reset_session_only);
        return MR_OK;
    }
    LZ4F_dctx *lz4 = NULL;
    MR_TRY(mr__lz4_need(st));
    if (u->lz4)
        mr__lz4.LZ4F_resetDecompressionContext(u->lz4);
    else if (mr__lz4.LZ4F_isError(mr__lz4.LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION)))
        return mr_fail_memory(st, 0, "LZ4");
    else
        u->lz4 = lz4;
    return MR_OK;
}

void mr__arrow_unpacker_reset(mr__arrow_unpacker *u)
{
    if (u->zstd)
        mr__zstd.ZSTD_freeDCtx(u->zstd);
    if (u->lz4)
        mr__lz4.LZ4F_freeDecompressionContext(u->lz4);
    *u = (mr__arrow_unpacker){0};
}

/* Doubles the size of *b, to at most `most`; its first `used` bytes are kept. */
static mr_code enlarge(mr_buffer **b, size_t used, size_t most, mr_status *st)
{
    mr_buffer *larger;
    size_t n = used < most / 2 ? 2 * used : most;
    MR_TRY(mr_buffer_alloc(&larger, n, st));
    if (used)
        memcpy(mr_buffer_data(larger), mr_buffer_data(*b), used);
    mr_buffer_unref(*b);
    *b = larger;
    return MR_OK;
}

static mr_code unpack(mr__arrow_unpacker *u, mr__arrow_codec codec, step_io io, size_t claimed,
                      mr_buffer **owner, mr_status *st)
{
    size_t most = io.n_in < SIZE_MAX / BELIEVED_TIMES - BELIEVED
                      ? io.n_in * BELIEVED_TIMES + BELIEVED
                      : SIZE_MAX;
    bool ended = false;
    mr_buffer *b = NULL;
    MR_TRY(begin(u, codec, st));
    MR_TRY(mr_buffer_alloc(&b, claimed < most ? claimed : most, st));
    io.out = mr_buffer_data(b);
    io.n_out = mr_buffer_size(b);
    mr_code rc = MR_OK;
    while (rc == MR_OK && !ended) {
        size_t n_in = io.n_in, n_out = io.n_out;
        rc = codec == MR__ARROW_ZSTD ? zstd_step(u, &io, &ended, st) : lz4_step(u, &io, &ended, st);
        size_t size = mr_buffer_size(b);
        if (rc != MR_OK || ended)
            break;
        if (io.n_out == 0 && size < claimed) {
            rc = enlarge(&b, size, claimed, st);
            if (rc != MR_OK)
                break;
            io.out = (uint8_t *)mr_buffer_data(b) + size;
            io.n_out = mr_buffer_size(b) - size;
        } else if (io.n_in == n_in && io.n_out == n_out)
            rc = damaged(io.n_out ? "it ends too early" : "it is longer than it says", st);
    }
    if (rc == MR_OK && (io.n_out || mr_buffer_size(b) < claimed))
        rc = damaged("it is shorter than it says", st);
    if (rc == MR_OK)
        *owner = b;
    else
        mr_buffer_unref(b);
    return rc;
}

mr_code mr__arrow_unpack(mr__arrow_unpacker *u, mr__arrow_codec codec, const uint8_t *packed,
                         size_t n, mr_buffer **owner, const uint8_t **data, size_t *size,
                         mr_status *st)
{
    *owner = NULL;
    *data = packed;
    *size = n;
    if (codec == MR__ARROW_PLAIN || n == 0)
        return MR_OK;
    if (n < 8)
        return damaged("it has no length", st);
    uint64_t claimed = mr__load_le(packed, 8);
    *data = packed + 8;
    *size = n - 8;
    if (claimed == UINT64_MAX)
        return MR_OK;
    if (claimed > INT64_MAX)
        return damaged("it has a negative length", st);
    *size = 0;
    if (claimed == 0)
        return MR_OK;
    const step_io io = {.in = packed + 8, .n_in = n - 8};
    MR_TRY(unpack(u, codec, io, (size_t)claimed, owner, st));
    *data = mr_buffer_data(*owner);
    *size = (size_t)claimed;
    return MR_OK;
}
