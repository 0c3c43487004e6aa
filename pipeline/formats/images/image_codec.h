/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_IMAGES_IMAGE_CODEC_H
#define MR_PIPELINE_FORMATS_IMAGES_IMAGE_CODEC_H
/* Image codecs: JPEG by libjpeg-turbo, PNG by libspng. Pixels are uint8 (uint16 where `wide` is
 * set), rows from the top, the channels of a pixel adjacent: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB
 * and alpha.
 *
 *     mr__image_decoder d = {0};
 *     mr_code rc = mr__image_header(&d, MR__IMAGE_ANY, data, size, 0, &info, st);
 *     if (rc == MR_OK)
 *         rc = mr__image_decode(&d, &info, data, size, pixels, st);
 *     mr__image_decoder_reset(&d);
 *
 * errors   MR_INVALID_ARGUMENT: not such an image, or a damaged one; the message says what is wrong
 *          MR_NOT_FOUND, MR_FAILED_PRECONDITION: the library that decodes it is not installed
 * thread   one at a time per decoder */
#include "pipeline/status.h"

typedef enum mr__image_format { MR__IMAGE_ANY, MR__IMAGE_JPEG, MR__IMAGE_PNG } mr__image_format;

/* Properties of an image once decoded. */
typedef struct mr__image_info {
    mr__image_format format; /* never ANY */
    int64_t height, width;   /* at most 65,535 each for a JPEG */
    int channels;
    bool cmyk, inverted; /* a JPEG with four inks; inverted as most programs store them */
    bool wide;           /* pixels are uint16: a PNG alone */
    int orientation; /* EXIF's, 1 to 8, which decoding undoes; 1: as stored. height and width are
                            those of the upright image */
    size_t scratch;  /* bytes that decoding takes in addition to its result; 0: few */
    int ratio;       /* JPEG: decoded at 1/ratio of its size, rounded up; set by _shrink */
} mr__image_info;

typedef struct mr__image_decoder {
    bool orient; /* set by the caller: turn images upright, as their EXIF data say */
    bool wide;   /* set by the caller: decode PNG images to uint16 */
    void *jpeg;  /* created with the first JPEG */
} mr__image_decoder;
void mr__image_decoder_reset(mr__image_decoder *d);

/* Reads the header of an image. channels 0: as in the file. Images of more than 512 MiB of pixels
 * are refused. */
mr_code mr__image_header(mr__image_decoder *d, mr__image_format format, const void *data,
                         size_t size, int channels, mr__image_info *info,
                         mr_status *st) MR_NODISCARD;
/* Decodes a JPEG at 1/ratio of its size; ratio is 1, 2, 4 or 8. */
void mr__image_shrink(mr__image_info *info, int ratio);
/* Bytes of the pixels: height * width * channels, twice that if they are wide. */
size_t mr__image_bytes(const mr__image_info *info);
/* Writes mr__image_bytes(info) bytes. */
mr_code mr__image_decode(mr__image_decoder *d, const mr__image_info *info, const void *data,
                         size_t size, void *pixels, mr_status *st) MR_NODISCARD;

/* Encodes an image of 1 or 3 channels as a JPEG at quality 1 to 100, with chroma at half the
 * resolution. *out is owned: mr_free. */
mr_code mr__jpeg_encode(const void *pixels, int64_t height, int64_t width, int channels,
                        int quality, void **out, size_t *size, mr_status *st) MR_NODISCARD;

/* The orientation that EXIF data, from their byte order on, give an image: 1 to 8. 1 if they are
 * damaged or do not say. */
int mr__exif_orientation(const void *exif, size_t size);

/* Implementation of each codec, in a file each. A header function sets info to what is stored, and
 * leaves info->channels as it is unless it is 0. */
void mr__jpeg_decoder_free(void *jpeg);
mr_code mr__jpeg_header(void **jpeg, const void *data, size_t size, bool orient,
                        mr__image_info *info, mr_status *st) MR_NODISCARD;
mr_code mr__jpeg_decode(void **jpeg, const mr__image_info *info, const void *data, size_t size,
                        void *pixels, mr_status *st) MR_NODISCARD;
mr_code mr__png_header(const void *data, size_t size, bool orient, mr__image_info *info,
                       mr_status *st) MR_NODISCARD;
mr_code mr__png_decode(const mr__image_info *info, const void *data, size_t size, void *pixels,
                       mr_status *st) MR_NODISCARD;
#endif
