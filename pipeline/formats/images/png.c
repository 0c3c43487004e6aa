/* SPDX-License-Identifier: Apache-2.0 */
/* PNG through libspng. Palettes become colours, 16 bits become the upper 8, transparency alpha. */
#include <spng.h>

#include "pipeline/formats/images/image_codec.h"
#include "pipeline/system/late_library.h"
#include "pipeline/memory/alloc.h"

#define SPNG(X)                                                                                    \
    X(spng_strerror)                                                                               \
    X(spng_ctx_new2)                                                                               \
    X(spng_set_chunk_limits)                                                                       \
    X(spng_set_png_buffer)                                                                         \
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

static spng_ctx *start(const void *data, size_t size, struct spng_ihdr *header, int *error)
{
    struct spng_alloc memory = {allocate, allocate_again, allocate_zeroed, mr_free};
    no_memory = false;
    spng_ctx *png = spng.spng_ctx_new2(&memory, 0);
    *error = SPNG_EMEM;
    if (!png)
        return NULL;
    *error = spng.spng_set_chunk_limits(png, MOST_CHUNK_BYTES, MOST_CHUNK_BYTES);
    if (!*error)
        *error = spng.spng_set_png_buffer(png, data, size);
    if (!*error)
        *error = spng.spng_get_ihdr(png, header);
    return png;
}

mr_code mr__png_header(const void *data, size_t size, mr__image_info *info, mr_status *st)
{
    struct spng_ihdr header = {0};
    struct spng_trns transparency;
    int error;
    MR_TRY(mr__late_library_need(&library, st));
    spng_ctx *png = start(data, size, &header, &error);
    bool alpha = false, gray = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
                               header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
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
    info->channels = (gray ? 1 : 3) + alpha;
    if (header.color_type != SPNG_COLOR_TYPE_GRAYSCALE || header.bit_depth > 8)
        info->scratch = 4 * (size_t)header.height * (size_t)header.width; /* as RGBA: see weigh */
    return MR_OK;
}

/* Converts any image to gray, or gray and alpha. */
static void weigh(const unsigned char *rgba, size_t n, bool gray, int channels, unsigned char *to)
{
    for (size_t i = 0; i < n; i++, rgba += 4) {
        unsigned light = 299u * rgba[0] + 587u * rgba[1] + 114u * rgba[2];
        *to++ = gray ? rgba[0] : (unsigned char)((light + 500) / 1000);
        if (channels == 2)
            *to++ = rgba[3];
    }
}

mr_code mr__png_decode(const mr__image_info *info, const void *data, size_t size, void *pixels,
                       mr_status *st)
{
    struct spng_ihdr header = {0};
    int error;
    MR_TRY(mr__late_library_need(&library, st));
    spng_ctx *png = start(data, size, &header, &error);
    size_t n = (size_t)info->height * (size_t)info->width;
    bool gray = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
                header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
    bool plain = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header.bit_depth <= 8;
    if (error)
        ; /* the header was valid before, so this is out of memory */
    else if (info->channels == 1 && plain)
        error = spng.spng_decode_image(png, pixels, n, SPNG_FMT_G8, 0);
    else if (info->channels == 3)
        error = spng.spng_decode_image(png, pixels, 3 * n, SPNG_FMT_RGB8, 0);
    else if (info->channels == 4)
        error = spng.spng_decode_image(png, pixels, 4 * n, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    else {
        unsigned char *rgba = allocate(4 * n);
        error = rgba ? spng.spng_decode_image(png, rgba, 4 * n, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS)
                     : SPNG_EMEM;
        if (!error)
            weigh(rgba, n, gray, info->channels, pixels);
        mr_free(rgba);
    }
    if (!error)
        error = spng.spng_decode_chunks(png); /* checks the last checksums too */
    spng.spng_ctx_free(png);
    return error ? failed(error, st) : MR_OK;
}
