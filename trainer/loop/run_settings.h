/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_RUN_SETTINGS_H
#define MR_TRAINER_RUN_SETTINGS_H
/* Whether a checkpoint is of a run with the same settings: model, loss, optimizer, seed, precision,
 * weights of classes, and schedules of the learning rate. Those that a saved model does not have
 * are in state.json:
 *
 *   "settings": {"class_weights": "none", "learning_rate_schedule/schedule": "[[0, 0.1]]"} */
#include <jansson.h>
#include "trainer/exchange/checkpoint_state.h"
#include "trainer/exchange/saved_model.h"
#include "trainer/loop/fit.h"

typedef struct mr__run_changes {
    bool learning_rate; /* the optimizer's, or its schedule */
    bool slots;         /* the optimizer remembers other values */
} mr__run_changes;

/* *out (owned) = the object "settings". */
mr_code mr__run_settings_json(const mr_fit_opts *o, json_t **out, mr_status *st) MR_NODISCARD;
/* Compares the run with a checkpoint, root being its state.json. Differences are logged if the run
 * accepts them (mr_fit_opts.resume_changed).
 * errors   MR_FAILED_PRECONDITION: names each difference */
mr_code mr__run_compare(const mr_train_event *e, const mr_saved *saved, const json_t *root,
                        const mr__train_state *state, mr__run_changes *out,
                        mr_status *st) MR_NODISCARD;
/* from[i] = the metric of the checkpoint whose totals the i-th of this run's continues; SIZE_MAX:
 * none. within: the run continues within the checkpoint's epoch; then a metric that the checkpoint
 * lacks is logged if the run accepts differences. from: n_metrics of the event.
 * errors   MR_FAILED_PRECONDITION: names the metrics that are missing */
mr_code mr__run_match_metrics(const mr_train_event *e, const mr_saved *saved,
                              const mr__train_state *state, bool within, size_t *from,
                              mr_status *st) MR_NODISCARD;
#endif
