/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/window2d.h"
#include <inttypes.h>
#include <string.h>

const char *const mr__paddings[] = {"valid", "same", NULL};

static size_t item(const mr_ints *list, size_t i, size_t otherwise)
{
    return !list || list->n == 0 ? otherwise : (size_t)list->v[list->n > 1 ? i : 0];
}

static mr__window_axis place(size_t in, const mr__window2d_params *p, size_t i)
{
    mr__window_axis a = {.size = item(p->size, i, 2),
                         .stride = item(p->strides, i, 1),
                         .dilation = item(p->dilation, i, 1)};
    size_t reach = (a.size - 1) * a.dilation + 1;
    if (strcmp(p->padding, "same") == 0) {
        a.out = (in + a.stride - 1) / a.stride;
        size_t needs = a.out > 0 ? (a.out - 1) * a.stride + reach : 0;
        a.before = needs > in ? (needs - in) / 2 : 0; /* an odd one goes to the end */
    } else
        a.out = in >= reach ? (in - reach) / a.stride + 1 : 0;
    return a;
}

mr__window2d mr__window2d_place(const mr_layer *l, const mr__window2d_params *p)
{
    mr__window2d w = {(size_t)l->in.shape[0], (size_t)l->in.shape[1], (size_t)l->in.shape[2],
                      .h = {0}};
    w.h = place(w.height, p, 0);
    w.w = place(w.width, p, 1);
    return w;
}

static mr_code check_list(const mr_layer *l, const char *name, const mr_ints *list, mr_status *st)
{
    if (!list || list->n <= 2)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: %s must be a number or a list of two, for height and width, found %zu",
                   l->desc->is.name, name, list->n);
}

mr_code mr__window2d_check(const mr_layer *l, const mr__window2d_params *p, mr_status *st)
{
    const char *name = l->desc->is.name;
    if (l->in.rank != 3)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s needs images [height, width, channels], found examples of rank %d; "
                       "reshape(28, 28, 1) adds an axis of channels to an image",
                       name, l->in.rank);
    if (l->in.shape[2] < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s needs images with at least one channel", name);
    MR_TRY(check_list(l, "the size of windows", p->size, st));
    MR_TRY(check_list(l, "strides", p->strides, st));
    MR_TRY(check_list(l, "dilation_rate", p->dilation, st));
    mr__window2d w = mr__window2d_place(l, p);
    if (w.h.out == 0 || w.w.out == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: windows of %zux%zu do not fit into images of %zux%zu; padding=\"same\" "
                       "would add zeros around them",
                       name, (w.h.size - 1) * w.h.dilation + 1, (w.w.size - 1) * w.w.dilation + 1,
                       w.height, w.width);
    return MR_OK;
}

/* How far the last window extends beyond the image. */
static int64_t after(const mr__window_axis *a, size_t size)
{
    size_t reach = (a->out - 1) * a->stride + (a->size - 1) * a->dilation + 1;
    return reach > size + a->before ? (int64_t)(reach - size - a->before) : 0;
}

size_t mr__window2d_onnx(const mr__window2d *w, mr_onnx_attribute *how)
{
    how[0] = (mr_onnx_attribute){"kernel_shape", MR_ONNX_INTS, .n = 2,
                                 .ints = {(int64_t)w->h.size, (int64_t)w->w.size}};
    how[1] = (mr_onnx_attribute){"strides", MR_ONNX_INTS, .n = 2,
                                 .ints = {(int64_t)w->h.stride, (int64_t)w->w.stride}};
    how[2] = (mr_onnx_attribute){"pads", MR_ONNX_INTS, .n = 4,
                                 .ints = {(int64_t)w->h.before, (int64_t)w->w.before,
                                          after(&w->h, w->height), after(&w->w, w->width)}};
    return 3;
}

static mr_code transpose(mr_onnx *g, const int64_t perm[4], mr_status *st)
{
    mr_onnx_attribute how = {"perm", MR_ONNX_INTS, .n = 4};
    for (int i = 0; i < 4; i++)
        how.ints[i] = perm[i];
    return mr_onnx_node(g, "Transpose", NULL, 0, &how, 1, st);
}

mr_code mr__channels_first_onnx(mr_onnx *g, mr_status *st)
{
    return transpose(g, (const int64_t[]){0, 3, 1, 2}, st);
}

mr_code mr__channels_last_onnx(mr_onnx *g, mr_status *st)
{
    return transpose(g, (const int64_t[]){0, 2, 3, 1}, st);
}
