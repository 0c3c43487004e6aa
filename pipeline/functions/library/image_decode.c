/* SPDX-License-Identifier: Apache-2.0 */
/* decode_jpeg, decode_png, decode_image: compressed images as tensors. All headers of a block
 * are read first, so that pixels are decoded to their final place; images of one size make a dense
 * column.
 *
 * A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size with less work. If the only consumer is a
 * resize with antialias, the decoder chooses such a size itself, as long as the result is at least
 * twice the requested size (see shrink). */
#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/images/image_codec.h"
#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/memory_bound.h"

struct params {
    int64_t channels, ratio;
    bool has_ratio, orientation;
    char *dtype;                 /* one of dtypes; NULL: uint8 */
    int64_t to_height, to_width; /* the result of a resize around it; 0: not resized */
};

static const char *const dtypes[] = {"uint8", "uint16", NULL};

static mr_dtype dtype_of(const struct params *p)
{
    return p->dtype && strcmp(p->dtype, "uint16") == 0 ? MR_UINT16 : MR_UINT8;
}

static mr__image_format format_of(const mr_function *f)
{
    return *(const mr__image_format *)f->family;
}

static mr_code check(const mr_call *c, const struct params *p, mr_status *st)
{
    if (format_of(c->function) != MR__IMAGE_PNG && (p->channels == 2 || p->channels == 4))
        return mr_call_fail(c, st, -1, "%s returns 1 channel (gray) or 3 (RGB), not %" PRId64,
                            c->function->name, p->channels);
    if (p->has_ratio && p->ratio != 1 && p->ratio != 2 && p->ratio != 4 && p->ratio != 8)
        return mr_call_fail(c, st, -1, "%s: ratio must be 1, 2, 4 or 8, not %" PRId64,
                            c->function->name, p->ratio);
    return MR_OK;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *p = c->params;
    MR_TRY(check(c, p, st));
    c->out = *c->in[0];
    c->out.dtype = dtype_of(p);
    if (c->out.rank < 0)
        return MR_OK;
    if (c->out.rank + 3 > MR_MAX_RANK)
        return mr_call_fail(c, st, 0, "%s adds three axes: more than %d", c->function->name,
                            MR_MAX_RANK);
    c->out.shape[c->out.rank++] = -1;
    c->out.shape[c->out.rank++] = -1;
    c->out.shape[c->out.rank++] = p->channels ? p->channels : -1;
    return MR_OK;
}

static void shrink(void *params, const mr_leaf *to)
{
    struct params *p = params;
    if (p->has_ratio || to->rank < 3)
        return;
    p->to_height = to->shape[to->rank - 3];
    p->to_width = to->shape[to->rank - 2];
}

static int ratio_of(const struct params *p, const mr__image_info *info)
{
    int ratio = 8;
    if (p->has_ratio)
        return (int)p->ratio;
    if (p->to_height <= 0 || p->to_width <= 0)
        return 1;
    while (ratio > 1 &&
           (info->height / ratio < 2 * p->to_height || info->width / ratio < 2 * p->to_width))
        ratio /= 2;
    return ratio;
}

/* ---- running ---- */

typedef struct job {
    const mr_rows *r;
    mr__image_decoder decoder;
    mr__image_info *info; /* of each string */
    bool *bad;            /* each row */
    size_t per_row;
} job;

static const mr_bytes *string_at(const job *j, size_t row, size_t i)
{
    return (const mr_bytes *)j->r->in[0].data + row * j->per_row + i;
}

static bool same_size(const mr__image_info *a, const mr__image_info *b)
{
    return a->height == b->height && a->width == b->width && a->channels == b->channels;
}

/* MR_OK: the image is at fault, and the row fails. Else out of memory, or the decoder's library
 * is missing. */
static mr_code row_error(job *j, size_t row, size_t i, const mr_status *why, mr_status *st)
{
    if (why->code != MR_INVALID_ARGUMENT) {
        if (st)
            *st = *why;
        return why->code;
    }
    j->bad[row] = true;
    mr_row_fail_at(j->r, row, 0, i, why->code, "%s: %s", j->r->function->name, why->message);
    return MR_OK;
}

/* A header may be wrong, and a small file may contain a large image: refuse images that far
 * exceed the memory limit. */
static bool fits(job *j, size_t row, size_t i, const mr__image_info *info)
{
    int inks = info->cmyk ? 4 : 0; /* in addition to the colours that they become */
    size_t bound = mr__memory_bound(), pixels = (size_t)(info->height * info->width),
           stored = info->orientation > 1 ? mr__image_bytes(info) : 0, /* before it is turned */
        bytes = info->scratch + mr__image_bytes(info) + pixels * (size_t)inks + stored;
    if (bytes <= bound)
        return true;
    j->bad[row] = true;
    mr_row_fail_at(j->r, row, 0, i, MR_RESOURCE_EXHAUSTED,
                   "%s: an image of %" PRId64 " x %" PRId64
                   " pixels takes %zu bytes, but this memory limit allows at most %zu per "
                   "allocation",
                   j->r->function->name, info->width, info->height, bytes, bound);
    return false;
}

static mr_code read_headers(job *j, size_t row, mr_status *st)
{
    const struct params *p = j->r->params;
    mr__image_info *info = j->info + row * j->per_row;
    for (size_t i = 0; i < j->per_row; i++) {
        const mr_bytes *s = string_at(j, row, i);
        mr_status why;
        if (mr__image_header(&j->decoder, format_of(j->r->function), s->data, s->size,
                             (int)p->channels, &info[i], &why) != MR_OK)
            return row_error(j, row, i, &why, st);
        mr__image_shrink(&info[i], ratio_of(p, &info[i]));
        if (!fits(j, row, i, &info[i]))
            return MR_OK;
        if (same_size(&info[i], &info[0]))
            continue;
        mr_fail(&why, MR_INVALID_ARGUMENT,
                "images of one element differ in size: %" PRId64 " x %" PRId64 " x %d and %" PRId64
                " x %" PRId64 " x %d",
                info[0].height, info[0].width, info[0].channels, info[i].height, info[i].width,
                info[i].channels);
        return row_error(j, row, i, &why, st);
    }
    return MR_OK;
}

static mr_code decode_row(job *j, size_t row, char *to, mr_status *st)
{
    const mr__image_info *info = j->info + row * j->per_row;
    for (size_t i = 0; i < j->per_row && !j->bad[row]; i++) {
        const mr_bytes *s = string_at(j, row, i);
        size_t bytes = mr__image_bytes(&info[i]);
        mr_status why;
        if (mr__image_decode(&j->decoder, &info[i], s->data, s->size, to, &why) != MR_OK)
            MR_TRY(row_error(j, row, i, &why, st));
        to += bytes;
    }
    return MR_OK;
}

static void put_shape(const mr_array *x, const mr__image_info *info, int64_t *shape)
{
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank] = info ? info->height : 0;
    shape[x->rank + 1] = info ? info->width : 0;
    shape[x->rank + 2] = info ? info->channels : 0;
}

static mr_code decode_dense(job *j, const mr__image_info *info, mr_array *out, mr_status *st)
{
    const mr_array *x = &j->r->in[0];
    int64_t shape[MR_MAX_RANK];
    put_shape(x, info, shape);
    MR_TRY(mr_array_alloc(out, dtype_of(j->r->params), x->rank + 3, shape, j->r->rows, st));
    mr_code rc = MR_OK;
    for (size_t row = 0; row < j->r->rows && rc == MR_OK; row++)
        rc = decode_row(j, row, mr_array_at(out, row), st);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static size_t row_bytes(const job *j, size_t row)
{
    const mr__image_info *info = j->info + row * j->per_row;
    return j->bad[row] || !j->per_row ? 0 : mr__image_bytes(info) * j->per_row;
}

static mr_code decode_ragged(job *j, mr_array *out, mr_status *st)
{
    const mr_array *x = &j->r->in[0];
    size_t rows = j->r->rows, bytes = 0;
    mr_buffer *pixels = NULL;
    mr_array a;
    for (size_t row = 0; row < rows; row++)
        bytes += row_bytes(j, row);
    MR_TRY(mr_array_alloc_ragged(&a, dtype_of(j->r->params), x->rank + 3, rows, st));
    mr_code rc = mr_buffer_alloc(&pixels, bytes, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a.owner, pixels, st);
    char *at = pixels ? mr_buffer_data(pixels) : NULL;
    for (size_t row = 0; row < rows && rc == MR_OK; row++) {
        int64_t *shape = mr_array_shape_slot(&a, row);
        size_t n = row_bytes(j, row);
        put_shape(x, n ? j->info + row * j->per_row : NULL, shape);
        ((mr_row *)a.data)[row] = (mr_row){.data = at, .shape = shape};
        rc = decode_row(j, row, at, st);
        at += n;
    }
    mr_buffer_unref(pixels);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

static mr_code run_job(job *j, mr_array *out, mr_status *st)
{
    const mr__image_info *first = NULL;
    bool same = true;
    for (size_t row = 0; row < j->r->rows; row++) {
        MR_TRY(read_headers(j, row, st));
        const mr__image_info *info = j->info + row * j->per_row;
        if (j->bad[row] || !j->per_row)
            continue;
        first = first ? first : info;
        same = same && same_size(first, info);
    }
    return same ? decode_dense(j, first, out, st) : decode_ragged(j, out, st);
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const mr_array *x = &r->in[0];
    if (x->rank + 3 > MR_MAX_RANK) {
        mr__fail_all(r, "%s adds three axes: more than %d", r->function->name, MR_MAX_RANK);
        return mr__any_value(dtype_of(p), r->rows, out, st);
    }
    job j = {.r = r,
             .decoder = {.orient = p->orientation, .wide = dtype_of(p) == MR_UINT16},
             .per_row = mr_array_row_values(x)};
    j.info = mr_calloc(r->rows * j.per_row + 1, sizeof *j.info);
    j.bad = mr_calloc(r->rows + 1, sizeof *j.bad);
    mr_code rc = j.info && j.bad ? run_job(&j, out, st)
                                 : mr_fail_memory(st, r->rows * sizeof *j.info, "images");
    mr__image_decoder_reset(&j.decoder);
    mr_free(j.info);
    mr_free(j.bad);
    return rc;
}

/* ---- descriptors ---- */

#define ORIENTATION                                                                                \
    MR_PARAM(struct params, orientation,                                                           \
             .doc = "Turns the image upright, as the orientation in its EXIF data says.")
#define CHANNELS(text)                                                                             \
    MR_PARAM(struct params, channels, .min.i = 0, .max.i = 4, .def.i = 0, .doc = text)
static const mr_param jpeg_table[] = {
    MR_INPUT(mr_input_strings, "x", "A JPEG image, or several of one size."),
    CHANNELS("1: gray, 3: RGB; 0: as in the file."),
    MR_PARAM(struct params, ratio, .has_at = offsetof(struct params, has_ratio),
             .doc = "Decodes at 1/ratio of the size, rounded up: 1, 2, 4 or 8. If absent it is 1, "
                    "or the largest ratio that leaves resize(decode_jpeg(x), ..., antialias=true) "
                    "twice its size."),
    ORIENTATION,
    {0}};
static const mr_param png_table[] = {
    MR_INPUT(mr_input_strings, "x", "A PNG image, or several of one size."),
    CHANNELS("1: gray, 2: gray and alpha, 3: RGB, 4: RGB and alpha; 0: as in the file."),
    MR_PARAM(
        struct params, dtype, .def.s = "uint8", .names = dtypes,
        .doc =
            "The type of the pixels. uint8 takes the upper 8 of 16 bits; uint16 scales 8 bits to "
            "16."),
    {0}};
static const mr_param any_table[] = {
    MR_INPUT(mr_input_strings, "x", "A JPEG or PNG image, or several of one size."),
    CHANNELS("1: gray, 3: RGB; 0: as in the file."),
    ORIENTATION,
    {0}};
static const mr__image_format any = MR__IMAGE_ANY, jpeg = MR__IMAGE_JPEG, png = MR__IMAGE_PNG;

const mr_function mr_function_decode_image = {
    .abi = MR_ABI_VERSION,
    .name = "decode_image",
    .doc = "The pixels of a JPEG or PNG image, uint8 of shape [height, width, channels].",
    .example = "range(1).map(x => decode_image(encode_jpeg(zeros([2, 3, 1], \"uint8\"))))",
    .params = any_table,
    .params_size = sizeof(struct params),
    .family = &any,
    .type = type,
    .shrink = shrink,
    .run = run,
};
const mr_function mr_function_decode_jpeg = {
    .abi = MR_ABI_VERSION,
    .name = "decode_jpeg",
    .doc = "The pixels of a JPEG image, uint8 of shape [height, width, channels].",
    .example = "range(1).map(x => decode_jpeg(encode_jpeg(zeros([2, 3, 3], \"uint8\"))))",
    .params = jpeg_table,
    .params_size = sizeof(struct params),
    .family = &jpeg,
    .type = type,
    .shrink = shrink,
    .run = run,
};
const mr_function mr_function_decode_png = {
    .abi = MR_ABI_VERSION,
    .name = "decode_png",
    .doc = "The pixels of a PNG image, uint8 or uint16 of shape [height, width, channels].",
    .example = "range(1).map(x => decode_png(\""
               "\\x89PNG\\x0d\\x0a\\x1a\\x0a\\x00\\x00\\x00\\x0dIHDR\\x00\\x00\\x00\\x01\\x00"
               "\\x00\\x00\\x01\\x08\\x00\\x00\\x00\\x00:~\\x9bU\\x00\\x00\\x00\\x0aIDATx\\xdac`"
               "\\x07\\x00\\x00\\x09\\x00\\x08\\x8d\\xab\\xb9\\x01\\x00\\x00\\x00\\x00IEND\\xaeB"
               "`\\x82"
               "\"))",
    .params = png_table,
    .params_size = sizeof(struct params),
    .family = &png,
    .type = type,
    .run = run,
};
