/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_METRIC_H
#define MR_TRAINER_OBJECTIVES_METRIC_H
/* Metrics: running means over examples. Each replica updates its own counts; the result is over all
 * of them. metric_desc.h shows how to add a metric.
 *
 *     accuracy                      one of the next three, by the shapes of labels and predictions
 *     sparse_categorical_accuracy   the largest prediction is at the label
 *     categorical_accuracy          the largest prediction is at the largest label
 *     binary_accuracy               prediction > threshold (0.5) agrees with the label
 *     mse                           mean squared difference
 *     mean                          mean of the predictions; no labels
 *     top_k(k=5)                    the label is among the k largest predictions
 *     precision                     share of the examples predicted true that are true
 *     recall                        share of the true examples that are predicted true
 *     auc                           area under the ROC curve
 *     the name of a loss            the mean of that loss
 *     weighted(accuracy)            any of them with the sample weights of the data
 *
 * For a model with several outputs each metric names its output: "kind.accuracy". Its value is then
 * called "kind_accuracy". weighted(kind.accuracy) has the same name, or kind_weighted_accuracy if
 * an earlier metric has that. Like Keras's, metrics are unweighted otherwise.
 *
 * thread   update: inside steps, each replica its own; everything else between steps
 * since    0.1 */
#include "../strategy/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_metric mr_metric;

/* A metric from text: one of the names above, or of a registered metric. Returns owned.
 * errors   MR_INVALID_ARGUMENT, with line and caret */
MR_API mr_code mr_metric_parse(mr_metric **out, const char *text, mr_status *st) MR_NODISCARD;
MR_API void mr_metric_free(mr_metric *m); /* before the strategy; NULL: nothing */
/* "accuracy", "kind_accuracy"; borrowed. */
MR_API const char *mr_metric_name(const mr_metric *m);
/* The name of the value of metrics[i], texts as above, in histories and logs: the metric's name
 * without arguments; kind_accuracy for "kind.accuracy". If k earlier ones have the same name, "_k"
 * is appended. */
MR_API void mr_metric_value_name(const char *const *metrics, size_t i, char *out, size_t size);

/* The threshold of binary_accuracy, precision and recall if their text does not set it. The default
 * is 0.5, for probabilities; logits need 0. */
MR_API void mr_metric_set_threshold(mr_metric *m, double threshold);

/* Inside a step: adds a batch, given as tensors in device memory whose axis 0 is the examples.
 * labels NULL if the metric needs none.
 * errors   MR_INVALID_ARGUMENT: shapes or dtypes */
MR_API mr_code mr_metric_update(mr_metric *m, mr_replica *r, const mr_array *labels,
                                const mr_array *predictions, mr_status *st) MR_NODISCARD;
/* The same with sample weights, a tensor as in mr_loss_opts (NULL: all 1): like Keras's metrics,
 * means divide by the sum of the weights, and counts (precision, recall, auc) add them up.
 * errors   MR_INVALID_ARGUMENT: shapes or dtypes; a registered metric that takes no weights */
MR_API mr_code mr_metric_update_weighted(mr_metric *m, mr_replica *r, const mr_array *labels,
                                         const mr_array *predictions, const mr_array *sample_weight,
                                         mr_status *st) MR_NODISCARD;
/* The result over all replicas since the last reset: 0 if nothing was added, NaN if a device has
 * failed or no memory for the totals was available. Waits for the devices, except for a metric made
 * by fit: that has the values of the last step whose results have arrived. */
MR_API double mr_metric_result(const mr_metric *m);
MR_API mr_code mr_metric_reset(mr_metric *m, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
