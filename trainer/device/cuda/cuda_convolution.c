/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with cuDNN, in float32 without TF32, with algorithms that are deterministic. The
 * fast ones (FFT) are only available for planes, [n, channels, height, width]: images are
 * transposed before and after, which pays off. In mixed precision the bfloat16 units take images as
 * they are, packed, if channels are a multiple of eight; they accumulate in float32, and return
 * bfloat16. cuDNN requires the same padding at both ends: images that need more at one are padded
 * first. A 1x1 convolution is a product. Shapes without such an algorithm in cuDNN, and all shapes
 * if it is not installed, run on our own kernels. */
#include "trainer/device/cuda/cuda_math.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cuda/cuda_graph.h"
#include "trainer/device/cuda/cuda_host.h"
#include "trainer/device/cuda/cuda_kernels.h"

/* In this order: maximum memory of an algorithm; candidates considered; number of our own sums for
 * weights' gradients, and their parts per weight; threads of the narrow kernel for these, and rows
 * and terms of a part, which it adds up in float32; plans kept per stream: the least recently used
 * is replaced; an image for FFT in one piece; channels from which FFT pays off; terms of a sum up
 * to which our own kernels are faster; channels that bfloat16 units take at a time; alignment of
 * rooms in values. */
enum {
    MAX_WORKSPACE = 512 << 20,
    MAX_ALGORITHMS = 8,
    WEIGHT_SUMS = 1 << 18,
    NARROW_SUMS = 1 << 16,
    MOST_ROWS = 64,
    MOST_TERMS = 1 << 14,
    MIN_PARTS = 64,
    MAX_PARTS = 1024,
    MAX_PLANS = 256,
    FFT_TILE = 32,
    FFT_CHANNELS = 16,
    FEW_TERMS = 32,
    UNIT_CHANNELS = 8,
    ALIGNED = 64
};

typedef enum direction { FORWARD, BY_DATA, BY_WEIGHTS } direction;

typedef struct mr__cuda_convolution {
    struct mr__cuda_convolution *next;
    mr_math_conv2d_shape shape;
    direction to;
    bool bfloat;
    bool usable;                 /* otherwise our own kernels are used */
    bool padded;                 /* x is copied to [n, height, width, channels] first */
    size_t height, width;        /* of x for cuDNN */
    size_t top, left, workspace; /* padding done by cuDNN; bytes that the algorithm needs */
    int algorithm;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t filter;
    cudnnConvolutionDescriptor_t convolution;
} plan;

static void plan_free(plan *p)
{
    if (p->x)
        mr__cu.cudnnDestroyTensorDescriptor(p->x);
    if (p->y)
        mr__cu.cudnnDestroyTensorDescriptor(p->y);
    if (p->filter)
        mr__cu.cudnnDestroyFilterDescriptor(p->filter);
    if (p->convolution)
        mr__cu.cudnnDestroyConvolutionDescriptor(p->convolution);
    mr_free(p);
}

void mr__cuda_convolutions_free(mr__cuda_stream *s)
{
    while (s->convolutions) {
        plan *p = s->convolutions;
        s->convolutions = p->next;
        plan_free(p);
    }
    if (s->dnn)
        mr__cu.cudnnDestroy(s->dnn);
    s->dnn = NULL;
}

static size_t weights_of(const mr_math_conv2d_shape *c)
{
    return c->kernel_h * c->kernel_w * (c->channels / c->groups) * c->filters;
}

/* Input covered by `out` windows. */
static size_t reach(size_t out, size_t stride, size_t kernel, size_t dilation)
{
    return (out - 1) * stride + (kernel - 1) * dilation + 1;
}

/* Whether padding by `pad` at both ends results in `out` windows. */
static bool is_even(size_t in, size_t pad, size_t out, size_t stride, size_t kernel,
                    size_t dilation)
{
    size_t width = (kernel - 1) * dilation + 1;
    return in + 2 * pad >= width && (in + 2 * pad - width) / stride + 1 == out;
}

static void place(plan *p)
{
    const mr_math_conv2d_shape *c = &p->shape;
    p->padded =
        !is_even(c->height, c->pad_top, c->out_h, c->stride_h, c->kernel_h, c->dilation_h) ||
        !is_even(c->width, c->pad_left, c->out_w, c->stride_w, c->kernel_w, c->dilation_w);
    p->height = p->padded ? reach(c->out_h, c->stride_h, c->kernel_h, c->dilation_h) : c->height;
    p->width = p->padded ? reach(c->out_w, c->stride_w, c->kernel_w, c->dilation_w) : c->width;
    p->top = p->padded ? 0 : c->pad_top;
    p->left = p->padded ? 0 : c->pad_left;
}

static cudnnMathType_t math_of(const plan *p)
{
    return p->bfloat ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
}

static cudnnStatus_t describe(plan *p)
{
    const mr_math_conv2d_shape *c = &p->shape;
    cudnnDataType_t type = p->bfloat ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t format = p->bfloat ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    cudnnStatus_t e = mr__cu.cudnnCreateTensorDescriptor(&p->x);
    if (!e)
        e = mr__cu.cudnnCreateTensorDescriptor(&p->y);
    if (!e)
        e = mr__cu.cudnnCreateFilterDescriptor(&p->filter);
    if (!e)
        e = mr__cu.cudnnCreateConvolutionDescriptor(&p->convolution);
    if (!e)
        e = mr__cu.cudnnSetTensor4dDescriptor(p->x, format, type, (int)c->n, (int)c->channels,
                                              (int)p->height, (int)p->width);
    if (!e)
        e = mr__cu.cudnnSetTensor4dDescriptor(p->y, format, type, (int)c->n, (int)c->filters,
                                              (int)c->out_h, (int)c->out_w);
    if (!e)
        e = mr__cu.cudnnSetFilter4dDescriptor(p->filter, type, format, (int)c->filters,
                                              (int)(c->channels / c->groups), (int)c->kernel_h,
                                              (int)c->kernel_w);
    if (!e)
        e = mr__cu.cudnnSetConvolution2dDescriptor(
            p->convolution, (int)p->top, (int)p->left, (int)c->stride_h, (int)c->stride_w,
            (int)c->dilation_h, (int)c->dilation_w, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (!e)
        e = mr__cu.cudnnSetConvolutionMathType(p->convolution, math_of(p));
    return e ? e : mr__cu.cudnnSetConvolutionGroupCount(p->convolution, (int)c->groups);
}

/* Whether a candidate is deterministic, within the memory limit. */
#define USABLE(p, c)                                                                               \
    ((c).status == CUDNN_STATUS_SUCCESS && (c).determinism == CUDNN_DETERMINISTIC &&               \
     (c).mathType == math_of(p) && (c).memory <= MAX_WORKSPACE)

/* FFT, tiled for large images, if available: it is the fastest for all nontrivial sizes, and as
 * exact as a plain sum, unlike Winograd. Otherwise the first candidate. Nothing is timed: the same
 * call must return the same bits in every process. */
#define CHOOSE(p, candidates, n, fft, fft_tiling, winograd, winograd_nonfused)                     \
    for (int i_ = 0; i_ < (n); i_++) {                                                             \
        int algo_ = (int)(candidates)[i_].algo;                                                    \
        if (USABLE(p, (candidates)[i_]) && algo_ != (winograd) && algo_ != (winograd_nonfused) &&  \
            (!(p)->usable || (wants_fft(p) && algo_ == (is_small(p) ? (fft) : (fft_tiling))))) {   \
            (p)->usable = true;                                                                    \
            (p)->algorithm = algo_;                                                                \
            (p)->workspace = (candidates)[i_].memory;                                              \
        }                                                                                          \
    }

static bool wants_fft(const plan *p)
{
    return !p->bfloat && (p->to == BY_WEIGHTS || p->shape.channels >= FFT_CHANNELS);
}

static bool is_small(const plan *p)
{
    return p->height <= FFT_TILE && p->width <= FFT_TILE;
}

static void choose(cudnnHandle_t dnn, plan *p)
{
    int n = 0;
    if (p->to == FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t c[MAX_ALGORITHMS];
        if (!mr__cu.cudnnGetConvolutionForwardAlgorithm_v7(dnn, p->x, p->filter, p->convolution,
                                                           p->y, MAX_ALGORITHMS, &n, c))
            CHOOSE(p, c, n, CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
                   CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
                   CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED)
    } else if (p->to == BY_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t c[MAX_ALGORITHMS];
        if (!mr__cu.cudnnGetConvolutionBackwardDataAlgorithm_v7(
                dnn, p->filter, p->y, p->convolution, p->x, MAX_ALGORITHMS, &n, c))
            CHOOSE(p, c, n, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
                   CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
                   CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
                   CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED)
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t c[MAX_ALGORITHMS];
        if (!mr__cu.cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, p->x, p->y, p->convolution,
                                                                  p->filter, MAX_ALGORITHMS, &n, c))
            CHOOSE(p, c, n, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
                   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, /* the tiled one is seldom available */
                   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
                   CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED)
    }
}

static bool fits_int(const mr_math_conv2d_shape *c)
{
    const size_t most = 1u << 30;
    return c->n < most && c->height < most && c->width < most && c->channels < most &&
           c->filters < most && c->out_h < most && c->out_w < most;
}

/* The stream's handle; false: no cuDNN. */
static bool start_dnn(mr__cuda_stream *s)
{
    if (s->dnn || s->no_dnn)
        return s->dnn != NULL;
    mr_status st;
    s->no_dnn = true;
    if (mr__cuda_need(MR__CUDA_DNN, &st) != MR_OK) {
        mr__cuda_log(MR_LOG_WARNING, "convolutions run on slower kernels: %s", st.message);
        return false;
    }
    /* It belongs to the current device. */
    mr__cu.cudaSetDevice(s->d->index);
    if (mr__cu.cudnnCreate(&s->dnn) != CUDNN_STATUS_SUCCESS)
        s->dnn = NULL;
    if (s->dnn && mr__cu.cudnnSetStream(s->dnn, s->stream) != CUDNN_STATUS_SUCCESS) {
        mr__cu.cudnnDestroy(s->dnn);
        s->dnn = NULL;
    }
    if (!s->dnn) {
        mr__cuda_log(MR_LOG_WARNING, "convolutions run on slower kernels: cuDNN does not start");
        return false;
    }
    return true;
}

/* Too few terms per result, as for a first layer's images: cuDNN's kernels, made for many channels,
 * would idle. */
static bool is_narrow(const mr_math_conv2d_shape *c)
{
    size_t most = (size_t)1 << 31;
    return c->groups == 1 && c->channels * c->kernel_h * c->kernel_w <= FEW_TERMS &&
           c->filters % MR_QUAD == 0 && c->n * c->out_h * c->out_w * c->filters < most &&
           c->n * c->height * c->width * c->channels < most && weights_of(c) < most &&
           reach(c->out_h, c->stride_h, c->kernel_h, c->dilation_h) < most &&
           reach(c->out_w, c->stride_w, c->kernel_w, c->dilation_w) * c->channels < most;
}

static mr_code make_plan(mr__cuda_stream *s, const mr_math_conv2d_shape *c, direction to,
                         bool bfloat, plan **out, mr_status *st)
{
    plan *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "the plan of a convolution");
    p->shape = *c;
    p->to = to;
    p->bfloat = bfloat;
    place(p);
    if (fits_int(c) && start_dnn(s) && describe(p) == CUDNN_STATUS_SUCCESS)
        choose(s->dnn, p);
    *out = p;
    return MR_OK;
}

/* *out = the plan for a shape, which is not usable if cuDNN has none. */
static mr_code find_plan(mr__cuda_stream *s, const mr_math_conv2d_shape *c, direction to,
                         bool bfloat, plan **out, mr_status *st)
{
    plan **at = &s->convolutions, *p = NULL;
    for (size_t n = 1; *at; at = &(*at)->next, n++) {
        p = *at;
        bool found = p->to == to && p->bfloat == bfloat && memcmp(&p->shape, c, sizeof *c) == 0;
        if (!found && n < MAX_PLANS)
            continue;
        *at = p->next;
        if (found) {
            p->next = s->convolutions;
            *out = s->convolutions = p;
            return MR_OK;
        }
        plan_free(p);
        break;
    }
    MR_TRY(make_plan(s, c, to, bfloat, &p, st));
    p->next = s->convolutions;
    *out = s->convolutions = p;
    return MR_OK;
}

/* Whether bfloat16 units take it as it is. */
static bool comes_in_eights(const mr_math_conv2d_shape *c)
{
    return c->channels / c->groups % UNIT_CHANNELS == 0 &&
           c->filters / c->groups % UNIT_CHANNELS == 0;
}

/* Copies the plan, since submitting work may evict plans. bfloat: a bfloat16 plan if there is one,
 * else float32. */
static mr_code copy_plan(mr__cuda_stream *s, const mr_math_conv2d_shape *c, direction to,
                         bool bfloat, plan *out, mr_status *st)
{
    plan *p = NULL;
    if (bfloat && comes_in_eights(c))
        MR_TRY(find_plan(s, c, to, true, &p, st));
    if (!p || !p->usable)
        MR_TRY(find_plan(s, c, to, false, &p, st));
    *out = *p;
    return MR_OK;
}

/* Memory of a plan: filters, x and y as cuDNN takes them, either planes of float32 or bfloat16 with
 * channels last; for the latter, filters in float32; x padded, in float32. */
typedef struct rooms {
    void *filters, *x, *y;
    float *plain, *padded;
} rooms;

static size_t values_of_x(const plan *p)
{
    return p->shape.n * p->height * p->width * p->shape.channels;
}

static size_t values_of_y(const plan *p)
{
    return p->shape.n * p->shape.out_h * p->shape.out_w * p->shape.filters;
}

static size_t aligned(size_t values)
{
    return (values + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static mr_code reserve(mr__cuda_stream *s, const plan *p, rooms *r, mr_status *st)
{
    size_t weights = aligned(weights_of(&p->shape)), x = aligned(values_of_x(p)),
           y = aligned(values_of_y(p)), all = weights + x + y, padded = p->padded ? x : 0;
    size_t size = p->bfloat ? sizeof(uint16_t) : sizeof(float);
    size_t plain = p->bfloat ? weights : all;
    MR_TRY(mr__cuda_reserve(s, &s->workspace, p->workspace, st));
    MR_TRY(mr__cuda_reserve(s, &s->filters, (plain + padded) * sizeof(float), st));
    if (p->bfloat)
        MR_TRY(mr__cuda_reserve(s, &s->packed, all * size, st));
    r->plain = s->filters.p;
    r->padded = r->plain + plain;
    r->filters = p->bfloat ? s->packed.p : s->filters.p;
    r->x = (char *)r->filters + weights * size;
    r->y = (char *)r->x + x * size;
    return MR_OK;
}

static mr_code pack(mr__cuda_stream *s, size_t n, const float *x, void *to, mr_status *st)
{
    const mr_k_pack_bfloat k = {n, x, to};
    return mr__launch_pack_bfloat(s, &k, (n + 1) / 2, st);
}

static mr_code unpack(mr__cuda_stream *s, size_t n, const void *from, float *to, mr_status *st)
{
    const mr_math_cast k = {n, MR_BFLOAT16, 1, 0, from, to};
    return mr__launch_cast(s, &k, n, st);
}

/* With channels last, filters are the transposed kernel matrix. */
static mr_k_filters filters_of(const plan *p, const float *from, float *to)
{
    const mr_math_conv2d_shape *c = &p->shape;
    size_t spatial = c->kernel_h * c->kernel_w, channels = c->channels / c->groups;
    return p->bfloat ? (mr_k_filters){1, spatial * channels, c->filters, from, to}
                     : (mr_k_filters){spatial, channels, c->filters, from, to};
}

static mr_code give_kernel(mr__cuda_stream *s, const plan *p, const float *kernel, const rooms *r,
                           mr_status *st)
{
    size_t weights = weights_of(&p->shape);
    const mr_k_filters k = filters_of(p, kernel, r->plain);
    MR_TRY(mr__launch_kernel_to_filters(s, &k, weights, st));
    return p->bfloat ? pack(s, weights, r->plain, r->filters, st) : MR_OK;
}

static mr_code take_kernel(mr__cuda_stream *s, const plan *p, const rooms *r, float *kernel,
                           mr_status *st)
{
    size_t weights = weights_of(&p->shape);
    const mr_k_filters k = filters_of(p, r->plain, kernel);
    if (p->bfloat)
        MR_TRY(unpack(s, weights, r->filters, r->plain, st));
    return mr__launch_filters_to_kernel(s, &k, weights, st);
}

static size_t plane_indices(const mr_k_planes *k)
{
    return k->n * k->pixels * ((k->channels + MR_PLANES - 1) / MR_PLANES);
}

/* Converts images for cuDNN: to *to, which is `from` itself for planes of one channel. */
static mr_code give(mr__cuda_stream *s, const plan *p, size_t pixels, size_t channels,
                    const float *from, void **to, mr_status *st)
{
    const mr_k_planes k = {p->shape.n, pixels, channels, from, *to};
    if (p->bfloat)
        return pack(s, k.n * pixels * channels, from, *to, st);
    if (channels > 1)
        return mr__launch_to_planes(s, &k, plane_indices(&k), st);
    *to = (void *)(uintptr_t)from;
    return MR_OK;
}

/* Converts them back. */
static mr_code take(mr__cuda_stream *s, const plan *p, size_t pixels, size_t channels,
                    const void *from, float *to, mr_status *st)
{
    const mr_k_planes k = {p->shape.n, pixels, channels, from, to};
    if (p->bfloat)
        return unpack(s, k.n * pixels * channels, from, to, st);
    return channels == 1 ? MR_OK : mr__launch_from_planes(s, &k, plane_indices(&k), st);
}

static mr_code give_x(mr__cuda_stream *s, const plan *p, const float *x, rooms *r, mr_status *st)
{
    const mr_math_conv2d_shape *c = &p->shape;
    if (p->padded) {
        mr_k_pad k = {c->n,        c->height,  c->width,    p->height, p->width,
                      c->channels, c->pad_top, c->pad_left, x,         r->padded};
        MR_TRY(mr__launch_pad(s, &k, values_of_x(p), st));
        x = r->padded;
    }
    return give(s, p, p->height * p->width, c->channels, x, &r->x, st);
}

static mr_code give_y(mr__cuda_stream *s, const plan *p, const float *y, rooms *r, mr_status *st)
{
    const mr_math_conv2d_shape *c = &p->shape;
    return give(s, p, c->out_h * c->out_w, c->filters, y, &r->y, st);
}

static const float one = 1, zero = 0;

/* Arguments of a cuDNN call: x, the filters and y, one of which is written. No padding: it is
 * compared as bytes. */
typedef struct convolve_args {
    mr_math_conv2d_shape shape;
    size_t to, bfloat;
    void *x, *filters, *y, *workspace;
} convolve_args;

static mr_code run_convolution(mr__cuda_stream *s, const void *args, mr_status *st)
{
    const convolve_args *a = args;
    cudnnStatus_t e;
    plan *p;
    MR_TRY(find_plan(s, &a->shape, (direction)a->to, a->bfloat, &p, st));
    if (p->to == FORWARD)
        e = mr__cu.cudnnConvolutionForward(s->dnn, &one, p->x, a->x, p->filter, a->filters,
                                           p->convolution, (cudnnConvolutionFwdAlgo_t)p->algorithm,
                                           a->workspace, p->workspace, &zero, p->y, a->y);
    else if (p->to == BY_DATA)
        e = mr__cu.cudnnConvolutionBackwardData(s->dnn, &one, p->filter, a->filters, p->y, a->y,
                                                p->convolution,
                                                (cudnnConvolutionBwdDataAlgo_t)p->algorithm,
                                                a->workspace, p->workspace, &zero, p->x, a->x);
    else
        e = mr__cu.cudnnConvolutionBackwardFilter(
            s->dnn, &one, p->x, a->x, p->y, a->y, p->convolution,
            (cudnnConvolutionBwdFilterAlgo_t)p->algorithm, a->workspace, p->workspace, &zero,
            p->filter, a->filters);
    if (e != CUDNN_STATUS_SUCCESS)
        return mr__cudnn_fail(
            st, e, p->to == FORWARD ? "compute a convolution" : "compute a convolution's gradient");
    return MR_OK;
}

static mr_code convolve(mr__cuda_stream *s, const plan *p, const rooms *r, mr_status *st)
{
    const convolve_args a = {p->shape,   (size_t)p->to, p->bfloat,     r->x,
                             r->filters, r->y,          s->workspace.p};
    return mr__cuda_submit(s, run_convolution, &a, sizeof a, st);
}

static bool is_empty(const mr_math_conv2d_shape *c)
{
    return c->n == 0 || c->out_h == 0 || c->out_w == 0 || c->filters == 0;
}

/* Whether it is the product of the pixels, [n h w, channels], and the kernel, [channels,
 * filters]. */
static bool is_product(const mr_math_conv2d_shape *c)
{
    return c->kernel_h == 1 && c->kernel_w == 1 && c->groups == 1 && c->stride_h == 1 &&
           c->stride_w == 1 && c->pad_top == 0 && c->pad_left == 0 && c->out_h == c->height &&
           c->out_w == c->width;
}

mr_code mr__cuda_conv2d(mr_stream *stream, const mr_math_conv2d *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    const mr_math_conv2d_shape *c = &p->s;
    size_t rows = c->n * c->out_h * c->out_w;
    rooms r;
    plan x;
    if (is_empty(c))
        return MR_OK;
    if (is_product(c))
        return mr__cuda_dense(stream,
                              &(mr_math_dense){.rows = rows,
                                               .in = c->channels,
                                               .out = c->filters,
                                               .f = p->f,
                                               .x = p->x,
                                               .w = p->kernel,
                                               .bias = p->bias,
                                               .y = p->y,
                                               .bfloat = p->bfloat},
                              st);
    bool narrow = is_narrow(c) && mr__cuda_is_quad(p->kernel) && mr__cuda_is_quad(p->y);
    if (!narrow)
        MR_TRY(copy_plan(s, c, FORWARD, p->bfloat, &x, st));
    if (narrow || !x.usable) {
        mr_math_conv2d k = *p;
        if (p->f == MR_ACT_SOFTMAX)
            k.f = MR_ACT_LINEAR;
        MR_TRY(narrow ? mr__launch_conv2d_narrow(
                            s, &k, c->n * c->out_h * mr_runs(c->out_w) * (c->filters / MR_QUAD), st)
                      : mr__launch_conv2d(s, &k, rows * c->filters, st));
        return mr__cuda_bias_activate(s, p->f == MR_ACT_SOFTMAX ? p->f : MR_ACT_LINEAR, rows,
                                      c->filters, NULL, p->y, st);
    }
    MR_TRY(reserve(s, &x, &r, st));
    MR_TRY(give_kernel(s, &x, p->kernel, &r, st));
    MR_TRY(give_x(s, &x, p->x, &r, st));
    r.y = c->filters == 1 ? p->y : r.y;
    MR_TRY(convolve(s, &x, &r, st));
    MR_TRY(take(s, &x, c->out_h * c->out_w, c->filters, r.y, p->y, st));
    return mr__cuda_bias_activate(s, p->f, rows, c->filters, p->bias, p->y, st);
}

mr_code mr__cuda_conv2d_backward_data(mr_stream *stream, const mr_math_conv2d_backward_data *p,
                                      mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    const mr_math_conv2d_shape *c = &p->s;
    size_t values = c->n * c->height * c->width * c->channels;
    rooms r;
    plan x;
    if (values == 0)
        return MR_OK;
    if (is_empty(c))
        return mr__cuda_set(s, p->dx, 0, values * sizeof *p->dx, st);
    if (is_product(c))
        return mr__cuda_dense_backward_data(
            stream,
            &(mr_math_dense_backward_data){.rows = c->n * c->out_h * c->out_w,
                                           .in = c->channels,
                                           .out = c->filters,
                                           .dy = p->dy,
                                           .w = p->kernel,
                                           .dx = p->dx,
                                           .bfloat = p->bfloat},
            st);
    MR_TRY(copy_plan(s, c, BY_DATA, p->bfloat, &x, st));
    if (!x.usable)
        return mr__launch_conv2d_backward_data(s, p, values, st);
    MR_TRY(reserve(s, &x, &r, st));
    MR_TRY(give_kernel(s, &x, p->kernel, &r, st));
    MR_TRY(give_y(s, &x, p->dy, &r, st));
    float *whole = x.padded ? r.padded : p->dx;
    r.x = c->channels == 1 ? whole : r.x;
    MR_TRY(convolve(s, &x, &r, st));
    MR_TRY(take(s, &x, x.height * x.width, c->channels, r.x, whole, st));
    if (!x.padded)
        return MR_OK;
    mr_k_pad k = {c->n,        x.height,   x.width,     c->height, c->width,
                  c->channels, c->pad_top, c->pad_left, whole,     p->dx};
    return mr__launch_crop(s, &k, values, st);
}

/* dkernel by our own kernels: sums in parts, then the sum of these. narrow: the kernels for few
 * terms. */
static mr_code own_weights(mr__cuda_stream *s, const mr_math_conv2d_backward_weights *p,
                           bool narrow, mr_status *st)
{
    const mr_math_conv2d_shape *c = &p->s;
    size_t weights = weights_of(c), n = c->n * c->out_h;
    size_t threads = mr_tap_groups(weights / c->filters) * (c->filters / MR_QUAD); /* per part */
    size_t parts = narrow ? NARROW_SUMS / threads : WEIGHT_SUMS / weights;
    parts = parts < MIN_PARTS ? MIN_PARTS : parts > MAX_PARTS && !narrow ? MAX_PARTS : parts;
    size_t rows = MOST_TERMS / c->out_w < MOST_ROWS ? MOST_TERMS / c->out_w : MOST_ROWS;
    if (narrow && n / rows > parts)
        parts = n / rows;
    mr_k_conv2d_weights k = {.c = *p, .parts = n < parts ? n : parts};
    size_t sums = k.parts * weights;
    MR_TRY(mr__cuda_reserve(s, &s->scratch,
                            (sums + mr__cuda_column_room(k.parts, weights)) * sizeof(float), st));
    k.out = s->scratch.p;
    MR_TRY(narrow ? mr__launch_conv2d_narrow_weights(s, &k, k.parts * threads, st)
                  : mr__launch_conv2d_backward_weights(s, &k, sums, st));
    return mr__cuda_column_sums_in(s, k.parts, weights, k.out, k.out + sums, p->dkernel, st);
}

mr_code mr__cuda_conv2d_backward_weights(mr_stream *stream,
                                         const mr_math_conv2d_backward_weights *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    const mr_math_conv2d_shape *c = &p->s;
    size_t weights = weights_of(c);
    rooms r;
    plan x;
    if (is_product(c) && !is_empty(c) && weights > 0)
        return mr__cuda_dense_backward_weights(
            stream,
            &(mr_math_dense_backward_weights){.rows = c->n * c->out_h * c->out_w,
                                              .in = c->channels,
                                              .out = c->filters,
                                              .x = p->x,
                                              .dy = p->dy,
                                              .dw = p->dkernel,
                                              .dbias = p->dbias,
                                              .bfloat = p->bfloat},
            st);
    if (p->dbias && c->filters > 0)
        MR_TRY(
            mr__cuda_column_sums(s, c->n * c->out_h * c->out_w, c->filters, p->dy, p->dbias, st));
    if (weights == 0)
        return MR_OK;
    if (is_empty(c))
        return mr__cuda_set(s, p->dkernel, 0, weights * sizeof *p->dkernel, st);
    if (is_narrow(c) && c->out_w <= MOST_TERMS && mr__cuda_is_quad(p->dy))
        return own_weights(s, p, true, st);
    MR_TRY(copy_plan(s, c, BY_WEIGHTS, p->bfloat, &x, st));
    if (!x.usable)
        return own_weights(s, p, false, st);
    MR_TRY(reserve(s, &x, &r, st));
    MR_TRY(give_x(s, &x, p->x, &r, st));
    MR_TRY(give_y(s, &x, p->dy, &r, st));
    MR_TRY(convolve(s, &x, &r, st));
    return take_kernel(s, &x, &r, p->dkernel, st);
}
