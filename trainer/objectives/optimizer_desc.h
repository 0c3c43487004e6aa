/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_OPTIMIZER_DESC_H
#define MR_TRAINER_OBJECTIVES_OPTIMIZER_DESC_H
/* Optimizers as data: a descriptor with two functions. The library has one file per optimizer in
 * trainer/objectives/optimizers/; mr_optimizer_register adds others.
 *
 * In text every optimizer also takes weight_decay, clipnorm, global_clipnorm and clipvalue, which
 * its table does not list, and a schedule for learning_rate. Clipping and decay precede update.
 *
 * thread   update: each replica in its own, inside steps
 * since    0.1 */
#include "../component.h"
#include "../device/math.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_MAX_SLOTS = 3 };

/* One update of one variable on one replica. Values are in device memory. */
typedef struct mr_optimizer_step {
    const void *params;
    mr_stream *stream; /* the replica's */
    const mr_math_table *math;
    double learning_rate;
    int64_t iteration; /* of this variable, from 1 */
    size_t n;
    const float *gradient; /* summed over all replicas, clipped */
    float *w;
    float *slots[MR_MAX_SLOTS]; /* n values each, slot_value before the first update */
    /* If *skip is not 0 when the update runs, it must change nothing: the step failed on some
     * replica. */
    const float *skip;
} mr_optimizer_step;

typedef struct mr_optimizer_desc {
    mr_component is;                     /* the params struct starts with double learning_rate */
    size_t (*slots)(const void *params); /* number of slots; at most MR_MAX_SLOTS */
    /* Submits operations to the stream. */
    mr_code (*update)(const mr_optimizer_step *u, mr_status *st);
    float (*slot_value)(const void *params, size_t slot); /* NULL: 0 */
    double weight_decay;                                  /* default value in text */
} mr_optimizer_desc;

/* Registers an optimizer for mr_optimizer_parse; d must stay valid.
 * errors   MR_ALREADY_EXISTS · MR_INVALID_ARGUMENT: another ABI version, a bad name or table
 * thread   any */
MR_API mr_code mr_optimizer_register(const mr_optimizer_desc *d, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
