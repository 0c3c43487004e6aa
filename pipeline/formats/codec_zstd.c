/* SPDX-License-Identifier: Apache-2.0 */
/* Zstandard (RFC 8878): a sequence of frames. */
#include "pipeline/formats/codec_impl.h"

#include <string.h>

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"

typedef struct zstd_codec {
    mr__codec base;
    ZSTD_DCtx *d;
    ZSTD_CCtx *e;
    bool between_frames;
    bool decoded; /* the frame has given bytes: its first block is intact */
    bool any;     /* true once a byte has been seen */
    uint8_t
        head[ZSTD_FRAMEHEADERSIZE_MAX]; /* first bytes of the frame, which name its dictionary */
    size_t n_head;
} zstd_codec;

static mr_code fail(size_t rc, const char *doing, mr_code otherwise, mr_status *st)
{
    if (mr__zstd.ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
        return mr_fail_memory(st, 0, doing);
    return mr_fail(st, otherwise, "%s: %s", doing, mr__zstd.ZSTD_getErrorName(rc));
}

/* Sees the next bytes of a frame; *kept: how many of its first bytes it had. */
static void see_head(zstd_codec *c, const mr__codec_io *io, size_t *kept)
{
    *kept = c->between_frames ? 0 : c->n_head;
    size_t room = sizeof c->head - *kept, n = io->n_in < room ? io->n_in : room;
    if (n)
        memcpy(c->head + *kept, io->in, n);
    c->n_head = *kept + n;
}

static mr_code fail_decoding(const zstd_codec *c, size_t rc, mr_status *st)
{
    ZSTD_ErrorCode error = mr__zstd.ZSTD_getErrorCode(rc);
    if (error == ZSTD_error_memory_allocation)
        return mr_fail_memory(st, 0, "the window of a ZSTD stream");
    if (!c->decoded &&
        (error == ZSTD_error_dictionary_corrupted || error == ZSTD_error_corruption_detected))
        return mr_fail(st, MR_DATA_LOSS,
                       "the ZSTD stream is corrupted, or was made with a dictionary that it does "
                       "not name (zstd --no-dictID); if so, decompress it first, with zstd -d -D "
                       "FILE");
    if (error != ZSTD_error_dictionary_wrong)
        return fail(rc, "corrupted ZSTD stream", MR_DATA_LOSS, st);
    return mr_fail(
        st, MR_FAILED_PRECONDITION,
        "the ZSTD stream was made with a dictionary, number %u, and whole files are read "
        "without one; decompress it first, with zstd -d -D FILE",
        mr__zstd.ZSTD_getDictID_fromFrame(c->head, c->n_head));
}

static mr_code decode(mr__codec *self, mr__codec_io *io, bool in_ended, mr_status *st)
{
    zstd_codec *c = (zstd_codec *)self;
    for (;;) {
        if (in_ended && io->n_in == 0 && c->between_frames && c->any)
            return MR_END;
        ZSTD_inBuffer in = {io->in, io->n_in, 0};
        ZSTD_outBuffer out = {io->out, io->n_out, 0};
        size_t kept;
        see_head(c, io, &kept);
        size_t rc = mr__zstd.ZSTD_decompressStream(c->d, &out, &in);
        c->any |= in.pos > 0;
        io->in += in.pos;
        io->n_in -= in.pos;
        io->out += out.pos;
        io->n_out -= out.pos;
        if (mr__zstd.ZSTD_isError(rc))
            return fail_decoding(c, rc, st);
        if (kept + in.pos < c->n_head)
            c->n_head = kept + in.pos;
        if (in.pos || out.pos)
            c->between_frames = rc == 0;
        c->decoded = !c->between_frames && (c->decoded || out.pos);
        if (io->n_out == 0 || (io->n_in == 0 && !in_ended))
            return MR_OK;
        if (!in.pos && !out.pos)
            return mr__codec_cut_short("ZSTD", !c->any, st);
    }
}

static mr_code encode(mr__codec *self, mr__codec_io *io, bool in_ended, mr_status *st)
{
    zstd_codec *c = (zstd_codec *)self;
    ZSTD_inBuffer in = {io->in, io->n_in, 0};
    ZSTD_outBuffer out = {io->out, io->n_out, 0};
    size_t rc;
    do
        rc =
            mr__zstd.ZSTD_compressStream2(c->e, &out, &in, in_ended ? ZSTD_e_end : ZSTD_e_continue);
    while (!mr__zstd.ZSTD_isError(rc) && out.pos < out.size &&
           (in_ended ? rc != 0 : in.pos < in.size));
    io->in += in.pos;
    io->n_in -= in.pos;
    io->out += out.pos;
    io->n_out -= out.pos;
    if (mr__zstd.ZSTD_isError(rc))
        return fail(rc, "zstd failed to compress", MR_INTERNAL, st);
    return in_ended && rc == 0 ? MR_END : MR_OK;
}

static void close_codec(mr__codec *self)
{
    zstd_codec *c = (zstd_codec *)self;
    mr__zstd.ZSTD_freeDCtx(c->d);
    mr__zstd.ZSTD_freeCCtx(c->e);
    mr_free(c);
}

static const mr__codec_class decode_class = {decode, close_codec};
static const mr__codec_class encode_class = {encode, close_codec};

mr_code mr__zstd_decode_open(mr__codec **out, mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    zstd_codec *c = mr_calloc(1, sizeof *c);
    if (c) {
        c->base.class_ = &decode_class;
        c->between_frames = true;
        c->d = mr__zstd.ZSTD_createDCtx_advanced(mr__zstd_memory());
    }
    if (!c || !c->d) {
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "decompression");
    }
    /* Windows of 2 GiB, as zstd --long=31 makes them: their memory is used as it is filled. */
    size_t rc = mr__zstd.ZSTD_DCtx_setParameter(c->d, ZSTD_d_windowLogMax, ZSTD_WINDOWLOG_MAX);
    if (mr__zstd.ZSTD_isError(rc)) {
        close_codec(&c->base);
        return fail(rc, "zstd", MR_INTERNAL, st);
    }
    *out = &c->base;
    return MR_OK;
}

mr_code mr__zstd_encode_open(mr__codec **out, mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    zstd_codec *c = mr_calloc(1, sizeof *c);
    if (c) {
        c->base.class_ = &encode_class;
        c->e = mr__zstd.ZSTD_createCCtx_advanced(mr__zstd_memory());
    }
    if (!c || !c->e ||
        mr__zstd.ZSTD_isError(mr__zstd.ZSTD_CCtx_setParameter(c->e, ZSTD_c_checksumFlag, 1))) {
        if (c)
            mr__zstd.ZSTD_freeCCtx(c->e);
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "compression");
    }
    *out = &c->base;
    return MR_OK;
}
