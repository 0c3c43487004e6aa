/* SPDX-License-Identifier: Apache-2.0 */
/* PNG through libspng. Palettes become colours, transparency alpha; 16 bits become the upper 8, or
 * narrower samples 16 bits. libspng gets the chunks that the pixels depend on: texts, profiles and
 * times, however many, large or damaged, are nothing to an image. */
#include <spng.h>
#include <string.h>

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/formats/images/image_codec.h"
#include "pipeline/system/late_library.h"
#include "pipeline/memory/alloc.h"

#define SPNG(X)                                                                                    \
    X(spng_strerror)                                                                               \
    X(spng_ctx_new2)                                                                               \
    X(spng_set_chunk_limits)                                                                       \
    X(spng_set_png_stream)                                                                         \
    X(spng_get_ihdr)                                                                               \
    X(spng_get_trns)                                                                               \
    X(spng_ctx_free)                                                                               \
    X(spng_decode_image)                                                                           \
    X(spng_decode_chunks)
static struct {
    SPNG(MR__LATE_MEMBER)
} spng;
static mr__late_library library =
    MR__LATE_LIBRARY("PNG images are read", "libspng.so.0", "libspng0", SPNG, spng);

/* No chunk other than the pixels needs more, and a file of a few bytes may claim gigabytes. */
enum { MOST_CHUNK_BYTES = 64 << 20 };

/* An allocation failed: libspng, and zlib inside it, report that as other errors too. */
static _Thread_local bool no_memory;

static void *see(void *p)
{
    no_memory = no_memory || !p;
    return p;
}

static void *allocate(size_t bytes)
{
    return see(mr_malloc(bytes));
}

static void *allocate_again(void *old, size_t bytes)
{
    return see(mr_realloc(old, bytes));
}

static void *allocate_zeroed(size_t n, size_t bytes)
{
    return see(mr_calloc(n, bytes));
}

static mr_code failed(int error, mr_status *st)
{
    if (no_memory)
        return mr_fail_memory(st, 0, "a PNG image");
    return mr_fail(st, MR_INVALID_ARGUMENT, "decoding a PNG image: %s", spng.spng_strerror(error));
}

/* ---- chunks ---- */

/* A chunk: the length of its data (4 bytes), type (4), data, checksum of type and data (4). */
enum { SIGNATURE = 8, BEFORE = 8, AFTER = 4 };

/* The bytes of a file on their way to libspng. */
typedef struct source {
    const unsigned char *at, *end;
    size_t left; /* bytes from `at` on that are passed on as they are */
} source;

static uint64_t number(const unsigned char *p)
{
    return (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | p[3];
}

/* A small first letter marks the chunks that a decoder may ignore. */
static bool matters(const unsigned char *type)
{
    return !(type[0] & 0x20) || memcmp(type, "tRNS", 4) == 0;
}

/* Moves to the next chunk that matters. */
static void find_chunk(source *s)
{
    for (;;) {
        size_t have = (size_t)(s->end - s->at);
        if (have < BEFORE) {
            s->left = have;
            return;
        }
        uint64_t bytes = BEFORE + number(s->at) + AFTER;
        bool whole = bytes <= have;
        if (matters(s->at + 4)) {
            s->left = whole ? (size_t)bytes : have;
            return;
        }
        s->at += whole ? (size_t)bytes : have;
    }
}

static int give_bytes(spng_ctx *png, void *user, void *to, size_t n)
{
    source *s = user;
    (void)png;
    while (n) {
        if (!s->left)
            find_chunk(s);
        if (!s->left)
            return SPNG_IO_EOF;
        size_t k = n < s->left ? n : s->left;
        memcpy(to, s->at, k);
        to = (char *)to + k;
        n -= k;
        s->at += k;
        s->left -= k;
    }
    return 0;
}

/* The orientation that the eXIf chunk gives the image. It may follow the pixels. */
static mr_code read_orientation(const unsigned char *at, size_t size, int *out, mr_status *st)
{
    const unsigned char *end = at + size;
    for (at += SIGNATURE; end - at >= BEFORE + AFTER;) {
        uint64_t n = number(at), bytes = BEFORE + n + AFTER;
        if (bytes > (size_t)(end - at))
            return MR_OK;
        if (memcmp(at + 4, "eXIf", 4) == 0) {
            MR_TRY(mr__zlib_need(st));
            if (mr__zlib.crc32_z(0, at + 4, (size_t)n + 4) != number(at + BEFORE + n))
                return mr_fail(st, MR_INVALID_ARGUMENT,
                               "the orientation of a PNG image: its eXIf chunk is damaged");
            *out = mr__exif_orientation(at + BEFORE, (size_t)n);
            return MR_OK;
        }
        at += bytes;
    }
    return MR_OK;
}

/* ---- decoding ---- */

/* Starts to read a file; s must outlive the result. */
static spng_ctx *start(source *s, const void *data, size_t size, struct spng_ihdr *header,
                       int *error)
{
    struct spng_alloc memory = {allocate, allocate_again, allocate_zeroed, mr_free};
    no_memory = false;
    *s = (source){.at = data, .end = (const unsigned char *)data + size, .left = SIGNATURE};
    spng_ctx *png = spng.spng_ctx_new2(&memory, 0);
    *error = SPNG_EMEM;
    if (!png)
        return NULL;
    *error = spng.spng_set_chunk_limits(png, MOST_CHUNK_BYTES, MOST_CHUNK_BYTES);
    if (!*error)
        *error = spng.spng_set_png_stream(png, give_bytes, s);
    if (!*error)
        *error = spng.spng_get_ihdr(png, header);
    return png;
}

static bool is_gray(const struct spng_ihdr *header)
{
    return header->color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
           header->color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
}

/* The format in which pixels are decoded to their place; 0: they are decoded to RGBA first. */
static int direct(const struct spng_ihdr *header, const mr__image_info *info)
{
    if (info->wide)
        return info->channels == 4 ? SPNG_FMT_RGBA16 : 0;
    if (info->channels == 1 && header->color_type == SPNG_COLOR_TYPE_GRAYSCALE &&
        header->bit_depth <= 8)
        return SPNG_FMT_G8;
    return info->channels == 3 ? SPNG_FMT_RGB8 : info->channels == 4 ? SPNG_FMT_RGBA8 : 0;
}

mr_code mr__png_header(const void *data, size_t size, bool orient, mr__image_info *info,
                       mr_status *st)
{
    struct spng_ihdr header = {0};
    struct spng_trns transparency;
    source s;
    int error;
    MR_TRY(mr__late_library_need(&library, st));
    spng_ctx *png = start(&s, data, size, &header, &error);
    bool alpha = false;
    if (!error && header.color_type == SPNG_COLOR_TYPE_INDEXED) {
        error = spng.spng_get_trns(png, &transparency);
        alpha = !error;
        error = error == SPNG_ECHUNKAVAIL ? 0 : error;
    } else
        alpha = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
    spng.spng_ctx_free(png);
    if (error)
        return failed(error, st);
    info->height = header.height;
    info->width = header.width;
    if (!info->channels)
        info->channels = (is_gray(&header) ? 1 : 3) + alpha;
    if (!direct(&header, info))
        info->scratch = (size_t)4 << info->wide; /* of each pixel, below */
    info->scratch *= (size_t)header.height * (size_t)header.width;
    return orient ? read_orientation(data, size, &info->orientation, st) : MR_OK;
}

/* Converts RGBA to fewer channels. */
#define NARROW(NAME, T)                                                                            \
    static void NAME(const T *rgba, size_t n, bool gray, int channels, T *to)                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++, rgba += 4) {                                                \
            unsigned light = 299u * rgba[0] + 587u * rgba[1] + 114u * rgba[2];                     \
            if (channels == 3)                                                                     \
                to = (T *)memcpy(to, rgba, 3 * sizeof *to) + 3;                                    \
            else                                                                                   \
                *to++ = gray ? rgba[0] : (T)((light + 500) / 1000);                                \
            if (channels == 2)                                                                     \
                *to++ = rgba[3];                                                                   \
        }                                                                                          \
    }
NARROW(narrow_bytes, uint8_t)
NARROW(narrow_wide, uint16_t)

static int decode_through_rgba(spng_ctx *png, const mr__image_info *info, bool gray, void *pixels)
{
    size_t n = (size_t)info->height * (size_t)info->width, bytes = (4 * n) << info->wide;
    void *rgba = allocate(bytes);
    int error = SPNG_EMEM;
    if (rgba)
        error = spng.spng_decode_image(
            png, rgba, bytes, info->wide ? SPNG_FMT_RGBA16 : SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    if (!error && info->wide)
        narrow_wide(rgba, n, gray, info->channels, pixels);
    else if (!error)
        narrow_bytes(rgba, n, gray, info->channels, pixels);
    mr_free(rgba);
    return error;
}

mr_code mr__png_decode(const mr__image_info *info, const void *data, size_t size, void *pixels,
                       mr_status *st)
{
    struct spng_ihdr header = {0};
    source s;
    int error;
    MR_TRY(mr__late_library_need(&library, st));
    spng_ctx *png = start(&s, data, size, &header, &error);
    int format = direct(&header, info);
    if (error)
        ; /* the header was valid before, so this is out of memory */
    else if (format)
        error = spng.spng_decode_image(png, pixels, mr__image_bytes(info), format,
                                       info->channels == 4 ? SPNG_DECODE_TRNS : 0);
    else
        error = decode_through_rgba(png, info, is_gray(&header), pixels);
    if (!error)
        error = spng.spng_decode_chunks(png); /* checks the last checksums too */
    spng.spng_ctx_free(png);
    return error ? failed(error, st) : MR_OK;
}
