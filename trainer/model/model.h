/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_MODEL_H
#define MR_TRAINER_MODEL_MODEL_H
/* Models from text, in Keras's names. A chain of layers:
 *
 *     input(28, 28).flatten().dense(128, activation="relu").dropout(0.2).dense(10)
 *
 * `input` may be omitted; the shape then comes from the data. A graph of layers names their
 * outputs; a layer that is named before it is applied is shared by its uses:
 *
 *     a = input(8); b = input(8); tower = dense(16, activation="relu");
 *     concat(a.tower(), b.tower()).dense(1)
 *
 * If there are several inputs, the features of an example are a tuple with one component per input,
 * or a record with their names. If the last statements name outputs that nothing else reads, these
 * are the model's outputs, and the labels have the same structure:
 *
 *     x = input(8); h = x.dense(16, activation="relu"); kind = h.dense(3); size = h.dense(1)
 *
 * A model is parsed, then built on a strategy (which creates its variables, one copy per replica),
 * then used: by fit, evaluate and predict, or in a custom training loop:
 *
 *     static mr_code step(mr_replica *r, void *ctx, mr_status *st)        // on every replica
 *     {
 *         mr_loss_opts how = {.scale = 1.0 / global_rows, .sum = sum};
 *         MR_TRY(mr_model_forward(model, r, x, &(mr_forward_opts){.training = true}, &y, st));
 *         MR_TRY(mr_model_loss(model, r, 0, loss, labels, &how, NULL, st));
 *         MR_TRY(mr_model_backward(model, r, st));
 *         return mr_model_apply_gradients(model, r, optimizer, st);
 *     }
 *
 * All its tensors are in the replica's device memory, and the step never waits for the device.
 *
 * thread   forward to apply: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "../../pipeline/graph/dataset.h"
#include "../objectives/loss.h" /* MR_MAX_OUTPUTS */
#include "../objectives/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_model mr_model;

#define MR_MAX_INPUTS 64

/* Returns owned.
 * errors   MR_INVALID_ARGUMENT: syntax, an unknown layer, bad arguments; with line and caret */
MR_API mr_code mr_model_parse(mr_model **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_model_free(mr_model *m); /* before its strategy; NULL: nothing */
/* The source text; borrowed. */
MR_API const char *mr_model_text(const mr_model *m);

typedef struct mr_model_opts {
    uint64_t seed;       /* determines initial values and dropout */
    size_t bucket_bytes; /* gradients are summed in buckets of at least this size; 0: 64 KiB */
    /* Dense layers and convolutions round to bfloat16 their inputs, their kernels, incoming
     * gradients and, except for outputs of the model, their outputs; they accumulate in float32.
     * Variables and all other values are float32. */
    bool mixed_precision;
} mr_model_opts;

/* Creates the variables for examples of this shape, without the batch axis; for a model with
 * several inputs, whose text states their shapes, it is that of the first. A model is built once.
 * errors   MR_INVALID_ARGUMENT: a shape that input() contradicts or a layer cannot take ·
 *          MR_FAILED_PRECONDITION: built already */
MR_API mr_code mr_model_build(mr_model *m, mr_strategy *s, int rank, const int64_t *shape,
                              const mr_model_opts *opts, mr_status *st) MR_NODISCARD;
MR_API bool mr_model_is_built(const mr_model *m);
MR_API bool mr_model_is_mixed(const mr_model *m);         /* built in mixed precision */
MR_API mr_strategy *mr_model_strategy(const mr_model *m); /* NULL before build */

/* Inputs in the order of the text: 1, unless a graph names more. Their names are those in the text,
 * else "input"; borrowed. */
MR_API size_t mr_model_n_inputs(const mr_model *m);
MR_API const char *mr_model_input_name(const mr_model *m, size_t i);
/* The shape of one example, borrowed; if the text does not state it, rank -1 before build. */
MR_API void mr_model_input_shape_of(const mr_model *m, size_t i, int *rank, const int64_t **shape);
/* Outputs in the order of the text: 1, unless the last statements of a graph name several. Their
 * names are those in the text, else "output"; borrowed. */
MR_API size_t mr_model_n_outputs(const mr_model *m);
MR_API const char *mr_model_output_name(const mr_model *m, size_t i);
/* The shape for one example, borrowed; before build rank -1. */
MR_API void mr_model_output_shape_of(const mr_model *m, size_t i, int *rank, const int64_t **shape);
/* Shapes of one example for the first input and the first output, borrowed; before build, that of
 * input(), or rank -1. */
MR_API void mr_model_input_shape(const mr_model *m, int *rank, const int64_t **shape);
MR_API void mr_model_output_shape(const mr_model *m, int *rank, const int64_t **shape);
MR_API size_t mr_model_n_variables(const mr_model *m);
MR_API mr_variable *mr_model_variable(const mr_model *m, size_t i); /* in layer order; borrowed */

/* A layer of a built model. Names are Keras's: "dense", then "dense_1"; variables are called
 * "dense_1/kernel". */
typedef struct mr_layer_info {
    char name[64];
    const char *type; /* "dense"; static text */
    int rank;         /* of its output for one example */
    int64_t shape[MR_MAX_RANK];
    size_t parameters; /* number of values in its variables */
    size_t first_variable, n_variables;
} mr_layer_info;
MR_API size_t mr_model_n_layers(const mr_model *m);
MR_API void mr_model_layer(const mr_model *m, size_t i, mr_layer_info *out);

/* *out (owned) = ds with its features prepared by the model's first layers (lookup, hashing,
 * discretization). For a model with several inputs or outputs, records of features, labels and
 * sample weights become tuples in its order; labels and weights keep only the components present.
 * Returns ds itself if there is nothing to do. mr_fit, mr_evaluate and mr_predict call it; a custom
 * training loop must call it too. The caller keeps ds; its elements are features, or tuples that
 * begin with them.
 * errors   MR_INVALID_ARGUMENT: features that a layer does not take · MR_NOT_FOUND: a vocabulary */
MR_API mr_code mr_model_prepare(const mr_model *m, mr_dataset *ds, mr_dataset **out,
                                mr_status *st) MR_NODISCARD;

typedef struct mr_forward_opts {
    bool training; /* apply dropout; keep the values that backward needs */
    /* Number of this replica's row 0 in the global batch: dropout then drops the same values on any
     * number of replicas. */
    int64_t first_row;
} mr_forward_opts;

/* *y (overwritten) = the model's output for x, a tensor [rows, example...] in device memory, of
 * float32, or of numbers of any dtype if the first layer takes them; rows may be 0. With several
 * inputs, x is an array of one tensor per input, all with the same number of rows; with several
 * outputs, y is an array of one tensor per output. y is borrowed until the replica's next forward,
 * and so is x in training.
 * errors   MR_INVALID_ARGUMENT: dtype or shape */
MR_API mr_code mr_model_forward(mr_model *m, mr_replica *r, const mr_array *x,
                                const mr_forward_opts *opts, mr_array *y,
                                mr_status *st) MR_NODISCARD;
/* Write the derivative of the loss with respect to y here before mr_model_backward: [as y], in
 * device memory, borrowed until the next forward. Divide by the rows of the *global* batch:
 * gradients are summed over replicas. */
MR_API float *mr_model_output_gradient(mr_model *m, const mr_replica *r);
/* The same for one of several outputs. Each must be filled: with zeros if it has no loss. */
MR_API float *mr_model_output_gradient_of(mr_model *m, const mr_replica *r, size_t output);
/* After forward: computes a loss of one output like mr_loss_compute, and after a forward in
 * training writes its derivative for mr_model_backward, in place of one written before. A
 * cross-entropy of an output that ends with a softmax (sigmoid for binary_crossentropy) is
 * computed from the logits, the values before this activation: a saturated output has a gradient,
 * as in Keras. Whether other predictions are logits follows from the model's last activation,
 * unless the loss's text says it. mr_model_output_gradient_of must not be written for an output
 * that this function was called for.
 * errors   those of mr_loss_compute · MR_INVALID_ARGUMENT: no such output */
MR_API mr_code mr_model_loss(mr_model *m, mr_replica *r, size_t output, const mr_loss *l,
                             const mr_array *labels, const mr_loss_opts *opts, float *per_example,
                             mr_status *st) MR_NODISCARD;
/* Adds the penalties on the weights, unscaled, to *sum in device memory. */
MR_API mr_code mr_model_regularization_loss(const mr_model *m, mr_replica *r, double *sum,
                                            mr_status *st) MR_NODISCARD;
/* Computes this replica's gradients, with its share of the penalties', and starts summing them over
 * the replicas, bucket by bucket, as they become ready. Every replica must call it, even with 0
 * rows.
 * errors MR_FAILED_PRECONDITION: no forward in training before */
MR_API mr_code mr_model_backward(mr_model *m, mr_replica *r, mr_status *st) MR_NODISCARD;
typedef struct mr_backward_opts {
    bool input_gradient; /* continues to the features, below the first variables too */
    /* The model is not trained by this pass: its gradients are not summed over the replicas, and
     * mr_model_apply_gradients must not follow. */
    bool frozen;
    /* The gradients are not summed over the replicas: mr_model_local_gradient gives those of this
     * one, for steps that add up several passes or change them before they are summed and applied
     * by mr_optimizer_apply_gradients. Running means (batch_norm) are updated by each such pass.
     * The same on all replicas. */
    bool local;
} mr_backward_opts;

/* Like mr_model_backward. *input_gradient (may be NULL if it is not requested) = the derivative of
 * the loss with respect to the features: float32 values [as x] in device memory (an array of one
 * pointer per input if there are several), borrowed until the model's next forward; empty for 0
 * rows. Features that are class numbers have gradient 0. Two models can train against each other
 * this way: the output of one is the features of the other, whose input gradient is copied to
 * mr_model_output_gradient of the first (examples/guides/gan.c). */
MR_API mr_code mr_model_backward_with(mr_model *m, mr_replica *r, const mr_backward_opts *opts,
                                      const float **input_gradient, mr_status *st) MR_NODISCARD;
/* Updates this replica's variables when the sums are available. All replicas are updated or none:
 * if one fails before this call, the call fails on the others with MR_ABORTED; if a label is out of
 * range, no copy is changed.
 * errors   MR_FAILED_PRECONDITION: no backward pass before it, or a frozen or local one */
MR_API mr_code mr_model_apply_gradients(mr_model *m, mr_replica *r, mr_optimizer *o,
                                        mr_status *st) MR_NODISCARD;
/* *gradient = the gradient of variable i, summed over the replicas, in device memory, borrowed
 * until the next backward. Work submitted after this call waits for the sums. Until the variable is
 * updated, mr_optimizer_apply_gradients refuses it, because it would sum again.
 * errors   MR_FAILED_PRECONDITION: as mr_model_apply_gradients · MR_INVALID_ARGUMENT: no such
 *          variable, or one that is not learned */
MR_API mr_code mr_model_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                                 mr_status *st) MR_NODISCARD;

/* *gradient = this replica's own gradient of variable i, with its share of the penalty, after a
 * backward pass with `local`; in device memory, borrowed until the next backward.
 * errors   MR_FAILED_PRECONDITION: no pass before it, or one that was not local ·
 *          MR_INVALID_ARGUMENT: no such variable, or one that is not learned */
MR_API mr_code mr_model_local_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                                       mr_status *st) MR_NODISCARD;

/* Calls fn for every layer, loss, optimizer, metric and callback, including registered ones.
 * arguments is "units, activation, ..." */
MR_API void mr_model_reference(void (*fn)(void *ctx, const char *group, const char *name,
                                          const char *doc, const char *arguments,
                                          const char *example),
                               void *ctx);

#ifdef __cplusplus
}
#endif
#endif
