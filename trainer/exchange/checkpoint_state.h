/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_EXCHANGE_CHECKPOINT_STATE_H
#define MR_TRAINER_EXCHANGE_CHECKPOINT_STATE_H
/* The contents of a checkpoint's state.json. */
#include <jansson.h>
#include <stdbool.h>
#include "pipeline/status.h"

typedef struct mr__train_state {
    int64_t epoch, epoch_step, step;
    bool epoch_over, pass_over; /* between epochs; the data were read to their end */
    double learning_rate;
    bool scheduled; /* set by the optimizer's schedule */
    uint64_t seed, model_steps;
    int64_t iterations; /* the optimizer's */
    int64_t slots_from; /* of them, those before it began with this model */
    const char *optimizer;
    int64_t n_slots;
    double loss_sum, loss;     /* of the epoch so far: losses times rows; the mean */
    const json_t *output_sums; /* like loss_sum, for each of several outputs; NULL: a single
                                  output */
    int64_t rows;
    int64_t workers, replicas;   /* number of processes, of replicas in all */
    const json_t *metric_totals; /* [replica][metric][totals] */
    int64_t n_metrics;
} mr__train_state;

/* Reads state.json; s points into root.
 * errors   MR_DATA_LOSS: names what is missing or wrong */
mr_code mr__read_state(const json_t *root, mr__train_state *s, mr_status *st) MR_NODISCARD;
/* "position-3" */
enum { MR__POSITION_NAME = 32 };
void mr__position_name(char name[MR__POSITION_NAME], size_t worker);
#endif
