/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LAYER_H
#define MR_TRAINER_LAYER_H
/* A layer is data: a descriptor with a few functions. Those of the library are one file each in
 * trainer/model/layers/; mr_layer_register adds others.
 *
 * All memory is on the device and owned by the model. For each replica and layer it has the output
 * y[rows, out values] and gradients for the variables. A layer whose output is its input in another
 * shape sets `view` and has neither forward nor backward. forward and backward submit operations to
 * the replica's stream and never read a value. backward overwrites the gradients: the model
 * adds up those of layers that share variables.
 *
 * In text every layer takes name="...", which its table does not list; its variables are then
 * called NAME/kernel.
 *
 *     static mr_code forward(const mr_layer_pass *p, mr_status *st)
 *     {
 *         const struct params *o = p->layer->params;
 *         size_t n = p->rows * mr_dims_values(&p->layer->in);
 *         const mr_math_combine scale = {n, (float)o->factor, 0, p->x, p->y};
 *         return p->math->combine(p->stream, &scale, st);
 *     }
 *
 * For what no operation does, write a kernel: for mr_stream_launch on the processor, for
 * mr_stream_native on other devices.
 *
 * thread   build: one at a time; forward and backward: each replica in its own, inside steps
 * since    0.1 */
#include "../device/activations.h"
#include "../device/math.h"
#include "../strategy/variable.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_MAX_LAYER_VARIABLES = 4 };

typedef struct mr_layer mr_layer;
typedef struct mr_onnx mr_onnx; /* onnx.h */

/* The shape of one example. */
typedef struct mr_dims {
    int rank;
    int64_t shape[MR_MAX_RANK];
} mr_dims;
/* Values in one example of this shape; sizes were checked when the model was built. */
MR_API size_t mr_dims_values(const mr_dims *d);

/* A variable that build asks for. */
typedef struct mr_variable_spec {
    const char *name; /* "kernel" */
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_initializer initializer;
    mr_regularizer regularizer;
    size_t fan_in, fan_out;
    /* MR_AVERAGE: backward writes what this replica found to dw, and after the step the variable is
     * momentum * itself + (1 - momentum) * the mean over the replicas that had rows. */
    mr_variable_role role;
    float momentum;
    const double *values; /* first values, borrowed, instead of initializer's; NULL: that */
    size_t n_values;      /* 1: for all */
} mr_variable_spec;

/* One pass of one replica over its rows. */
typedef struct mr_layer_pass {
    const mr_layer *layer;
    mr_replica *replica;
    mr_stream *stream; /* the replica's */
    const mr_math_table *math;
    size_t rows; /* at least 1, but where the layer joins */
    bool training;
    bool bfloat;  /* mixed precision, of a layer that multiplies: bfloat16 has all values of x, w[0]
                    and dy; mr_layer_round_gradient where backward changes dy */
    uint64_t key; /* random bits of this layer in this step; the same on every replica */
    uint64_t first_row;    /* number of row 0 in the global batch */
    const float *const *w; /* the layer's variables, in the order of `wanted` */
    const float *x;        /* [rows, in values]; in a first layer with takes_numbers these are
                              numbers of x_dtype */
    mr_dtype x_dtype;
    const float *const *xs; /* of a layer that merges: all that it reads; xs[0] is x */
    float *y;               /* [rows, out values] */
    float *kept;            /* what forward leaves for backward: l->keep values, then keep_per_row
                              values for each row */
    /* backward */
    float *dy;         /* [rows, out values]; may be overwritten */
    float *dx;         /* [rows, in values], to be overwritten; NULL: not needed */
    float *const *dxs; /* as xs, each as dx */
    float *const *dw;  /* as w, to be overwritten */
} mr_layer_pass;

typedef struct mr_layer_desc {
    mr_component is;
    bool view;          /* the output is the input in another shape */
    bool takes_numbers; /* as the first layer it takes features of any dtype of numbers */
    bool reads_rows;    /* it has one variable, and reads the rows of it that its numbers name */
    bool merges;        /* it reads the results of several layers: concat(a, b) */
    bool multiplies;    /* it is a product with its first variable, which mixed precision rounds */
    /* Its output ends with the activation of its parameters, and backward leaves the derivative of
     * that to others where layer->derived. */
    bool may_be_derived;
    bool picks; /* each value of its output is one of its input's, which has the gradient: backward
                   multiplies dy by the derivative of layer->derives, in terms of y, first */
    /* From layer->in (and layer->ins): sets layer->out, and the variables wanted. NULL: the output
     * has the shape of the input, and there are no variables. */
    mr_code (*build)(mr_layer *l, mr_status *st);
    /* Submit what fills y; what fills dx and dw from dy. NULL for a view. */
    mr_code (*forward)(const mr_layer_pass *p, mr_status *st);
    mr_code (*backward)(const mr_layer_pass *p, mr_status *st);
    /* Of a layer that prepares features before they come to the device, text for instance, and says
     * `view`: *out (owned, mr_malloc) = an expression of pipelines (docs/functions.md) that makes
     * its output of x, an expression too. Such layers stand before all others; fit, evaluate and
     * predict map the data by them (mr_model_prepare). */
    mr_code (*prepare)(const mr_layer *l, const char *x, char **out, mr_status *st);
    /* How it is exported (onnx.h): adds its nodes. NULL: a view is a reshape; any other layer
     * cannot be exported. */
    mr_code (*onnx)(const mr_layer *l, mr_onnx *g, mr_status *st);
} mr_layer_desc;

struct mr_layer {
    const mr_layer_desc *desc;
    const char *name;   /* as given in text, else by kind and number: "dense", "dense_1" */
    const void *params; /* the struct that the table describes */
    mr_dims in, out;    /* of one example */
    size_t n_inputs;    /* what it reads: 1, but where it merges */
    const mr_dims *ins; /* where it merges: their shapes, of which the first is `in` */
    size_t n_wanted;
    mr_variable_spec wanted[MR_MAX_LAYER_VARIABLES];
    size_t keep, keep_per_row; /* values that forward keeps for backward; set by build */
    /* Set by build: forward and backward take part in sums over all replicas when training, so they
     * are called without rows too. */
    bool joins;
    bool in_place; /* set by build: backward may be given the input's memory as dx */
    /* The model's. derived, derives: a layer that picks, and alone reads one with an activation,
     * applies that one's derivative to its own smaller dy. */
    bool derived;
    mr_math_activation derives;
    /* source: the layer whose output it reads, plus 1; 0: the features. begin, depth:
     * of a layer that belongs to a residual, where that begins and how many there are around it. */
    struct mr__layer_own *own;
    size_t source, begin, depth;
    size_t *sources; /* where it merges: of each; the first is `source`. Owned, as ins is */
    size_t input;    /* the number, from 1 on, of the model's input that it is; 0: it is none */
    size_t shares;   /* the layer, plus 1, whose variables it uses too; 0: it has its own */
    size_t copies;   /* layers that share this one's */
};

/* dy again as mixed precision wants it, when its values have changed; else nothing. */
MR_API mr_code mr_layer_round_gradient(const mr_layer_pass *p, mr_status *st) MR_NODISCARD;

/* Makes a layer known to mr_model_parse; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_layer_register(const mr_layer_desc *d, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
