/* SPDX-License-Identifier: Apache-2.0 */
/* A learned vector for each class number: [a] numbers become [a, output_dim]. An invalid class
 * number fails the step.
 *
 *   embeddings [input_dim, output_dim] */
#include "trainer/model/layer.h"
#include "trainer/model/onnx_impl.h"
#include "trainer/strategy/strategy_impl.h"

struct params {
    int64_t input_dim, output_dim;
    mr_initializer embeddings_initializer;
    mr_regularizer embeddings_regularizer;
};

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t values = mr_dims_values(&p->layer->in);
    return p->math->gather(p->stream,
                           &(mr_math_gather){.n = p->rows * values,
                                             .width = (size_t)o->output_dim,
                                             .classes = (size_t)o->input_dim,
                                             .ids_per_row = values,
                                             .first_row = p->first_row,
                                             .id_dtype = p->x_dtype,
                                             .ids = p->x,
                                             .table = p->w[0],
                                             .y = p->y,
                                             .fault = mr__replica_fault(p->replica)},
                           st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t n = p->rows * mr_dims_values(&p->layer->in);
    const mr_math_gather_backward g = {
        n, (size_t)o->output_dim, (size_t)o->input_dim, p->x_dtype, p->x, p->dy, p->dw[0]};
    MR_TRY(p->math->gather_backward(p->stream, &g, st));
    if (!p->dx) /* not differentiable by a class number */
        return MR_OK;
    return p->math->fill(p->stream, &(mr_math_fill){n, 0, p->dx}, st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    if (l->in.rank >= MR_MAX_RANK || mr_dims_values(&l->in) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "embedding needs at least one number, and at most %d axes", MR_MAX_RANK - 1);
    l->out = l->in;
    l->out.shape[l->out.rank++] = o->output_dim;
    l->n_wanted = 1;
    l->wanted[0] = (mr_variable_spec){.name = "embeddings",
                                      .rank = 2,
                                      .shape = {o->input_dim, o->output_dim},
                                      .initializer = o->embeddings_initializer,
                                      .regularizer = o->embeddings_regularizer,
                                      .fan_in = (size_t)o->input_dim,
                                      .fan_out = (size_t)o->output_dim};
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    (void)l;
    MR_TRY(mr__onnx_take(g, MR_INT64, st));
    const char *const inputs[] = {mr_onnx_variable(g, 0), mr__onnx_last(g)};
    MR_TRY(mr__onnx_node_of(g, "Gather", inputs, 2, NULL, 0, st));
    mr__onnx_gives(g, MR_FLOAT32);
    return MR_OK;
}

static const mr_param table[] = {
    MR_ARG(struct params, input_dim, .min.i = 1, .max.i = 1 << 28, .doc = "Number of classes."),
    MR_ARG(struct params, output_dim, .min.i = 1, .max.i = 1 << 20, .doc = "Length of a vector."),
    MR_PARAM_OWN(struct params, embeddings_initializer, mr_param_initializer,
                 .def.s = "random_uniform", .doc = "Initial values of the vectors."),
    MR_PARAM_OWN(struct params, embeddings_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the vectors, added to the loss."),
    {0}};

const mr_layer_desc mr__layer_embedding = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "embedding",
           .doc = "Maps each class number to a learned vector.",
           .example = "input(8).embedding(1000, 16).flatten().dense(2)",
           .params = table,
           .params_size = sizeof(struct params)},
    .takes_numbers = true,
    .reads_rows = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
