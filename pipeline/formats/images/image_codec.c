/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of the kind of an image, and the checks common to all kinds. */
#include "pipeline/formats/images/image_codec.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/memory/alloc.h"

enum { MOST_PIXEL_BYTES = 1 << 29 };

static mr__image_format recognize(const unsigned char *v, size_t size)
{
    static const unsigned char jpeg[] = {0xFF, 0xD8, 0xFF};
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    if (size >= sizeof jpeg && memcmp(v, jpeg, sizeof jpeg) == 0)
        return MR__IMAGE_JPEG;
    if (size >= sizeof png && memcmp(v, png, sizeof png) == 0)
        return MR__IMAGE_PNG;
    return MR__IMAGE_ANY;
}

static mr_code not_an_image(mr__image_format wanted, mr__image_format found, const unsigned char *v,
                            size_t size, mr_status *st)
{
    static const char *const names[] = {"a JPEG or PNG image", "a JPEG image", "a PNG image"};
    if (size == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "expected %s, found an empty string",
                       names[wanted]);
    if (found != MR__IMAGE_ANY)
        return mr_fail(st, MR_INVALID_ARGUMENT, "expected %s, found %s; decode_image takes both",
                       names[wanted], names[found]);
    return mr_fail(st, MR_INVALID_ARGUMENT, "not %s: %zu bytes that begin with %02X %02X %02X",
                   names[wanted], size, v[0], size > 1 ? v[1] : 0, size > 2 ? v[2] : 0);
}

/* ---- orientation ---- */

static uint32_t number(const unsigned char *p, size_t bytes, bool little)
{
    uint32_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | p[little ? bytes - 1 - i : i];
    return n;
}

int mr__exif_orientation(const void *exif, size_t size)
{
    enum { ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3 };
    const unsigned char *v = exif;
    bool little = size >= 8 && v[0] == 'I';
    if (size < 8 || v[0] != v[1] || (v[0] != 'I' && v[0] != 'M') || number(v + 2, 2, little) != 42)
        return 1;
    size_t at = number(v + 4, 4, little); /* of the directory: a count, and entries */
    if (at > size - 2)
        return 1;
    size_t n = number(v + at, 2, little);
    for (at += 2; n-- && at + ENTRY <= size; at += ENTRY)
        if (number(v + at, 2, little) == ORIENTATION && number(v + at + 2, 2, little) == SHORT) {
            uint32_t found = number(v + at + 8, 2, little);
            return found >= 1 && found <= 8 ? (int)found : 1;
        }
    return 1;
}

/* Moves pixels of a stored image to their place in the upright one, which has info's size. */
static void turn(const mr__image_info *info, size_t pixel, const char *stored, char *to)
{
    /* Pixel (y, x) of the upright image is stored pixel first + y * down + x * right. */
    bool across = info->orientation >= 5; /* rows were columns */
    int64_t w = across ? info->height : info->width, h = across ? info->width : info->height;
    const struct {
        int64_t first, down, right;
    } ways[] = {{w - 1, w, -1},       {h * w - 1, -w, -1}, {(h - 1) * w, -w, 1}, {0, 1, w},
                {(h - 1) * w, 1, -w}, {h * w - 1, -1, -w}, {w - 1, -1, w}},
      *way = &ways[info->orientation - 2];
    for (int64_t y = 0; y < info->height; y++)
        for (int64_t x = 0; x < info->width; x++, to += pixel)
            memcpy(to, stored + (way->first + y * way->down + x * way->right) * (int64_t)pixel,
                   pixel);
}

/* ---- decoding ---- */

size_t mr__image_bytes(const mr__image_info *info)
{
    return (size_t)info->height * (size_t)info->width * (size_t)info->channels << info->wide;
}

static void set_upright_size(mr__image_info *info)
{
    int64_t height = info->height;
    if (info->orientation >= 5) {
        info->height = info->width;
        info->width = height;
    }
}

mr_code mr__image_header(mr__image_decoder *d, mr__image_format format, const void *data,
                         size_t size, int channels, mr__image_info *info, mr_status *st)
{
    mr__image_format found = recognize(data, size);
    if (found == MR__IMAGE_ANY || (format != MR__IMAGE_ANY && format != found))
        return not_an_image(format, found, data, size, st);
    bool jpeg = found == MR__IMAGE_JPEG;
    *info = (mr__image_info){.format = found,
                             .channels = channels,
                             .wide = d->wide && !jpeg,
                             .orientation = 1,
                             .ratio = 1};
    MR_TRY(jpeg ? mr__jpeg_header(&d->jpeg, data, size, d->orient, info, st)
                : mr__png_header(data, size, d->orient, info, st));
    int64_t bytes;
    if (__builtin_mul_overflow(info->height, info->width * (info->channels << info->wide),
                               &bytes) ||
        bytes > MOST_PIXEL_BYTES)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an image of %" PRId64 " x %" PRId64 " pixels is larger than %d MiB",
                       info->width, info->height, MOST_PIXEL_BYTES >> 20);
    set_upright_size(info);
    return MR_OK;
}

void mr__image_shrink(mr__image_info *info, int ratio)
{
    if (info->format != MR__IMAGE_JPEG)
        return;
    info->height = (info->height + ratio - 1) / ratio;
    info->width = (info->width + ratio - 1) / ratio;
    info->ratio *= ratio;
}

static mr_code decode_stored(mr__image_decoder *d, const mr__image_info *info, const void *data,
                             size_t size, void *pixels, mr_status *st)
{
    return info->format == MR__IMAGE_JPEG ? mr__jpeg_decode(&d->jpeg, info, data, size, pixels, st)
                                          : mr__png_decode(info, data, size, pixels, st);
}

mr_code mr__image_decode(mr__image_decoder *d, const mr__image_info *info, const void *data,
                         size_t size, void *pixels, mr_status *st)
{
    if (info->orientation <= 1)
        return decode_stored(d, info, data, size, pixels, st);
    mr__image_info stored = *info;
    if (info->orientation >= 5) {
        stored.height = info->width;
        stored.width = info->height;
    }
    size_t bytes = mr__image_bytes(info);
    void *turned = mr_malloc(bytes ? bytes : 1);
    if (!turned)
        return mr_fail_memory(st, bytes, "an image");
    mr_code rc = decode_stored(d, &stored, data, size, turned, st);
    if (rc == MR_OK)
        turn(info, (size_t)info->channels << info->wide, turned, pixels);
    mr_free(turned);
    return rc;
}

void mr__image_decoder_reset(mr__image_decoder *d)
{
    mr__jpeg_decoder_free(d->jpeg);
    d->jpeg = NULL;
}
