/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_TRAIN_H
#define MR_CLI_TRAIN_H
/* What the commands of millrace-train share. */
#include <millrace/trainer/loop/fit.h>
#include <millrace/trainer/strategy/strategy.h>
#include "../cli.h"

/* --devices and --replicas as options of a strategy. */
typedef struct train_devices {
    mr_strategy_opts opts;
    char *text;
    const char *names[MR_MAX_REPLICAS];
} train_devices;
/* devices "cpu:0,cpu:1" or NULL; replicas 0: not given. d must not move while opts are in use. */
mr_code train_devices_read(train_devices *d, const char *devices, int64_t replicas,
                           mr_status *st) MR_NODISCARD;
void train_devices_reset(train_devices *d);

/* Splits words such as "mse,top_k(k=5)" at the commas outside brackets. The words are arguments of
 * the program, and are cut in place. */
void train_split_at_commas(cli_texts *t);

/* Adds each word of `more` to t as weighted(WORD): mr_malloc, at the end of t. */
void train_add_weighted(cli_texts *t, const cli_texts *more);

/* "1.0,5.0", the weights of the classes from 0 on, or "1:5.0,3:2.0", of some, the others 1; either
 * may be in brackets. *weights: owned, mr_free. */
mr_code train_read_class_weights(const char *text, double **weights, size_t *n,
                                 mr_status *st) MR_NODISCARD;

/* Says which of the flags an error is of. Returns rc. */
mr_code train_of_graph(const char *flag, mr_code rc, mr_status *st) MR_NODISCARD;
/* What an evaluator task does: evaluates each checkpoint that a checkpoint callback of training
 * writes, and ends after the last. Everything is borrowed.
 * errors   MR_INVALID_ARGUMENT: no such callback, no data · those of loading and evaluating */
typedef struct train_evaluator {
    mr_strategy *strategy;
    mr_model *model;
    mr_dataset *data;
    mr_loss *loss;
    const mr_fit_opts *opts; /* metrics, iterator */
    const mr_callback *callbacks;
    size_t n_callbacks;
    bool json;
} train_evaluator;
mr_code train_evaluate_checkpoints(const train_evaluator *e, mr_status *st) MR_NODISCARD;
/* {"eval_loss": 0.5, "eval_accuracy": 0.75} */
void train_print_evaluation(const mr_fit_result *r, const char *const *metrics, size_t n);
/* What follows the loss: those of several outputs, and the metrics, each with the prefix. */
void train_print_results(const char *prefix, const mr_fit_result *r, const char *const *metrics,
                         size_t n, bool json);
#endif
