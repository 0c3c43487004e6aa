/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_LAYER_H
#define MR_TRAINER_MODEL_LAYER_H
/* Layers as data: a descriptor with a few functions. The library has one file per layer in
 * trainer/model/layers/; mr_layer_register adds others.
 *
 * All memory is on the device and owned by the model. For each replica and layer the model holds
 * the output y[rows, out values] and gradients for the variables. A layer whose output is its input
 * in another shape sets `view` and has neither forward nor backward. forward and backward submit
 * operations to the replica's stream and never read a value. backward overwrites the gradients: the
 * model adds up those of layers that share variables.
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
 * If no operation fits, write a kernel: for mr_stream_launch on the CPU, for mr_stream_native on
 * other devices.
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
/* Number of values in one example of this shape; build has checked the sizes. */
MR_API size_t mr_dims_values(const mr_dims *d);

/* A variable requested by build. */
typedef struct mr_variable_spec {
    const char *name; /* "kernel" */
    int rank;
    int64_t shape[MR_MAX_RANK];
    mr_initializer initializer;
    mr_regularizer regularizer;
    size_t fan_in, fan_out;
    /* MR_AVERAGE: backward writes this replica's statistics to dw, and after the step the variable
     * becomes momentum * itself + (1 - momentum) * the mean over the replicas that had rows. */
    mr_variable_role role;
    float momentum;
    const double *values; /* initial values, borrowed, instead of the initializer's; NULL: use it */
    size_t n_values;      /* 1: the same value for all */
} mr_variable_spec;

/* One pass of one replica over its rows. */
typedef struct mr_layer_pass {
    const mr_layer *layer;
    mr_replica *replica;
    mr_stream *stream; /* the replica's */
    const mr_math_table *math;
    size_t rows; /* at least 1, unless the layer sets `joins` */
    bool training;
    /* Mixed precision, of a layer that multiplies: bfloat16 represents all values of x, w[0] and dy
     * exactly; call mr_layer_round_gradient if backward changes dy. */
    bool bfloat;
    uint64_t key;          /* random bits of this layer in this step; the same on every replica */
    uint64_t first_row;    /* number of row 0 in the global batch */
    const float *const *w; /* the layer's variables, in the order of `wanted` */
    /* [rows, in values]; in a first layer with takes_numbers, numbers of x_dtype. */
    const float *x;
    mr_dtype x_dtype;
    const float *const *xs; /* a layer that merges: all its inputs; xs[0] is x */
    float *y;               /* [rows, out values] */
    /* Saved by forward for backward: l->keep values, then keep_per_row values for each row. */
    float *kept;
    /* backward */
    float *dy;         /* [rows, out values]; may be overwritten */
    float *dx;         /* [rows, in values], to be overwritten; NULL: not needed */
    float *const *dxs; /* like xs, each like dx */
    float *const *dw;  /* like w, to be overwritten */
} mr_layer_pass;

typedef struct mr_layer_desc {
    mr_component is;
    bool view;          /* the output is the input in another shape */
    bool takes_numbers; /* the first layer may get features of any dtype of numbers */
    bool reads_rows;    /* it has one variable, and reads the rows selected by its input */
    bool merges;        /* it reads the outputs of several layers: concat(a, b) */
    bool multiplies;    /* a product with its first variable, which mixed precision rounds */
    /* Its output ends with the activation of its parameters, and backward omits the derivative of
     * that if layer->derived is set. */
    bool may_be_derived;
    /* Each output value is one of the input values, which receives its gradient (pooling): backward
     * first multiplies dy by the derivative of layer->derives, in terms of y. */
    bool picks;
    /* From layer->in (and layer->ins): sets layer->out and the wanted variables. NULL: the output
     * has the shape of the input, and there are no variables. */
    mr_code (*build)(mr_layer *l, mr_status *st);
    /* forward submits the work that fills y; backward fills dx and dw from dy. NULL for a view. */
    mr_code (*forward)(const mr_layer_pass *p, mr_status *st);
    mr_code (*backward)(const mr_layer_pass *p, mr_status *st);
    /* For a layer that prepares features before they reach the device, text for instance, and sets
     * `view`: *out (owned, mr_malloc) = a pipeline expression (docs/functions.md) that computes its
     * output from x, also an expression. Such layers precede all others; fit, evaluate and predict
     * map the data with them (mr_model_prepare). */
    mr_code (*prepare)(const mr_layer *l, const char *x, char **out, mr_status *st);
    /* Adds the layer's nodes to an export (onnx.h). NULL: a view is exported as a reshape; other
     * layers cannot be exported. */
    mr_code (*onnx)(const mr_layer *l, mr_onnx *g, mr_status *st);
} mr_layer_desc;

struct mr_layer {
    const mr_layer_desc *desc;
    const char *name;   /* from the text, else by kind and number: "dense", "dense_1" */
    const void *params; /* the struct that the table describes */
    mr_dims in, out;    /* of one example */
    size_t n_inputs;    /* number of inputs: 1, unless it merges */
    const mr_dims *ins; /* if it merges: the shapes of its inputs, the first of which is `in` */
    size_t n_wanted;
    mr_variable_spec wanted[MR_MAX_LAYER_VARIABLES];
    size_t keep, keep_per_row; /* values that forward keeps for backward; set by build */
    /* Set by build: in training, forward and backward take part in sums over all replicas, so they
     * are called without rows too. */
    bool joins;
    bool in_place; /* set by build: backward may be given the input's memory as dx */
    /* Set by the model. derived, derives: a layer that `picks` and is the only reader of a layer
     * with an activation applies that activation's derivative to its own smaller dy. */
    bool derived;
    mr_math_activation derives;
    /* source: the layer whose output it reads, plus 1; 0: the features. begin, depth: for a layer
     * inside a residual, where the residual begins and the nesting depth. */
    struct mr__layer_own *own;
    size_t source, begin, depth;
    size_t *sources; /* if it merges: the source of each input; the first is `source`; owned */
    size_t input;    /* number of the model's input that it stands for, from 1; 0: none */
    size_t shares;   /* the layer whose variables it also uses, plus 1; 0: it has its own */
    size_t copies;   /* number of layers that share this one's */
};

/* Rounds dy again for mixed precision after its values have changed; otherwise does nothing. */
MR_API mr_code mr_layer_round_gradient(const mr_layer_pass *p, mr_status *st) MR_NODISCARD;

/* Registers a layer for mr_model_parse; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_layer_register(const mr_layer_desc *d, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
