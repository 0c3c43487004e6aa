/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CALLBACK_MEMORY_H
#define MR_TRAINER_CALLBACK_MEMORY_H
/* What callbacks remember, in checkpoints: a list in state.json,
 *
 *   "callbacks": [{"name": "early_stopping", "of": "val_loss", "numbers": [1, 0.5, 2, 0],
 *                  "weights": true}]
 *
 * and in callbacks.safetensors, which is there where one has weights, a tensor for each that has
 * them: "0", by its place in the list, the values of all variables one after the other. */
#include <jansson.h>
#include "trainer/loop/fit.h"
#include "trainer/files/safetensors.h"

typedef struct mr__recalled {
    json_t *list;            /* owned; NULL: no checkpoint was restored, or it has no list */
    mr_safetensors *weights; /* owned; NULL: none has any */
} mr__recalled;

/* How many values all variables of a built model have. */
size_t mr__model_values(const mr_model *m);
/* *list (owned) = what the callbacks of this run remember; writes their weights in a directory. */
mr_code mr__remember(const mr_fit_opts *o, const mr_model *m, const char *directory, json_t **list,
                     mr_status *st) MR_NODISCARD;
/* Reads and checks what the checkpoint in a directory has; root: its state.json.
 * errors   MR_DATA_LOSS: says what is wrong · MR_INVALID_ARGUMENT: weights of another model */
mr_code mr__recalled_load(mr__recalled *r, const char *directory, const json_t *root,
                          const mr_model *m, mr_status *st) MR_NODISCARD;
void mr__recalled_drop(mr__recalled *r);
/* Gives it to the callbacks. MR_END: one of them had ended training. */
mr_code mr__recall(const mr__recalled *r, const mr_fit_opts *o, mr_status *st) MR_NODISCARD;
#endif
