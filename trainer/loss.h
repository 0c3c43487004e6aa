/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOSS_H
#define MR_TRAINER_LOSS_H
/* Losses: one value an example, and its derivative. `millrace ops` lists them from their
 * descriptors; names and definitions are Keras's.
 *
 * thread   any; immutable
 * since    0.1 */
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_loss mr_loss;

/* A loss from text: "mse", "sparse_categorical_crossentropy(from_logits=true)". from_logits left
 * out: true, but in fit and evaluate false for a model that ends in a softmax (sparse categorical)
 * or sigmoid (binary). Returns owned. errors MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_loss_parse(mr_loss **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_loss_free(mr_loss *l); /* NULL: nothing */
MR_API const char *mr_loss_name(const mr_loss *l);

/* labels and predictions are tensors, axis 0 the examples (none is fine). Writes
 *   per_example  prod(predictions' shape without its last axis) losses (not averaged)
 *   gradient     [as predictions] scale * d(sum of losses) / d(predictions); NULL: not wanted
 * Predictions are float32. errors MR_INVALID_ARGUMENT: shapes or dtypes, a label out of range
 * (names its row, counted from first_row) */
MR_API mr_code mr_loss_compute(const mr_loss *l, const mr_array *labels,
                               const mr_array *predictions, int64_t first_row, double scale,
                               float *per_example, float *gradient, mr_status *st) MR_NODISCARD;
/* Losses that mr_loss_compute writes for one example of predictions. */
MR_API size_t mr_loss_values_per_example(const mr_array *predictions);

#ifdef __cplusplus
}
#endif
#endif
