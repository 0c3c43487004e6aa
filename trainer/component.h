/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COMPONENT_H
#define MR_TRAINER_COMPONENT_H
/* The common part of layers, losses, optimizers, schedules, metrics and callbacks: a name used in
 * text and a table of parameters, like those of ops. Each kind of descriptor begins with it. The
 * library has one file per component; a program registers more with mr_layer_register,
 * mr_loss_register, mr_optimizer_register, mr_metric_register or mr_callback_register, and text may
 * then name them.
 *
 *     const mr_layer_desc scale = {
 *         .is = {.abi = MR_ABI_VERSION, .name = "scale", .doc = "Multiplies by a constant.",
 *                .example = "input(4).scale(2.0).dense(1)",
 *                .params = table, .params_size = sizeof(struct params)},
 *         .build = build, .forward = forward, .backward = backward};
 *
 * thread   descriptors are static and immutable
 * since    0.1 */
#include "../pipeline/params/param.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_component {
    uint32_t abi;              /* MR_ABI_VERSION */
    const char *name, *alias;  /* [a-z][a-z0-9_]*; alias NULL: none */
    const char *doc, *example; /* one sentence; text that uses it */
    const mr_param *params;    /* ends with name == NULL; NULL: none */
    uint32_t params_size;      /* size of the params struct; 0: none */
} mr_component;

typedef enum mr_component_group {
    MR_LAYERS,
    MR_LOSSES,
    MR_OPTIMIZERS,
    MR_SCHEDULES, /* of learning rates */
    MR_METRICS,
    MR_CALLBACKS,
    MR_COMPONENT_GROUPS /* number of groups */
} mr_component_group;
/* The i-th component of a group: those of the library in the order of the reference, then
 * registered ones; NULL after the last.
 * thread   any */
MR_API const mr_component *mr_component_at(mr_component_group group, size_t i);

#ifdef __cplusplus
}
#endif
#endif
