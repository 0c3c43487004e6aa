/* SPDX-License-Identifier: Apache-2.0 */
/* encode_jpeg(x, quality): images as JPEG strings. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/images/image_codec.h"
#include "pipeline/functions/library/images.h"
#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    int64_t quality;
};

/* A JPEG cannot be larger. */
enum { MOST_PIXELS = 65500 };

static mr_code type(mr_call *c, mr_status *st)
{
    MR_TRY(mr__images_type(c, st));
    mr_leaf *leaf = &c->out;
    int64_t channels = leaf->rank < 0 ? -1 : leaf->shape[leaf->rank - 1];
    if (channels >= 0 && channels != 1 && channels != 3)
        return mr_call_fail(c, st, 0, "encode_jpeg expects 1 or 3 channels, not %" PRId64,
                            channels);
    leaf->dtype = MR_STRING;
    leaf->rank = leaf->rank < 0 ? -1 : (int8_t)(leaf->rank - 3);
    return MR_OK;
}

static void release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

/* The image's string; out's owner keeps it. */
static mr_code encode(const mr_rows *r, const mr__images *x, const char *pixels, mr_array *out,
                      mr_bytes *to, mr_status *st)
{
    const struct params *p = r->params;
    mr_buffer *b = NULL;
    void *data;
    size_t size;
    MR_TRY(mr__jpeg_encode(pixels, x->height, x->width, (int)x->channels, (int)p->quality, &data,
                           &size, st));
    mr_code rc = mr_buffer_wrap(&b, data, size, true, release, NULL, st);
    if (rc != MR_OK) {
        mr_free(data);
        return rc;
    }
    rc = mr_buffer_hold(out->owner, b, st);
    mr_buffer_unref(b);
    *to = (mr_bytes){data, size};
    return rc;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr__images x;
    const mr_array *a = &r->in[0];
    if (!mr__images_of(r, &x))
        return mr__any_value(MR_STRING, r->rows, out, st);
    MR_TRY(mr_array_alloc(out, MR_STRING, a->rank - 3, a->shape, r->rows, st));
    memset(out->data, 0, r->rows * x.per_row * sizeof(mr_bytes));
    if ((x.channels != 1 && x.channels != 3) || x.height < 1 || x.width < 1 ||
        x.height > MOST_PIXELS || x.width > MOST_PIXELS) {
        mr__fail_all(r,
                     "encode_jpeg expects 1 or 3 channels and at most %d rows and columns, not "
                     "shape [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
                     MOST_PIXELS, x.height, x.width, x.channels);
        return MR_OK;
    }
    mr_code rc = MR_OK;
    for (size_t i = 0; i < r->rows * x.per_row && rc == MR_OK; i++)
        rc = encode(r, &x, (const char *)a->data + i * x.bytes, out, (mr_bytes *)out->data + i, st);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static const mr_input_kind bytes = {.name = "an image: uint8", .dtypes = MR_DTYPE_BIT(MR_UINT8)};
static const mr_param table[] = {MR_INPUT(bytes, "x", "Images of 1 channel (gray) or 3 (RGB)."),
                                 MR_PARAM(struct params, quality, .def.i = 95, .min.i = 1,
                                          .max.i = 100, .doc = "1 (smallest) to 100 (best)."),
                                 {0}};
const mr_function mr_function_encode_jpeg = {
    .abi = MR_ABI_VERSION,
    .name = "encode_jpeg",
    .doc = "The image as a JPEG string; colour is kept at half the resolution.",
    .example = "range(1).map(x => encode_jpeg(zeros([8, 8, 3], \"uint8\"), quality=50))",
    .params = table,
    .params_size = sizeof(struct params),
    .type = type,
    .run = run,
};
