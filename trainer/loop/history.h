/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_HISTORY_H
#define MR_TRAINER_LOOP_HISTORY_H
/* Results of each epoch of training: for every name ("loss", "val_accuracy", "learning_rate") one
 * value per epoch, like Keras's History.
 *
 * thread   one at a time
 * since    0.1 */
#include "../../pipeline/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_history mr_history;

/* Returns owned. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_history_new(mr_history **out, mr_status *st) MR_NODISCARD;
MR_API void mr_history_free(mr_history *h); /* NULL: nothing */
/* Number of epochs; their numbers, from 1 unless training was resumed. Borrowed until the next
 * change. */
MR_API size_t mr_history_epochs(const mr_history *h);
MR_API const int64_t *mr_history_epoch_numbers(const mr_history *h);
/* Number of names, the i-th name (borrowed), and the values for a name, one per epoch (NaN if an
 * epoch had none); NULL: no such name. Borrowed until the next change. */
MR_API size_t mr_history_n_names(const mr_history *h);
MR_API const char *mr_history_name(const mr_history *h, size_t i);
MR_API const double *mr_history_values(const mr_history *h, const char *name);

/* Adds an epoch, then values of it; called by fit. */
MR_API mr_code mr_history_add_epoch(mr_history *h, int64_t epoch, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_history_add(mr_history *h, const char *name, double value,
                              mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
