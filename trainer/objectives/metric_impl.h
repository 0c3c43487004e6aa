/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_METRIC_IMPL_H
#define MR_TRAINER_OBJECTIVES_METRIC_IMPL_H
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/metric.h"
#include "trainer/settings.h"

/* The output whose predictions it measures; NULL: its text names none. */
const char *mr__metric_output(const mr_metric *m);
/* Number of totals. */
size_t mr__metric_totals(const mr_metric *m);
/* Inside a step: copies the replica's totals to host memory in stream order. */
mr_code mr__metric_fetch(mr_metric *m, mr_replica *r, double *out, mr_status *st) MR_NODISCARD;
/* Makes the result that of these totals, regardless of the devices; NULL: of zeros. */
void mr__metric_show(mr_metric *m, const double *totals);
/* mr_metric_update_weighted; logits: what the last activation computed the predictions from, for
 * mr__metric_probabilities; NULL: none. */
mr_code mr__metric_add(mr_metric *m, mr_replica *r, const mr_array *labels,
                       const mr_array *predictions, const mr_array *logits,
                       const mr_array *sample_weight, mr_status *st) MR_NODISCARD;
/* Its text is weighted(...): fit gives it the sample weights. */
bool mr__metric_is_weighted(const mr_metric *m);
/* The activation for whose input the metric, a loss, is better computed; NULL: none. */
const char *mr__metric_probabilities(const mr_metric *m);
/* Sets whether predictions are logits: if the loss treats them so; last: the model's last
 * activation. */
void mr__metric_fit_model(mr_metric *m, const mr_loss *loss, const mr_activation *last);

/* What it measures: its arguments, output and weights. */
mr_code mr__metric_settings(const mr_metric *m, mr__settings *out, mr_status *st) MR_NODISCARD;
/* Between steps, for checkpoints: a replica's totals. */
mr_code mr__metric_read(mr_metric *m, mr_replica *r, double *out, mr_status *st) MR_NODISCARD;
mr_code mr__metric_write(mr_metric *m, mr_replica *r, const double *in, mr_status *st) MR_NODISCARD;
#endif
