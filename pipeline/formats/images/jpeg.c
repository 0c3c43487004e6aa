/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG through the TurboJPEG API of libjpeg-turbo. It decodes what it can of a damaged image, fills
 * the rest with gray and reports a warning. Here a warning is an error, except for warnings about
 * what many programs write and that costs no pixel. */
#include <inttypes.h>
#include <string.h>
#include <turbojpeg.h>

#include "pipeline/formats/images/image_codec.h"
#include "pipeline/system/late_library.h"
#include "pipeline/memory/alloc.h"

#define TURBOJPEG(X)                                                                               \
    X(tjGetErrorStr2)                                                                              \
    X(tjGetErrorCode)                                                                              \
    X(tjInitDecompress)                                                                            \
    X(tjDecompressHeader3)                                                                         \
    X(tjDestroy)                                                                                   \
    X(tjDecompress2)                                                                               \
    X(tjInitCompress)                                                                              \
    X(tjBufSize)                                                                                   \
    X(tjCompress2)
static struct {
    TURBOJPEG(MR__LATE_MEMBER)
} tj;
static mr__late_library library = MR__LATE_LIBRARY(
    "JPEG images are read and written", "libturbojpeg.so.0", "libturbojpeg0", TURBOJPEG, tj);

/* Limits the scans of a progressive file: more scans are an attack on decoding time. */
enum { FLAGS = TJFLAG_LIMITSCANS };

static mr_code failed(void *handle, const char *doing, mr_status *st)
{
    char *why = tj.tjGetErrorStr2(handle);
    if (strstr(why, "emory"))
        return mr_fail_memory(st, 0, "a JPEG image");
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s a JPEG image: %s", doing, why);
}

/* Whether the last message is about bytes between segments, or about numbers without effect. */
static bool harmless(void *handle)
{
    static const char *const known[] = {"extraneous bytes before marker", "Invalid SOS parameters",
                                        "Unknown Adobe color transform code",
                                        "Unrecognized component IDs"};
    if (tj.tjGetErrorCode(handle) != TJERR_WARNING)
        return false;
    const char *why = tj.tjGetErrorStr2(handle);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(why, known[i]))
            return true;
    return false;
}

/* Finds the next segment from *at on, moves *at to it and *next to its end, and returns its marker;
 * 0: the pixels follow, or no segment is left. Like the library it skips bytes between segments:
 * repeated FF, and meaningless bytes. */
static unsigned segment(const unsigned char *v, size_t size, size_t *at, size_t *next)
{
    size_t i = *at;
    while (i + 4 <= size && (v[i] != 0xFF || v[i + 1] == 0xFF || v[i + 1] == 0))
        i++;
    *at = i;
    if (i + 4 > size || v[i + 1] == 0xDA)
        return 0;
    size_t length = (size_t)v[i + 2] << 8 | v[i + 3];
    *next = i + 2 + length;
    return length < 2 ? 0 : v[i + 1];
}

/* An Adobe segment means that the inks are stored inverted, as Adobe's programs do. */
static bool has_adobe_segment(const unsigned char *v, size_t size)
{
    unsigned kind;
    for (size_t at = 2, next; (kind = segment(v, size, &at, &next)); at = next)
        if (kind == 0xEE && next - at >= 16 && at + 9 <= size &&
            memcmp(v + at + 4, "Adobe", 5) == 0)
            return true;
    return false;
}

static mr_code prepare(void **jpeg, mr_status *st)
{
    MR_TRY(mr__late_library_need(&library, st));
    if (!*jpeg)
        *jpeg = tj.tjInitDecompress();
    return *jpeg ? MR_OK : mr_fail_memory(st, 0, "a JPEG decoder");
}

mr_code mr__jpeg_header(void **jpeg, const void *data, size_t size, mr__image_info *info,
                        mr_status *st)
{
    int width, height, sampling, space;
    MR_TRY(prepare(jpeg, st));
    if (tj.tjDecompressHeader3(*jpeg, data, (unsigned long)size, &width, &height, &sampling,
                               &space) &&
        !harmless(*jpeg)) {
        mr_code rc = failed(*jpeg, "the header of", st);
        tj.tjDestroy(*jpeg); /* it would continue in the middle of this image */
        *jpeg = NULL;
        return rc;
    }
    info->width = width;
    info->height = height;
    info->channels = space == TJCS_GRAY ? 1 : 3;
    info->cmyk = space == TJCS_CMYK || space == TJCS_YCCK;
    info->inverted = info->cmyk && has_adobe_segment(data, size);
    return MR_OK;
}

/* Memory that decoding takes in addition to the pixels: if they arrive in several passes, the
 * library keeps all coefficients, two bytes each. 64 pixels have at least one bit, except with
 * arithmetic coding. A header that claims more is rejected, because checking it would cost that
 * memory. */
mr_code mr__jpeg_measure(const void *data, size_t size, mr__image_info *info, mr_status *st)
{
    enum { PIXELS_OF_BYTE = 8 * 64 };
    const unsigned char *v = data;
    size_t at = 2, next = 0, pixels = (size_t)info->height * (size_t)info->width;
    unsigned kind, parts = 0, blocks = 0, across = 1, down = 1;
    bool passes = false, arithmetic = false;
    for (; (kind = segment(v, size, &at, &next)); at = next) {
        if (kind < 0xC0 || kind > 0xCB || kind == 0xC4 || kind == 0xC8 || at + 10 > size)
            continue;
        passes = (kind & 3) == 2;
        arithmetic = kind > 0xC8;
        parts = v[at + 9];
        blocks = 0;
        for (size_t i = at + 11, n = 0; n < parts && i < size; n++, i += 3) {
            unsigned h = v[i] >> 4, d = v[i] & 15;
            blocks += h * d;
            across = h > across ? h : across;
            down = d > down ? d : down;
        }
    }
    passes = passes || (at + 5 <= size && v[at + 4] < parts);
    if (!arithmetic && pixels / PIXELS_OF_BYTE > size)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the header of a JPEG image: %zu bytes cannot be %" PRId64 " x %" PRId64
                       " pixels",
                       size, info->width, info->height);
    info->scratch = passes ? 2 * pixels * blocks / (across * down) : 0;
    return MR_OK;
}

static mr_code decompress(void *jpeg, const mr__image_info *info, const void *data, size_t size,
                          int pixel_format, void *pixels, mr_status *st)
{
    int width = (int)info->width, height = (int)info->height;
    if (!tj.tjDecompress2(jpeg, data, (unsigned long)size, pixels, width, 0, height, pixel_format,
                          FLAGS | TJFLAG_STOPONWARNING))
        return MR_OK;
    if (!harmless(jpeg))
        return failed(jpeg, "decoding", st);
    if (tj.tjDecompress2(jpeg, data, (unsigned long)size, pixels, width, 0, height, pixel_format,
                         FLAGS) &&
        !harmless(jpeg))
        return failed(jpeg, "decoding", st);
    return MR_OK;
}

/* Converts four inks to light: what cyan, magenta and yellow leave of it, times what black
 * leaves. */
static void mix_inks(const unsigned char *ink, size_t n, bool inverted, int channels,
                     unsigned char *to)
{
    for (size_t i = 0; i < n; i++, ink += 4) {
        unsigned light[3], black = inverted ? ink[3] : 255u - ink[3];
        for (int c = 0; c < 3; c++)
            light[c] = (inverted ? ink[c] : 255u - ink[c]) * black / 255;
        if (channels == 1)
            *to++ =
                (unsigned char)((299 * light[0] + 587 * light[1] + 114 * light[2] + 500) / 1000);
        for (int c = 0; c < 3 && channels == 3; c++)
            *to++ = (unsigned char)light[c];
    }
}

mr_code mr__jpeg_decode(void **jpeg, const mr__image_info *info, const void *data, size_t size,
                        void *pixels, mr_status *st)
{
    MR_TRY(prepare(jpeg, st));
    if (!info->cmyk)
        return decompress(*jpeg, info, data, size, info->channels == 1 ? TJPF_GRAY : TJPF_RGB,
                          pixels, st);
    size_t n = (size_t)info->height * (size_t)info->width;
    unsigned char *inks = mr_malloc(4 * n);
    if (!inks)
        return mr_fail_memory(st, 4 * n, "a JPEG image");
    mr_code rc = decompress(*jpeg, info, data, size, TJPF_CMYK, inks, st);
    if (rc == MR_OK)
        mix_inks(inks, n, info->inverted, info->channels, pixels);
    mr_free(inks);
    return rc;
}

void mr__jpeg_decoder_free(void *jpeg)
{
    if (jpeg)
        tj.tjDestroy(jpeg);
}

mr_code mr__jpeg_encode(const void *pixels, int64_t height, int64_t width, int channels,
                        int quality, void **out, size_t *size, mr_status *st)
{
    int sampling = channels == 1 ? TJSAMP_GRAY : TJSAMP_420;
    MR_TRY(mr__late_library_need(&library, st));
    tjhandle jpeg = tj.tjInitCompress();
    if (!jpeg)
        return mr_fail_memory(st, 0, "a JPEG encoder");
    unsigned long n = tj.tjBufSize((int)width, (int)height, sampling);
    unsigned char *buffer = n == (unsigned long)-1 ? NULL : mr_malloc(n);
    mr_code rc = MR_OK;
    if (!buffer)
        rc = mr_fail_memory(st, n, "a JPEG image");
    else if (tj.tjCompress2(jpeg, pixels, (int)width, 0, (int)height,
                            channels == 1 ? TJPF_GRAY : TJPF_RGB, &buffer, &n, sampling, quality,
                            TJFLAG_NOREALLOC))
        rc = failed(jpeg, "encoding", st);
    tj.tjDestroy(jpeg);
    if (rc != MR_OK) {
        mr_free(buffer);
        return rc;
    }
    *out = buffer;
    *size = n;
    return MR_OK;
}
