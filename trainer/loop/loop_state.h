/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_LOOP_LOOP_STATE_H
#define MR_TRAINER_LOOP_LOOP_STATE_H
/* Everything that a training loop of your own holds, saved and restored by one call: weights, what
 * the optimizers remember of them and their numbers of updates and learning rates, the passes that
 * number dropout's masks, the totals of metrics, the positions in the data, and numbers of the
 * loop. A loop that is restored continues as if it had not been interrupted.
 *
 *     const mr_loop_number numbers[] = {{"epoch", .i = &epoch}, {"best loss", .f = &best}};
 *     const mr_loop_state all = {.strategy = s,
 *                                .models = &model, .n_models = 1,
 *                                .optimizers = &optimizer, .n_optimizers = 1,
 *                                .data = &it, .n_data = 1,
 *                                .numbers = numbers, .n_numbers = 2};
 *     MR_TRY(mr_loop_restore(&all, "run/state", &found, st));      // before the first step
 *     ...
 *     MR_TRY(mr_loop_save(&all, "run/state", st));                 // between steps
 *
 * The directory has state.json, weights.safetensors, optimizers.safetensors, and a file for the
 * position of each worker. It is written atomically. Loops of mr_fit have checkpoint.h.
 *
 * thread   between steps
 * since    0.2 */
#include "../../shard/distribute/distribute.h"
#include "../model/model.h"
#include "../objectives/metric.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number of the loop, by a name that is unique in it: *i or *f. */
typedef struct mr_loop_number {
    const char *name;
    int64_t *i; /* NULL: *f is the number */
    double *f;
} mr_loop_number;

/* What a loop holds. A list may be empty. Both calls need the same lists in the same order;
 * everything is borrowed. */
typedef struct mr_loop_state {
    mr_strategy *strategy;
    mr_model *const *models; /* built */
    size_t n_models;
    mr_variable *const *variables; /* others than those of the models */
    size_t n_variables;
    mr_optimizer *const *optimizers; /* of any of these models and variables */
    size_t n_optimizers;
    mr_metric *const *metrics;
    size_t n_metrics;
    mr_dist_iterator *const *data; /* opened with mr_iterator_opts.positions */
    size_t n_data;
    const mr_loop_number *numbers;
    size_t n_numbers;
} mr_loop_state;

/* Saves all of it in the directory `path`, and creates its parent directories. Replaces an earlier
 * state; a directory with any other content is left alone. With several workers all call it, and
 * the first writes.
 * errors   as open(2) and write(2) · MR_ALREADY_EXISTS: path has other content ·
 *          MR_FAILED_PRECONDITION: inside a step; a model that is not built; those of
 *          mr_dist_iterator_save */
MR_API mr_code mr_loop_save(const mr_loop_state *s, const char *path, mr_status *st) MR_NODISCARD;
/* Restores what mr_loop_save saved, before the first step. *found (may be NULL): whether there was
 * a state; if not, nothing is changed, and the call succeeds. Lists, names and shapes are compared
 * first: if they differ, nothing is changed. With another number of replicas the first one gets the
 * totals of metrics; data then have no position, and are refused. With several workers all call it,
 * and all fail if one does, or if they don't find the same state.
 * errors   MR_INVALID_ARGUMENT: another list, name or shape, another optimizer or number of
 *          replicas; says which · MR_DATA_LOSS: a damaged file · MR_FAILED_PRECONDITION: a newer
 *          Millrace wrote it; inside a step; a model that is not built; another worker finds no
 *          state, another one, or could not read it */
MR_API mr_code mr_loop_restore(const mr_loop_state *s, const char *path, bool *found,
                               mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
