/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's convolutions by plain loops: of planes of float32, [n, channels, height, width], and of
 * bfloat16, [n, height, width, channels], whose channels come in eights. Sums are doubles. */
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda_double/double.h"

enum { WORKSPACE = 1 << 16, N_CANDIDATES = 5, EIGHT = 8 };

typedef struct handle {
    cd_head head;
    int device;
    cudaStream_t stream;
} handle;

typedef struct shape4 {
    cd_head head;
    bool set, bfloat;
    int n[4]; /* images or filters, channels, height, width: in this order, however they lie */
} shape4;

typedef struct convolution {
    cd_head head;
    int pad[2], stride[2], dilation[2], groups;
    bool set;
    cudnnMathType_t math;
} convolution;

#define ENTER(call)                                                                                \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return CUDNN_STATUS_INTERNAL_ERROR;                                                    \
    } while (0)

static cudnnStatus_t destroy(cd_kind kind, void *p, const char *call)
{
    bool fails = cd_fails(call);
    cd_drop(kind, p, call);
    return fails ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t e)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "status %d of the double", (int)e);
    return text;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    ENTER("cudnnCreate");
    handle *h = cd_new(CD_DNN, sizeof *h);
    h->device = cd_current_device();
    *out = (cudnnHandle_t)h;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    return destroy(CD_DNN, h, "cudnnDestroy");
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle_, cudaStream_t s)
{
    handle *h = (handle *)handle_;
    ENTER("cudnnSetStream");
    cd_check(CD_DNN, h, "cudnnSetStream");
    if (cd_stream_device(s, "cudnnSetStream") != h->device)
        cd_misuse("cudnnSetStream: a handle that was made on cuda:%d and a stream of cuda:%d",
                  h->device, cd_stream_device(s, "cudnnSetStream"));
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    ENTER("cudnnCreateTensorDescriptor");
    *out = cd_new(CD_TENSOR, sizeof(shape4));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d)
{
    return destroy(CD_TENSOR, d, "cudnnDestroyTensorDescriptor");
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out)
{
    ENTER("cudnnCreateFilterDescriptor");
    *out = cd_new(CD_FILTER, sizeof(shape4));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d)
{
    return destroy(CD_FILTER, d, "cudnnDestroyFilterDescriptor");
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out)
{
    ENTER("cudnnCreateConvolutionDescriptor");
    convolution *c = cd_new(CD_CONVOLUTION, sizeof *c);
    c->groups = 1;
    *out = (cudnnConvolutionDescriptor_t)c;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d)
{
    return destroy(CD_CONVOLUTION, d, "cudnnDestroyConvolutionDescriptor");
}

static cudnnStatus_t set_shape(cd_kind kind, void *p, const char *call, cudnnTensorFormat_t format,
                               cudnnDataType_t type, const int n[4])
{
    shape4 *s = p;
    cd_check(kind, p, call);
    s->bfloat = format == CUDNN_TENSOR_NHWC && type == CUDNN_DATA_BFLOAT16;
    if (!s->bfloat && (format != CUDNN_TENSOR_NCHW || type != CUDNN_DATA_FLOAT))
        cd_misuse("%s: format %d, type %d", call, (int)format, (int)type);
    for (int i = 0; i < 4; i++)
        if (n[i] <= 0)
            cd_misuse("%s: [%d, %d, %d, %d]", call, n[0], n[1], n[2], n[3]);
    memcpy(s->n, n, sizeof s->n);
    s->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    static const char call[] = "cudnnSetTensor4dDescriptor";
    ENTER(call);
    return set_shape(CD_TENSOR, d, call, format, type, (int[]){n, c, h, w});
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    static const char call[] = "cudnnSetFilter4dDescriptor";
    ENTER(call);
    return set_shape(CD_FILTER, d, call, format, type, (int[]){k, c, h, w});
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t type)
{
    static const char call[] = "cudnnSetConvolution2dDescriptor";
    convolution *c = (convolution *)d;
    ENTER(call);
    cd_check(CD_CONVOLUTION, d, call);
    if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT || pad_h < 0 || pad_w < 0 ||
        u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1)
        cd_misuse("%s: what the double does not know", call);
    memcpy(c->pad, (int[]){pad_h, pad_w}, sizeof c->pad);
    memcpy(c->stride, (int[]){u, v}, sizeof c->stride);
    memcpy(c->dilation, (int[]){dilation_h, dilation_w}, sizeof c->dilation);
    c->set = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t type)
{
    ENTER("cudnnSetConvolutionMathType");
    cd_check(CD_CONVOLUTION, d, "cudnnSetConvolutionMathType");
    ((convolution *)d)->math = type;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups)
{
    ENTER("cudnnSetConvolutionGroupCount");
    cd_check(CD_CONVOLUTION, d, "cudnnSetConvolutionGroupCount");
    ((convolution *)d)->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- which algorithms there are: some that the module must not take first */

typedef enum wanted { Y, X, W } wanted;

/* The convolution by each of what it can give. Of its algorithms the first two are inexact, and
 * those from FFT on take a workspace. */
enum { INEXACT = 2, FFT = 3 };
static const struct family {
    const char *asked, *run; /* the calls */
    int algos[N_CANDIDATES];
} families[] = {
    [Y] = {"cudnnGetConvolutionForwardAlgorithm_v7",
           "cudnnConvolutionForward",
           {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_FFT,
            CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING}},
    [X] = {"cudnnGetConvolutionBackwardDataAlgorithm_v7",
           "cudnnConvolutionBackwardData",
           {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING}},
    [W] = {"cudnnGetConvolutionBackwardFilterAlgorithm_v7",
           "cudnnConvolutionBackwardFilter",
           {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING}},
};

static void check_shapes(const handle *h, const shape4 *x, const shape4 *w, const convolution *c,
                         const shape4 *y, const char *call)
{
    cd_check(CD_DNN, h, call);
    cd_check(CD_TENSOR, x, call);
    cd_check(CD_FILTER, w, call);
    cd_check(CD_CONVOLUTION, c, call);
    cd_check(CD_TENSOR, y, call);
    bool fits = x->set && w->set && c->set && y->set && x->n[0] == y->n[0] &&
                x->n[1] == w->n[1] * c->groups && y->n[1] == w->n[0] && w->n[0] % c->groups == 0;
    for (int i = 0; i < 2 && fits; i++) {
        int room = x->n[2 + i] + 2 * c->pad[i] - (w->n[2 + i] - 1) * c->dilation[i] - 1;
        fits = room >= 0 && room / c->stride[i] + 1 == y->n[2 + i];
    }
    if (!fits)
        cd_misuse("%s: images, filters and windows of shapes that do not fit", call);
    if (x->bfloat != w->bfloat || x->bfloat != y->bfloat)
        cd_misuse("%s: images, filters and windows are not of one type", call);
    if (!x->bfloat && c->math != CUDNN_FMA_MATH)
        cd_misuse("%s: the convolution may use TF32", call);
    if (x->bfloat && (c->math != CUDNN_TENSOR_OP_MATH || w->n[1] % EIGHT != 0 ||
                      w->n[0] / c->groups % EIGHT != 0))
        cd_misuse("%s: bfloat16 that no unit for it takes", call);
}

/* FFT where cuDNN has it: in float32, steps of 1, no gaps, one group. */
static bool has_fft(const convolution *c)
{
    return c->math == CUDNN_FMA_MATH && c->stride[0] == 1 && c->stride[1] == 1 &&
           c->dilation[0] == 1 && c->dilation[1] == 1 && c->groups == 1;
}

/* In the caller's own kind of struct, which are alike but for the type of algo. */
#define CANDIDATES(of, h, x, w, c, y)                                                              \
    do {                                                                                           \
        int n_ = 0;                                                                                \
        ENTER(families[of].asked);                                                                 \
        check_shapes((handle *)(h), (shape4 *)(x), (shape4 *)(w), (convolution *)(c),              \
                     (shape4 *)(y), families[of].asked);                                           \
        for (int i_ = 0; i_ < N_CANDIDATES && n_ < room; i_++) {                                   \
            if (i_ >= FFT && !has_fft((convolution *)(c)))                                         \
                continue;                                                                          \
            memset(&out[n_], 0, sizeof out[n_]);                                                   \
            out[n_].algo = (__typeof__(out[n_].algo))families[of].algos[i_];                       \
            out[n_].memory = i_ >= FFT ? WORKSPACE : 0;                                            \
            out[n_].determinism = i_ == 1 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;         \
            out[n_].mathType = ((convolution *)(c))->math;                                         \
            n_++;                                                                                  \
        }                                                                                          \
        *found = n_;                                                                               \
        return CUDNN_STATUS_SUCCESS;                                                               \
    } while (0)

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t y, const int room,
    int *found, cudnnConvolutionFwdAlgoPerf_t *out)
{
    CANDIDATES(Y, h, x, w, c, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t h, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t x, const int room,
    int *found, cudnnConvolutionBwdDataAlgoPerf_t *out)
{
    CANDIDATES(X, h, x, w, c, y);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t h, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t w, const int room,
    int *found, cudnnConvolutionBwdFilterAlgoPerf_t *out)
{
    CANDIDATES(W, h, x, w, c, y);
}

/* ---- the sums */

typedef struct run {
    wanted of;
    shape4 x, w, y;
    convolution c;
    const void *px, *pw, *py;
    void *workspace;
    size_t workspace_bytes;
} run;

/* The terms of one pair of planes: f(x, w, y) of every place that a window meets. */
typedef struct planes {
    const run *r;
    const float *x, *w, *y; /* of one image and filter */
    double *sum;            /* of the one that is computed */
} planes;

static void add_planes(const planes *p)
{
    const int *x = p->r->x.n, *w = p->r->w.n, *y = p->r->y.n;
    const convolution *c = &p->r->c;
    for (int oy = 0; oy < y[2]; oy++)
        for (int ox = 0; ox < y[3]; ox++)
            for (int ky = 0; ky < w[2]; ky++)
                for (int kx = 0; kx < w[3]; kx++) {
                    int iy = oy * c->stride[0] - c->pad[0] + ky * c->dilation[0];
                    int ix = ox * c->stride[1] - c->pad[1] + kx * c->dilation[1];
                    if (iy < 0 || iy >= x[2] || ix < 0 || ix >= x[3])
                        continue;
                    int ax = iy * x[3] + ix, aw = ky * w[3] + kx, ay = oy * y[3] + ox;
                    if (p->r->of == Y)
                        p->sum[ay] += (double)p->x[ax] * (double)p->w[aw];
                    else if (p->r->of == X)
                        p->sum[ax] += (double)p->w[aw] * (double)p->y[ay];
                    else
                        p->sum[aw] += (double)p->x[ax] * (double)p->y[ay];
                }
}

static size_t plane(const shape4 *s)
{
    return (size_t)s->n[2] * (size_t)s->n[3];
}

static size_t values(const shape4 *s)
{
    return (size_t)s->n[0] * (size_t)s->n[1] * plane(s);
}

static size_t bytes_of(const shape4 *s)
{
    return values(s) * (s->bfloat ? sizeof(uint16_t) : sizeof(float));
}

/* Where a value of planes, number i, lies among those with channels last. */
static size_t channels_last(const shape4 *s, size_t i)
{
    size_t pixels = plane(s), channels = (size_t)s->n[1];
    size_t pixel = i % pixels, channel = i / pixels % channels, n = i / pixels / channels;
    return (n * pixels + pixel) * channels + channel;
}

/* What is at p as planes of float32, the caller's to free; NULL: it is what is written. */
static float *planes_of(const cd_op *op, const shape4 *s, const void *p, bool is_result)
{
    if (is_result)
        return NULL;
    const void *from = cd_reads(op, p, bytes_of(s));
    float *to = malloc(values(s) * sizeof *to);
    if (!to)
        cd_misuse("no memory of the host");
    if (!s->bfloat)
        memcpy(to, from, bytes_of(s));
    for (size_t i = 0; s->bfloat && i < values(s); i++) {
        uint32_t bits = (uint32_t)((const uint16_t *)from)[channels_last(s, i)] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
    return to;
}

/* The nearest of bfloat16. */
static uint16_t rounded(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(f != f ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void run_convolution(cd_op *op)
{
    const run *r = (const run *)op->payload;
    const shape4 *result = r->of == Y ? &r->y : r->of == X ? &r->x : &r->w;
    float *x = planes_of(op, &r->x, r->px, r->of == X),
          *w = planes_of(op, &r->w, r->pw, r->of == W),
          *y = planes_of(op, &r->y, r->py, r->of == Y);
    const void *out = r->of == Y ? r->py : r->of == X ? r->px : r->pw;
    void *to = cd_writes(op, (void *)(uintptr_t)out, bytes_of(result));
    double *sums = calloc(values(result), sizeof *sums);
    if (!sums)
        cd_misuse("no memory of the host");
    if (r->workspace_bytes)
        cd_writes(op, r->workspace, r->workspace_bytes);
    const size_t lx = plane(&r->x), lw = plane(&r->w), ly = plane(&r->y);
    const size_t in = (size_t)r->w.n[1], filters = (size_t)r->w.n[0];
    for (size_t n = 0; n < (size_t)r->x.n[0]; n++)
        for (size_t f = 0; f < filters; f++)
            for (size_t c = 0; c < in; c++) {
                size_t channel = f / (filters / (size_t)r->c.groups) * in + c;
                size_t ax = (n * (size_t)r->x.n[1] + channel) * lx, aw = (f * in + c) * lw;
                size_t ay = (n * filters + f) * ly;
                planes p = {r, x ? x + ax : NULL, w ? w + aw : NULL, y ? y + ay : NULL,
                            sums + (r->of == Y   ? ay
                                    : r->of == X ? ax
                                                 : aw)};
                add_planes(&p);
            }
    for (size_t i = 0; i < values(result); i++)
        if (result->bfloat)
            ((uint16_t *)to)[channels_last(result, i)] = rounded(sums[i]);
        else
            ((float *)to)[i] = (float)sums[i];
    free(sums);
    free(x);
    free(w);
    free(y);
}

static cudnnStatus_t convolve(cudnnHandle_t handle_, const void *alpha, const void *beta, int algo,
                              run r)
{
    const handle *h = (const handle *)handle_;
    const struct family *f = &families[r.of];
    const char *call = f->run;
    size_t needs = 0;
    ENTER(call);
    check_shapes(h, &r.x, &r.w, &r.c, &r.y, call);
    if (!h->stream)
        cd_misuse("%s: the handle has no stream", call);
    if (cd_device_error(h->device))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (cd_current_device() != h->device)
        cd_misuse("%s: a handle of cuda:%d while cuda:%d is current", call, h->device,
                  cd_current_device());
    if (*(const float *)alpha != 1 || *(const float *)beta != 0)
        cd_misuse("%s: alpha is not 1, or beta is not 0", call);
    for (int i = 0; i < N_CANDIDATES; i++)
        if (algo == f->algos[i] && i < INEXACT)
            cd_misuse("%s: algorithm %d is inexact", call, algo);
        else if (algo == f->algos[i] && i >= FFT)
            needs = WORKSPACE;
    if (r.workspace_bytes < needs)
        cd_misuse("%s: a workspace of %zu bytes, of %zu that the algorithm takes", call,
                  r.workspace_bytes, needs);
    cd_op *op = cd_op_new(h->stream, call, run_convolution, sizeof r);
    *(run *)op->payload = r;
    cd_submit(op);
    return CUDNN_STATUS_SUCCESS;
}

/* dx, dw and dy describe what is at x, w and y; `of` is the one that is computed. */
static run run_of(wanted of, const void *dx, const void *x, const void *dw, const void *w,
                  const void *dy, const void *y, const void *dc, void *workspace, size_t bytes)
{
    return (run){.of = of,
                 .x = *(const shape4 *)dx,
                 .w = *(const shape4 *)dw,
                 .y = *(const shape4 *)dy,
                 .c = *(const convolution *)dc,
                 .px = x,
                 .pw = w,
                 .py = y,
                 .workspace = workspace,
                 .workspace_bytes = bytes};
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha,
                                      const cudnnTensorDescriptor_t dx, const void *x,
                                      const cudnnFilterDescriptor_t dw, const void *w,
                                      const cudnnConvolutionDescriptor_t dc,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, const cudnnTensorDescriptor_t dy, void *y)
{
    return convolve(h, alpha, beta, (int)algo,
                    run_of(Y, dx, x, dw, w, dy, y, dc, workspace, bytes));
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha,
                                           const cudnnFilterDescriptor_t dw, const void *w,
                                           const cudnnTensorDescriptor_t dy, const void *y,
                                           const cudnnConvolutionDescriptor_t dc,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx, void *x)
{
    return convolve(h, alpha, beta, (int)algo,
                    run_of(X, dx, x, dw, w, dy, y, dc, workspace, bytes));
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha,
                                             const cudnnTensorDescriptor_t dx, const void *x,
                                             const cudnnTensorDescriptor_t dy, const void *y,
                                             const cudnnConvolutionDescriptor_t dc,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *workspace,
                                             size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dw, void *w)
{
    return convolve(h, alpha, beta, (int)algo,
                    run_of(W, dx, x, dw, w, dy, y, dc, workspace, bytes));
}
