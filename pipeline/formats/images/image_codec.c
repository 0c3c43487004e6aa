/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of the kind of an image, and the checks common to all kinds. */
#include "pipeline/formats/images/image_codec.h"

#include <inttypes.h>
#include <string.h>

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

mr_code mr__image_header(mr__image_decoder *d, mr__image_format format, const void *data,
                         size_t size, int channels, mr__image_info *info, mr_status *st)
{
    mr__image_format found = recognize(data, size);
    if (found == MR__IMAGE_ANY || (format != MR__IMAGE_ANY && format != found))
        return not_an_image(format, found, data, size, st);
    *info = (mr__image_info){.format = found, .ratio = 1};
    MR_TRY(found == MR__IMAGE_JPEG ? mr__jpeg_header(&d->jpeg, data, size, info, st)
                                   : mr__png_header(data, size, info, st));
    if (channels)
        info->channels = channels;
    if (found == MR__IMAGE_PNG && info->channels > 2)
        info->scratch = 0; /* decoded directly to its destination */
    int64_t bytes;
    if (__builtin_mul_overflow(info->height, info->width * info->channels, &bytes) ||
        bytes > MOST_PIXEL_BYTES)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "an image of %" PRId64 " x %" PRId64 " pixels is larger than %d MiB",
                       info->width, info->height, MOST_PIXEL_BYTES >> 20);
    return found == MR__IMAGE_JPEG ? mr__jpeg_measure(data, size, info, st) : MR_OK;
}

void mr__image_shrink(mr__image_info *info, int ratio)
{
    if (info->format != MR__IMAGE_JPEG)
        return;
    info->height = (info->height + ratio - 1) / ratio;
    info->width = (info->width + ratio - 1) / ratio;
    info->ratio *= ratio;
}

mr_code mr__image_decode(mr__image_decoder *d, const mr__image_info *info, const void *data,
                         size_t size, void *pixels, mr_status *st)
{
    return info->format == MR__IMAGE_JPEG ? mr__jpeg_decode(&d->jpeg, info, data, size, pixels, st)
                                          : mr__png_decode(info, data, size, pixels, st);
}

void mr__image_decoder_reset(mr__image_decoder *d)
{
    mr__jpeg_decoder_free(d->jpeg);
    d->jpeg = NULL;
}
