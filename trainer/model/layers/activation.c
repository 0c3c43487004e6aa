/* SPDX-License-Identifier: Apache-2.0 */
/* A separate activation function; softmax is over the last axis. */
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

struct params {
    const mr_activation *activation;
};

static size_t width_of(const mr_layer *l)
{
    return l->in.rank > 0 ? (size_t)l->in.shape[l->in.rank - 1] : 1;
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t n = p->rows * mr_dims_values(&p->layer->in), width = width_of(p->layer);
    return p->math->activate(p->stream,
                             &(mr_math_activate){.f = o->activation->function,
                                                 .rows = width ? n / width : 0,
                                                 .width = width,
                                                 .x = p->x,
                                                 .y = p->y},
                             st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t n = p->rows * mr_dims_values(&p->layer->in), width = width_of(p->layer);
    if (!p->dx)
        return MR_OK;
    return p->math->activate_backward(p->stream,
                                      &(mr_math_activate_backward){.f = o->activation->function,
                                                                   .rows = width ? n / width : 0,
                                                                   .width = width,
                                                                   .y = p->y,
                                                                   .dy = p->dy,
                                                                   .dx = p->dx},
                                      st);
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return mr_onnx_activation(g, ((const struct params *)l->params)->activation->function, st);
}

static const mr_param table[] = {{.name = "activation",
                                  .doc = "The function.",
                                  .type = MR_PT_OWN,
                                  .kind = &mr_param_activation,
                                  .flags = MR_P_POSITIONAL,
                                  .at = offsetof(struct params, activation)},
                                 {0}};

const mr_layer_desc mr__layer_activation = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "activation",
           .doc = "Applies an activation function.",
           .example = "input(4).dense(8).activation(\"relu\").dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
