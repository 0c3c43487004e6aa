/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_OPTIMIZER_H
#define MR_TRAINER_OBJECTIVES_OPTIMIZER_H
/* Optimizers: how gradients change variables. Names, defaults and formulas are Keras's.
 * optimizer_desc.h shows how to add an optimizer.
 *
 * An optimizer keeps its state of a variable (slots such as momentum) for every replica, and each
 * replica applies the same update to its own copy. One optimizer may serve several models, at the
 * same time or one after the other, and a loop may use several optimizers. A variable's state ends
 * with the variable: a new model begins with fresh slots, and with a bias correction (adam) that
 * counts from its own first update. Only the number of updates, and with it a schedule of the
 * learning rate, continues.
 *
 * thread   updates: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "../strategy/variable.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_optimizer mr_optimizer;

/* An optimizer from text: "sgd(learning_rate=0.1, momentum=0.9)", "adam". The learning rate is a
 * number or a schedule: exponential_decay(0.1, decay_steps=1000, decay_rate=0.96), cosine_decay or
 * piecewise_constant_decay. Each optimizer takes weight_decay, and one of clipnorm (of a variable's
 * gradient), global_clipnorm (of all together) and clipvalue. Returns owned.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_optimizer_parse(mr_optimizer **out, const char *text, mr_status *st) MR_NODISCARD;
/* Before or after the models that it served; where these exist, before their strategy. NULL:
 * nothing. */
MR_API void mr_optimizer_free(mr_optimizer *o);
/* "adam"; static text. */
MR_API const char *mr_optimizer_name(const mr_optimizer *o);
/* The source text; borrowed. */
MR_API const char *mr_optimizer_text(const mr_optimizer *o);

/* The learning rate of the next update. Setting it ends a schedule. */
MR_API double mr_optimizer_learning_rate(const mr_optimizer *o);
MR_API void mr_optimizer_set_learning_rate(mr_optimizer *o, double learning_rate);
/* Number of updates so far (steps, not variables). */
MR_API int64_t mr_optimizer_iterations(const mr_optimizer *o);

/* Inside a step, the same on every replica: sums gradients[i] (this replica's, in its device's
 * memory, of variables[i]'s size, overwritten by the sum) over all replicas and updates this
 * replica's copies. All replicas are updated or none: if one fails before this call, the call fails
 * on the others; if a label is out of range, no copy is changed.
 * errors   MR_FAILED_PRECONDITION: mr_model_gradient gave the gradient of one of these variables,
 *          which is summed, since the last update of it or the last local pass */
MR_API mr_code mr_optimizer_apply_gradients(mr_optimizer *o, mr_replica *r,
                                            mr_variable *const *variables, float *const *gradients,
                                            size_t n, mr_status *st) MR_NODISCARD;
/* The same with gradients that are summed already, for example by mr_model_gradient, and therefore
 * have the same values on every replica. They may be changed (clipped). */
MR_API mr_code mr_optimizer_apply_summed_gradients(mr_optimizer *o, mr_replica *r,
                                                   mr_variable *const *variables,
                                                   float *const *gradients, size_t n,
                                                   mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
