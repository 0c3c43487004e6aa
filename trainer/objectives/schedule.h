/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_SCHEDULE_H
#define MR_TRAINER_OBJECTIVES_SCHEDULE_H
/* Learning rates: a number, or a function of the number of updates so far, with Keras's names and
 * formulas. */
#include "trainer/component.h"

typedef enum mr__schedule_kind {
    MR__RATE_UNSET,
    MR__RATE_CONSTANT,    /* initial_learning_rate */
    MR__RATE_EXPONENTIAL, /* initial_learning_rate * decay_rate ^ (step / decay_steps) */
    /* From initial_learning_rate (warmup_target after a warm-up) down to alpha times it, along half
     * a cosine wave over decay_steps. */
    MR__RATE_COSINE,
    MR__RATE_PIECEWISE /* values[i], where i is the number of boundaries before the step */
} mr__schedule_kind;

typedef struct mr__schedule {
    mr__schedule_kind kind;
    double initial_learning_rate, decay_steps, decay_rate, alpha, warmup_target, warmup_steps;
    bool staircase, has_warmup_target;
    mr_floats boundaries, values;
} mr__schedule;

/* The rate of the update after `step` others. */
double mr__schedule_at(const mr__schedule *s, int64_t step);
/* The functions that text may call. */
extern const mr_component mr__exponential_decay, mr__cosine_decay, mr__piecewise_constant_decay;
/* The parameter type of a schedule: zeroed if nothing is given. Numbers are within the parameter's
 * range. */
extern const mr_param_kind mr__param_schedule;
#endif
