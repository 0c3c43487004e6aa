/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_CALLBACK_MEMORY_H
#define MR_TRAINER_LOOP_CALLBACK_MEMORY_H
/* State of callbacks in checkpoints: a list in state.json,
 *
 *   "callbacks": [{"name": "early_stopping", "of": "val_loss", "numbers": [1, 0.5, 2, 0],
 *                  "weights": true, "text": "if the callback has one"}]
 *
 * and callbacks.safetensors, present if a callback keeps weights: a tensor for each that does,
 * named by its position in the list ("0"), with the values of all variables concatenated. */
#include <jansson.h>
#include "trainer/loop/fit.h"
#include "trainer/files/safetensors.h"

typedef struct mr__recalled {
    json_t *list;            /* owned; NULL: no checkpoint was restored, or it has no list */
    mr_safetensors *weights; /* owned; NULL: no callback has weights */
} mr__recalled;

/* Number of values in all variables of a built model. */
size_t mr__model_values(const mr_model *m);
/* *list (owned) = the state of this run's callbacks; writes their weights to a directory. */
mr_code mr__remember(const mr_fit_opts *o, const mr_model *m, const char *directory, json_t **list,
                     mr_status *st) MR_NODISCARD;
/* Reads and checks the state in a checkpoint's directory; root: its state.json.
 * errors   MR_DATA_LOSS: says what is wrong · MR_INVALID_ARGUMENT: weights of another model */
mr_code mr__recalled_load(mr__recalled *r, const char *directory, const json_t *root,
                          const mr_model *m, mr_status *st) MR_NODISCARD;
void mr__recalled_drop(mr__recalled *r);
/* Passes the state to the callbacks. MR_END: one of them had ended training. */
mr_code mr__recall(const mr__recalled *r, const mr_fit_opts *o, mr_status *st) MR_NODISCARD;
#endif
