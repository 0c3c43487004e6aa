/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_OPTIMIZER_IMPL_H
#define MR_TRAINER_OBJECTIVES_OPTIMIZER_IMPL_H
#include "trainer/objectives/optimizer.h"
#include "trainer/objectives/optimizer_desc.h"
#include "trainer/settings.h"

/* The parts of apply_gradients, for gradients that are summed elsewhere. prepare allocates the
 * slots of the variables, and is the call that can fail before the replicas commit. Then call begin
 * once per update; measure for each gradient if needs_all is true, so all gradients must be
 * available before the first update; and update for each variable, whose gradient is clipped in
 * place; skip as in mr_optimizer_step. */
mr_code mr__optimizer_prepare(mr_optimizer *o, mr_replica *r, mr_variable *const *variables,
                              size_t n, mr_status *st) MR_NODISCARD;
mr_code mr__optimizer_begin(mr_optimizer *o, const mr_replica *r, mr_status *st) MR_NODISCARD;
bool mr__optimizer_needs_all(const mr_optimizer *o);
/* Whether the norm of a variable's whole gradient is used. */
bool mr__optimizer_clips_each(const mr_optimizer *o);
mr_code mr__optimizer_measure(mr_replica *r, size_t n, const float *gradient,
                              mr_status *st) MR_NODISCARD;
mr_code mr__optimizer_update(mr_optimizer *o, mr_replica *r, mr_variable *v, float *gradient,
                             const float *skip, mr_status *st) MR_NODISCARD;

/* Between steps, for checkpoints: the slots of a variable (slot k, mr_variable_size values; their
 * first values before the first update), and the number of updates. */
size_t mr__optimizer_n_slots(const mr_optimizer *o);
mr_code mr__optimizer_read_slot(mr_optimizer *o, mr_variable *v, mr_strategy *s, size_t k,
                                float *out, mr_status *st) MR_NODISCARD;
mr_code mr__optimizer_write_slot(mr_optimizer *o, mr_variable *v, mr_strategy *s, size_t k,
                                 const float *values, mr_status *st) MR_NODISCARD;
/* Whether it has slots of v; drops them. */
bool mr__optimizer_knows(const mr_optimizer *o, const mr_variable *v);
void mr__optimizer_forget(mr_optimizer *o, mr_variable *v);
void mr__optimizer_set_iterations(mr_optimizer *o, int64_t n);
/* How many updates the optimizer had made before it began with this variable: other than 0 if it
 * served another model before. set: no effect on a variable without slots. */
int64_t mr__optimizer_slots_from(const mr_optimizer *o, const mr_variable *v);
void mr__optimizer_set_slots_from(mr_optimizer *o, const mr_variable *v, int64_t from);
/* mr__next_serial of this optimizer. */
uint64_t mr__optimizer_serial(const mr_optimizer *o);
/* Whether the learning rate follows a schedule, instead of having been set. */
bool mr__optimizer_is_scheduled(const mr_optimizer *o);
/* Adds "optimizer" with its parameters. */
mr_code mr__optimizer_settings(const mr_optimizer *o, mr__settings *out,
                               mr_status *st) MR_NODISCARD;
#endif
