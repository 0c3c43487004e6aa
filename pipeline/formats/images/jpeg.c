/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG. Decoding uses libjpeg's own interface: it reads all sampling factors, and reports each
 * warning with a code. The library decodes what it can of a damaged image, fills the rest with gray
 * and warns. Here a warning is an error, except for the few about what many programs write and that
 * costs no pixel. Encoding uses TurboJPEG, its simpler interface. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>
#include <turbojpeg.h>

#include "pipeline/formats/images/image_codec.h"
#include "pipeline/system/late_library.h"
#include "pipeline/memory/alloc.h"

#define TURBOJPEG(X)                                                                               \
    X(tjGetErrorStr2)                                                                              \
    X(tjInitCompress)                                                                              \
    X(tjDestroy)                                                                                   \
    X(tjBufSize)                                                                                   \
    X(tjCompress2)
static struct {
    TURBOJPEG(MR__LATE_MEMBER)
} tj;
static mr__late_library encoding = MR__LATE_LIBRARY("JPEG images are written", "libturbojpeg.so.0",
                                                    "libturbojpeg0", TURBOJPEG, tj);

#define LIBJPEG(X)                                                                                 \
    X(jpeg_std_error)                                                                              \
    X(jpeg_CreateDecompress)                                                                       \
    X(jpeg_destroy_decompress)                                                                     \
    X(jpeg_abort_decompress)                                                                       \
    X(jpeg_mem_src)                                                                                \
    X(jpeg_save_markers)                                                                           \
    X(jpeg_read_header)                                                                            \
    X(jpeg_has_multiple_scans)                                                                     \
    X(jpeg_start_decompress)                                                                       \
    X(jpeg_read_scanlines)                                                                         \
    X(jpeg_finish_decompress)
static struct {
    LIBJPEG(MR__LATE_MEMBER)
} lib;
static mr__late_library decoding =
    MR__LATE_LIBRARY("JPEG images are read", "libjpeg.so.62", "libjpeg62-turbo", LIBJPEG, lib);

/* Limits the scans of a progressive file: more scans are an attack on decoding time. */
enum { MOST_SCANS = 500, ROWS_PER_CALL = 16, EXIF = JPEG_APP0 + 1 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg; /* first: the library's callbacks get its address */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    bool no_memory;
    char why[JMSG_LENGTH_MAX];
} decoder;

/* ---- errors and warnings ---- */

static void stop(j_common_ptr jpeg)
{
    decoder *d = (decoder *)jpeg;
    d->no_memory = d->errors.msg_code == JERR_OUT_OF_MEMORY;
    d->errors.format_message(jpeg, d->why);
    longjmp(d->failed, 1);
}

/* Whether a warning is about bytes between segments, or about numbers without effect. */
static bool harmless(int warning)
{
    return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_NOT_SEQUENTIAL ||
           warning == JWRN_ADOBE_XFORM || warning == JWRN_JFIF_MAJOR;
}

static void see_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && !harmless(jpeg->err->msg_code))
        stop(jpeg);
}

static void print_nothing(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void see_progress(j_common_ptr jpeg)
{
    decoder *d = (decoder *)jpeg;
    if (d->jpeg.input_scan_number <= MOST_SCANS)
        return;
    d->no_memory = false;
    snprintf(d->why, sizeof d->why, "it has more than %d scans", MOST_SCANS);
    longjmp(d->failed, 1);
}

/* Runs a step, which calls the library. false: it failed; d->why says why. */
static bool attempt(decoder *d, void (*step)(decoder *d, void *ctx), void *ctx)
{
    if (setjmp(d->failed))
        return false;
    step(d, ctx);
    return true;
}

static mr_code failed(const decoder *d, const char *doing, mr_status *st)
{
    if (d->no_memory)
        return mr_fail_memory(st, 0, "a JPEG image");
    return mr_fail(st, MR_INVALID_ARGUMENT, "%s a JPEG image: %s", doing, d->why);
}

static void create(decoder *d, void *ctx)
{
    (void)ctx;
    lib.jpeg_CreateDecompress(&d->jpeg, JPEG_LIB_VERSION, sizeof d->jpeg);
}

static mr_code prepare(void **jpeg, mr_status *st)
{
    MR_TRY(mr__late_library_need(&decoding, st));
    if (*jpeg)
        return MR_OK;
    decoder *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a JPEG decoder");
    d->jpeg.err = lib.jpeg_std_error(&d->errors);
    d->errors.error_exit = stop;
    d->errors.emit_message = see_message;
    d->errors.output_message = print_nothing;
    d->progress.progress_monitor = see_progress;
    if (!attempt(d, create, NULL)) {
        mr_code rc = failed(d, "preparing for", st);
        lib.jpeg_destroy_decompress(&d->jpeg);
        mr_free(d);
        return rc;
    }
    d->jpeg.progress = &d->progress;
    *jpeg = d;
    return MR_OK;
}

void mr__jpeg_decoder_free(void *jpeg)
{
    decoder *d = jpeg;
    if (d)
        lib.jpeg_destroy_decompress(&d->jpeg);
    mr_free(d);
}

/* ---- the header ---- */

typedef struct source {
    const void *data;
    size_t size;
    bool exif; /* keep these segments */
} source;

static void read_header(decoder *d, void *ctx)
{
    const source *s = ctx;
    lib.jpeg_save_markers(&d->jpeg, EXIF, s->exif ? 0xFFFF : 0);
    lib.jpeg_mem_src(&d->jpeg, s->data, (unsigned long)s->size);
    lib.jpeg_read_header(&d->jpeg, TRUE);
}

/* 0: none that decoding supports. */
static int channels_of(const struct jpeg_decompress_struct *jpeg)
{
    switch (jpeg->jpeg_color_space) {
    case JCS_GRAYSCALE:
        return 1;
    case JCS_YCbCr:
    case JCS_RGB:
    case JCS_CMYK:
    case JCS_YCCK:
        return 3;
    default:
        return 0;
    }
}

static int orientation_of(const struct jpeg_decompress_struct *jpeg)
{
    static const char start[] = "Exif\0"; /* with the final NUL six bytes */
    for (const struct jpeg_marker_struct *m = jpeg->marker_list; m; m = m->next)
        if (m->marker == EXIF && m->data_length >= sizeof start &&
            memcmp(m->data, start, sizeof start) == 0)
            return mr__exif_orientation(m->data + sizeof start, m->data_length - sizeof start);
    return 1;
}

/* Memory that decoding takes in addition to the pixels: if they arrive in several passes, the
 * library keeps all coefficients, two bytes each. 64 pixels have at least one bit, except with
 * arithmetic coding. A header that claims more is rejected, because checking it would cost that
 * memory. */
static mr_code measure(decoder *d, size_t size, mr__image_info *info, mr_status *st)
{
    enum { PIXELS_OF_BYTE = 8 * 64 };
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    size_t pixels = (size_t)jpeg->image_height * jpeg->image_width, blocks = 0;
    if (!jpeg->arith_code && pixels / PIXELS_OF_BYTE > size)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the header of a JPEG image: %zu bytes cannot be %u x %u pixels", size,
                       jpeg->image_width, jpeg->image_height);
    for (int i = 0; i < jpeg->num_components; i++)
        blocks += (size_t)(jpeg->comp_info[i].h_samp_factor * jpeg->comp_info[i].v_samp_factor);
    if (lib.jpeg_has_multiple_scans(jpeg))
        info->scratch =
            2 * pixels * blocks / (size_t)(jpeg->max_h_samp_factor * jpeg->max_v_samp_factor);
    return MR_OK;
}

static mr_code describe(decoder *d, size_t size, bool orient, mr__image_info *info, mr_status *st)
{
    const struct jpeg_decompress_struct *jpeg = &d->jpeg;
    int channels = channels_of(jpeg);
    if (!channels)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the header of a JPEG image: it has %d colour components; 1 (gray), 3 and 4 "
                       "(CMYK) are read",
                       jpeg->num_components);
    info->width = jpeg->image_width;
    info->height = jpeg->image_height;
    info->channels = info->channels ? info->channels : channels;
    info->cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    /* An Adobe segment means that the inks are stored inverted, as Adobe's programs do. */
    info->inverted = info->cmyk && jpeg->saw_Adobe_marker;
    info->orientation = orient ? orientation_of(jpeg) : 1;
    return measure(d, size, info, st);
}

mr_code mr__jpeg_header(void **jpeg, const void *data, size_t size, bool orient,
                        mr__image_info *info, mr_status *st)
{
    source s = {data, size, orient};
    MR_TRY(prepare(jpeg, st));
    decoder *d = *jpeg;
    mr_code rc = attempt(d, read_header, &s) ? describe(d, size, orient, info, st)
                                             : failed(d, "the header of", st);
    lib.jpeg_abort_decompress(&d->jpeg);
    return rc;
}

/* ---- pixels ---- */

typedef struct picture {
    source from;
    J_COLOR_SPACE space;
    int ratio;
    size_t row_bytes;
    unsigned char *pixels;
} picture;

static void read_pixels(decoder *d, void *ctx)
{
    picture *p = ctx;
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    read_header(d, &p->from);
    jpeg->out_color_space = p->space;
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)p->ratio;
    lib.jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW rows[ROWS_PER_CALL];
        unsigned n = jpeg->output_height - jpeg->output_scanline;
        n = n < ROWS_PER_CALL ? n : ROWS_PER_CALL;
        for (unsigned i = 0; i < n; i++)
            rows[i] = p->pixels + (jpeg->output_scanline + i) * p->row_bytes;
        lib.jpeg_read_scanlines(jpeg, rows, n);
    }
    lib.jpeg_finish_decompress(jpeg);
}

static mr_code decompress(decoder *d, picture *p, mr_status *st)
{
    bool done = attempt(d, read_pixels, p);
    lib.jpeg_abort_decompress(&d->jpeg);
    return done ? MR_OK : failed(d, "decoding", st);
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
    picture p = {.from = {data, size, false},
                 .space = info->channels == 1 ? JCS_GRAYSCALE : JCS_RGB,
                 .ratio = info->ratio,
                 .row_bytes = (size_t)info->width * (size_t)info->channels,
                 .pixels = pixels};
    if (!info->cmyk)
        return decompress(*jpeg, &p, st);
    size_t n = (size_t)info->height * (size_t)info->width;
    unsigned char *inks = mr_malloc(4 * n);
    if (!inks)
        return mr_fail_memory(st, 4 * n, "a JPEG image");
    p.space = JCS_CMYK;
    p.row_bytes = 4 * (size_t)info->width;
    p.pixels = inks;
    mr_code rc = decompress(*jpeg, &p, st);
    if (rc == MR_OK)
        mix_inks(inks, n, info->inverted, info->channels, pixels);
    mr_free(inks);
    return rc;
}

/* ---- encoding ---- */

static mr_code not_encoded(tjhandle jpeg, mr_status *st)
{
    char *why = tj.tjGetErrorStr2(jpeg);
    if (strstr(why, "emory"))
        return mr_fail_memory(st, 0, "a JPEG image");
    return mr_fail(st, MR_INVALID_ARGUMENT, "encoding a JPEG image: %s", why);
}

mr_code mr__jpeg_encode(const void *pixels, int64_t height, int64_t width, int channels,
                        int quality, void **out, size_t *size, mr_status *st)
{
    int sampling = channels == 1 ? TJSAMP_GRAY : TJSAMP_420;
    MR_TRY(mr__late_library_need(&encoding, st));
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
        rc = not_encoded(jpeg, st);
    tj.tjDestroy(jpeg);
    if (rc != MR_OK) {
        mr_free(buffer);
        return rc;
    }
    *out = buffer;
    *size = n;
    return MR_OK;
}
