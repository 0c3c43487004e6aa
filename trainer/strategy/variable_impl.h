/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_VARIABLE_IMPL_H
#define MR_TRAINER_STRATEGY_VARIABLE_IMPL_H
/* Variables for what belongs to them elsewhere, and with central storage. */
#include "trainer/strategy/variable.h"

/* forget(ctx, v) is called when v is freed, before its memory goes: what is stored for a variable
 * by its address must be dropped then. Once per ctx; unkeep: the caller has dropped it. */
mr_code mr__variable_keep(mr_variable *v, void (*forget)(void *ctx, mr_variable *v), void *ctx,
                          mr_status *st) MR_NODISCARD;
void mr__variable_unkeep(mr_variable *v, const void *ctx);

/* Whether a gradient of v that was summed over the replicas was given to the caller's step on this
 * replica and has not been applied since: summing it again would be wrong. */
void mr__variable_set_summed(mr_variable *v, size_t replica, bool summed);
bool mr__variable_is_summed(const mr_variable *v, size_t replica);

/* Central storage has one copy of the variables, whose updates all replicas must see. Called on
 * each replica, inside a step, after replica 0 has submitted its updates of the variables: work
 * submitted from now on sees them. word: a value in device memory; summing it over the replicas
 * enforces this order. */
mr_code mr__variables_publish(mr_variable *const *variables, size_t n, mr_replica *r, float *word,
                              mr_status *st) MR_NODISCARD;
#endif
