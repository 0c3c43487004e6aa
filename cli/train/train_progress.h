/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_TRAIN_PROGRESS_H
#define MR_CLI_TRAIN_PROGRESS_H
/* What millrace train prints while it trains. */
#include <stdatomic.h>

#include <millrace/trainer/loop/fit.h>
#include <millrace/trainer/objectives/optimizer.h>
#include "../cli.h"

typedef struct train_progress {
    bool json, bar;         /* one line an event; a bar on a terminal */
    bool silent;            /* the chief prints */
    int64_t epochs, steps;  /* asked for; 0: not */
    int64_t steps_in_epoch; /* < 1: unknown */
    double began, epoch_began, last_shown;
    int64_t epoch_first_step;
    int64_t file_bytes;         /* of all files that the data name; 0: unknown */
    _Atomic int64_t bytes_read; /* of any file */
    const char *trace;          /* the file to be written at the end; NULL: none */
    bool begun;                 /* an epoch was */
    bool failed;                /* it was not, which was said */
} train_progress;

/* Before training; reads: of the training data, which it may watch. data NULL: not known. */
void train_progress_start(train_progress *p, mr_dataset *data, mr_iterator_opts *reads);
/* p must outlive it. */
mr_callback train_progress_callback(train_progress *p);
/* What callbacks print: mr_fit_opts.print. */
void train_progress_print(void *p, const char *text, const char *json);
/* How fast it went. */
void train_progress_end(const train_progress *p, const mr_fit_result *r);
/* NaN has a sign, which printf shows: without it. */
double train_number(double v);
#endif
