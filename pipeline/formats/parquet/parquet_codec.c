/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/parquet/parquet_codec.h"

#include <brotli/decode.h>
#include <snappy-c.h>
#include <string.h>

#include "pipeline/formats/compression_libraries.h"

/* ---- libraries loaded on first use ---- */

#define SNAPPY(X) X(snappy_uncompressed_length) X(snappy_uncompress)
static struct {
    SNAPPY(MR__LATE_MEMBER)
} libsnappy;

#define BROTLI(X)                                                                                  \
    X(BrotliDecoderCreateInstance)                                                                 \
    X(BrotliDecoderDecompressStream)                                                               \
    X(BrotliDecoderDestroyInstance)
static struct {
    BROTLI(MR__LATE_MEMBER)
} brotli;

static mr_code need_snappy(mr_status *st)
{
    static mr__late_library library = MR__LATE_LIBRARY("SNAPPY pages are read", "libsnappy.so.1",
                                                       "libsnappy1v5", SNAPPY, libsnappy);
    return mr__late_library_need(&library, st);
}

static mr_code need_brotli(mr_status *st)
{
    static mr__late_library library = MR__LATE_LIBRARY("BROTLI pages are read", "libbrotlidec.so.1",
                                                       "libbrotli1", BROTLI, brotli);
    return mr__late_library_need(&library, st);
}

/* ---- codecs with one call ---- */

static mr_code bad_size(const char *codec, size_t n, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "a damaged page: %s does not decompress to %zu bytes", codec,
                   n);
}

static mr_code snappy(const uint8_t *in, size_t n_in, size_t n, mr_buffer **out, mr_status *st)
{
    enum { MOST_RATIO = 32 }; /* 3 bytes expand to at most 64 */
    size_t size = 0;
    MR_TRY(need_snappy(st));
    const char *p = (const char *)in;
    if (libsnappy.snappy_uncompressed_length(p, n_in, &size) != SNAPPY_OK || size != n ||
        n / MOST_RATIO > n_in)
        return bad_size("SNAPPY", n, st);
    mr_buffer *b;
    MR_TRY(mr_buffer_alloc(&b, n, st));
    if (libsnappy.snappy_uncompress(p, n_in, mr_buffer_data(b), &size) != SNAPPY_OK || size != n) {
        mr_buffer_unref(b);
        return bad_size("SNAPPY", n, st);
    }
    *out = b;
    return MR_OK;
}

static mr_code lz4(const uint8_t *in, size_t n_in, size_t n, mr_buffer **out, mr_status *st)
{
    enum { MOST_RATIO = 256 }; /* a byte expands to at most 255 */
    mr_buffer *b;
    MR_TRY(mr__lz4_need(st));
    if (n / MOST_RATIO > n_in || n_in > INT32_MAX)
        return bad_size("LZ4_RAW", n, st);
    MR_TRY(mr_buffer_alloc(&b, n, st));
    if (mr__lz4.LZ4_decompress_safe((const char *)in, mr_buffer_data(b), (int)n_in, (int)n) !=
        (int)n) {
        mr_buffer_unref(b);
        return bad_size("LZ4_RAW", n, st);
    }
    *out = b;
    return MR_OK;
}

/* ---- codecs with streams ---- */

typedef struct brotli_codec {
    mr__codec base;
    BrotliDecoderState *state;
} brotli_codec;

static void *allocate(void *ctx, size_t bytes)
{
    (void)ctx;
    return mr_malloc(bytes);
}

static void release(void *ctx, void *p)
{
    (void)ctx;
    mr_free(p);
}

static mr_code brotli_step(mr__codec *self, mr__codec_io *io, bool in_ended, mr_status *st)
{
    brotli_codec *c = (brotli_codec *)self;
    BrotliDecoderResult said = brotli.BrotliDecoderDecompressStream(c->state, &io->n_in, &io->in,
                                                                    &io->n_out, &io->out, NULL);
    if (said == BROTLI_DECODER_RESULT_SUCCESS)
        return MR_END;
    if (said == BROTLI_DECODER_RESULT_ERROR ||
        (said == BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT && in_ended))
        return mr_fail(st, MR_DATA_LOSS, "a damaged page: not a BROTLI stream");
    return MR_OK;
}

static void brotli_close(mr__codec *self)
{
    brotli_codec *c = (brotli_codec *)self;
    if (c->state)
        brotli.BrotliDecoderDestroyInstance(c->state);
    mr_free(c);
}

static mr_code brotli_open(mr__codec **out, mr_status *st)
{
    static const mr__codec_class class_ = {brotli_step, brotli_close};
    MR_TRY(need_brotli(st));
    brotli_codec *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "decompression");
    c->base.class_ = &class_;
    c->state = brotli.BrotliDecoderCreateInstance(allocate, release, NULL);
    if (!c->state) {
        mr_free(c);
        return mr_fail_memory(st, 0, "decompression");
    }
    *out = &c->base;
    return MR_OK;
}

/* Enlarges b and keeps its first `used` bytes. */
static mr_code enlarge(mr_buffer **b, size_t used, size_t n, mr_status *st)
{
    mr_buffer *larger;
    size_t room = mr_buffer_size(*b);
    MR_TRY(mr_buffer_alloc(&larger, room < n / 4 ? 4 * room : n, st));
    memcpy(mr_buffer_data(larger), mr_buffer_data(*b), used);
    mr_buffer_unref(*b);
    *b = larger;
    return MR_OK;
}

static mr_code run(mr__codec *c, const uint8_t *in, size_t n_in, size_t n, mr_buffer **b,
                   mr_status *st)
{
    uint8_t beyond;
    size_t used = 0;
    mr__codec_io io = {.in = in, .n_in = n_in};
    for (;;) {
        size_t room = mr_buffer_size(*b);
        if (used == room && room < n) {
            MR_TRY(enlarge(b, used, n, st));
            continue;
        }
        /* After n bytes, one more byte is an error. */
        io.out = used < n ? (uint8_t *)mr_buffer_data(*b) + used : &beyond;
        io.n_out = used < n ? room - used : 1;
        size_t before = io.n_out;
        mr_code rc = c->class_->step(c, &io, true, st);
        if (rc < MR_OK)
            return rc;
        used += before - io.n_out;
        if (used > n)
            return mr_fail(st, MR_DATA_LOSS,
                           "a damaged page: it decompresses to more than %zu bytes", n);
        if (rc == MR_END)
            return used == n ? MR_OK
                             : mr_fail(st, MR_DATA_LOSS,
                                       "a damaged page: it decompresses to %zu bytes, but its "
                                       "header says %zu",
                                       used, n);
    }
}

static mr_code stream(mr__codec *c, const uint8_t *in, size_t n_in, size_t n, mr_buffer **out,
                      mr_status *st)
{
    enum { FIRST = 64 << 10, RATIO = 16 };
    size_t room = n_in < n / RATIO ? RATIO * n_in : n;
    mr_buffer *b = NULL;
    mr_code rc = mr_buffer_alloc(&b, room > FIRST ? room : n < FIRST ? n : FIRST, st);
    if (rc == MR_OK)
        rc = run(c, in, n_in, n, &b, st);
    mr__codec_close(c);
    if (rc == MR_OK)
        *out = b;
    else
        mr_buffer_unref(b);
    return rc;
}

#define GIVEN_UP                                                                                   \
    ", which the format has given up; write the file with ZSTD, SNAPPY, GZIP, BROTLI or LZ4_RAW"

const char *mr__parquet_codec_refusal(int64_t codec)
{
    return codec == MR__PARQUET_LZ4   ? "it is compressed with the framed LZ4" GIVEN_UP
           : codec == MR__PARQUET_LZO ? "it is compressed with LZO" GIVEN_UP
           : codec < MR__PARQUET_UNCOMPRESSED || codec > MR__PARQUET_LZ4_RAW
               ? "it is compressed with a codec that is unknown"
               : NULL;
}

mr_code mr__parquet_decompress(int32_t codec, const uint8_t *in, size_t n_in, size_t n,
                               mr_buffer **out, mr_status *st)
{
    mr__codec *c;
    switch (codec) {
    case MR__PARQUET_SNAPPY:
        return snappy(in, n_in, n, out, st);
    case MR__PARQUET_LZ4_RAW:
        return lz4(in, n_in, n, out, st);
    case MR__PARQUET_GZIP:
        MR_TRY(mr__zlib_decode_open(&c, true, st));
        return stream(c, in, n_in, n, out, st);
    case MR__PARQUET_ZSTD:
        MR_TRY(mr__zstd_decode_open(&c, st));
        return stream(c, in, n_in, n, out, st);
    case MR__PARQUET_BROTLI:
        MR_TRY(brotli_open(&c, st));
        return stream(c, in, n_in, n, out, st);
    default:
        return mr_fail(st, MR_UNIMPLEMENTED, "%s", mr__parquet_codec_refusal(codec));
    }
}
