/* SPDX-License-Identifier: Apache-2.0 */
/* GZIP (RFC 1952) and ZLIB (RFC 1950) streams. */
#include "pipeline/formats/codec_impl.h"

#include <limits.h>

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"

typedef struct zlib_codec {
    mr__codec base;
    z_stream z;
    bool gzip;
    bool at_start; /* of a member: none of its bytes has been seen */
    bool any;      /* true once a byte has been seen */
    bool ended;
} zlib_codec;

static voidpf z_alloc(voidpf ctx, uInt n, uInt size)
{
    (void)ctx;
    return mr_calloc(n, size);
}

static void z_free(voidpf ctx, voidpf p)
{
    (void)ctx;
    mr_free(p);
}

static uInt clamp(size_t n)
{
    return n < UINT_MAX ? (uInt)n : UINT_MAX;
}

/* Runs fn over io. */
static int run(z_stream *z, mr__codec_io *io, int (*fn)(z_stream *, int), int flush)
{
    uInt n_in = clamp(io->n_in), n_out = clamp(io->n_out);
    z->next_in = (z_const Bytef *)(uintptr_t)io->in;
    z->avail_in = n_in;
    z->next_out = io->out;
    z->avail_out = n_out;
    int rc = fn(z, flush);
    io->in += n_in - z->avail_in;
    io->n_in -= n_in - z->avail_in;
    io->out += n_out - z->avail_out;
    io->n_out -= n_out - z->avail_out;
    return rc;
}

/* A stream with its trailer is complete. A gzip file may continue with another member. */
static void member_ended(zlib_codec *c)
{
    c->at_start = true;
    if (c->gzip)
        mr__zlib.inflateReset(&c->z);
    else /* of several zlib streams only the first counts */
        c->ended = true;
}

/* Skips zeros after a member of a gzip file, as tapes and block devices leave them. */
static void skip_padding(const zlib_codec *c, mr__codec_io *io)
{
    if (!c->gzip || !c->at_start || !c->any)
        return;
    for (; io->n_in && io->in[0] == 0; io->in++)
        io->n_in--;
}

static mr_code decode(mr__codec *self, mr__codec_io *io, bool in_ended, mr_status *st)
{
    zlib_codec *c = (zlib_codec *)self;
    while (!c->ended) {
        skip_padding(c, io);
        if (c->at_start && io->n_in == 0 && in_ended && c->any)
            return MR_END;
        if (c->at_start && io->n_in && c->gzip && io->in[0] != 0x1f)
            return mr_fail(
                st, MR_DATA_LOSS,
                "expected a gzip member, found byte 0x%02x; the file is corrupted or not "
                "GZIP",
                io->in[0]);
        size_t n_in = io->n_in, n_out = io->n_out;
        int rc = run(&c->z, io, mr__zlib.inflate, Z_NO_FLUSH);
        if (io->n_in != n_in) {
            c->at_start = false;
            c->any = true;
        }
        if (rc == Z_STREAM_END) {
            member_ended(c);
            continue;
        }
        if (rc == Z_MEM_ERROR)
            return mr_fail_memory(st, 0, "decompression");
        if (rc != Z_OK && rc != Z_BUF_ERROR)
            return mr_fail(st, MR_DATA_LOSS, "corrupted %s stream: %s", c->gzip ? "GZIP" : "ZLIB",
                           c->z.msg ? c->z.msg : "needs a dictionary");
        if (io->n_out == 0 || (io->n_in == 0 && !in_ended))
            return MR_OK;
        if (io->n_in == n_in && io->n_out == n_out)
            return mr__codec_cut_short(c->gzip ? "GZIP" : "ZLIB", !c->any, st);
    }
    return MR_END;
}

static void decode_close(mr__codec *self)
{
    zlib_codec *c = (zlib_codec *)self;
    mr__zlib.inflateEnd(&c->z);
    mr_free(c);
}

static mr_code encode(mr__codec *self, mr__codec_io *io, bool in_ended, mr_status *st)
{
    zlib_codec *c = (zlib_codec *)self;
    while (io->n_out && (io->n_in || in_ended)) {
        bool last = in_ended && io->n_in <= UINT_MAX;
        int rc = run(&c->z, io, mr__zlib.deflate, last ? Z_FINISH : Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            return MR_END;
        if (rc != Z_OK && rc != Z_BUF_ERROR)
            return mr_fail(st, MR_INTERNAL, "zlib failed to compress: %s",
                           c->z.msg ? c->z.msg : "unknown");
    }
    return MR_OK;
}

static void encode_close(mr__codec *self)
{
    zlib_codec *c = (zlib_codec *)self;
    mr__zlib.deflateEnd(&c->z);
    mr_free(c);
}

static const mr__codec_class decode_class = {decode, decode_close};
static const mr__codec_class encode_class = {encode, encode_close};

static zlib_codec *codec_new(bool gzip, const mr__codec_class *class_)
{
    zlib_codec *c = mr_calloc(1, sizeof *c);
    if (c) {
        c->base.class_ = class_;
        c->gzip = gzip;
        c->at_start = true;
        c->z.zalloc = z_alloc;
        c->z.zfree = z_free;
    }
    return c;
}

mr_code mr__zlib_decode_open(mr__codec **out, bool gzip, mr_status *st)
{
    MR_TRY(mr__zlib_need(st));
    zlib_codec *c = codec_new(gzip, &decode_class);
    if (!c || mr__zlib.inflateInit2_(&c->z, gzip ? 31 : 15, ZLIB_VERSION, sizeof c->z) != Z_OK) {
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "decompression");
    }
    *out = &c->base;
    return MR_OK;
}

mr_code mr__zlib_encode_open(mr__codec **out, bool gzip, mr_status *st)
{
    MR_TRY(mr__zlib_need(st));
    zlib_codec *c = codec_new(gzip, &encode_class);
    if (!c || mr__zlib.deflateInit2_(&c->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip ? 31 : 15, 8,
                                     Z_DEFAULT_STRATEGY, ZLIB_VERSION, sizeof c->z) != Z_OK) {
        mr_free(c);
        return mr_fail_memory(st, sizeof *c, "compression");
    }
    *out = &c->base;
    return MR_OK;
}
