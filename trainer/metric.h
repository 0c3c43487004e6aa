/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_METRIC_H
#define MR_TRAINER_METRIC_H
/* Metrics: running means over examples. Each replica adds to numbers of its own; the result is over
 * all of them.
 *
 *     accuracy                      picks one of the next three by the shapes of labels and
 * predictions sparse_categorical_accuracy   the largest prediction is at the label
 *     categorical_accuracy          the largest prediction is at the largest label
 *     binary_accuracy               prediction > threshold (0.5) says the same as the label
 *     mse                           mean squared difference
 *     mean                          mean of the predictions; no labels
 *
 * thread   update: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_metric mr_metric;

/* From text: one of the names above. Returns owned. errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_metric_parse(mr_metric **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_metric_free(mr_metric *m); /* NULL: nothing */
MR_API const char *mr_metric_name(const mr_metric *m);

/* What binary_accuracy compares with: 0.5, which suits probabilities; 0 suits logits. */
MR_API void mr_metric_set_threshold(mr_metric *m, double threshold);

/* Adds a batch: tensors, axis 0 the examples. r NULL: outside steps. labels NULL where none are
 * needed. errors MR_INVALID_ARGUMENT: shapes or dtypes */
MR_API mr_code mr_metric_update(mr_metric *m, const mr_replica *r, const mr_array *labels,
                                const mr_array *predictions, mr_status *st) MR_NODISCARD;
/* The mean over everything added on all replicas since the last reset; 0 of nothing. */
MR_API double mr_metric_result(const mr_metric *m);
MR_API void mr_metric_reset(mr_metric *m);

#ifdef __cplusplus
}
#endif
#endif
