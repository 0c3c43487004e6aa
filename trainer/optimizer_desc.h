/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OPTIMIZER_DESC_H
#define MR_TRAINER_OPTIMIZER_DESC_H
/* An optimizer is data: one descriptor a file in trainer/optimizers/, listed in optimizers.def. */
#include "trainer/args.h"
#include "trainer/optimizer.h"

enum { MR__MAX_SLOTS = 2 };

typedef struct mr__update {
    const void *params;
    double learning_rate;
    int64_t iteration; /* from 1 */
    size_t n;
    const float *gradient;
    float *w;
    float *slots[MR__MAX_SLOTS]; /* n values each, zeroed before the first update */
} mr__update;

typedef struct mr__optimizer_desc {
    const char *name, *doc, *example;
    const mr__arg *args;
    uint32_t params_size; /* the struct starts with double learning_rate */
    size_t (*slots)(const void *params);
    void (*update)(const mr__update *u);
} mr__optimizer_desc;

/* The pieces of apply_gradients, for gradients that are summed already: begin once an update, then
 * each variable. */
void mr__optimizer_begin(mr_optimizer *o, const mr_replica *r);
mr_code mr__optimizer_update(mr_optimizer *o, const mr_replica *r, mr_variable *v,
                             const float *gradient, mr_status *st) MR_NODISCARD;

#define MR_OPTIMIZER(name) extern const mr__optimizer_desc mr__optimizer_##name;
#include "trainer/optimizers.def"
#undef MR_OPTIMIZER
#endif
