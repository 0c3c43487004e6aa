/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OPTIMIZER_H
#define MR_TRAINER_OPTIMIZER_H
/* Optimizers: how gradients change variables. Names, defaults and formulas are Keras's.
 *
 * An optimizer keeps what it remembers of a variable (momentum and the like) for every replica, and
 * each replica makes the same update to its own copy. One optimizer may serve several models, and a
 * loop several optimizers.
 *
 * thread   updates: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "variable.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_optimizer mr_optimizer;

/* From text: "sgd(learning_rate=0.1, momentum=0.9)", "adam". Returns owned.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_optimizer_parse(mr_optimizer **out, const char *text, mr_status *st) MR_NODISCARD;
/* Before the strategy; NULL: nothing. What it remembers of a variable stays until then. */
MR_API void mr_optimizer_free(mr_optimizer *o);
/* "adam"; static text. */
MR_API const char *mr_optimizer_name(const mr_optimizer *o);

/* In force from the next update on. */
MR_API double mr_optimizer_learning_rate(const mr_optimizer *o);
MR_API void mr_optimizer_set_learning_rate(mr_optimizer *o, double learning_rate);
/* Updates made so far (steps, not variables). */
MR_API int64_t mr_optimizer_iterations(const mr_optimizer *o);

/* Inside a step, the same on every replica: sums gradients[i] (this replica's, of variables[i]'s
 * size, overwritten by the sum) over all replicas and updates this replica's copies. */
MR_API mr_code mr_optimizer_apply_gradients(mr_optimizer *o, mr_replica *r,
                                            mr_variable *const *variables, float *const *gradients,
                                            size_t n, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
