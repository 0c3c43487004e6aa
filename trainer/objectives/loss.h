/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_LOSS_H
#define MR_TRAINER_OBJECTIVES_LOSS_H
/* Losses: a value for each example, and its derivative. Names and definitions are Keras's.
 * loss_desc.h shows how to add a loss.
 *
 * thread   any; immutable. compute: each replica in its own step
 * since    0.1 */
#include "../strategy/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_OUTPUTS 16 /* per model; at most one loss for each */

#define MR_MAX_CLASS_WEIGHTS 65536 /* per run */

typedef struct mr_loss mr_loss;

/* A loss from text: "mse", "sparse_categorical_crossentropy(from_logits=true)". from_logits
 * defaults to true, except in fit and evaluate with a model that ends in a softmax (sparse
 * categorical) or a sigmoid (binary). Returns owned.
 *
 * For a model with several outputs: one loss for every output, or a record of losses by output
 * name, {"kind": sparse_categorical_crossentropy, "size": mse}, or a list in their order. An output
 * that is left out has no loss. Training minimises their sum, in which each may have a weight:
 * {"kind": mse, "size": 0.5 * mse}.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_loss_parse(mr_loss **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_loss_free(mr_loss *l);              /* NULL: nothing */
MR_API const char *mr_loss_name(const mr_loss *l); /* for several outputs: its text */
/* Sets weights of the losses of several outputs, like Keras's loss_weights: a record, {"kind": 1.0,
 * "size": 0.5}, or, if the losses are a list, a list of the same length. One loss for all outputs
 * becomes one for each that has a weight. mr_loss_text includes the weights.
 * errors   MR_INVALID_ARGUMENT, with line and caret: a weight without a loss, or no weight */
MR_API mr_code mr_loss_weigh(mr_loss *l, const char *weights, mr_status *st) MR_NODISCARD;
/* The loss of output number i, of this name, borrowed, and its weight; NULL: the output has no
 * loss. */
MR_API const mr_loss *mr_loss_of_output(const mr_loss *l, const char *name, size_t i,
                                        double *weight);
/* The source text; borrowed. */
MR_API const char *mr_loss_text(const mr_loss *l);

typedef struct mr_loss_opts {
    int64_t first_row; /* number of row 0 in the global batch, for messages */
    double scale;      /* of the gradient */
    /* NULL: all 1. A tensor of numbers or bools [rows] or [rows, 1], or one weight per loss: each
     * loss and its gradient are multiplied by its weight. */
    const mr_array *sample_weight;
    double *sum; /* device memory: the sum of per_example, overwritten; NULL: not needed */
} mr_loss_opts;

/* Inside a step. labels and predictions are tensors in device memory, whose axis 0 is the examples
 * (0 rows are allowed). Submits the work that writes, to device memory,
 *   per_example  prod(predictions' shape without its last axis) losses (not averaged); NULL: not
 *                needed
 *   gradient     [as predictions] scale * d(sum of losses) / d(predictions); NULL: not needed
 * Predictions are float32. A label out of range has a loss of 0, and the step fails at its end.
 * errors   MR_INVALID_ARGUMENT: shapes or dtypes */
MR_API mr_code mr_loss_compute(const mr_loss *l, mr_replica *r, const mr_array *labels,
                               const mr_array *predictions, const mr_loss_opts *opts,
                               float *per_example, float *gradient, mr_status *st) MR_NODISCARD;
/* Number of losses that mr_loss_compute writes for one example of predictions. */
MR_API size_t mr_loss_values_per_example(const mr_array *predictions);

#ifdef __cplusplus
}
#endif
#endif
