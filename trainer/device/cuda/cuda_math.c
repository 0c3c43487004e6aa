/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that run on our own kernels. */
#include "trainer/device/cuda/cuda_math.h"
#include "trainer/device/cuda/cuda_kernels.h"

/* Threads that share a row, or a part of a sum. */
enum { WARP = 32 };
/* Parts of one sum over all values, in the first stage and in the last but one; minimum number of
 * values per thread. */
enum { SUM_PARTS = 8192, SUM_STAGE = 64, SUM_LEAST = 8 };
/* The same for sums of columns: total threads, parts per sum, and parts that a last stage takes. */
enum { COLUMN_THREADS = 1 << 18, COLUMN_PARTS = 1024, QUAD_THREADS = 1 << 17, LAST_PARTS = 512 };

static size_t clamp(size_t v, size_t least, size_t most)
{
    return v < least ? least : v > most ? most : v;
}

/* Number of parts for `items` sums of n values each. */
static size_t parts_of(size_t n, size_t items)
{
    size_t room = items > 0 ? COLUMN_THREADS / items : 1;
    return clamp(n / SUM_LEAST, 1, clamp(room, 1, COLUMN_PARTS));
}

static size_t sum_parts(size_t n)
{
    return clamp(n / (SUM_LEAST * WARP), 1, SUM_PARTS);
}

/* Scratch doubles needed by a sum in this number of parts. */
static size_t sum_room(size_t parts)
{
    return parts + SUM_STAGE;
}

/* *out (+)= the sum of parts[0..n); out[1] += count unless it is 0. parts has sum_room(n). */
static mr_code finish_sum(mr__cuda_stream *s, double *parts, size_t n, bool add, double count,
                          double *out, mr_status *st)
{
    if (n > SUM_STAGE) {
        mr_k_sum stage = {.n = n, .parts = SUM_STAGE, .x = parts, .out = parts + n};
        MR_TRY(mr__launch_sum_doubles(s, &stage, SUM_STAGE * WARP, st));
        parts += n;
        n = SUM_STAGE;
    }
    mr_k_sum last = {.n = n, .parts = 1, .add = add, .count = count, .x = parts, .out = out};
    return mr__launch_sum_doubles(s, &last, WARP, st);
}

static mr_code sum_floats(mr__cuda_stream *s, size_t n, const float *x, bool add, double *parts,
                          double *out, mr_status *st)
{
    size_t k = sum_parts(n);
    mr_k_sum first = {.n = n, .parts = k, .x = x, .out = parts};
    MR_TRY(mr__launch_sum_floats(s, &first, k * WARP, st));
    return finish_sum(s, parts, k, add, 0, out, st);
}

bool mr__cuda_is_quad(const void *p)
{
    return (uintptr_t)p % (MR_QUAD * sizeof(float)) == 0;
}

/* Parts of the first stage; a thread has MR_QUAD columns if the width is a multiple of it. The
 * alignment of x must not matter: the same values must yield the same bits. */
static size_t column_parts(size_t rows, size_t width)
{
    if (width == 0 || width % MR_QUAD != 0)
        return parts_of(rows, width);
    return clamp(rows / SUM_LEAST, 1, clamp(QUAD_THREADS / (width / MR_QUAD), 1, QUAD_THREADS));
}

size_t mr__cuda_column_room(size_t rows, size_t width)
{
    size_t parts = column_parts(rows, width);
    return parts == 1 ? 0 : (parts + (parts > 2 * LAST_PARTS ? LAST_PARTS : 0)) * width;
}

mr_code mr__cuda_column_sums_in(mr__cuda_stream *s, size_t rows, size_t width, const float *x,
                                float *room, float *out, mr_status *st)
{
    mr_k_columns p = {.rows = rows, .width = width, .parts = column_parts(rows, width), .x = x};
    p.out = p.parts == 1 ? out : room;
    MR_TRY(width % MR_QUAD == 0 && mr__cuda_is_quad(x)
               ? mr__launch_sum_column_quads(s, &p, p.parts * width / MR_QUAD, st)
               : mr__launch_sum_columns(s, &p, p.parts * width, st));
    if (p.parts == 1)
        return MR_OK;
    p.rows = p.parts;
    p.x = p.out;
    if (p.rows > 2 * LAST_PARTS) {
        p.out += p.parts * width;
        p.parts = LAST_PARTS;
        MR_TRY(mr__launch_sum_columns(s, &p, p.parts * width, st));
        p.rows = p.parts;
        p.x = p.out;
    }
    p.parts = 1;
    p.out = out;
    return mr__launch_sum_parts(s, &p, width * WARP, st);
}

mr_code mr__cuda_column_sums(mr__cuda_stream *s, size_t rows, size_t width, const float *x,
                             float *out, mr_status *st)
{
    MR_TRY(mr__cuda_reserve(s, &s->scratch, mr__cuda_column_room(rows, width) * sizeof(float), st));
    return mr__cuda_column_sums_in(s, rows, width, x, s->scratch.p, out, st);
}

/* One kernel, one index per value. */
#define PLAIN(name, count)                                                                         \
    static mr_code op_##name(mr_stream *s, const mr_math_##name *p, mr_status *st)                 \
    {                                                                                              \
        return mr__launch_##name(s->self, p, count, st);                                           \
    }
PLAIN(fill, p->n)
PLAIN(combine, p->n)
PLAIN(reduce, p->n)
PLAIN(dropout, p->rows * p->width)
PLAIN(flag, 1)
PLAIN(penalty_backward, p->n)
PLAIN(sgd, p->n)
PLAIN(adam, p->n)
PLAIN(curve, 2 * p->thresholds)
PLAIN(rmsprop, p->n)
PLAIN(adagrad, p->n)
PLAIN(decay, p->n)
PLAIN(clip, p->n)
PLAIN(average, p->n)
PLAIN(product, p->n)
PLAIN(place, p->rows * p->width)
PLAIN(round_bfloat, p->n)
PLAIN(share_moments, p->width + 1)
PLAIN(joint_moments, p->width)
PLAIN(joint_backward, p->rows * p->width)
PLAIN(normalize, p->rows * p->width)

static bool pools_quads(const mr_math_pool2d_shape *c)
{
    size_t most = (size_t)1 << 31;
    return c->channels % MR_QUAD == 0 && c->n * c->height * c->width * c->channels < most &&
           c->n * c->out_h * c->out_w * c->channels < most;
}

static mr_code op_pool2d(mr_stream *stream, const mr_math_pool2d *p, mr_status *st)
{
    const mr_math_pool2d_shape *c = &p->s;
    size_t results = c->n * c->out_h * c->out_w * c->channels;
    if (pools_quads(c) && mr__cuda_is_quad(p->x) && mr__cuda_is_quad(p->y))
        return mr__launch_pool2d_quads(stream->self, p, results / MR_QUAD, st);
    return mr__launch_pool2d(stream->self, p, results, st);
}

static mr_code op_pool2d_backward(mr_stream *stream, const mr_math_pool2d_backward *p,
                                  mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    const mr_math_pool2d_shape *c = &p->s;
    size_t values = c->n * c->height * c->width * c->channels;
    if (c->stride_h < c->pool_h || c->stride_w < c->pool_w)
        return mr__launch_pool2d_backward(s, p, values, st);
    bool all = c->pad_top == 0 && c->pad_left == 0 && c->stride_h == c->pool_h &&
               c->stride_w == c->pool_w && c->out_h * c->pool_h >= c->height &&
               c->out_w * c->pool_w >= c->width;
    if (!all && values > 0)
        MR_TRY(mr__cuda_set(s, p->dx, 0, values * sizeof *p->dx, st));
    size_t results = c->n * c->out_h * c->out_w * c->channels;
    if (pools_quads(c) && mr__cuda_is_quad(p->x) && mr__cuda_is_quad(p->y) &&
        mr__cuda_is_quad(p->dy) && mr__cuda_is_quad(p->dx))
        return mr__launch_pool2d_backward_apart_quads(s, p, results / MR_QUAD, st);
    return mr__launch_pool2d_backward_apart(s, p, results, st);
}

static mr_code op_cast(mr_stream *s, const mr_math_cast *p, mr_status *st)
{
    if (p->from >= MR_STRING)
        return mr_fail(st, MR_UNIMPLEMENTED, "only numbers can be cast on a device");
    return mr__launch_cast(s->self, p, p->n, st);
}

static mr_code activate_in(mr__cuda_stream *s, const mr_math_activate *p, mr_status *st)
{
    if (p->f == MR_ACT_SOFTMAX)
        return mr__launch_softmax(s, p, p->width > 0 ? p->rows * WARP : 0, st);
    if (p->f == MR_ACT_LINEAR && p->x == p->y)
        return MR_OK;
    return mr__launch_activate(s, p, p->rows * p->width, st);
}

mr_code mr__cuda_bias_activate(mr__cuda_stream *s, mr_math_activation f, size_t rows, size_t width,
                               const float *bias, float *y, mr_status *st)
{
    mr_math_activation single = f == MR_ACT_SOFTMAX ? MR_ACT_LINEAR : f;
    mr_k_bias_activate p = {.f = single, .rows = rows, .width = width, .bias = bias, .y = y};
    if (bias || single != MR_ACT_LINEAR)
        MR_TRY(mr__launch_bias_activate(s, &p, rows * width, st));
    if (f != MR_ACT_SOFTMAX)
        return MR_OK;
    return activate_in(s, &(mr_math_activate){.f = f, .rows = rows, .width = width, .x = y, .y = y},
                       st);
}

static mr_code op_activate(mr_stream *s, const mr_math_activate *p, mr_status *st)
{
    return activate_in(s->self, p, st);
}

static mr_code op_activate_backward(mr_stream *s, const mr_math_activate_backward *p, mr_status *st)
{
    if (p->f == MR_ACT_SOFTMAX)
        return mr__launch_softmax_backward(s->self, p, p->width > 0 ? p->rows * WARP : 0, st);
    return mr__launch_activate_backward(s->self, p, p->rows * p->width, st);
}

static mr_code op_sum(mr_stream *stream, const mr_math_sum *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    MR_TRY(mr__cuda_reserve(s, &s->scratch, sum_room(SUM_PARTS) * sizeof(double), st));
    return sum_floats(s, p->n, p->x, p->add, s->scratch.p, p->out, st);
}

static mr_code op_penalty(mr_stream *stream, const mr_math_penalty *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    size_t parts = sum_parts(p->n);
    MR_TRY(mr__cuda_reserve(s, &s->scratch, sum_room(SUM_PARTS) * sizeof(double), st));
    mr_k_penalty first = {
        .n = p->n, .parts = parts, .l1 = p->l1, .l2 = p->l2, .w = p->w, .out = s->scratch.p};
    MR_TRY(mr__launch_sum_penalty(s, &first, parts * WARP, st));
    return finish_sum(s, s->scratch.p, parts, true, 0, p->out, st);
}

static mr_code op_metric(mr_stream *stream, const mr_math_metric *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    bool one = p->kind >= MR_METRIC_SPARSE && p->kind <= MR_METRIC_TOP_K_CATEGORICAL;
    size_t values = p->n * p->width;
    if (p->n == 0 || p->width == 0)
        return MR_OK;
    MR_TRY(mr__cuda_reserve(s, &s->scratch, sum_room(SUM_PARTS) * sizeof(double), st));
    mr_k_metric first = {.m = *p, .parts = clamp(p->n, 1, SUM_PARTS), .out = s->scratch.p};
    MR_TRY(mr__launch_metric(s, &first, first.parts * WARP, st));
    double count = p->sum_only || p->weights ? 0 : (double)(one ? p->n : values);
    MR_TRY(finish_sum(s, s->scratch.p, first.parts, true, count, p->total, st));
    if (p->sum_only || !p->weights)
        return MR_OK;
    mr_math_metric weights = *p; /* their sum is the number of values */
    weights.kind = MR_METRIC_ONE;
    weights.width = one ? 1 : p->width;
    weights.sum_only = true;
    weights.total = p->total + 1;
    return op_metric(stream, &weights, st);
}

/* Allocates the words in which bad labels are counted. */
static mr_code ready_bad(mr__cuda_stream *s, mr_status *st)
{
    mr__cuda_room r = {0};
    if (s->bad)
        return MR_OK;
    MR_TRY(mr__cuda_reserve(s, &r, sizeof(mr_k_bad), st));
    s->bad = r.p;
    mr_k_bad *bad = r.p;
    MR_TRY(mr__cuda_set(s, &bad->count, 0, sizeof bad->count, st));
    return mr__cuda_set(s, &bad->row, 0xff, sizeof bad->row, st);
}

static mr_code op_loss(mr_stream *stream, const mr_math_loss *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    bool sparse = p->kind >= MR_LOSS_SPARSE_LOGITS;
    size_t doubles = sum_room(SUM_PARTS);
    MR_TRY(mr__cuda_reserve(s, &s->scratch, doubles * sizeof(double) + p->n * sizeof(float), st));
    MR_TRY(ready_bad(s, st));
    double *parts = s->scratch.p;
    mr_k_loss k = {.l = *p, .bad = s->bad, .losses = (float *)(parts + doubles)};
    if (!p->sum || p->per_example)
        k.losses = NULL;
    MR_TRY(mr__launch_loss(s, &k, p->n * WARP, st));
    if (sparse && p->n > 0)
        MR_TRY(mr__launch_loss_fault(s, &k, 1, st));
    if (!p->sum)
        return MR_OK;
    return sum_floats(s, p->n, p->per_example ? p->per_example : k.losses, false, parts, p->sum,
                      st);
}

static mr_code op_gather(mr_stream *stream, const mr_math_gather *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    MR_TRY(ready_bad(s, st));
    const mr_k_gather k = {*p, s->bad};
    const mr_k_id_fault f = {p->ids_per_row, p->classes, p->first_row, p->id_dtype,
                             p->ids,         p->fault,   s->bad};
    MR_TRY(mr__launch_gather(s, &k, p->n * WARP, st));
    return mr__launch_id_fault(s, &f, p->n > 0, st);
}

static mr_code op_gather_backward(mr_stream *stream, const mr_math_gather_backward *p,
                                  mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    const mr_math_fill zeros = {p->classes * p->width, 0, p->dtable};
    MR_TRY(mr__launch_fill(s, &zeros, zeros.n, st));
    return mr__launch_gather_backward(s, p, p->n * WARP, st);
}

static mr_code op_encode(mr_stream *stream, const mr_math_encode *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    MR_TRY(ready_bad(s, st));
    const mr_k_encode k = {*p, s->bad};
    const mr_k_id_fault f = {p->ids_per_row * p->per_row,
                             p->classes,
                             p->first_row,
                             p->id_dtype,
                             p->ids,
                             p->fault,
                             s->bad};
    MR_TRY(mr__launch_encode(s, &k, p->rows * p->classes, st));
    return mr__launch_id_fault(s, &f, p->rows > 0, st);
}

static mr_code op_moments(mr_stream *stream, const mr_math_moments *p, mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    size_t items = p->by_row ? p->rows : p->width, n = p->by_row ? p->width : p->rows;
    mr_k_moments k = {.m = *p, .parts = parts_of(n, items)};
    MR_TRY(mr__cuda_reserve(s, &s->scratch, 2 * k.parts * items * sizeof(float), st));
    k.means = s->scratch.p;
    k.squares = k.means + k.parts * items;
    MR_TRY(mr__launch_moments_parts(s, &k, k.parts * items, st));
    return mr__launch_moments_merge(s, &k, items * WARP, st);
}

/* Sums of dy and dy xhat into plain and scaled [items]; room: 2 * parts * items floats. */
static mr_code normalize_sums(mr__cuda_stream *s, const mr_math_normalize_backward *p, bool by_row,
                              bool weighted, float *room, float *plain, float *scaled,
                              mr_status *st)
{
    size_t items = by_row ? p->rows : p->width, n = by_row ? p->width : p->rows;
    size_t parts = parts_of(n, items);
    mr_k_normalize_sums k = {.b = *p,
                             .weighted = weighted,
                             .by_row = by_row,
                             .parts = parts,
                             .plain = parts > 1 ? room : plain,
                             .scaled = parts > 1 ? room + parts * items : scaled};
    MR_TRY(mr__launch_normalize_sums(s, &k, parts * items, st));
    if (parts == 1)
        return MR_OK;
    mr_k_columns c = {.rows = parts, .width = items, .parts = 1, .x = k.plain, .out = plain};
    MR_TRY(mr__launch_sum_parts(s, &c, items * WARP, st));
    c.x = k.scaled;
    c.out = scaled;
    return mr__launch_sum_parts(s, &c, items * WARP, st);
}

static mr_code op_normalize_backward(mr_stream *stream, const mr_math_normalize_backward *p,
                                     mr_status *st)
{
    mr__cuda_stream *s = stream->self;
    size_t rows = p->rows, width = p->width, items = p->by_row ? rows : width;
    size_t by_columns = parts_of(rows, width) * width, by_rows = parts_of(width, rows) * rows;
    size_t room = 2 * (by_columns > by_rows ? by_columns : by_rows);
    MR_TRY(mr__cuda_reserve(s, &s->scratch,
                            (room + 2 * (width > items ? width : items)) * sizeof(float), st));
    float *plain = (float *)s->scratch.p + room, *scaled = plain + (width > items ? width : items);
    bool columns = p->dgamma || p->dbeta || !p->by_row;
    /* If dgamma and dbeta are requested, they are the sums of the columns themselves. */
    float *dbeta = p->dbeta ? p->dbeta : plain, *dgamma = p->dgamma ? p->dgamma : scaled;
    if (columns)
        MR_TRY(normalize_sums(s, p, false, false, s->scratch.p, dbeta, dgamma, st));
    if (!p->dx)
        return MR_OK;
    mr_k_normalize_backward k = {.b = *p, .plain = dbeta, .scaled = dgamma};
    if (p->by_row) {
        MR_TRY(normalize_sums(s, p, true, true, s->scratch.p, plain, scaled, st));
        k.plain = plain;
        k.scaled = scaled;
    }
    return mr__launch_normalize_backward(s, &k, rows * width, st);
}

const mr_math_table mr__math_cuda = {
    .size = sizeof(mr_math_table),
    .fill = op_fill,
    .combine = op_combine,
    .cast = op_cast,
    .sum = op_sum,
    .reduce = op_reduce,
    .activate = op_activate,
    .activate_backward = op_activate_backward,
    .dropout = op_dropout,
    .dense = mr__cuda_dense,
    .dense_backward_data = mr__cuda_dense_backward_data,
    .dense_backward_weights = mr__cuda_dense_backward_weights,
    .conv2d = mr__cuda_conv2d,
    .conv2d_backward_data = mr__cuda_conv2d_backward_data,
    .conv2d_backward_weights = mr__cuda_conv2d_backward_weights,
    .pool2d = op_pool2d,
    .pool2d_backward = op_pool2d_backward,
    .moments = op_moments,
    .normalize = op_normalize,
    .normalize_backward = op_normalize_backward,
    .share_moments = op_share_moments,
    .joint_moments = op_joint_moments,
    .joint_backward = op_joint_backward,
    .gather = op_gather,
    .gather_backward = op_gather_backward,
    .encode = op_encode,
    .loss = op_loss,
    .flag = op_flag,
    .penalty = op_penalty,
    .penalty_backward = op_penalty_backward,
    .metric = op_metric,
    .curve = op_curve,
    .sgd = op_sgd,
    .adam = op_adam,
    .rmsprop = op_rmsprop,
    .adagrad = op_adagrad,
    .decay = op_decay,
    .clip = op_clip,
    .average = op_average,
    .product = op_product,
    .place = op_place,
    .round_bfloat = op_round_bfloat,
};
