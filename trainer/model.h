/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_H
#define MR_TRAINER_MODEL_H
/* Sequential models from text, in Keras's names:
 *
 *     input(28, 28).flatten().dense(128, activation="relu").dropout(0.2).dense(10)
 *
 * `input` may be left out; the shape then comes from the data. A model is parsed, then built on a
 * strategy (which makes its variables, one copy a replica), then used: by fit and its like, or in a
 * loop of one's own:
 *
 *     static mr_code step(mr_replica *r, void *ctx, mr_status *st)        // on every replica
 *     {
 *         MR_TRY(mr_model_forward(model, r, x, &(mr_forward_opts){.training = true}, &y, st));
 *         MR_TRY(mr_loss_compute(loss, labels, &y, 0, 1.0 / global_rows, per_example,
 *                                mr_model_output_gradient(model, r), st));
 *         MR_TRY(mr_model_backward(model, r, st));
 *         return mr_model_apply_gradients(model, r, optimizer, st);
 *     }
 *
 * thread   forward to apply: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_model mr_model;

/* Returns owned. errors MR_INVALID_ARGUMENT: syntax, an unknown layer, bad arguments; with line and
 * caret */
MR_API mr_code mr_model_parse(mr_model **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_model_free(mr_model *m); /* before its strategy; NULL: nothing */

typedef struct mr_model_opts {
    uint64_t seed;       /* initial values and dropout are functions of it */
    size_t bucket_bytes; /* gradients are summed in pieces of at least this; 0: 64 KiB */
} mr_model_opts;

/* Makes the variables for examples of this shape (not counting the batch's axis). Once a model.
 * errors   MR_INVALID_ARGUMENT: a shape that input() contradicts or a layer cannot take ·
 *          MR_FAILED_PRECONDITION: built already */
MR_API mr_code mr_model_build(mr_model *m, mr_strategy *s, int rank, const int64_t *shape,
                              const mr_model_opts *opts, mr_status *st) MR_NODISCARD;
MR_API bool mr_model_is_built(const mr_model *m);
MR_API mr_strategy *mr_model_strategy(const mr_model *m); /* NULL before build */

/* Shapes of one example, borrowed; before build, what input() says, or rank -1. */
MR_API void mr_model_input_shape(const mr_model *m, int *rank, const int64_t **shape);
MR_API void mr_model_output_shape(const mr_model *m, int *rank, const int64_t **shape);
MR_API size_t mr_model_n_variables(const mr_model *m);
MR_API mr_variable *mr_model_variable(const mr_model *m, size_t i); /* in layer order; borrowed */

typedef struct mr_forward_opts {
    bool training;     /* dropout drops; what backward needs is kept */
    int64_t first_row; /* number of this replica's row 0 in the global batch: dropout drops the same
                          values on any number of replicas */
} mr_forward_opts;

/* *y (overwritten) = what the model makes of x, a float32 tensor [rows, example...]; rows may be 0.
 * y is borrowed until the replica's next forward, and so is x where training. errors
 * MR_INVALID_ARGUMENT: dtype or shape */
MR_API mr_code mr_model_forward(mr_model *m, mr_replica *r, const mr_array *x,
                                const mr_forward_opts *opts, mr_array *y,
                                mr_status *st) MR_NODISCARD;
/* Where the derivative of the loss by y goes before mr_model_backward: [as y], borrowed until the
 * next forward. Divide by the rows of the *global* batch: gradients are summed over replicas. */
MR_API float *mr_model_output_gradient(mr_model *m, const mr_replica *r);
/* Sum of the penalties on the weights; not scaled. */
MR_API double mr_model_regularization_loss(const mr_model *m, const mr_replica *r);
/* Computes this replica's gradients, its share of the penalties' among them, and starts summing
 * them over the replicas piece by piece as they become ready. Every replica must call it, also with
 * 0 rows. errors MR_FAILED_PRECONDITION: no forward in training before */
MR_API mr_code mr_model_backward(mr_model *m, mr_replica *r, mr_status *st) MR_NODISCARD;
/* Waits for the sums and updates this replica's variables. */
MR_API mr_code mr_model_apply_gradients(mr_model *m, mr_replica *r, mr_optimizer *o,
                                        mr_status *st) MR_NODISCARD;
/* Waits for the sums alone; then the gradient of variable i, summed, borrowed until the next
 * backward. */
MR_API mr_code mr_model_gradient(mr_model *m, mr_replica *r, size_t i, const float **gradient,
                                 mr_status *st) MR_NODISCARD;

/* Calls fn for every layer, loss, optimizer and metric there is: what `millrace ops` prints.
 * arguments is "units, activation, ..." */
MR_API void mr_model_reference(void (*fn)(void *ctx, const char *group, const char *name,
                                          const char *doc, const char *arguments,
                                          const char *example),
                               void *ctx);

#ifdef __cplusplus
}
#endif
#endif
