/* SPDX-License-Identifier: Apache-2.0 */
/* y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel (the last axis).
 *
 * In training the moments are those of the replica's rows or, synchronized, of all replicas' rows;
 * otherwise they are the running means. These are updated with the mean of the moments over the
 * replicas that have rows: all copies stay equal, to the bit.
 *
 * Kept, where C is the number of channels: mean [C], variance [C] and, synchronized, sums [2 C +
 * 1] */
#include <math.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/collective.h"
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

struct params {
    double momentum, epsilon;
    bool center, scale;
    mr_initializer beta_initializer, gamma_initializer, moving_mean_initializer,
        moving_variance_initializer;
    mr_regularizer beta_regularizer, gamma_regularizer;
    bool synchronized;
};

static size_t channels_of(const mr_layer *l)
{
    return (size_t)l->in.shape[l->in.rank - 1];
}

static size_t positions_of(const mr_layer_pass *p)
{
    return p->rows * (mr_dims_values(&p->layer->in) / channels_of(p->layer));
}

/* Index of the running means, which follow gamma and beta. */
static size_t moving(const struct params *o)
{
    return (size_t)o->scale + (size_t)o->center;
}

/* Sums values over all replicas, in their streams. */
static mr_code sum_over_replicas(const mr_layer_pass *p, float *values, size_t n, mr_status *st)
{
    mr_collective *c = mr_strategy_collective(mr_replica_strategy(p->replica));
    size_t id = mr_replica_id(p->replica);
    uint64_t ticket;
    MR_TRY(mr_collective_start(c, id, p->stream, values, n, &ticket, st));
    return mr_collective_wait(c, id, p->stream, ticket, st);
}

static mr_code join_moments(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t width = channels_of(p->layer);
    float *mean = p->kept, *variance = mean + width, *sums = variance + width;
    const float *shift = p->w[moving(o)];
    const mr_math_share_moments share = {positions_of(p), width, mean, variance, shift, sums};
    const mr_math_joint_moments joint = {width, sums, shift, mean, variance};
    MR_TRY(p->math->share_moments(p->stream, &share, st));
    MR_TRY(sum_over_replicas(p, sums, 2 * width + 1, st));
    return p->math->joint_moments(p->stream, &joint, st);
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t width = channels_of(p->layer), rows = positions_of(p);
    mr_math_normalize n = {.rows = rows,
                           .width = width,
                           .epsilon = (float)o->epsilon,
                           .x = p->x,
                           .mean = p->w[moving(o)],
                           .variance = p->w[moving(o) + 1],
                           .gamma = o->scale ? p->w[0] : NULL,
                           .beta = o->center ? p->w[o->scale] : NULL,
                           .y = p->y};
    if (p->training) {
        const mr_math_moments m = {false, rows, width, p->x, p->kept, p->kept + width};
        MR_TRY(p->math->moments(p->stream, &m, st));
        if (o->synchronized)
            MR_TRY(join_moments(p, st));
        n.mean = m.mean;
        n.variance = m.variance;
    }
    return p->math->normalize(p->stream, &n, st);
}

/* If the moments came from all replicas, so do the sums of the gradient of x. */
static mr_code backward_joint(const mr_layer_pass *p, mr_math_normalize_backward *b, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t width = b->width, bytes = width * sizeof(float);
    void *scratch;
    float *const dx = b->dx, *sums;
    MR_TRY(mr_replica_scratch(p->replica, 2 * bytes, &scratch, st));
    sums = scratch;
    b->dx = NULL;
    b->dgamma = sums;
    b->dbeta = sums + width;
    MR_TRY(p->math->normalize_backward(p->stream, b, st));
    if (o->scale) /* each replica's own: they are summed with the other gradients */
        MR_TRY(mr_stream_copy(p->stream, p->dw[0], sums, bytes, st));
    if (o->center)
        MR_TRY(mr_stream_copy(p->stream, p->dw[o->scale], sums + width, bytes, st));
    MR_TRY(sum_over_replicas(p, sums, 2 * width, st));
    if (!dx)
        return MR_OK;
    return p->math->joint_backward(p->stream,
                                   &(mr_math_joint_backward){.rows = b->rows,
                                                             .width = width,
                                                             .epsilon = b->epsilon,
                                                             .x = b->x,
                                                             .mean = b->mean,
                                                             .variance = b->variance,
                                                             .gamma = b->gamma,
                                                             .dy = b->dy,
                                                             .dgamma = sums,
                                                             .dbeta = sums + width,
                                                             .n = p->kept + 4 * width,
                                                             .dx = dx},
                                   st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t width = channels_of(p->layer), bytes = width * sizeof(float);
    mr_math_normalize_backward b = {.rows = positions_of(p),
                                    .width = width,
                                    .epsilon = (float)o->epsilon,
                                    .x = p->x,
                                    .mean = p->kept,
                                    .variance = p->kept + width,
                                    .gamma = o->scale ? p->w[0] : NULL,
                                    .dy = p->dy,
                                    .dx = p->dx,
                                    .dgamma = o->scale ? p->dw[0] : NULL,
                                    .dbeta = o->center ? p->dw[o->scale] : NULL};
    MR_TRY(mr_stream_copy(p->stream, p->dw[moving(o)], p->kept, bytes, st));
    MR_TRY(mr_stream_copy(p->stream, p->dw[moving(o) + 1], p->kept + width, bytes, st));
    if (o->synchronized)
        return backward_joint(p, &b, st);
    return p->math->normalize_backward(p->stream, &b, st);
}

static void want(mr_layer *l, const char *name, mr_initializer i, mr_regularizer r,
                 mr_variable_role role)
{
    const struct params *o = l->params;
    size_t width = channels_of(l);
    l->wanted[l->n_wanted++] = (mr_variable_spec){.name = name,
                                                  .rank = 1,
                                                  .shape = {(int64_t)width},
                                                  .initializer = i,
                                                  .regularizer = r,
                                                  .fan_in = width,
                                                  .fan_out = width,
                                                  .role = role,
                                                  .momentum = (float)o->momentum};
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    const mr_regularizer none = {0};
    if (l->in.rank < 1 || mr_dims_values(&l->in) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "batch_norm needs examples with at least one axis, which must not be empty");
    l->out = l->in;
    l->keep = (o->synchronized ? 4 : 2) * channels_of(l) + 1;
    l->joins = o->synchronized;
    if (o->scale)
        want(l, "gamma", o->gamma_initializer, o->gamma_regularizer, MR_LEARNED);
    if (o->center)
        want(l, "beta", o->beta_initializer, o->beta_regularizer, MR_LEARNED);
    want(l, "moving_mean", o->moving_mean_initializer, none, MR_AVERAGE);
    want(l, "moving_variance", o->moving_variance_initializer, none, MR_AVERAGE);
    return MR_OK;
}

/* x * scale + shift, with the running means. */
static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct params *o = l->params;
    size_t n = channels_of(l);
    const int64_t shape = (int64_t)n;
    const float *gamma = o->scale ? mr_onnx_values(g, 0) : NULL;
    const float *beta = o->center ? mr_onnx_values(g, o->scale) : NULL;
    const float *mean = mr_onnx_values(g, moving(o)), *variance = mr_onnx_values(g, moving(o) + 1);
    float *scale = mr_malloc(2 * n * sizeof *scale);
    if (!scale)
        return mr_fail_memory(st, 2 * n * sizeof *scale, "a scale");
    float *shift = scale + n;
    for (size_t i = 0; i < n; i++) {
        double s = (gamma ? (double)gamma[i] : 1) / sqrt((double)variance[i] + o->epsilon);
        scale[i] = (float)s;
        shift[i] = (float)((beta ? (double)beta[i] : 0) - (double)mean[i] * s);
    }
    const char *const factor = mr_onnx_floats(g, 1, &shape, scale);
    const char *const term = mr_onnx_floats(g, 1, &shape, shift);
    mr_free(scale);
    MR_TRY(mr_onnx_node(g, "Mul", &factor, 1, NULL, 0, st));
    return mr_onnx_node(g, "Add", &term, 1, NULL, 0, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, momentum, .def.f = 0.99, .max.f = 1,
             .doc = "Fraction of the running means kept in a step."),
    MR_PARAM(struct params, epsilon, .def.f = 1e-3, .max.f = 1,
             .doc = "Added to the variance to avoid division by 0."),
    MR_PARAM(struct params, center, .def.b = true, .doc = "Adds the learned beta."),
    MR_PARAM(struct params, scale, .def.b = true, .doc = "Multiplies by the learned gamma."),
    MR_PARAM_OWN(struct params, beta_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of beta."),
    MR_PARAM_OWN(struct params, gamma_initializer, mr_param_initializer, .def.s = "ones",
                 .doc = "Initial values of gamma."),
    MR_PARAM_OWN(struct params, moving_mean_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of the running mean."),
    MR_PARAM_OWN(struct params, moving_variance_initializer, mr_param_initializer, .def.s = "ones",
                 .doc = "Initial values of the running variance."),
    MR_PARAM_OWN(struct params, beta_regularizer, mr_param_regularizer,
                 .doc = "Penalty on beta, added to the loss."),
    MR_PARAM_OWN(struct params, gamma_regularizer, mr_param_regularizer,
                 .doc = "Penalty on gamma, added to the loss."),
    MR_PARAM(struct params, synchronized,
             .doc = "Computes the moments from the rows of all replicas."),
    {0}};

const mr_layer_desc mr__layer_batch_norm = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "batch_norm",
           .doc =
               "Normalizes each channel to mean 0 and variance 1 over the batch, then scales it.",
           .example = "input(8, 8, 3).conv2d(16, 3, use_bias=false).batch_norm().activation("
                      "\"relu\").flatten()",
           .params = table,
           .params_size = sizeof(struct params)},
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
